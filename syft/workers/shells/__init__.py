"""The shells of a worker: they carry its frames, and users construct them."""
