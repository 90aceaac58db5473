"""How tensors travel: a descriptor in the header, and raw bytes beside it."""
