"""Object ids are drawn at random, and a forked child draws its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

from syft import ids
from tests.outside import outside


def test_ids_are_positive_numbers_of_63_bits_and_differ() -> None:
    drawn = {ids.new_id() for _ in range(2000)}
    assert len(drawn) == 2000
    assert all(0 <= id < 2**63 for id in drawn)
    assert max(drawn) > 2**62, "the upper bits are used"


def test_an_empty_pool_is_filled_again() -> None:
    ids._pool.clear()
    ids.new_id()
    assert len(ids._pool) == 511


def test_another_thread_may_take_all_that_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Emptied(list[int]):
        """A pool whose first new ids others take at once."""

        times = 3

        def extend(self, drawn: Iterable[int]) -> None:
            if self.times:
                self.times -= 1
            else:
                super().extend(drawn)

    pool = Emptied()
    monkeypatch.setattr(ids, "_pool", pool)
    assert 0 <= ids.new_id() < 2**63 and not pool.times


def test_a_forked_child_does_not_draw_what_its_parent_holds() -> None:
    program = """
import os
from syft.ids import new_id
new_id()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, str(new_id()).encode())
    os._exit(0)
os.wait()
assert int(os.read(reader, 100)) != new_id()
"""
    subprocess.run([sys.executable, "-c", program], env=outside(), check=True, timeout=60)
