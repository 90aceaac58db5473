"""The vocabulary: torch's functions by number, and what each may do."""
