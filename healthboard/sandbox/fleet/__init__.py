"""The fleet that a new account and region starts with."""
