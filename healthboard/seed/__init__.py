"""A made-up fleet of any size with its history, written in bulk: for looking at pages, and for measuring them.

Sandbox mode only. Nothing imports this but its command. What is made up are machines and faults; what is concluded of
them comes from the product's own reading (`evaluate`), policies and recipes, so that it can be replayed.
"""
