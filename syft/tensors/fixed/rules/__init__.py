"""The rules for aten operations on fixed-precision tensors: a file for each family."""
