"""Plans at other workers: what is sent, what is stored there, and pointers to it."""
