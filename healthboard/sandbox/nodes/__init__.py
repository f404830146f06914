"""The reporters of the simulated nodes: real reports over real HTTP, from a few threads."""
