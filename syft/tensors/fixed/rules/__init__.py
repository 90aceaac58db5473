"""What aten operations do on fixed-precision tensors: a file for each family of operations."""
