"""Holes that were in workers once, each put back for a while: random programs must find them.

``python -m tests.privacy.two_worlds --leak copies`` says after how many commands they do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from syft.ops.nested import leaves, tensors_in
from syft.plans.remote import plan_call
from syft.serde.packer import Packer
from syft.workers.core import charges
from syft.workers.core.pipeline import Call
from syft.workers.execution import (
    backward_passes,
    leaving,
    predicted_run,
    private_commands,
    private_results,
)
from syft.workers.execution.moved_memory import Moves
from syft.workers.execution.public_sizes import PublicSize, public_size
from syft.workers.handlers import command_graphs
from syft.workers.handlers.share_runs import SlotGuards
from syft.workers.labels import memory_labels
from syft.workers.labels.memory_labels import BLANK, Label, bare_copy_of, full_guard_of, protect
from syft.workers.labels.walk import recorded_of, storages_of
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import run_program
from tests.privacy.two_worlds.samples import Samples


@contextlib.contextmanager
def _with(*places: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _copy_of_what_is_named(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose gradient nobody was asked about."""
    duplicate = bare_copy_of(tensor)
    protect(duplicate, full_guard_of(tensor))
    if tensor.is_leaf and tensor.grad is not None:
        duplicate.grad = tensor.grad.detach().clone()
    return duplicate


def _gradients_before_chains(tensor: Any) -> list[torch.Tensor]:
    """The gradients of a tensor, but for those of what is inside a chain."""
    recorded = recorded_of(tensor) if isinstance(tensor, torch.Tensor) else None
    if recorded is None or not recorded.is_leaf or recorded.grad is None:
        return []
    return [recorded.grad]


def _without_a_leaf(
    conversion: Any, value: torch.Tensor, args: Any, worker: str, user: str | None
) -> torch.Tensor:
    """What stands for a failed conversion, with a graph to its operand, be it a leaf or not."""
    everything = torch.ones(value.shape, dtype=torch.bool)
    return cast(torch.Tensor, conversion(value.masked_fill(everything, 0), *args))


def _real_memory(value: Any, guarded: bool = True) -> PublicSize:
    """Memory as it is, whatever is public of it."""
    memory = {storage._cdata: (storage, storage.nbytes()) for storage in storages_of(value)}
    return public_size(value)._replace(memory=memory)


_move_written = predicted_run.move_written
_run_predicted = private_commands.run_predicted
_run_on = Call.run


def _move_numbers_alone(targets: Any, guard: Any, holdings: Any) -> Moves:
    """Memory of integers becomes private where it is: the indices, say, that a graph saved of its
    results."""
    real = [one for one in targets if one.is_floating_point() or one.is_complex()]
    for target in targets:
        if not any(target is one for one in real):
            protect(target, guard)
    return _move_written(real, guard, holdings)


def _sealed_for_one(function: Any, args: Any, kwargs: Any, *more: Any) -> Any:
    """What failed is as private as the first private operand alone."""
    operands = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    first = next((guard for one in operands if (guard := full_guard_of(one))), None)
    result = _run_predicted(function, args, kwargs, *more)
    for leaf in leaves(result):
        guard = full_guard_of(leaf)
        if first and guard and guard.error and not any(leaf is one for one in operands):
            for storage in storages_of(leaf):
                memory_labels.note(storage, guard=first.sealed(guard.error))
    return result


def _read_of_one_id(self: Any, function: Any, flags: int, id: int) -> Any:
    """The gradient of an object under two ids, without what guards it."""
    found, leaf = _run_on(self, function, flags, id), self.core.store.objects.get(id)
    twice = sum(value is leaf for value in self.core.store.objects.values()) > 1
    if twice and isinstance(found, torch.Tensor):
        return bare_copy_of(found)
    return found


def _without_hidden_sizes(self: Any, made: Any) -> Any:
    """The guard of a result, as if all of its sizes were public."""
    return self._open


def _as_given(args: Any, kwargs: Any, *more: Any) -> Any:
    """The arguments of a command, generators among them."""
    return args, kwargs


def _is_in_place(keywords: Any) -> bool:
    """Whether a flag says that an operation writes to its operand, be it private or not."""
    return bool(keywords.get("inplace"))


def _nothing(*args: Any) -> None:
    pass


LEAKS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "copies": lambda: _with((leaving, "copy_of", _copy_of_what_is_named)),
    "sizes": lambda: _with((charges, "forms_of", lambda *given: [_as_given(*given)])),
    "memory": lambda: _with((charges, "public_size", _real_memory)),
    "generators": lambda: _with((private_commands, "with_own_streams", _as_given)),
    "streams": lambda: _with(
        (predicted_run, "call_drawing", predicted_run.calling),
        (private_commands, "call_drawing", predicted_run.calling),
    ),
    "leaves": lambda: _with((private_commands, "_of_zeros", _without_a_leaf)),
    "plans": lambda: _with((plan_call, "_check_may_ask", _nothing)),
    "results": lambda: _with(
        (predicted_run, "move_written", _move_numbers_alone),
        (private_commands, "move_written", _move_numbers_alone),
    ),
    "failures": lambda: _with((private_commands, "run_predicted", _sealed_for_one)),
    "two ids": lambda: _with((Call, "run", _read_of_one_id)),
    "gradients": lambda: _with((backward_passes, "protect", _nothing)),
    "elements": lambda: _with((memory_labels, "gradients_behind", _gradients_before_chains)),
    "repeated": lambda: _with(
        (private_results, "_are_repeated", lambda inputs: False),
        (private_results, "every_tensor", tensors_in),
    ),
    "rows": lambda: _with(
        (predicted_run._Labels, "of", _without_hidden_sizes),
        (private_results, "_hiding_labels", lambda guard, made: (Label(guard), BLANK)),
    ),
    "shares": lambda: _with((SlotGuards, "of", _nothing)),
    "settings": lambda: _with((command_graphs, "_may_be_in_place", _is_in_place)),
    "operands": lambda: _with((Packer, "gradients", property(lambda self: True, _nothing))),
}
"""By name: a copy whose gradient is not asked about; limits that compare private sizes, and charge
for real memory; generators and the worker's stream, from which private commands draw; a stand-in
that is no leaf; a property that a plan asks for; results that a graph saved, written where they
are; a failure under the guard of one operand; an object under two ids; a gradient that nothing
guards, one inside a chain, and one that goes along with an operand; what a call writes, as of a
call whose operands are others; sizes that follow from private ones, as if they were public; what
programs on shares make, as if it were public; a private flag whose truth is asked."""


def look_for(leak: str, samples: Samples, seed: int, most: int) -> Report:
    """Run random programs with a hole until they find it: the report, of ``most`` commands or a few
    more if they do not."""
    report, number = Report(), 0
    with LEAKS[leak]():
        while report.commands < most and not report.differences:
            report.add(run_program(samples, f"{seed}/{number}"))
            number += 1
    return report
