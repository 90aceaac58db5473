"""What surrounds a recorded function: the user's tensors and source, random state, unseen ops."""
