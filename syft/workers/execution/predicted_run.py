"""Running a private command for a user who may not see its values, so that he sees its prediction.

Whatever the values are, the user sees the same: the results have the shapes of the prediction, what
is written becomes private before it is written, and a failure that comes of values is sealed: the
results are zeros, and their guard holds the error for those who may read them.  Random numbers come
from a seed of their own, so the streams that public commands draw from do not tell what a private
one drew: neither the worker's nor a generator that is given.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from itertools import count
from typing import Any, cast

import torch

from syft.exceptions import UnsupportedOperation
from syft.ops.engines import reached_starts
from syft.ops.nested import Function, container_class, every_tensor, leaves, replace, tensors_in
from syft.ops.outcome import ANY, Given, Made, Outcome
from syft.ops.table import JOINS, SETS_GRADIENT, flags_of, name_of
from syft.torch_private import graph_start
from syft.workers.execution.moved_memory import Holdings, Moves, move_written
from syft.workers.execution.plain_tensors import is_plain, plain_copy, reaching
from syft.workers.execution.predicted_failures import predicted_failure
from syft.workers.execution.public_sizes import hides_shape, note_growth, note_sizes
from syft.workers.hardening.unwritten import clear_beyond
from syft.workers.labels.guards import Guard, without_frames
from syft.workers.labels.memory_labels import full_guard_of, note, protect
from syft.workers.labels.walk import by_address, lies_in


class Unpredicted(Exception):
    """A result that is not as the prediction has it."""


def run_predicted(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    prediction: Outcome,
    guard: Guard,
    holdings: Holdings,
    admitted: bool = False,
    decided: bool = False,
) -> Any:
    """Call ``function`` on strided tensors guarded by ``guard``; returns results of predicted
    shapes, guarded and perhaps sealed.

    If the guard hides the shape, what has only public sizes by the prediction gets one that does
    not, unless a private value has ``decided`` that there is this command.

    What is written is moved to private memory first, if it is not there: ``holdings`` are told.  A
    failure is raised if the caller is ``admitted`` to the values.  Raises
    :class:`~syft.workers.execution.moved_memory.Immovable` if something cannot be moved.

    >>> from syft.ops.evaluate import evaluate
    >>> from syft.workers.execution.moved_memory import NoHoldings
    >>> x, index = torch.ones(2), torch.tensor([7])
    >>> call = torch.take, (x, index), {}
    >>> result = run_predicted(*call, evaluate(*call), Guard(frozenset()), NoHoldings())
    >>> result, type(full_guard_of(result).error)
    (tensor([0.]), <class 'IndexError'>)
    """
    inputs = tensors_in(args, kwargs)
    labels = _Labels(guard, decided)
    if prediction.writes:
        if flags_of(function) & (JOINS | SETS_GRADIENT) == JOINS:  # memory, and not an attribute
            _check_joined(function, args, kwargs, guard)
        args, kwargs = labels.moved(inputs, prediction, holdings).within((args, kwargs))
        inputs = tensors_in(args, kwargs)
    if admitted:
        guard.check_open()
    written = list(map(inputs.__getitem__, prediction.writes))
    views = _views_of_lower(function, args, kwargs, prediction, labels)
    result, error = None, guard.error
    run = call_drawing if prediction.draws else calling
    starts = _starts(inputs) if guard.shape_hidden else None
    try:
        result = run(function, args, kwargs)
        if starts is not None:
            _check_graphs(result, prediction, inputs, starts)
        result = _fitted(result, prediction, inputs)
        _check_writes(prediction, inputs)
        result = apart_from_lower(result, inputs, guard, written)
    except Exception as failure:
        if admitted:
            raise
        error = error or without_frames(failure)
        labels = changed(labels, guard=guard.sealed(error))
        result = _stand_ins(prediction, inputs, labels)
        result = apart_from_lower(result, inputs, labels.guard, written)
    return _with_views(_guarded(result, inputs, labels, prediction), views)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The guards of what a command makes and writes, where that of all its inputs is ``guard``.

    If that hides the shape, what has only public sizes, in memory of its own, gets one that does
    not; so does what is written, if it had a public shape and keeps one.
    """

    guard: Guard
    decided: bool

    def of(self, made: Made | Given | None) -> Guard:
        """The guard of a result."""
        return self._open if type(made) is Made and made.nbytes >= 0 else self.guard

    @property
    def _open(self) -> Guard:
        hides = self.guard.shape_hidden and not self.decided
        return changed(self.guard, shape_hidden=False) if hides else self.guard

    def of_written(self, prediction: Outcome, inputs: Sequence[torch.Tensor]) -> list[Guard]:
        """The guards of what is written, in the order in which the prediction has that."""
        if not self.guard.shape_hidden:
            return [self.guard] * len(prediction.writes)
        hidden = {place for place, made in prediction.changed if made.nbytes < 0}
        hidden.update(place for place in prediction.writes if hides_shape(inputs[place]))
        there = _memories(inputs[place] for place in hidden)
        return [
            self.guard if _memory(inputs[place]) in there else self._open
            for place in prediction.writes
        ]

    def moved(
        self, inputs: Sequence[torch.Tensor], prediction: Outcome, holdings: Holdings
    ) -> Moves:
        """Move what is written to memory of its guard, if it is not there."""
        moves = Moves()
        guards = self.of_written(prediction, inputs)
        for guard in dict.fromkeys(guards):
            pairs = zip(prediction.writes, guards, strict=True)
            targets = [inputs[place] for place, its in pairs if its is guard or its == guard]
            moves.update(move_written(targets, guard, holdings))
        return moves


def _check_joined(
    function: Function, args: Sequence[Any], kwargs: dict[str, Any], guard: Guard
) -> None:
    """Raise :class:`~syft.exceptions.UnsupportedOperation` if memory would be joined that lies
    there for other readers: memory has one guard, and a copy would not show what is written to
    one of the two."""
    if any(full_guard_of(each) != guard for each in every_tensor(args[1:], kwargs)):
        instead = "memory has one guard, so copy the values, as with copy_(...)"
        about = name_of(function), "A tensor of another guard", instead
        raise predicted_failure(UnsupportedOperation, *about)


def calling(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function.

    >>> calling(max, (2, 3), {})
    3
    """
    return function(*args, **kwargs)


def call_drawing(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function that draws random numbers, and leave the public stream as it was.

    >>> before = torch.get_rng_state(); _ = call_drawing(torch.rand, (2,), {})
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    indices = {tensor.device.index for tensor in tensors_in(args, kwargs) if tensor.is_cuda}
    there = [torch.cuda.default_generators[index] for index in indices]
    with torch.random.fork_rng(devices=list(indices)):
        for generator in (torch.default_generator, *there):
            generator.manual_seed(secrets.randbits(63))
        return function(*args, **kwargs)


def with_own_streams(
    args: Sequence[Any], kwargs: dict[str, Any], guard: Guard
) -> tuple[Any, dict[str, Any]]:
    """The arguments of a private command with a generator of its own in the place of each given.

    How many numbers a command draws may follow from private values (``torch.poisson``), and a
    generator in a program is drawn from again.  So one number is drawn from it, whatever the
    command does, which seeds the stream of this command.  Where it may follow from private values
    that there is a command at all, the seed is the system's.

    >>> given, other = (torch.Generator().manual_seed(5) for _ in range(2))
    >>> (_, own), _ = with_own_streams([torch.ones(2), given], {}, Guard(frozenset()))
    >>> own is given, torch.randint(2**63 - 1, (), generator=other).item() == own.initial_seed()
    (False, True)
    """
    streams: dict[int, torch.Generator] = {}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Generator):
            return leaf
        if id(leaf) not in streams:
            streams[id(leaf)] = torch.Generator(leaf.device).manual_seed(_seed(leaf, guard))
        return streams[id(leaf)]

    if any(isinstance(leaf, torch.Generator) for leaf in leaves((args, kwargs))):
        args, kwargs = replace((args, kwargs), own)
    return args, kwargs


def _seed(given: torch.Generator, guard: Guard) -> int:
    if guard.shape_hidden:
        return secrets.randbits(63)
    return int(torch.randint(2**63 - 1, (), generator=given, device=given.device))


# ------------------------------------------------------------------------------------------ results


def _fitted(result: Any, prediction: Outcome, inputs: Sequence[torch.Tensor]) -> Any:
    """The results, brought to the strides of the prediction; raises :class:`Unpredicted`."""
    expected = list(leaves(prediction.result))
    found = list(leaves(result))
    if len(found) != len(expected) or _container(result) is not _container(prediction.result):
        raise Unpredicted(f"{len(found)} results instead of {len(expected)}")
    fitted = iter([_fit(*pair, inputs) for pair in zip(found, expected, strict=True)])
    return replace(result, lambda leaf: next(fitted))


def _container(result: Any) -> type | None:
    return None if container_class(type(result)) is None else type(result)


def _fit(found: Any, expected: Any, inputs: Sequence[torch.Tensor]) -> Any:
    if type(expected) is Given:
        if found is not inputs[expected.place]:
            raise Unpredicted("another tensor instead of an input")
    elif type(expected) is Made:
        if not isinstance(found, torch.Tensor) or not _is_like(found, expected):
            raise Unpredicted("a result of another shape, dtype or layout")
        if any(found is one for one in inputs):  # what is noted of the result is not true of it
            found = found.view_as(found)
        return _laid_out(found, expected, _memory(found) in _memories(inputs))
    elif found is not None:
        raise Unpredicted("a result instead of None")
    return found


def _laid_out(found: torch.Tensor, made: Made, shared: bool) -> torch.Tensor:
    """A result in the memory and with the strides of the prediction, as far as that tells them."""
    if made.nbytes >= 0:
        as_is = made.shares or (is_as_made(found, made) and not shared)
        return found if as_is else plain_copy(found, made.stride)
    if made.shares:
        if not shared:
            raise Unpredicted("a result in memory of its own instead of a view")
        return found
    if shared or not is_plain(found, found.numel() * found.itemsize):
        return plain_copy(found, torch.empty(found.shape, device="meta").stride())
    return found


def _is_like(tensor: torch.Tensor, made: Made) -> bool:
    same = has_shape(tensor, made) and tensor.dtype is made.dtype
    return same and tensor.requires_grad is made.requires_grad and tensor.layout is torch.strided


def is_as_made(tensor: torch.Tensor, made: Made) -> bool:
    """Whether a tensor of the right shape is laid out as all results are that share no memory."""
    return tensor.stride() == made.stride and is_plain(tensor, made.nbytes)


def has_shape(tensor: torch.Tensor, made: Made) -> bool:
    """Whether a tensor has the shape of a prediction, as far as that is known, and is no larger
    than it may be.

    >>> kind = torch.float32, torch.device("cpu"), False, (), -1, -1
    >>> made = Made((-1, 3), (3, 1), *kind, (7, 3))
    >>> [has_shape(torch.ones(*shape), made) for shape in ((2, 3), (3,), (8, 3))]
    [True, False, False]
    """
    if tensor.shape == made.shape:
        return True
    if tensor.ndim != len(made.shape):
        return False
    most = tensor.shape if made.most is None else made.most
    triples = zip(tensor.shape, made.shape, most, strict=True)
    return all(two in (one, ANY) and one <= limit for one, two, limit in triples)


def _check_writes(prediction: Outcome, inputs: Sequence[torch.Tensor]) -> None:
    for place, made in prediction.changed:
        tensor = inputs[place]
        if not _is_like(tensor, made):
            raise Unpredicted("what was written has another shape or dtype")
        if tensor.stride() != made.stride and made.nbytes >= 0:
            values = tensor.detach().clone()
            _lay_out(tensor, made)
            tensor.detach().copy_(values)


def apart_from_lower(
    result: Any,
    inputs: Sequence[torch.Tensor],
    guard: Guard,
    written: Collection[torch.Tensor] = (),
) -> Any:
    """The results, with copies of those that lie in memory of another guard and are not written.

    >>> x = torch.ones(2); apart_from_lower(x[:1], [x], Guard(frozenset()))._base is None
    True
    """
    lower = by_address(tensor for tensor in inputs if full_guard_of(tensor) != guard)
    for place in by_address(written) if lower else ():
        lower.pop(place, None)
    if not lower:  # nearly always
        return result
    return replace(result, lambda leaf: leaf.clone() if lies_in(leaf, lower) else leaf)


def _views_of_lower(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    prediction: Outcome,
    labels: _Labels,
) -> dict[int, torch.Tensor]:
    """The results, by number, that are an input of a lower guard or a view of one, and show nothing
    of the other inputs but their shapes: ``x.view_as(secret)`` is x.

    What is written to x later shows in them, as in torch, so they are no copies, and as private as
    x.  They are made with zeros in the place of all other inputs, and are what ones make too.
    """
    inputs, guard = tensors_in(args, kwargs), labels.guard
    expected = enumerate(leaves(prediction.result))
    seen = {number: place for number, made in expected if (place := _seen_in(made)) >= 0}
    lower = {place for place in seen.values() if full_guard_of(inputs[place]) != guard}
    if not lower or prediction.writes or prediction.draws or guard.shape_hidden or labels.decided:
        return {}
    views: dict[int, torch.Tensor] = {}
    for place in lower:
        kinds = [
            partial(_filled, inputs[place], like) for like in (torch.zeros_like, torch.ones_like)
        ]
        try:
            made = [leaves(function(*replace(args, one), **replace(kwargs, one))) for one in kinds]
        except Exception:  # it needs other values
            continue
        for number, (zeros, ones) in enumerate(zip(*made, strict=True)):
            if seen.get(number) == place and _extent(zeros) == _extent(ones):
                views[number] = zeros
    return views


def _seen_in(made: Any) -> int:
    """Which input a result is, or is a view of, whose graph leads to no other; -1 for none."""
    if type(made) is Given:
        return made.place
    alone = type(made) is Made and set(made.reaches) <= {made.within}
    return made.within if alone else -1


def _filled(kept: torch.Tensor, like: Callable[[torch.Tensor], torch.Tensor], leaf: Any) -> Any:
    return like(leaf) if isinstance(leaf, torch.Tensor) and leaf is not kept else leaf


def _extent(tensor: torch.Tensor) -> tuple[Any, ...]:
    return _memory(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()


def _with_views(result: Any, views: dict[int, torch.Tensor]) -> Any:
    """The results with these in the place of those of their numbers."""
    if not views:
        return result
    numbers = count()
    return replace(result, lambda leaf: views.get(next(numbers), leaf))


def _guarded(
    result: Any, inputs: Sequence[torch.Tensor], labels: _Labels, prediction: Outcome
) -> Any:
    """Guard the results, and note how large they are at most if that is not seen.

    That a view could not be made is an error of the view: what it is of can be read.
    """
    there = _memories(inputs)
    expected = leaves(prediction.result)
    written = dict(zip(prediction.writes, labels.of_written(prediction, inputs), strict=True))

    def guarded(leaf: torch.Tensor | None) -> torch.Tensor | None:
        made = next(expected)
        if leaf is None:
            return None
        if type(made) is Given:
            protect(leaf, written.get(made.place, labels.guard))
        else:
            _guard_made(leaf, made, labels.of(made), _memory(leaf) in there)
        return leaf

    _note_changed(inputs, labels.guard, prediction)
    return replace(result, guarded)


def _guard_made(leaf: torch.Tensor, made: Made, guard: Guard, view: bool) -> None:
    """Guard a new result, which may be a view."""
    protect(leaf, changed(guard, error=None) if view else guard)
    if view and guard.error is not None:
        note(leaf, guard=guard)  # the memory in which it lies can be read
    if guard.shape_hidden:
        note_sizes(leaf, made.most, not view, made.shape)
        if view:
            note(leaf.untyped_storage(), viewed=True)


def _note_changed(inputs: Sequence[torch.Tensor], guard: Guard, prediction: Outcome) -> None:
    """Note how large the inputs are at most whose sizes a command has changed."""
    if not guard.shape_hidden:
        return
    places = [place for place, _ in prediction.changed]
    joined = _memories(one for place, one in enumerate(inputs) if place not in places)
    for place, made in prediction.changed:
        if not hides_shape(inputs[place]):
            continue
        if place not in prediction.grown or _memory(inputs[place]) in joined:
            note_sizes(inputs[place], made.most, False, made.shape)
        else:
            note_growth(inputs[place], made.most, made.shape)


# ------------------------------------------------------------------------------------------- graphs


def _starts(inputs: Sequence[torch.Tensor]) -> dict[int, Any]:
    """Where the graphs of the inputs begin, by place; of those that have none, nothing."""
    return {
        place: graph_start(tensor) for place, tensor in enumerate(inputs) if tensor.requires_grad
    }


def _check_graphs(
    result: Any, prediction: Outcome, inputs: Sequence[torch.Tensor], starts: dict[int, Any]
) -> None:
    """Raise :class:`Unpredicted` if the graph of a result leads to other inputs than predicted.

    What a backward pass leaves follows from it, and it might follow from a private size.
    """
    found = zip(leaves(result), leaves(prediction.result), strict=False)
    after = [(inputs[place], made) for place, made in prediction.changed]
    for tensor, made in (*found, *after):
        if type(made) is not Made or not isinstance(tensor, torch.Tensor) or tensor._is_view():
            continue
        expected = {starts[place] for place in made.reaches if place in starts}
        if not reached_starts(tensor, starts.values()) == expected:
            raise Unpredicted("a result with another graph")


def _memory(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else int(tensor.untyped_storage()._cdata)


def _memories(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {_memory(tensor) for tensor in tensors}


# ---------------------------------------------------------------------------------------- stand-ins


def _stand_ins(prediction: Outcome, inputs: Sequence[torch.Tensor], labels: _Labels) -> Any:
    """What stands for results that could not be computed; what was to be written is sealed."""
    guards = labels.of_written(prediction, inputs)
    for place, made in prediction.changed:
        _bring(inputs[place], made, inputs)
    for place, guard in zip(prediction.writes, guards, strict=True):
        protect(inputs[place], guard)

    def stand_in(expected: Made | Given | None) -> torch.Tensor | None:
        if expected is None:
            return None
        if type(expected) is Given:
            return inputs[expected.place]
        made = cast(Made, expected)
        return _with_graph(made, inputs) if made.requires_grad else _zeros(made, inputs)

    return replace(prediction.result, stand_in)


def _zeros(made: Made, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    kind: Any = {"dtype": made.dtype, "device": made.device}
    if made.nbytes >= 0:
        return torch.empty_strided(made.shape, made.stride, **kind).zero_()
    if made.shares:  # in that memory, as a view would be: what is in use there is counted
        return _nothing_in(inputs[made.within].untyped_storage(), made)
    return torch.zeros([max(size, 0) for size in made.shape], **kind)


def _nothing_in(memory: torch.UntypedStorage, made: Made) -> torch.Tensor:
    """A tensor without elements, or with one, in this memory."""
    there = torch.empty(0, dtype=made.dtype, device=made.device)
    sizes = (0,) * len(made.shape)
    if not sizes and memory.nbytes() < there.itemsize:
        memory.resize_(there.itemsize)
        clear_beyond(memory, 0)
    return there.set_(memory, 0, sizes, (1,) * len(sizes))


def _with_graph(made: Made, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    tensor = reaching(_zeros(made, inputs), _reached(made, inputs))
    return tensor if tensor.requires_grad else tensor.requires_grad_()


def _reached(made: Made, inputs: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    return (inputs[place] for place in made.reaches if inputs[place].requires_grad)


def _bring(tensor: torch.Tensor, made: Made, inputs: Sequence[torch.Tensor]) -> None:
    """Give a tensor the shape and the graph that it would have if the command had succeeded."""
    known = made.nbytes >= 0
    there = (tensor.shape, tensor.stride()) == (made.shape, made.stride)
    if tensor.dtype is not made.dtype or not (known or has_shape(tensor, made)):
        own = tensor.untyped_storage()
        tensor.data = _zeros(made, ()) if known else _nothing_in(own, made)
    elif known and not there:
        _lay_out(tensor, made)
        tensor.detach().zero_()
    if made.requires_grad:
        _let_reach(tensor, made, inputs)


def _let_reach(tensor: torch.Tensor, made: Made, inputs: Sequence[torch.Tensor]) -> None:
    others = [other for other in _reached(made, inputs) if other is not tensor]
    if others:
        reaching(tensor, others)
    elif not tensor.requires_grad:
        tensor.requires_grad_()


def _lay_out(tensor: torch.Tensor, made: Made) -> None:
    """Give a tensor this shape and these strides in its memory, which grows if need be, as memory
    does to which an operation writes its result."""
    memory, start = tensor.untyped_storage(), int(tensor.storage_offset())
    end = start * tensor.itemsize + made.nbytes
    if memory.nbytes() < end:
        memory.resize_(end)
    with torch.no_grad():
        there = torch.empty(0, dtype=made.dtype, device=made.device)
        tensor.data = there.set_(memory, start, made.shape, made.stride)
