"""Several threads at once, interrupted as often as Python can."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    """Have Python change threads after every few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run_at_once(function: Callable[[], None], count: int) -> None:
    """Run a function in so many threads, and wait for all."""
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
