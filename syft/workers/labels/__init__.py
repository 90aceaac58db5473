"""What is noted on memory, by whom it may be read and changed, and the one walk that finds it."""
