"""The calling end: how a request is made, and how its answer comes back."""
