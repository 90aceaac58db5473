"""Lazy tensors: operations are recorded, and run when a value is asked
(``docs/design/0029-lazy.md``)."""
