"""The chain: the wrapper at its head, and the links it is made of."""
