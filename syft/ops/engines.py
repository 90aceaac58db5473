"""The two engines that run an operation without values (:mod:`syft.ops.evaluate`).

*Tensors without memory* (torch's device ``meta``) cost two or three additions each, and torch runs
its ordinary code on them.  They have no sizes that follow from values, know one device, and answer
for another one where torch's code differs by device (the flag ``fake_first``), so they are asked of
plain tensors on the CPU only.  What they do not say to run is asked of the other engine.

*Fake tensors* (torch's ``FakeTensorMode``) know devices, sizes that follow from values and public
numbers, and cost about four times as much.  Their settings matter: no fallback to real kernels, and
no cache of torch's, with which an outcome would depend on earlier ones.

What an operation writes its schema marks, and the op table where that does not
(:func:`syft.ops.calls.written_by`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replaced
from math import prod
from typing import Any, Final, cast

import torch

from syft.ops.calls import flags_beside, written_by
from syft.ops.nested import EXACT_TENSOR_TYPES, Function, every_tensor, leaves, replace, tensors_in
from syft.ops.outcome import ANY, Given, Made, Outcome, Saved, Use, Verdict, size_of_memory
from syft.ops.table import (
    FAKE_FIRST,
    GRADIENT,
    JOINS,
    NUMBERS,
    ONLY_OBJECT,
    READS_GRADIENT,
    SETS_GRADIENT,
    flags_of,
)
from syft.torch_private import (
    OVERLOAD,
    FakeFailure,
    TorchDispatchMode,
    WeakStorage,
    any_autocast_enabled,
    fake_failure,
    fake_modules,
    fake_text,
    graph_start,
    no_log_of_fakes,
)

_ADDRESS: Final = re.compile("0x[0-9a-f]+")
_MOST_TEXT: Final = 1000
_CPU: Final = torch.device("cpu")
_META: Final = torch.device("meta")
_DEVICE: Final = "_stands_on"
"""The attribute of a tensor without memory that stands for one on a device."""
_NEEDS_OBJECT: Final = FAKE_FIRST | GRADIENT | READS_GRADIENT | SETS_GRADIENT | JOINS | ONLY_OBJECT
"""Flags of the operations that are asked of fake tensors at once: those that look at more of a
tensor than a stand-in without memory has (its gradient, say)."""


@dataclass(slots=True)
class EvaluatedCall:
    """A call to evaluate; ``numbers`` are the values of some inputs, by place.

    Of a call ``for_use`` only that is wanted: devices do not matter, and neither do other values.
    """

    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: Sequence[torch.Tensor]
    numbers: dict[int, Any]
    for_use: bool = False


def stand_on(tensor: torch.Tensor, device: torch.device) -> None:
    """Have a tensor without memory stand for one on a device.

    >>> x = torch.empty(2, device="meta"); stand_on(x, torch.device("cpu")); device_of(x)
    device(type='cpu')
    """
    tensor.__dict__[_DEVICE] = device


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device of a tensor, or of the one for which it stands."""
    found: torch.device = tensor.__dict__.get(_DEVICE) or tensor.device
    return found


# ---------------------------------------------------------------------------------------- engines


def memoryless_outcome(call: EvaluatedCall, equal: bool = False) -> Outcome | None:
    """The outcome of a call that runs on tensors without memory; None if these cannot tell.

    For use it is told whether tensors are ``equal``: torch asks so whether arguments are right.

    >>> x = torch.ones(2, 3)
    >>> memoryless_outcome(EvaluatedCall(torch.sum, (x, 1), {}, [x], {})).result.shape
    (2,)
    >>> memoryless_outcome(EvaluatedCall(torch.nonzero, (x,), {}, [x], {})) is None
    True
    """
    if not _is_ordinary(call):
        return None
    memories: dict[int, torch.UntypedStorage] = {}
    given = [_without_memory(tensor, memories) for tensor in call.inputs]
    standing = list(filter(torch.is_tensor, given))
    if len(standing) < len(given):
        return None
    place_of = {id(tensor): one for tensor, one in zip(call.inputs, standing, strict=True)}

    def change(leaf: Any) -> Any:
        return _META if _named_device(leaf) is not None else place_of.get(id(leaf), leaf)

    watch, before = _Watch(standing), _Inputs(standing, _CPU)
    if call.for_use:
        watch.answer({standing[place]: number for place, number in call.numbers.items()}, equal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _META, watch, watch.saving(standing):
                args, kwargs = replace((call.args, call.kwargs), change)
                result = call.function(*args, **kwargs)
        except Exception:
            return None  # fake tensors tell whether the call fails, and how
        outcome = before.outcome(result, watch)
    runs = call.for_use or outcome.verdict is Verdict.RUNS
    fits = all(one.device == _META for one in tensors_in(result, None))
    return outcome if runs and fits else None


def _is_ordinary(call: EvaluatedCall) -> bool:
    """Whether tensors without memory may answer for a call: in ordinary modes, on the CPU."""
    if call.for_use:
        return _names_its_device(call)
    if type(call.function) is OVERLOAD:
        known = not flags_beside(call.function) & _NEEDS_OBJECT
    else:
        known = call.function in NUMBERS and not flags_of(call.function) & _NEEDS_OBJECT
    if not known or call.numbers or any_autocast_enabled() or torch.is_inference_mode_enabled():
        return False
    has_graph = any(tensor.requires_grad for tensor in call.inputs)
    plain = all(_may_stand(tensor, has_graph) for tensor in call.inputs)
    return plain and _stays_on_cpu(call)


def _may_stand(tensor: torch.Tensor, has_graph: bool) -> bool:
    """Whether a tensor without memory may stand for another one among inputs of which one has a
    graph, or none."""
    if type(tensor) not in EXACT_TENSOR_TYPES or tensor.layout is not torch.strided:
        return False
    unusual = tensor.is_quantized, tensor.is_inference(), tensor.is_conj(), tensor.is_neg()
    if device_of(tensor) != _CPU or any(unusual):
        return False
    base = tensor._base  # how a view came to be decides whether it may be written
    if base is None:
        return True
    return not (has_graph or base.requires_grad) and base.layout is torch.strided


def _named_device(leaf: Any) -> torch.device | None:
    """The device that an argument names."""
    if isinstance(leaf, torch.device):
        return leaf
    if type(leaf) is str and leaf.partition(":")[0] in _DEVICE_TYPES:
        return torch.device(leaf)
    return None


_READS: Final = torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default
"""The operations that read values."""
_SELECT: Final = torch.ops.aten.masked_select.default
_EQUAL: Final = 0
"""The address at which a watch looks for what the second of these says."""
_DEVICE_TYPES: Final = frozenset(("cpu", "cuda", "meta", "mps", "xpu"))


def _names_its_device(call: EvaluatedCall) -> bool:
    """Whether a call names the device that it is given, if any: a number is an accelerator's."""
    return isinstance(call.kwargs.get("device", "cpu"), (str, torch.device, type(None)))


def _stays_on_cpu(call: EvaluatedCall) -> bool:
    """Whether all devices that a call names are the CPU, as it is by default."""
    if not _names_its_device(call):
        return False
    named = [_named_device(leaf) for leaf in leaves((call.args, call.kwargs))]
    usual = bool(call.inputs) or torch.get_default_device() == _CPU
    return usual and all(device is None or device == _CPU for device in named)


def _without_memory(
    tensor: torch.Tensor, memories: dict[int, torch.UntypedStorage]
) -> torch.Tensor | None:
    """A tensor without memory that stands for another one; None if it cannot.

    ``memories`` are those of the tensors before, by address: some may share one.
    """
    shape, stride, kind = tensor.shape, tensor.stride(), tensor.dtype
    storage = tensor.untyped_storage()
    whole = storage.nbytes() == size_of_memory(shape, stride, tensor.itemsize)
    place = storage._cdata
    memory_of: Any = torch.UntypedStorage
    if not tensor.is_leaf and not (whole and tensor.is_contiguous() and place not in memories):
        return None
    with torch.no_grad():
        if place in memories or not whole:
            if place not in memories:
                memories[place] = memory_of(storage.nbytes(), device=_META)
            shared: Any = memories[place]
            made = torch.empty(0, dtype=kind, device=_META)
            made.set_(shared, tensor.storage_offset(), shape, stride)
        else:
            made = torch.empty_strided(shape, stride, dtype=kind, device=_META)
            memories[place] = made.untyped_storage()
    made.requires_grad_(tensor.requires_grad)
    if tensor.is_leaf:
        return made
    with torch.enable_grad():
        made = made.clone()  # has a graph, as the tensor has
    memories[place] = made.untyped_storage()
    return made


def fake_outcome(call: EvaluatedCall) -> Outcome:
    """The outcome of a call on fake tensors.

    >>> x = torch.ones(2, 3)
    >>> fake_outcome(EvaluatedCall(torch.nonzero, (x,), {}, [x], {})).result.most
    (6, 2)
    """
    fake_tensor, symbolic_shapes = fake_modules()
    shapes = symbolic_shapes.ShapeEnv(
        allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True
    )
    mode = fake_tensor.FakeTensorMode(allow_fallback_kernels=False, shape_env=shapes)
    mode.cache_enabled = False
    with warnings.catch_warnings(), no_log_of_fakes():
        warnings.simplefilter("ignore")
        try:
            fakes: list[Any] = [_fake_of(mode, tensor) for tensor in call.inputs]
        except Exception:  # a view of a sparse tensor
            return Outcome(Verdict.UNKNOWN)
        for place, number in call.numbers.items():
            fakes[place].constant = torch.full_like(call.inputs[place].detach(), number)
        place_of = {id(tensor): fake for tensor, fake in zip(call.inputs, fakes, strict=True)}
        watch, before = _Watch(fakes), _Inputs(fakes)
        try:
            with mode, watch, watch.saving(fakes):
                args, kwargs = replace(
                    (call.args, call.kwargs), lambda leaf: place_of.get(id(leaf), leaf)
                )
                result = call.function(*args, **kwargs)
        except Exception as error:
            return _failure(error)
        return before.outcome(result, watch)


def _fake_of(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    device = tensor.__dict__.get(_DEVICE)
    if device is None:
        return cast(torch.Tensor, mode.from_tensor(tensor, static_shapes=True))
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        fake = fake.requires_grad_() if tensor.requires_grad else fake
        with torch.enable_grad():
            return fake if tensor.is_leaf else fake.clone()


def _failure(error: Exception) -> Outcome:
    """What it means that a call on fake tensors raised."""
    verdict = _VERDICTS[fake_failure(error)]
    if verdict is not Verdict.FAILS:
        return Outcome(verdict)
    text = _ADDRESS.sub("", fake_text(error))[:_MOST_TEXT]
    kind = type(error) if type(error) in _PUBLIC_ERRORS else RuntimeError
    return Outcome(Verdict.FAILS, failure=(kind, text))


_VERDICTS: Final = {
    FakeFailure.READS_VALUES: Verdict.READS,
    FakeFailure.SIZES_FROM_VALUES: Verdict.RESIZES,
    FakeFailure.OF_FAKES: Verdict.UNKNOWN,
    FakeFailure.OF_THE_CALL: Verdict.FAILS,
}
_PUBLIC_ERRORS: Final = frozenset((RuntimeError, ValueError, TypeError, IndexError))


# ------------------------------------------------------------------------------------ what is seen


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory that is written, whether random numbers are drawn, and what is made."""

    def __init__(self, inputs: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: set[int] = set()
        self.grown: set[int] = set()
        self.draws = self.reads = False
        self.elements: int | None = 0
        """Of the largest tensor made; None if it has no bound."""
        self.peak = 0
        self._values: dict[int, Any] = {}
        self._kept: list[torch.Tensor] = []
        self._inputs = {_memory(tensor): tensor.untyped_storage().nbytes() for tensor in inputs}
        self._alive: dict[int, tuple[Any, int]] = {}
        self.saved: dict[int, torch.UntypedStorage] | None = None

    @contextmanager
    def saving(self, inputs: Iterable[torch.Tensor]) -> Iterator[None]:
        """Note the memory that autograd saves, if it records one of these tensors."""
        if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
            yield
            return
        saved = self.saved = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            saved[_memory(tensor)] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        self.reads |= func is _READS[0]
        if self._values and func in _READS:
            return self._values.get(_EQUAL if func is _READS[1] else _memory(args[0]), 1)
        self.draws |= torch.Tag.nondeterministic_seeded in func.tags
        for value in written_by(func, args, named):
            self.written.update(map(_memory, tensors_in(value, None)))
        if func is _SELECT:  # torch says that it makes no more than its first argument has
            args = torch.broadcast_tensors(*args)  # type: ignore[no-untyped-call]
        shapes = [(one, one.shape) for one in args[:1] if isinstance(one, torch.Tensor)]
        result = func(*args, **named)
        _check_shapes(func, shapes)
        if len(self._values) > 1:
            self._compute(func, args, named, result)
        for made in tensors_in(result, None):
            self._note(made)
        return result

    def answer(self, numbers: dict[torch.Tensor, Any], equal: bool) -> None:
        """Let what is read be one of these numbers, or 1, and tensors ``equal`` or not."""
        values = {_memory(tensor): number for tensor, number in numbers.items()}
        self._values = {**values, _EQUAL: equal}

    def _compute(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Find the value of one element that follows from values that are known."""

        def known(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            number = self._values[_memory(leaf)]
            return torch.full(leaf.shape, number, dtype=leaf.dtype, device=_CPU)

        if not isinstance(result, torch.Tensor) or result.numel() != 1 or self.draws:
            return
        try:  # KeyError: of a value that is not known
            value = func(*replace(args, known), **replace(kwargs, known)).item()
        except Exception:
            self._values.pop(_memory(result), None)
        else:
            self._values[_memory(result)] = value
            self._kept.append(result)

    def _note(self, made: torch.Tensor) -> None:
        """Count a tensor that was made, and its memory as long as it lives."""
        if made.layout is not torch.strided:
            return
        sizes = _at_most(made.shape)
        if sizes is None or self.elements is None:
            self.elements = None
            return
        self.elements = max(self.elements, prod(sizes))
        self._note_memory(made, sizes)

    def _note_memory(self, made: torch.Tensor, sizes: tuple[int, ...]) -> None:
        storage = made.untyped_storage()
        nbytes = storage.nbytes()
        if type(nbytes) is not int:
            nbytes = prod(sizes) * made.itemsize
        grown = nbytes - self._inputs.get(storage._cdata, 0)
        if grown <= 0:
            return
        self.grown.add(storage._cdata)
        self._alive[storage._cdata] = WeakStorage(storage), grown
        if sum(size for _, size in self._alive.values()) > self.peak:
            self._alive = {at: one for at, one in self._alive.items() if not one[0].expired()}
            self.peak = max(self.peak, sum(size for _, size in self._alive.values()))

    def use(self, result: Any) -> Use:
        """What a call used that returned this."""
        found = every_tensor(result)
        sizes = [_at_most(leaf.shape) for leaf in found]
        bounded = [prod(most) for most in sizes if most is not None]
        if self.elements is None or len(bounded) < len(found):
            return Use(None, self.peak, len(found), self.reads)
        elements = max(self.elements, sum(bounded))
        return Use(elements, self.peak, max(1, len(found)), self.reads)


def _check_shapes(func: Any, before: Iterable[tuple[torch.Tensor, torch.Size]]) -> None:
    """Raise as the real operation does, which some decompositions forget."""
    may_reshape = not func._schema.name.endswith("_") or torch.Tag.inplace_view in func.tags
    for target, shape in before:
        if target.shape != shape and not may_reshape:
            raise RuntimeError(
                f"output with shape {list(shape)} doesn't match the broadcast shape "
                f"{list(target.shape)}"
            )


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


class _Inputs:
    """Stand-ins of the inputs as they are before a call, to see what it changed; ``device`` is the
    one on which the results lie, if it is not theirs."""

    def __init__(self, fakes: Sequence[torch.Tensor], device: torch.device | None = None) -> None:
        self._fakes = fakes
        self._device = device
        self._before = [_state(fake) for fake in fakes]
        self._memory = [_memory(fake) for fake in fakes]
        self._starts = {
            graph_start(fake): place for place, fake in enumerate(fakes) if fake.requires_grad
        }

    def outcome(self, result: Any, watch: _Watch) -> Outcome:
        """The outcome of a call that returned this."""
        places = {id(fake): place for place, fake in enumerate(self._fakes)}
        verdict = _unfit(result)
        use = watch.use(result)
        if verdict is not None:
            return Outcome(verdict, use=use)
        writes, changed = self._writes(watch.written)
        made = replace(result, lambda leaf: self._made(leaf, places))
        if not _are_known(after for _, after in changed):
            return Outcome(Verdict.RESIZES, use=use)
        verdict = Verdict.RUNS if _are_known(leaves(made)) else Verdict.RESIZES
        grown = frozenset(place for place, at in enumerate(self._memory) if at in watch.grown)
        outcome = Outcome(verdict, made, writes, changed, watch.draws, use=use, grown=grown)
        return replaced(outcome, saved=self._saved(result, watch.saved))

    def _saved(self, result: Any, saved: dict[int, torch.UntypedStorage] | None) -> Saved | None:
        """What the graph of the results keeps; None if that follows from values."""
        if saved is None:
            return Saved()
        sizes = {at: storage.nbytes() for at, storage in saved.items()}
        if any(type(size) is not int for size in sizes.values()):
            return None
        results = every_tensor(result)
        made = {_memory(one) for one in results if one.requires_grad}.difference(self._memory)
        others = sizes.keys() - made - {*self._memory}
        seen: set[Any] = set()
        for one in (*results, *self._fakes):
            reached_starts(one, self._starts, seen)
        return Saved(
            tuple(place for place, at in enumerate(self._memory) if at in saved),
            not made.isdisjoint(saved),
            sum(map(sizes.__getitem__, others)),
            len(seen.difference(self._starts)),
        )

    def _made(self, leaf: torch.Tensor | None, places: dict[int, int]) -> Made | Given | None:
        if leaf is None:
            return None
        place = places.get(id(leaf))
        return self._look(leaf) if place is None else Given(place)

    def _look(self, tensor: torch.Tensor) -> Made:
        shape, stride = _numbers(tensor.shape), _numbers(tensor.stride())
        memory = _memory(tensor)
        return Made(
            shape,
            stride,
            tensor.dtype,
            self._device or tensor.device,
            tensor.requires_grad,
            self._reached(tensor),
            self._memory.index(memory) if memory in self._memory else -1,
            -1 if ANY in (*shape, *stride) else size_of_memory(shape, stride, tensor.itemsize),
            _at_most(tensor.shape),
            _numbers((tensor.storage_offset(),))[0],
        )

    def _writes(self, written: set[int]) -> tuple[tuple[int, ...], tuple[tuple[int, Made], ...]]:
        """The inputs that are written, and those among them that are not as before."""
        writes, changed = [], []
        for place, fake in enumerate(self._fakes):
            moved = _state(fake) != self._before[place] or _memory(fake) != self._memory[place]
            if moved or self._memory[place] in written:
                writes.append(place)
            if moved:
                changed.append((place, self._look(fake)))
        return tuple(writes), tuple(changed)

    def _reached(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The inputs to which the graph of a tensor leads."""
        return tuple(sorted(self._starts[node] for node in reached_starts(tensor, self._starts)))


def reached_starts(
    tensor: torch.Tensor, starts: Collection[Any], seen: set[Any] | None = None
) -> set[Any]:
    """The first nodes among some, where graphs begin, to which the graph of a tensor leads; all
    nodes that it comes to are ``seen`` then, and it goes on from none that was before.

    >>> x = torch.ones(2, requires_grad=True)
    >>> reached_starts(x * 2, [graph_start(x)]) == {graph_start(x)}
    True
    """
    found, todo = set(), [tensor.grad_fn]
    seen = set() if seen is None else seen
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in starts:
            found.add(node)
        else:
            todo.extend(parent for parent, _ in node.next_functions)
    return found


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of a tensor a call may change besides its values."""
    extent = _numbers(tensor.shape), _numbers(tensor.stride())
    return (*extent, tensor.dtype, tensor.requires_grad, tensor.grad_fn)


def _unfit(result: Any) -> Verdict | None:
    """What a call comes to that returns other things than strided tensors."""
    found = [leaf for leaf in leaves(result) if leaf is not None]
    if not all(isinstance(leaf, torch.Tensor) for leaf in found):
        return Verdict.READS
    return None if all(leaf.layout is torch.strided for leaf in found) else Verdict.UNKNOWN


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Sizes or strides; torch has symbols for those that follow from values."""
    return tuple(size if type(size) is int else ANY for size in sizes)


def _at_most(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    """The largest values of sizes; None if one has no bound.  Torch knows that of its symbols."""
    found = []
    for size in sizes:
        if type(size) is not int:
            size = size.node.shape_env.bound_sympy(size.node.expr).upper
            if not getattr(size, "is_Integer", False):
                return None
        found.append(int(size))
    return tuple(found)


def _are_known(found: Iterable[Made | Given | None]) -> bool:
    """Whether none of the sizes among results follows from values."""
    return all(type(made) is not Made or ANY not in (*made.shape, *made.stride) for made in found)
