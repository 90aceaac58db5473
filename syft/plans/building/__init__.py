"""Building a plan: the part that runs where the function is."""
