"""The rules, in the order in which they are applied to the claims. Each is a function of the evidence and the claims."""
