"""Recording a torch operation that acts on each share alone.

The parties run the same operation on real tensors, so views share memory there as they do in
torch.  The client has to know the geometry of the results (torch computes it, once for each kind of
call) and which tensors share memory, because what was opened of a tensor is out of date when its
memory is written to.

Geometries of small results are found with zeros, and others with tensors without values (meta): the
first of those that a process adds has torch import its compiler, which takes a second or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, number_of
from syft.crypto.programs.share_program import ShareCode
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.tensors.shared.cells import Cell, Geometry
from syft.tensors.shared.session_recording import SessionRecording

aten = torch.ops.aten

_SAME: Final = {aten.alias.default, aten.detach.default, aten.lift_fresh.default}
"""What makes another name for the same tensor: no instruction."""

_FORMS: Final = {
    aten._to_copy.default: aten.clone.default,
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten._unsafe_view.default: aten.view.default,
}
"""What is recorded in the place of another operation: a view that the caller has made already is
changed in place, and a change of device or dtype is none."""

_SHARING: Final = {
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten._reshape_alias.default,
}
"""Operations whose results share memory, though their schemas do not say so."""

_GEOMETRIES: dict[Any, Any] = {}
"""The geometries of results, by operation, geometries of operands and other arguments."""

_MOST_GEOMETRIES: Final = 4096

_FEW: Final = 1 << 16
"""Elements that are computed with to see the geometry of a result."""


def run_locally(
    session: SessionRecording,
    op: Any,
    args: Arguments,
    kwargs: Keywords,
    cell_of: Callable[[Any], Cell],
) -> Cell | list[Cell]:
    """Record an operation on the share of every party, and return what it makes.

    ``cell_of`` says what a wrapper among the arguments stands for.
    """
    if op in _SAME:
        return cell_of(args[0])
    with session.lock:
        return _recorded(session, op, args, kwargs, cell_of)


def _recorded(
    session: SessionRecording,
    op: Any,
    args: Arguments,
    kwargs: Keywords,
    cell_of: Callable[[Any], Cell],
) -> Cell | list[Cell]:
    session.make_room()
    op, args, kwargs = _normalised(op, args, kwargs)
    call = RecordedCall(session, cell_of)
    positional = call.encoded(args)
    keywords = tuple((name, call.encoded(value)) for name, value in kwargs.items())
    source = call.cells[0]
    if op._schema.is_mutable:
        session.record(ShareCode.LOCAL, (number_of(op), positional, keywords), ())
        source.memory.version += 1
        source.memory.refined = None
        return source
    key = (op, *call.key, tuple(kwargs))
    geometries: Any = _GEOMETRIES.get(key)
    if geometries is None:
        if len(_GEOMETRIES) >= _MOST_GEOMETRIES:
            _GEOMETRIES.clear()
        geometries = _GEOMETRIES[key] = _geometries(op, args, kwargs, cell_of)
    turned = _turned(op, args, source)
    if turned and source.turned is not None:
        return source.turned
    memory = source.memory if op.is_view or op in _SHARING else None
    if memory is not None and geometries == source.geometry:
        return source
    several = isinstance(geometries, list)
    found: list[Geometry] = geometries if several else [geometries]
    cells = [session.new_cell(geometry, source.device, memory) for geometry in found]
    session.record(ShareCode.LOCAL, (number_of(op), positional, keywords), cells)
    if several:
        return cells
    cells[0].turned = source if turned else None
    if all(cell.public is not None for cell in call.cells):
        opened = replace((args, kwargs), lambda value: _public(value, cell_of))
        cells[0].plain = op(*opened[0], **opened[1])
    return cells[0]


def _public(value: Any, cell_of: Callable[[Any], Cell]) -> Any:
    return cell_of(value).public if type(value) is Wrapper else value


class RecordedCall:
    """The arguments of one call as those of an instruction, and what its geometry depends on."""

    def __init__(self, session: SessionRecording, cell_of: Callable[[Any], Cell]) -> None:
        self.session = session
        self.cell_of = cell_of
        self.cells: list[Cell] = []
        self.key: list[Any] = []

    def encoded(self, value: Any) -> Any:
        """An argument as it stands in an instruction; notes what it tells of the geometry."""
        if type(value) is Wrapper:
            cell = self.cell_of(value)
            self.cells.append(cell)
            self.key.append(cell.geometry)
            return self.session.slot(cell)
        if isinstance(value, torch.Tensor):
            self.key.append((Geometry.of(value), value.dtype))
            return self.session.public_tensor(value)
        if isinstance(value, (list, tuple)):
            self.key.append(len(value))
            return tuple(map(self.encoded, value))
        self.key.append(value)
        return value


def _normalised(op: Any, args: Arguments, kwargs: Keywords) -> tuple[Any, Arguments, Keywords]:
    """The form of a call that is recorded: without what only torch's own tensors need."""
    if op is aten.clone.default and kwargs.get("memory_format") is torch.contiguous_format:
        if not args[0].is_contiguous():
            return aten.repeat.default, (args[0], [1] * args[0].dim()), {}
    if op in (aten.clone.default, aten._to_copy.default):
        return aten.clone.default, args[:1], {}
    if kwargs.get("alpha") == 1:
        kwargs = {}
    if op.overloadpacket in _INDEXED:
        args = (args[0], _without_masks(args[1]), *args[2:])
    return _FORMS.get(op, op), args, kwargs


_INDEXED: Final = {
    aten.index,
    aten._unsafe_index,
    aten.index_put,
    aten._unsafe_index_put,
}


def _without_masks(indices: Any) -> list[Any]:
    """Indices with each public mask as the indices of its ones: shapes follow from shapes then."""
    found: list[Any] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            found.extend(index.nonzero().unbind(1))
        else:
            found.append(index)
    return found


def _geometries(
    op: Any, args: Arguments, kwargs: Keywords, cell_of: Callable[[Any], Cell]
) -> Geometry | list[Geometry]:
    device = "cpu" if _is_small(op, args, kwargs, cell_of) else "meta"

    def stand_in(value: Any) -> Any:
        if type(value) is Wrapper:
            return cell_of(value).geometry.stand_in(device)
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, (list, tuple)):
            return [stand_in(item) for item in value]
        return value

    named = {name: stand_in(value) for name, value in kwargs.items()}
    out = op(*map(stand_in, args), **named)
    if isinstance(out, torch.Tensor):
        return Geometry.of(out)
    return [Geometry.of(part) for part in out]


def _is_small(op: Any, args: Arguments, kwargs: Keywords, cell_of: Callable[[Any], Cell]) -> bool:
    """Whether an operation on zeros takes few of them: results are no larger than all operands, or
    than their product where these are tensors alone."""
    extents = [
        cell_of(one).geometry.extent if type(one) is Wrapper else one.numel()
        for one in leaves((*args, *kwargs.values()))
        if isinstance(one, torch.Tensor)
    ]
    if LOCAL_OPERATIONS[number_of(op)].grows:
        alone = all(isinstance(value, torch.Tensor) for value in args)
        return alone and math.prod(extents) <= _FEW
    return sum(extents) <= _FEW


def _turned(op: Any, args: Arguments, source: Cell) -> bool:
    """Whether a call swaps the last two dimensions of a matrix, or of a batch of them."""
    dims = len(source.shape)
    if dims < 2:
        return False
    if op is aten.t.default:
        return True
    if op is aten.transpose.int:
        return {args[1] % dims, args[2] % dims} == {dims - 1, dims - 2}
    return False
