"""``python -m tests.privacy.two_worlds.transcript 7/3``: a digest of what the observer receives.

Processes differ in the addresses of their objects and in the order of their sets.  Neither may be
in a byte that is sent, so the digest of a program is the same in all of them.
"""

from __future__ import annotations

import hashlib
import sys
import warnings

import torch

from tests.privacy.two_worlds.generator import RandomProgram
from tests.privacy.two_worlds.samples import Samples
from tests.privacy.two_worlds.world import Request, TwoWorlds, fixed


def digest_of(seed: str) -> str:
    """The digest of all that a program's observer receives, in both worlds."""
    found = hashlib.sha256()
    with fixed():
        both = TwoWorlds(alike=True)
        for world in both.worlds:
            handle = world.handle

            def noting(request: Request, buffers: object, handle: object = handle) -> object:
                notes = handle(request, buffers)
                for note in notes:
                    for part in note:
                        found.update(part)
                return notes

            world.handle = noting
        RandomProgram(both, Samples(), seed).run()
        for world in both.worlds:
            del world.handle
        both.close()
    return found.hexdigest()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for program in sys.argv[1:]:
        print(program, digest_of(program))
