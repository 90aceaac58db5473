"""The messages between workers: one small frozen record per kind.

On the wire a message is a tuple that starts with its number (its tag).  The second field of a
request that has a reply is its sequence number, which the reply contains too.  Operands in a
message (`args`, `value`, …) are the nested tuples of :mod:`syft.serde`; tensor data is sent in the
buffers of the frame.  Typed records are checked while they are decoded, and cost a third of the
time of untyped ones (about 0.2 µs each way).

A request is decoded once, by the worker that serves it, and a reply once, by the connection that
sent the request.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from syft.codes import MessageCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.workers.wire.terms import Terms

GRAD_MODE = 1
"""Command flag: autograd records the operation."""
INFERENCE_MODE = 2
"""Command flag: the operation runs in inference mode."""
IN_CONTAINER = 4
"""Command flag: the caller expects its tensors in a tuple or a list, not one tensor by itself."""
DEFAULT_DTYPE = "default"
"""What stands for a device in ``autocast`` where the dtype is the default dtype of the caller."""
COUNT_SHIFT = 3
"""The bits of a command's flags from this one on say how many tensors its caller expects, and those
of a run how many results."""
MOST_NAMED = 8
"""The most promises that a reply names."""


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The base class of messages: frozen records that are sent as tuples."""

    verb: ClassVar[str] = "a request to"
    """What the user does who has the message sent, for errors; the worker's name follows it."""

    failures: ClassVar[int | None] = None
    """In the requests that have this field: the number of failures the caller has seen on this
    connection.  A worker that has sent more skips the request: the caller has to read the earlier
    error first.  With nil the request is never skipped."""


# ------------------------------------------------------------------------------------ requests


class Command(Message, frozen=True, tag=int(MessageCode.COMMAND)):
    """Run operation number ``op`` of the op table; a single result tensor gets id ``out``.

    ``out`` is 0 when the result is one of the arguments (in place, or ``out=``).  Otherwise
    ``flags >> COUNT_SHIFT`` is the number of tensors that the caller expects, which get ``out`` and
    the ids that follow; it is 0 when the caller does not know, and waits to be told.  The flag
    ``IN_CONTAINER`` says that they come in a tuple or a list, with None beside them.  ``drop``
    lists objects whose last pointer is gone.  ``autocast`` lists ``(device type, dtype)`` for the
    devices on which autocast is enabled, and ``("default", dtype)`` if the caller's default dtype
    is not float32.
    """

    seq: int
    op: int
    args: tuple[Any, ...]
    out: int
    flags: int
    drop: tuple[int, ...] = ()
    kwargs: dict[str, Any] | None = None
    autocast: tuple[Any, ...] | None = None
    failures: int | None = None  # type: ignore[misc]


class Run(Message, frozen=True, tag=int(MessageCode.RUN)):
    """Run the definition of ``number`` in this connection's table; its results get the ids ``out``,
    ``out + 1``, …

    ``define`` is a new definition of the number (nil: it keeps its definition).  ``inputs`` are ids
    of objects, numbers and values, by the kinds of the definition; nil repeats the input of the
    last run.  ``flags >> COUNT_SHIFT`` is the number of results that the caller expects, those that
    are numbers or None among them; with another number nothing is run or stored.  ``drop`` lists
    ids and ``[first id, count]``; the other fields are those of :class:`Command`.
    """

    verb = "a call at"

    seq: int
    number: int
    inputs: list[Any]
    out: int
    flags: int
    drop: tuple[int | tuple[int, int], ...] = ()
    define: Any = None
    autocast: tuple[Any, ...] | None = None
    failures: int | None = None  # type: ignore[misc]


class Put(Message, frozen=True, tag=int(MessageCode.PUT)):
    """Store ``value`` under ``id``. ``users`` are the users who may read it (None: everyone).

    ``shape_hidden`` says that even its shape follows from private values, and ``terms`` the rest of
    what guards it.  ``writers`` are those who may change it besides the caller.  With ``source``
    the value is a leaf that requires grad, and each of its gradients is sent to that object of the
    caller: so a graph goes on at another worker.
    """

    verb = "send() to"

    seq: int
    id: int
    value: Any
    users: tuple[str, ...] | None = None
    shape_hidden: bool = False
    writers: tuple[str, ...] = ()
    terms: Terms | None = None
    source: int | None = None
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Fetch(Message, frozen=True, tag=int(MessageCode.FETCH)):
    """Reply with the object, ``depth`` steps of ``.child`` down; it stays only if ``keep``.

    With ``guarded``, for the store of the worker that asks, the reply is (value, users or None,
    whether its shape is hidden, destinations, owners, providers, error).  ``reading`` numbers a
    reading of shares: the same at all parties, and each one once.
    """

    verb = "get() from"

    seq: int
    id: int
    depth: int = 0
    keep: bool = False
    user: str | None = None
    guarded: bool = False
    drop: tuple[int, ...] = ()
    reading: int = 0
    failures: int | None = None  # type: ignore[misc]


class PutAll(Message, frozen=True, tag=int(MessageCode.PUT_ALL)):
    """Store the tensors of the bundle ``value`` under the ids from ``first`` on: all, or none.

    ``guards`` lists the private ones: the place in the bundle, the users who may read it, whether
    even its shape follows from private values, and the rest of what guards it.  ``writers`` lists
    places and those who may change what is there besides the caller.
    """

    verb = "send() to"

    seq: int
    first: int
    value: Any
    guards: tuple[tuple[int, tuple[str, ...], bool, Terms | None], ...] = ()
    writers: tuple[tuple[int, tuple[str, ...]], ...] = ()
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class FetchAll(Message, frozen=True, tag=int(MessageCode.FETCH_ALL)):
    """Reply with a bundle of the objects; the worker keeps them only if ``keep``.

    An object is named by its id, or by its id and the number of ``.child`` steps.  If one of them
    cannot be handed over, all stay.
    """

    verb = "get() from"

    seq: int
    ids: tuple[int | tuple[int, int], ...]
    keep: bool = False
    user: str | None = None
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Drop(Message, frozen=True, tag=int(MessageCode.DROP)):
    """Drop these objects: their last pointers are gone."""

    seq: int
    ids: tuple[int, ...]


class Move(Message, frozen=True, tag=int(MessageCode.MOVE)):
    """Send the object to worker ``to``, under the same id, and remove it here.

    A graph behind it stays here: the object arrives as a leaf that requires grad, gradients that
    reach the leaf come back, and the reply is true.  If ``requires_grad`` is false, they do not,
    and the object arrives detached; if it is true, also an object without a graph arrives as a
    leaf.  The reply is false if graphs here end at the object: their gradients go after it.
    """

    verb = "move() from"

    seq: int
    id: int
    to: str
    requires_grad: bool | None = None
    user: str | None = None
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Duplicate(Message, frozen=True, tag=int(MessageCode.DUPLICATE)):
    """Store a copy of object ``id`` (values, grad, tags; no graph) under ``out``."""

    verb = "copy() at"

    seq: int
    id: int
    out: int
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Search(Message, frozen=True, tag=int(MessageCode.SEARCH)):
    """List the objects that carry every one of ``words`` as a tag (or as their id)."""

    verb = "search() of"

    seq: int
    words: tuple[str, ...]
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Annotate(Message, frozen=True, tag=int(MessageCode.ANNOTATE)):
    """Add tags to an object, and set its description unless it is None."""

    verb = "tag() or describe() at"

    seq: int
    id: int
    tags: tuple[str, ...]
    description: str | None = None
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Share(Message, frozen=True, tag=int(MessageCode.SHARE)):
    """Let ``writers`` change object ``id`` too (a pointer went to them), and ``readers`` find it;
    nothing, if it is not there or its caller may not change it.  It has no reply."""

    id: int
    writers: tuple[str, ...]
    readers: tuple[str, ...] = ()


class Allow(Message, frozen=True, tag=int(MessageCode.ALLOW)):
    """Store a copy of object ``id`` under ``out`` that ``users`` may read too, that may go to the
    workers ``destinations``, and for shares of which ``providers`` may deal.
    Only the owners of what guards the object may do that, and the owner of the worker."""

    verb = "allow() at"

    seq: int
    id: int
    users: tuple[str, ...]
    out: int
    destinations: tuple[str, ...] = ()
    drop: tuple[int, ...] = ()
    providers: tuple[str, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Describe(Message, frozen=True, tag=int(MessageCode.DESCRIBE)):
    """Ask for an object's tags, description and shape."""

    verb = "reading tags at"

    seq: int
    id: int
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Promise(Message, frozen=True, tag=int(MessageCode.PROMISE)):
    """Announce objects that will arrive later: operations on them wait instead of failing.

    They come from ``sender``, a user or a caller that acts for none (nil: the caller's own user, or
    the caller), and are taken from nobody else.
    """

    verb = "promise() of"

    seq: int
    ids: tuple[int, ...]
    sender: str | None = None
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Start(Message, frozen=True, tag=int(MessageCode.START)):
    """Start this worker's part of a collective operation (:mod:`syft.workers.handlers.collective`).

    ``execution`` rises over a connection.  ``parties`` names the workers that take part, in order;
    ``rank`` is this worker's place.  Results are promised under ``outs``; ``user`` may use inputs.
    """

    verb = "a collective operation with"

    seq: int
    program: int
    execution: int
    parties: tuple[str, ...]
    rank: int
    args: tuple[Any, ...]
    outs: tuple[int, ...]
    drop: tuple[int, ...] = ()
    user: str | None = None


class Exchange(Message, frozen=True, tag=int(MessageCode.EXCHANGE)):
    """A *letter*: what one party of a collective sends another.  One with a ``seq`` has a reply.

    ``number`` counts those from this party, of this ``rank``, to the receiver.  ``values`` are
    operands.  ``users`` may read results (None: everyone); ``terms`` is the rest of the guard.
    """

    execution: int
    number: int
    rank: int
    values: tuple[Any, ...]
    users: tuple[str, ...] | None = None
    shape_hidden: bool = False
    terms: Terms | None = None
    seq: int = 0


class Abort(Message, frozen=True, tag=int(MessageCode.ABORT)):
    """A party of a collective operation failed, and why as far as that is public.  No reply.  With
    ``numbers`` only these letters will not come.  With a rank of -2 the starter cancels it all, and
    with that of another party it says that this one is gone."""

    execution: int
    rank: int
    reason: str
    numbers: tuple[int, ...] | None = None
    error: Any = None


class Relay(Message, frozen=True, tag=int(MessageCode.RELAY)):
    """Replace the worker's object by a pointer with the same id, or the reverse.

    The object is sent to worker ``to``.  If ``to`` is None, the object is a pointer: the worker
    fetches its target, and stores that under the same id.
    """

    verb = "remote_send() or remote_get() at"

    seq: int
    id: int
    to: str | None
    user: str | None = None
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Convert(Message, frozen=True, tag=int(MessageCode.CONVERT)):
    """Store object ``id`` in another representation (conversion ``code``) under ``out``."""

    verb = "fix_precision() or float_precision() at"

    seq: int
    id: int
    code: int
    args: Any
    out: int
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Holds(Message, frozen=True, tag=int(MessageCode.HOLDS)):
    """Ask whether object ``id`` is a tensor with this content (see :mod:`syft.ids`)."""

    seq: int
    id: int
    digest: bytes
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Cancel(Message, frozen=True, tag=int(MessageCode.CANCEL)):
    """Cancel request ``request`` if it is parked: its caller no longer waits."""

    seq: int
    request: int


class GiveUp(Message, frozen=True, tag=int(MessageCode.GIVE_UP)):
    """Give up the promise of object ``id``, as only the connection may that made it: what waits for
    it fails with ``reason``."""

    verb = "give_up() at"

    seq: int
    id: int
    reason: str
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class Gradients(Message, frozen=True, tag=int(MessageCode.GRADIENTS)):
    """Store the gradient of each leaf under ``out``, ``out + 1``, …, and reply with their kinds,
    a byte each: ``NO_GRADIENT`` (nothing is stored), ``LIKE_LEAF`` or ``OTHER_KIND``.

    If one of the leaves is missing, or may not be asked about, nothing is stored.
    """

    verb = "reading gradients at"

    seq: int
    leaves: tuple[int, ...]
    out: int
    drop: tuple[int, ...] = ()
    failures: int | None = None  # type: ignore[misc]


class ClearGradients(Message, frozen=True, tag=int(MessageCode.CLEAR_GRADIENTS)):
    """Have no gradient at each of these leaves, as ``leaf.grad = None`` would.

    If one of them is missing, all keep theirs.
    """

    verb = "clearing gradients at"

    seq: int
    leaves: tuple[int, ...]
    drop: tuple[int, ...] = ()


class Await(Message, frozen=True, tag=int(MessageCode.AWAIT)):
    """Reply with ``Done`` when object ``id`` is there, or was until it was fetched, moved or
    dropped, and with the error as a value if it will not come any more: its promise was given up or
    dropped, what was to make it failed, it was cleared away, or it was never promised.

    That error is an answer, and no failure of the caller's.
    """

    verb = "waiting for a promise at"

    seq: int
    id: int


# ------------------------------------------------------------------------------------- replies


class Done(Message, frozen=True, tag=int(MessageCode.DONE)):
    """The request succeeded, and (for a command) made exactly one tensor, now stored under
    ``out``."""

    seq: int


class Value(Message, frozen=True, tag=int(MessageCode.VALUE)):
    """The request succeeded with this value; tensors in it are references to stored objects."""

    seq: int
    value: Any


class Failure(Message, frozen=True, tag=int(MessageCode.FAILURE)):
    """The request raised; ``error`` is the exception as an operand.

    ``action`` is the number of the action of a group that raised it, or nil: what does not depend
    on that one has been made.
    """

    seq: int
    error: Any
    action: int | None = None


class Parked(Message, frozen=True, tag=int(MessageCode.PARKED)):
    """The request waits for objects that are only promised; its reply follows later.

    ``ids`` are promises of the same connection for which it waits, by itself or through other
    requests that wait: at most ``MOST_NAMED``.  ``more`` says that there are others, or some
    of another connection.  None are named if it waits for the other parties of a collective
    operation.
    """

    seq: int
    ids: tuple[int, ...] = ()
    more: bool = False


class Skipped(Message, frozen=True, tag=int(MessageCode.SKIPPED)):
    """The request was skipped: an earlier one failed, and the caller had not read that failure."""

    seq: int


class Forgotten(Message, frozen=True, tag=int(MessageCode.FORGOTTEN)):
    """The worker was cleared: no number of this connection stands for anything.  No reply."""


class Stale(Message, frozen=True, tag=int(MessageCode.STALE)):
    """Another caller may have changed what this one was told of shapes and gradients (or, with
    ``gradients``, of these alone).  No request is answered by it."""

    gradients: bool


class Cancelled(Message, frozen=True, tag=int(MessageCode.CANCELLED)):
    """The request was not run: nobody wants its results any more, and it changes nothing else."""

    seq: int


class NotBegun(Message, frozen=True, tag=int(MessageCode.NOT_BEGUN)):
    """The request was not run: its caller withdrew it before its turn.  It is no failure."""

    seq: int


Request = (
    Command
    | Run
    | Put
    | Fetch
    | PutAll
    | FetchAll
    | Drop
    | Move
    | Duplicate
    | Search
    | Annotate
    | Share
    | Allow
    | Describe
    | Promise
    | Start
    | Exchange
    | Abort
    | Relay
    | Convert
    | Holds
    | Cancel
    | GiveUp
    | Await
    | Gradients
    | ClearGradients
)
Reply = Done | Value | Failure | Parked | Skipped | Forgotten | Stale | Cancelled | NotBegun

_encoder = msgspec.msgpack.Encoder()

encode = _encoder.encode
"""Turn a message into the header bytes of a frame."""

read_request = msgspec.msgpack.Decoder(Request).decode
"""Decode a request; raises the errors of msgspec, ``UNREADABLE``, and is faster than
:func:`decode`."""

read_reply = msgspec.msgpack.Decoder(Reply).decode
"""Decode a reply; raises the errors of msgspec, ``UNREADABLE``, and is faster than
:func:`decode`."""

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What :func:`read_request` and :func:`read_reply` raise for anything else."""

_decode_any = msgspec.msgpack.Decoder(Request | Reply).decode


def decode(header: bytes) -> Request | Reply:
    """Turn header bytes into a message, checking its number and the type of every field.

    Raises :class:`~syft.exceptions.MalformedMessage` with the path to what is wrong, and
    :class:`~syft.exceptions.LimitExceeded` for nesting that is too deep to decode.

    >>> decode(encode(Done(7)))
    Done(seq=7)
    >>> decode(b"\\x92\\x20\\xa1x")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $[1]: expected `int`, got `str`.
    """
    try:
        message: Request | Reply = _decode_any(header)
        return message
    except msgspec.ValidationError as error:
        raise _malformed(str(error)) from None
    except msgspec.DecodeError as error:
        raise MalformedMessage("$", "a MessagePack message", str(error)) from None
    except RecursionError:
        raise LimitExceeded("$", "max_depth", 1000, 1001) from None
    except UnicodeDecodeError:
        raise MalformedMessage("$", "UTF-8 text", "other bytes") from None


def _malformed(text: str) -> MalformedMessage:
    """Split msgspec's "Expected `int`, got `str` - at `$[1]`" into its parts."""
    text, _, path = text.partition(" - at `")
    expected, _, got = text.removeprefix("Expected ").partition(", got ")
    return MalformedMessage(path.rstrip("`") or "$", expected, got or "something else")
