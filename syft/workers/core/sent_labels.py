"""Guards as fields of messages, and back: what one worker tells another about who may read a value.

A guard travels with the value, whole: the users, the destinations, who may let others read it, who
may deal for shares of it, and the error that stands for a value that could not be computed.

A worker that sends a value on behalf of a caller adds two things.  It is itself one of the
destinations at the next worker, since the value was there already.  And it says whose the guard is,
or the caller would own it at the next worker.  A program that sends its own data says neither: the
guard is the sender's, and whoever shares the program may not have the data brought back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import gt
from typing import Any

import msgspec
import torch

from syft.exceptions import MalformedMessage
from syft.serde.errors import pack_error, unpack_error
from syft.serde.limits import Limits
from syft.serde.packer import Packer, Unpacker
from syft.workers.execution.public_sizes import hides_shape, note_received, sizes_at_most
from syft.workers.labels.guards import Guard
from syft.workers.wire.terms import Terms

_LARGEST = 1 << 60
_Names = tuple[str, ...]
_Fields = tuple[_Names | None, bool, _Names, _Names, _Names | None]


def users_of(guard: Guard | None) -> tuple[str, ...] | None:
    """The users who may read a value, as a message lists them; None for everybody.

    >>> users_of(Guard(frozenset({"bea", "ann"}))), users_of(None)
    (('ann', 'bea'), None)
    """
    return None if guard is None else tuple(sorted(guard.users))


def terms_of(guard: Guard | None, sender: str, for_caller: bool, value: Any = None) -> Terms | None:
    """What else the guard of a value says, for a message of worker ``sender``; None if there is
    nothing to say.

    ``for_caller`` says that it is sent on behalf of somebody whom the worker serves, and not by the
    program of its owner.

    >>> guard = Guard(frozenset({"ann"}), destinations=frozenset({"alice"}))
    >>> terms_of(guard, "bob", for_caller=True)
    Terms(destinations=('alice', 'bob'), owners=(), error=None, providers=None, most=None)
    >>> terms_of(Guard(frozenset({"ann"})), "me", for_caller=False)
    Terms(destinations=(), owners=None, error=None, providers=None, most=None)
    """
    if guard is None:
        return None
    owners, destinations = guard.owners, guard.destinations
    if for_caller:
        owners, destinations = owners or frozenset(), destinations | {sender}
    return Terms(
        tuple(sorted(destinations)),
        None if owners is None else tuple(sorted(owners)),
        None if guard.error is None else pack_error(guard.error, Packer()),
        None if guard.providers is None else tuple(sorted(guard.providers)),
        bound_of(value),
    )


def bound_of(value: Any) -> tuple[int, ...] | None:
    """The public sizes at most of a tensor of private shape; None for anything else."""
    hidden = isinstance(value, torch.Tensor) and hides_shape(value)
    return sizes_at_most(value) if hidden else None


def received_guard(
    users: Iterable[str] | None,
    shape_hidden: bool,
    terms: Terms | None,
    limits: Limits,
    sender: str | None,
) -> Guard | None:
    """The guard in a message; None if everybody may read the value.

    ``sender`` owns it if the message names no owners; None stands for the owner of this worker.
    Raises :class:`~syft.exceptions.MalformedMessage` for an error that is none.

    >>> received_guard(("ann",), False, None, Limits(), "me").owners
    frozenset({'me'})
    """
    if users is None:
        return None
    terms = terms or Terms()
    owners: frozenset[str] | None = None if sender is None else frozenset((sender,))
    if terms.owners is not None:
        owners = frozenset(terms.owners)
    error: Exception | None = None
    if terms.error is not None:
        error, _ = unpack_error(terms.error, Unpacker([], limits))
    return Guard(
        frozenset(users),
        shape_hidden,
        error,
        frozenset(terms.destinations),
        owners,
        _or_all(terms.providers),
    )


def _or_all(providers: _Names | None) -> frozenset[str] | None:
    return None if providers is None else frozenset(providers)


def note_terms(value: Any, terms: Terms | None) -> None:
    """Note the sizes at most of a value that its message states; see :func:`note_bound`.

    >>> note_terms(torch.ones(2), None)
    """
    if terms is not None:
        note_bound(value, terms.most)


def note_bound(value: Any, most: Any) -> None:
    """Note the sizes at most of a value that has come with its guard, as its message states them.

    Raises :class:`~syft.exceptions.MalformedMessage` if it is larger.
    """
    if most is None or not isinstance(value, torch.Tensor) or not hides_shape(value):
        return
    sizes = tuple(most) if isinstance(most, tuple | list) else ()
    whole = all(type(size) is int and size < _LARGEST for size in sizes)
    if not whole or len(sizes) != value.ndim or any(map(gt, value.shape, sizes)):
        raise MalformedMessage("$.terms", "a bound of the value's sizes", "another one")
    note_received(value, sizes)


def guard_fields(guard: Guard | None, sender: str) -> tuple[Any, ...]:
    """The guard of a value in a reply to another worker, as a value: the users, whether the shape
    is hidden, destinations, owners, providers, error.

    >>> guard_fields(Guard(frozenset({"ann"})), "bob")
    (('ann',), False, ('bob',), (), None, None)
    """
    terms = terms_of(guard, sender, for_caller=True)
    if guard is None or terms is None:
        return None, False, (), (), None, None
    about = terms.destinations, terms.owners, terms.providers
    return users_of(guard), guard.shape_hidden, *about, guard.error


def guard_from_fields(fields: Sequence[Any]) -> Guard | None:
    """The guard that :func:`guard_fields` describes.

    Raises :class:`~syft.exceptions.MalformedMessage` for anything else.

    >>> guard_from_fields(guard_fields(Guard(frozenset({"ann"})), "bob")).destinations
    frozenset({'bob'})
    """
    *fields, error = fields or (None,)
    try:
        users, hidden, places, owners, providers = msgspec.convert(fields, _Fields)
    except msgspec.ValidationError as wrong:
        expected = "users, destinations, owners and providers"
        raise MalformedMessage("$.guard", expected, str(wrong)) from None
    if error is not None and not isinstance(error, Exception):
        raise MalformedMessage("$.guard", "an error or nil", type(error).__name__)
    if users is None:
        return None
    about = frozenset(places), frozenset(owners), _or_all(providers)
    return Guard(frozenset(users), hidden, error, *about)
