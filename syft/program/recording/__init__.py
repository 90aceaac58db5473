"""Recording: one run of a Python function becomes a program."""
