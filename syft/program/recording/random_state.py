"""Random numbers while a function is recorded: drawn as ever, and given back afterwards.

Whatever seeds a generator or puts it back to an earlier state is no torch call that a mode sees.
So generators have a seed of ours while a recording goes on; another one means that the function
seeded it, which a plan cannot keep: random state belongs to whoever runs it.  A state that was
there before, and is there again although something was drawn, means that it was put back.

``torch.utils.checkpoint`` does that too, inside ``backward``: what is drawn there is part of one
action, and nobody sees it.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from syft.exceptions import CannotRecord
from syft.program.recording.source_line import SourceLine

_SEED = 0x5EED


class Randomness:
    """A context in which random numbers may be drawn without anybody noticing afterwards.

    ``known`` are generators beside the default one that the function is known to draw from; those
    it is found to draw from are in ``met``.

    >>> state = torch.get_rng_state()
    >>> with Randomness():
    ...     _ = torch.rand(3)
    >>> torch.equal(state, torch.get_rng_state())
    True
    """

    def __init__(self, known: Collection[torch.Generator] = ()) -> None:
        self.met: dict[torch.Generator, SourceLine] = {}
        self._seeded = [torch.default_generator, *known]
        self._before: list[tuple[torch.Generator, torch.Tensor]] = []
        self._cuda: list[torch.Tensor] = []
        self._was: dict[torch.Generator, set[bytes]] = {}
        self._is: dict[torch.Generator, bytes] = {}

    def __enter__(self) -> None:
        for generator in self._seeded:
            self._before.append((generator, generator.get_state()))
            generator.manual_seed(_SEED)
        on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.get_rng_state_all() if on_gpu else []

    def __exit__(self, *exception: object) -> None:
        for generator, state in self._before:
            generator.set_state(state)
        torch.cuda.set_rng_state_all(self._cuda)

    def about_to_draw(self, generator: torch.Generator | None, line: SourceLine) -> None:
        """Be told that numbers are drawn now; raises CannotRecord as :meth:`check` does."""
        if generator is not None and generator not in self.met:
            self.met[generator] = line
            if generator not in self._seeded:
                self._before.append((generator, generator.get_state()))
        self.check(line)
        generator = torch.default_generator if generator is None else generator
        self._was.setdefault(generator, set()).add(_state(generator))

    def drawn(self, generator: torch.Generator | None) -> None:
        """Be told that numbers were drawn."""
        generator = torch.default_generator if generator is None else generator
        self._is[generator] = _state(generator)

    def check(self, line: SourceLine) -> None:
        """Raise :class:`~syft.exceptions.CannotRecord` if a generator was seeded or put back.

        >>> with Randomness() as _, torch.random.fork_rng():
        ...     torch.default_generator.initial_seed() == 0x5EED
        True
        >>> random = Randomness()
        >>> with random:
        ...     _ = torch.manual_seed(1)
        ...     random.check(SourceLine("train.py", 12))
        Traceback (most recent call last):
        ...
        syft.exceptions.CannotRecord: A plan cannot keep torch.manual_seed (before train.py:12): \
random state belongs to whoever runs the plan: seed before you call it.
        """
        if any(generator.initial_seed() != _SEED for generator in self._seeded):
            instead = "random state belongs to whoever runs the plan: seed before you call it"
            raise CannotRecord("torch.manual_seed", f"before {line}", instead)
        for generator, last in self._is.items():
            state = _state(generator)
            if state != last and state in self._was[generator]:
                instead = "random state belongs to whoever runs the plan: fork it around the call"
                what = "torch.set_rng_state or torch.random.fork_rng"
                raise CannotRecord(what, f"before {line}", instead)


def _state(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()
