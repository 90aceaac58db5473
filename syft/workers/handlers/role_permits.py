"""Whose memory a role reads and writes, asked again whenever it runs a part.

What an execution may do is checked when it starts (:mod:`syft.workers.core.owners`).  But its parts
run later, and meanwhile objects may get other memory, and share that of others.  So before each
part what belongs to others is marked anew, and the memory that the part writes has to be the
caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from syft.exceptions import PermissionDenied
from syft.workers.core.owners import Permit
from syft.workers.core.pipeline import Call
from syft.workers.core.store_view import object_itself
from syft.workers.handlers.executions import ACTION
from syft.workers.handlers.role_parts import Part
from syft.workers.handlers.stored_role import StoredRole
from syft.workers.labels.memory_owners import mark
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire.references import referred


class RolePermit:
    """What one execution of a role may do to objects of the worker.

    Formal guarantees: no part writes to memory, or adds to gradients, that belong to somebody who
    does not let its caller; what it makes of the memory of others is marked as theirs.
    """

    def __init__(self, call: Call, stored: StoredRole) -> None:
        self._call, self._owners = call, call.core.owners
        self._role = stored.role
        permit: Permit | None = call.read.permit
        self._foreign: dict[int, ObjectOrigin] = {}
        """Where those inputs, state and constants come from, by slot, that are not the caller's."""
        if permit is not None and permit.foreign:
            origins, ids = dict(permit.foreign), self._ids()
            self._foreign = {slot: origins[id] for slot, id in ids.items() if id in origins}
            call.backing = permit.backing(partial(object_itself, call.core, call.held))

    def _ids(self) -> dict[int, int]:
        """For inputs, state and constants, by slot, the objects that these are, or are in."""
        program, args = self._role.program, self._call.message.args
        given = zip(self._role.user_inputs, map(referred, args[1:]), strict=True)
        ids = {slot: id for slot, id in given if id is not None}
        own = range(program.inputs, program.given)
        return ids | dict.fromkeys(own, cast(int, referred(args[0])))

    def mark(self, values: Mapping[int, Any]) -> None:
        """Mark what is not the caller's of some values, by slot."""
        for slot, origin in self._foreign.items():
            if slot in values:
                mark(values[slot], origin)

    def check(self, part: Part, values: Sequence[Any]) -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if a part that is given some values
        would change memory that is not the caller's."""
        harmless = part.effects.only_reads and not self._foreign
        if harmless or not self._call.core.contested:
            return
        peer, given = self._call.peer, dict(zip(part.takes, values, strict=True))
        foreign = [(slot, origin) for slot, origin in self._foreign.items() if slot in given]
        permit = Permit(self._owners, peer, ACTION, foreign, part.access)
        try:
            permit.check_memory(given.__getitem__)
        except PermissionDenied as error:
            role = cast(int, referred(self._call.message.args[0]))
            id = self._ids().get(cast(int, error.id), role)
            owner = cast(str | None, error.owner)
            raise self._owners.refusal(peer, ACTION, id, owner) from None
