"""Who carries the frames, and what a user constructs."""
