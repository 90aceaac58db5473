"""The links: one kind of tensor each."""
