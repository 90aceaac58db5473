"""The hook: the only code that writes to torch."""
