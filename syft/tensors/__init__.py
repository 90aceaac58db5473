"""The links: a file for each kind of tensor."""
