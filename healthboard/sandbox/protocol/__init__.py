"""Requests into dicts and dicts into answers, driven by botocore's own service models."""
