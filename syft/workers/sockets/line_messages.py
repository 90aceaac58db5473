"""What two processes say to each other about their line: one record for each kind.

A connection begins with texts in JSON, since nothing is agreed before: a :class:`Hello`, and the
answer, a :class:`Welcome` or a :class:`Refused`.  All else is a message as those between workers
are, with a number for each kind (:class:`~syft.codes.LineCode`), on a channel of its own, between
requests and replies and in the same order.  ``docs/wire.md`` describes them for clients in other
languages.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

import msgspec

from syft.codes import LineCode
from syft.exceptions import BrokenFraming, MalformedMessage
from syft.foreign_text import one_line
from syft.ops.table import NAMES
from syft.serde.frame import Frame, to_parts
from syft.serde.limits import Limits
from syft.workers.sockets.websocket import MAX_TEXT, TOO_BIG

PROTOCOL: Final = 3
"""The version of what is said on a line; it rises when an older end would not understand."""


_MOST_REASON: Final = 1000
CONTROLS: Final = 3
"""The number under which all that follows the welcome travels: it is that of no channel."""


class Greeting(msgspec.Struct, tag_field="kind", omit_defaults=True):
    """The base class of the records with which a connection begins."""


class Control(msgspec.Struct, array_like=True):
    """The base class of the records that follow.

    ``counted`` says that the record has its place among the messages of the line, and is sent again
    after a reconnection if it had not arrived.
    """

    counted: ClassVar[bool] = True


class Resume(msgspec.Struct):
    """Which line a client wants to go on with: ``received`` messages of it have arrived."""

    line: str
    secret: str
    received: int


class Sizes(msgspec.Struct):
    """The limits of one end, which the other one keeps to."""

    max_bytes: int
    max_header_bytes: int
    max_buffers: int


class Hello(Greeting, tag="hello"):
    """Who calls: versions, the caller's name, and what proves for whom it calls.

    ``token`` is that of a user, ``ticket`` that of a worker which another client has introduced.
    """

    protocol: int
    ops: int
    name: str
    software: str = ""
    fingerprint: str = ""
    sizes: Sizes | None = None
    heartbeat: float = 2.0
    token: str | None = None
    ticket: str | None = None
    resume: Resume | None = None


class Welcome(Greeting, tag="welcome"):
    """Who answers, and what the line is called.

    ``name`` is how the worker calls the caller, ``secret`` what the caller needs to go on with the
    line ``line`` over another connection, and ``received`` how many of its messages have arrived.
    ``clock`` is what the worker's clock shows (seconds since 1970), by which tickets expire,
    and ``limits`` what one user may have there, for people.
    """

    worker: str
    protocol: int
    ops: int
    line: str
    secret: str
    name: str
    software: str = ""
    fingerprint: str = ""
    user: str | None = None
    plans: bool = False
    sizes: Sizes | None = None
    heartbeat: float = 2.0
    lease: float = 0.0
    received: int = 0
    clock: float | None = None
    limits: dict[str, int] | None = None


class Refused(Greeting, tag="refused"):
    """Why a caller is not welcome: ``code`` for programs, ``reason`` for people."""

    code: str
    reason: str


class Received(Control, tag=int(LineCode.RECEIVED)):
    """How many messages of the line have arrived, so that they need not be kept any more."""

    counted = False

    count: int


class Open(Control, tag=int(LineCode.OPEN)):
    """Requests on ``channel`` come from worker ``source`` and are for worker ``target``.

    They are made for the user of ``token``, or of ``ticket``; without either, for nobody.
    ``beside`` is another channel between the two, whose counts and numbers are used on this one
    too.
    """

    channel: int
    source: str
    target: str
    token: str | None = None
    ticket: str | None = None
    beside: int | None = None


class Meet(Control, tag=int(LineCode.MEET)):
    """Where is the worker that you call ``name``, and with which ticket for ``user``?

    With ``to``: introduce the worker ``to`` to it, if it asks, because I have named it to that one.
    """

    number: int
    name: str
    user: str | None = None
    to: str | None = None


class Introduction(Control, tag=int(LineCode.INTRODUCTION)):
    """Where a worker is: its address and what proves it, and the ticket with which to call there.

    No ``address`` says that the worker runs in the process that answers, ``unknown`` that there is
    none of that name to which this worker is introduced.  ``others`` are those to which it is.
    ``relays`` says that the process which answers carries tunnels there.
    """

    number: int
    name: str
    address: str | None = None
    fingerprint: str | None = None
    ticket: str | None = None
    unknown: bool = False
    others: list[str] = []
    relays: bool = False


class Tunnel(Control, tag=int(LineCode.TUNNEL)):
    """Begin tunnel ``number`` to the worker that you call ``name``; without a name, to you."""

    number: int
    name: str | None = None


class Opened(Control, tag=int(LineCode.OPENED)):
    """The tunnel is there; at its other end is who has the certificate of this fingerprint."""

    number: int
    fingerprint: str


class Room(Control, tag=int(LineCode.ROOM)):
    """So many more bytes may be sent through the tunnel."""

    number: int
    count: int


class Closed(Control, tag=int(LineCode.CLOSED)):
    """The tunnel is over: nothing more comes through it.  ``gone`` says that nobody is there any
    more who would know a line that led through it."""

    number: int
    reason: str
    gone: bool = False


class Settle(Control, tag=int(LineCode.SETTLE)):
    """Say when what was asked before is done; ``on`` has the workers asked that you have asked."""

    number: int
    on: bool = False


class Settled(Control, tag=int(LineCode.SETTLED)):
    """It is; ``moved`` says whether anything happened, or is still at work."""

    number: int
    moved: bool


class Busy(Control, tag=int(LineCode.BUSY)):
    """What your requests wait for, for ``seconds`` so far: an operation for your ``user``, or a
    request of another caller, of which nothing else is said."""

    counted = False

    operation: str
    user: str | None
    seconds: float
    waiting: int


class Withdraw(Control, tag=int(LineCode.WITHDRAW)):
    """Do not begin what was asked before this and has not begun; each such request is answered by
    ``NOT_BEGUN``."""

    number: int


class Withdrawn(Control, tag=int(LineCode.WITHDRAWN)):
    """How many requests will not be begun."""

    number: int
    count: int


class Tell(Control, tag=int(LineCode.TELL)):
    """Reserved: a question about the worker."""

    number: int
    question: str
    argument: Any = None


class Told(Control, tag=int(LineCode.TOLD)):
    """Reserved: the answer to a :class:`Tell`, or why there is none."""

    number: int
    answer: Any = None
    error: str | None = None


class Bye(Control, tag=int(LineCode.BYE)):
    """The other end leaves: nothing that it has of the line is kept."""

    reason: str


Kind = (
    Received
    | Open
    | Meet
    | Introduction
    | Tunnel
    | Opened
    | Room
    | Closed
    | Settle
    | Settled
    | Busy
    | Withdraw
    | Withdrawn
    | Tell
    | Told
    | Bye
)

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Hello | Welcome | Refused)
_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(Kind).decode


def encode_greeting(greeting: Greeting) -> bytes:
    """A record as JSON.

    >>> encode_greeting(Refused("version", "it is too old"))
    b'{"kind":"refused","code":"version","reason":"it is too old"}'
    """
    return _ENCODER.encode(greeting)


def decode_greeting(text: bytes) -> Hello | Welcome | Refused:
    """The record of a text.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> decode_greeting(b'{"kind":"refused","code":"version","reason":"it is too old"}').code
    'version'
    """
    try:
        greeting: Hello | Welcome | Refused = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage("$", "a text about the line", str(error)) from None
    if isinstance(greeting, Refused):
        greeting.reason = one_line(greeting.reason, _MOST_REASON)
    return greeting


def encode_control(control: Control) -> bytes:
    """A record as a whole frame.

    >>> encode_control(Received(7))[-3:]
    b'\\x92\\x01\\x07'
    """
    (frame,) = to_parts(Frame(_PACK(control), []), channel=CONTROLS)
    return bytes(frame)


def decode_control(frame: Frame) -> Kind:
    """The record that a frame carries.

    Raises :class:`~syft.exceptions.MalformedMessage`, and :class:`~syft.exceptions.BrokenFraming`
    for one that is too long.

    >>> decode_control(Frame(b"\\x92\\x01\\x07", []))
    Received(count=7)
    """
    if frame.buffers or len(frame.header) > MAX_TEXT:
        raise BrokenFraming(TOO_BIG, f"what is said of a line has more than {MAX_TEXT} bytes")
    try:
        control: Kind = _UNPACK(frame.header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage("$", "a message about the line", str(error)) from None
    if isinstance(control, Bye | Closed):  # people read it, and other callers are told
        control.reason = one_line(control.reason)
    return control


def ops_fingerprint(count: int) -> str:
    """What the first ``count`` operations of the table are called, in few letters.

    >>> ops_fingerprint(0)
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256("\n".join(NAMES[:count]).encode()).hexdigest()[:16]


def sizes_of(limits: Limits) -> Sizes:
    """The limits that the other end should keep to.

    >>> sizes_of(Limits()).max_buffers
    65536
    """
    return Sizes(limits.max_bytes, limits.max_header_bytes, limits.max_buffers)
