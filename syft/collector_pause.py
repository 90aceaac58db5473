"""No pass of Python's cycle collector in the middle of an import.

The modules of syft make some ten thousand objects that stay.  That is enough to start a pass over
every object of torch, which takes longer than the import itself and finds nothing: 90 to 200 ms of
160 to 250.  When the import ends, its objects join the old ones, which is what surviving passes
would make of them, so that no pass over them follows (25 ms).  Garbage of the program in
between is collected with the old objects then.
"""

from __future__ import annotations

import gc


class CollectorPause:
    """Keeps the cycle collector off while it is alive, if it was on.

    It ends with its last reference, so an import that fails ends it too.

    >>> import gc
    >>> pause = CollectorPause(); gc.isenabled()
    False
    >>> del pause
    """

    def __init__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __del__(self) -> None:
        if not self._was_on:
            return
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # all objects count as old now, and there is nothing to pass over
        gc.enable()
