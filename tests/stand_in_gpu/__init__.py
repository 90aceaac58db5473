"""A stand-in for a GPU: what runs on it computes on the CPU, and is on a device of its own.

It shows where a tensor leaves the device it was given, and where code relies on what CUDA does not
have: operands on two devices are refused, and so are products of integers.  It shows nothing of
CUDA's own kernels, of streams, or of speed.  ``make stand-in-gpu`` runs the tests with it that ask
for a device; that needs a compiler for C++, and takes a minute.
"""
