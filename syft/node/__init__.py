"""A worker as a service: the command line of the owner of data, and the files the data is in.

Nothing below knows this room.
"""
