"""The root of the tree of errors, below every file that adds branches to it."""

from __future__ import annotations


class SyftError(Exception):
    """The base class of every error that syft raises.

    >>> issubclass(ObjectNotFound, SyftError)
    True
    """
