"""Starting collective operations from pointers, one at each worker that takes part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from syft.chain.wrapper import Wrapper, place_of
from syft.codes import CollectiveCode
from syft.exceptions import LocationMismatch
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
    parties = [_connection_of(row) for row in inputs]
    names = tuple(connection.location.id for connection in parties)
    if len(set(names)) != len(names):
        raise LocationMismatch(f"collective {code.name}: one worker for each party", names)
    for connection in parties:
        connection.requests.check_not_recording(Start.verb)
        connection.requests.check_open()
    execution = new_execution()
    pointers = []
    for rank, (connection, row) in enumerate(zip(parties, inputs, strict=True)):
        links = [cast(PointerTensor, cast(Wrapper, tensor).child) for tensor in row]
        outs = tuple(new_id() for _ in range(results))
        seq = connection.requests.next_seq()
        references = tuple(link.reference(connection) for link in links)
        message = Start(seq, int(code), execution, names, rank, references, outs, user=user)
        pending = connection.start(message, made=outs)
        pointers.append([_promised(connection, out, pending) for out in outs])
    return pointers


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
    See :func:`syft.workers.handlers.party_programs.sum_private` for the protocol and its costs.

    >>> x, y = torch.tensor([1, 2]).send(alice), torch.tensor([10, 20]).send(bob)
    >>> [total.get() for total in sy.sum_private(x, y)]
    [tensor([11, 22]), tensor([11, 22])]
    """
    rows = run_collective(CollectiveCode.SUM, [[p] for p in pointers], user=user)
    return [row[0] for row in rows]
