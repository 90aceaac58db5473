"""Tensors that several workers share: what a user holds, and the programs that it records."""
