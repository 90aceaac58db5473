"""Random numbers while a function is recorded: drawn as usual, with the state restored afterwards.

What seeds a generator, or restores an earlier state of it, is no torch call that a mode sees.  So
generators get a known seed while a function is recorded.  If the seed is another one later, the
function has seeded the generator.  A plan cannot keep that: random state belongs to whoever runs
it.  If numbers were drawn and the generator is in an earlier state again, the function has restored
that state.

``torch.utils.checkpoint`` restores states too, inside ``backward``.  Its draws are part of that one
action and are not seen.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from syft.exceptions import CannotRecord
from syft.program.recording.environment.source_line import SourceLine

_SEED = 0x5EED


class PreservedRandomState:
    """A context that restores the state of random generators when it ends.

    ``known`` are generators, beside the default one, that the function draws from as an earlier run
    showed.  ``generators`` are those that it draws from in this run, with the line of the first
    draw.

    >>> state = torch.get_rng_state()
    >>> with PreservedRandomState():
    ...     _ = torch.rand(3)
    >>> torch.equal(state, torch.get_rng_state())
    True
    """

    def __init__(self, known: Collection[torch.Generator] = ()) -> None:
        self.generators: dict[torch.Generator, SourceLine] = {}
        self._seeded = [torch.default_generator, *known]
        self._to_restore: list[tuple[torch.Generator, torch.Tensor]] = []
        self._cuda: list[torch.Tensor] = []
        self._states_before_draws: dict[torch.Generator, set[bytes]] = {}
        self._state_after_draw: dict[torch.Generator, bytes] = {}

    def __enter__(self) -> None:
        for generator in self._seeded:
            self._to_restore.append((generator, generator.get_state()))
            generator.manual_seed(_SEED)
        on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.get_rng_state_all() if on_gpu else []

    def __exit__(self, *exception: object) -> None:
        for generator, state in self._to_restore:
            generator.set_state(state)
        torch.cuda.set_rng_state_all(self._cuda)

    def before_draw(self, generator: torch.Generator | None, line: SourceLine) -> None:
        """Called before numbers are drawn; raises CannotRecord as :meth:`check` does."""
        if generator is not None and generator not in self.generators:
            self.generators[generator] = line
            if generator not in self._seeded:
                self._to_restore.append((generator, generator.get_state()))
        self.check(line)
        generator = torch.default_generator if generator is None else generator
        self._states_before_draws.setdefault(generator, set()).add(_state_bytes(generator))

    def after_draw(self, generator: torch.Generator | None) -> None:
        """Called after numbers were drawn."""
        generator = torch.default_generator if generator is None else generator
        self._state_after_draw[generator] = _state_bytes(generator)

    def check(self, line: SourceLine) -> None:
        """Raise :class:`~syft.exceptions.CannotRecord` if a generator was seeded or restored.

        >>> with PreservedRandomState() as _, torch.random.fork_rng():
        ...     torch.default_generator.initial_seed() == 0x5EED
        True
        >>> random = PreservedRandomState()
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
        for generator, last in self._state_after_draw.items():
            state = _state_bytes(generator)
            if state != last and state in self._states_before_draws[generator]:
                instead = "random state belongs to whoever runs the plan: fork it around the call"
                what = "torch.set_rng_state or torch.random.fork_rng"
                raise CannotRecord(what, f"before {line}", instead)


def _state_bytes(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()
