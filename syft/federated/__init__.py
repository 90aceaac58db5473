"""Data sets that several workers hold, how they are iterated, simulated and found.

This room uses tensors, workers and the hook as a user's program does, and nothing below knows it.
"""
