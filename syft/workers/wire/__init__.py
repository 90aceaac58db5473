"""The wire format of workers: the data that both ends of a connection use."""
