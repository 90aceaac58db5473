"""Torch functions as a worker runs them: with checks, replacements, and no freed memory."""
