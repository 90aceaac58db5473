"""Starting collective operations from pointers, one at each worker that takes part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import torch

from syft.chain.wrapper import Wrapper, place_of
from syft.codes import CollectiveCode
from syft.exceptions import LocationMismatch, WorkerClosed
from syft.ids import new_execution, new_id
from syft.tensors.pointer import PointerTensor, make_pointer
from syft.workers.client.connection import Connection, Pending
from syft.workers.wire.messages import Start


def run_collective(
    code: CollectiveCode,
    inputs: Sequence[Sequence[torch.Tensor]],
    results: int = 1,
    user: str | None = None,
) -> list[list[Wrapper]]:
    """Start collective operation ``code`` with one command to each worker, without waiting.

    ``inputs[i]`` are pointers to the inputs of party i, all at one worker, which ``user`` may use.
    Returns ``results`` pointers for each party, which are promised until the parties have finished.
    Raises :class:`~syft.exceptions.LocationMismatch` unless each party is a different worker.

    >>> inputs = [[torch.ones(2, dtype=torch.int64).send(place)] for place in (alice, bob)]
    >>> run_collective(CollectiveCode.SUM, inputs)[0][0].get()
    tensor([2, 2])
    """
    return [list(row) for row in _started(code, inputs, results, user)]


def _started(
    code: CollectiveCode,
    inputs: Sequence[Sequence[torch.Tensor]],
    results: int,
    user: str | None,
    numbers: Sequence[int] = (),
    lost: dict[int, WorkerClosed] | None = None,
) -> list[list[Wrapper]]:
    """The pointers of each party.  With ``lost``, which takes them in, parties that are gone when
    it starts are no reason not to."""
    parties = [_connection_of(row) for row in inputs]
    names = tuple(connection.location.id for connection in parties)
    if len(set(names)) != len(names):
        raise LocationMismatch(f"collective {code.name}: one worker for each party", names)
    for connection in parties:
        connection.requests.check_not_recording(Start.verb)
        if lost is None:
            connection.requests.check_open()
    execution = new_execution()
    pointers = []
    for rank, (connection, row) in enumerate(zip(parties, inputs, strict=True)):
        outs = tuple(new_id() for _ in range(results))
        args = (*_references(connection, row), *numbers)
        message = Start(0, int(code), execution, names, rank, args, outs, user=user)
        try:
            pointers.append(_start_at(connection, message))
        except WorkerClosed as error:
            if lost is None:
                raise
            lost[rank] = error
            pointers.append([])
    return pointers


def _references(connection: Connection, row: Sequence[torch.Tensor]) -> Iterator[Any]:
    """The inputs of a party as its worker knows them."""
    for tensor in row:
        yield cast(PointerTensor, cast(Wrapper, tensor).child).reference(connection)


def _start_at(connection: Connection, message: Start) -> list[Wrapper]:
    """Start the part of one party; pointers to its results."""
    connection.requests.check_open()
    message = msgspec.structs.replace(message, seq=connection.requests.next_seq())
    pending = connection.start(message, made=message.outs)
    return [_promised(connection, out, pending) for out in message.outs]


def _promised(connection: Connection, id: int, pending: Pending) -> Wrapper:
    """A pointer to a result that the party has yet to compute."""
    pointer = make_pointer(connection, id)
    link = cast(PointerTensor, pointer.child)
    link.pending, link.may_be_argument = pending, True
    return pointer


def _connection_of(row: Sequence[torch.Tensor]) -> Connection:
    connections = []
    for tensor in row:
        if type(tensor) is not Wrapper or not isinstance(tensor.child, PointerTensor):
            raise LocationMismatch("a collective operation", ("another worker", place_of(tensor)))
        connections.append(tensor.child.connection)
    for connection in connections[1:]:
        if connection is not connections[0]:
            places = (connections[0].location.id, connection.location.id)
            raise LocationMismatch("the inputs of one party", places)
    return connections[0]


def sum_private(*pointers: torch.Tensor, user: str | None = None) -> list[Wrapper]:
    """The sum of private tensors at different workers, as a pointer at each; nobody sees an input.

    ``user`` is who may read the tensors, as for ``get``.
    See :func:`syft.workers.handlers.private_sums.sum_private` for the protocol and its costs.

    >>> x, y = torch.tensor([1, 2]).send(alice), torch.tensor([10, 20]).send(bob)
    >>> [total.get() for total in sy.sum_private(x, y)]
    [tensor([11, 22]), tensor([11, 22])]
    """
    rows = run_collective(CollectiveCode.SUM, [[p] for p in pointers], user=user)
    return [row[0] for row in rows]


def sum_of_those_left(
    pointers: Sequence[torch.Tensor], minimum: int, user: str | None = None
) -> list[list[Wrapper] | WorkerClosed]:
    """The same sum of those of the workers that stay: for each of them a pointer to the sum and one
    to who is in it, by rank; or why it could not be asked.

    See :func:`syft.workers.handlers.private_sums.sum_of_those_left` for the protocol.

    >>> x, y = torch.tensor([1, 2]).send(alice), torch.tensor([10, 20]).send(bob)
    >>> [[one.get() for one in row] for row in sum_of_those_left([x, y], minimum=2)][0]
    [tensor([11, 22]), tensor([1, 1])]
    """
    lost: dict[int, WorkerClosed] = {}
    rows = [[pointer] for pointer in pointers]
    code = CollectiveCode.SUM_OF_THOSE_LEFT
    started = _started(code, rows, 2, user, (minimum,), lost)
    return [lost.get(rank, row) for rank, row in enumerate(started)]
