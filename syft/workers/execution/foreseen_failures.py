"""Errors that a command raises whatever the values are, so that everybody may see them."""

from __future__ import annotations


def foreseen_failure(kind: type[Exception], text: str) -> Exception:
    """An error that a command raises whatever the values are, so that everybody may see it.

    >>> is_foreseen(foreseen_failure(ValueError, "a wrong shape")), is_foreseen(ValueError())
    (True, False)
    """
    error = kind(text)
    error.__dict__["foreseen"] = True
    return error


def is_foreseen(error: Exception) -> bool:
    """Whether an error was made by :func:`foreseen_failure`.

    >>> is_foreseen(IndexError("1234 is out of range"))
    False
    """
    return "foreseen" in error.__dict__
