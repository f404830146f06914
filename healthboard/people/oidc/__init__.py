"""Log-in by an OpenID Connect provider, beside the local one. Off unless the environment names an issuer."""
