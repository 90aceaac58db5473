"""Numbers that a caller may use once each, with bounded memory.

Whoever repeats a request must not have it run twice.  To remember all numbers would take ever more
memory, and to remember the last few would let an old one through.  So numbers rise, and may only
be out of order among the last few.
"""

from __future__ import annotations

KEPT = 4096
"""The numbers that are remembered one by one."""


class RisingNumbers:
    """The numbers that one caller has used: a floor, and those above it.

    >>> used = RisingNumbers()
    >>> used.admit(5), used.admit(5), used.admit(3)
    (True, False, True)
    """

    __slots__ = ("_floor", "_used")

    def __init__(self) -> None:
        self._floor: int | None = None
        self._used: dict[int, None] = {}

    def admit(self, number: int) -> bool:
        """Note that a number is used; whether it is new.

        What is below the highest number that was forgotten counts as used.
        """
        if number in self._used or (self._floor is not None and number <= self._floor):
            return False
        self._used[number] = None
        if len(self._used) > KEPT:
            oldest = next(iter(self._used))
            del self._used[oldest]
            self._floor = oldest if self._floor is None else max(self._floor, oldest)
        return True
