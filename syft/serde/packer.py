"""The state of packing or unpacking one message: its tensor buffers, counts and limits.

A :class:`Packer` collects the tensor buffers that the header refers to by index; an
:class:`Unpacker` gives each out at most once, and counts depth and items against the limits.  A
packer counts too, because containers that occur several times in a value are written out each time.
Both hold the worker and the connection for the codecs of upper layers, which make pointers; serde
does not use these.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import MalformedMessage, NotSendable
from syft.serde.expect import expect_int
from syft.serde.limits import DEFAULT_LIMITS, Limits


class Packer:
    """Gathers the tensor buffers of one outgoing message.

    The buffers alias the memory of the tensors that were packed (``Frame.owned`` copies them).
    ``leaving`` holds the pointers whose duty to collect goes to the receiver with the message;
    ``stays`` says that the value remains here too, so that its pointers keep theirs.
    With ``gradients`` the gradients of tensors go along: whoever sets it has asked whether they may
    (:func:`~syft.workers.labels.memory_labels.travelling_guard_of`).
    After ``pack`` has raised, a packer cannot be used again.

    >>> Packer().buffers
    []
    """

    __slots__ = (
        "buffers",
        "leaving",
        "stays",
        "gradients",
        "worker",
        "destination",
        "depth",
        "max_depth",
        "items",
        "max_items",
        "limits",
    )

    def __init__(
        self,
        worker: Any = None,
        destination: Any = None,
        limits: Limits = DEFAULT_LIMITS,
        stays: bool = False,
        gradients: bool = False,
    ) -> None:
        self.buffers: list[torch.Tensor] = []
        self.leaving: list[Any] = []
        self.stays, self.gradients = stays, gradients
        self.worker, self.destination = worker, destination
        self.depth, self.max_depth, self.limits = 0, limits.max_depth, limits
        self.items, self.max_items = 0, limits.max_items

    def too_deep(self) -> NotSendable:
        """Make the refusal of a value that nests deeper than ``max_depth``.

        >>> print(Packer(limits=Limits(max_depth=3)).too_deep())
        Cannot send a value nested more than 3 levels deep: flatten it, and see that no container \
holds itself.
        """
        return NotSendable(
            f"a value nested more than {self.max_depth} levels deep",
            "flatten it, and see that no container holds itself",
        )

    def too_many(self) -> NotSendable:
        """Make the refusal of a value with more than ``max_items`` items in its containers.

        >>> print(Packer(limits=Limits(max_items=3)).too_many())
        Cannot send a value with more than 3 items: send it in parts, or numbers as a tensor.
        """
        return NotSendable(
            f"a value with more than {self.max_items} items",
            "send it in parts, or numbers as a tensor",
        )

    def add(self, buffer: torch.Tensor) -> int:
        """Keep a one-dimensional uint8 tensor as the next buffer, and return its index.

        >>> Packer().add(torch.zeros(4, dtype=torch.uint8))
        0
        """
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def hand_over(self, to: str) -> None:
        """Call ``share_with(to)`` on everything in ``leaving``, before the message is sent to the
        receiver of that name.

        >>> Packer().hand_over("bob")
        """
        for link in self.leaving:
            link.share_with(to)

    def sent(self) -> None:
        """Call ``leave()`` on everything in ``leaving``, once the message is sent.

        >>> Packer().sent()
        """
        for link in self.leaving:
            link.leave()


class Unpacker:
    """Gives out the tensor buffers of one incoming message, and checks the limits.

    With ``owns_buffers`` tensors use the memory of the buffers (a frame from the network); without
    it they are copied (a frame whose buffers are the sender's tensors).  ``taken`` counts the bytes
    given out so far.

    >>> unpacker = Unpacker([torch.zeros(4, dtype=torch.uint8)])
    >>> unpacker.take(0, 4)
    tensor([0, 0, 0, 0], dtype=torch.uint8)
    """

    __slots__ = (
        "buffers",
        "limits",
        "worker",
        "source",
        "owns_buffers",
        "depth",
        "max_depth",
        "items",
        "max_items",
        "taken",
        "_left",
    )

    def __init__(
        self,
        buffers: list[torch.Tensor],
        limits: Limits = DEFAULT_LIMITS,
        worker: Any = None,
        source: Any = None,
        owns_buffers: bool = True,
    ) -> None:
        self.buffers, self.limits = buffers, limits
        self.worker, self.source, self.owns_buffers = worker, source, owns_buffers
        self.depth, self.max_depth = 0, limits.max_depth
        self.items, self.max_items = 0, limits.max_items
        self.taken = 0
        self._left: set[int] = set(range(len(buffers)))

    def take(self, index: Any, nbytes: int) -> torch.Tensor:
        """Return buffer ``index``, which must have exactly ``nbytes`` and be unused so far.

        >>> Unpacker([torch.zeros(4, dtype=torch.uint8)]).take(0, 8)
        Traceback (most recent call last):
        ...
        syft.exceptions.MalformedMessage: Malformed message at $.buffer: expected a buffer of \
8 bytes, got 4 bytes.
        """
        if type(index) is not int or index not in self._left:
            some = f"an unused buffer (the frame has {len(self.buffers)})"
            got = f"buffer {expect_int(index, '.buffer')}"
            raise MalformedMessage("$.buffer", some, got)
        buffer = self.buffers[index]
        size = buffer.numel()
        if size != nbytes:
            expected, got = f"a buffer of {nbytes} bytes", f"{size} bytes"
            raise MalformedMessage("$.buffer", expected, got)
        self._left.remove(index)
        self.taken += size
        return buffer

    def finish(self) -> None:
        """Refuse a message with buffers that its header does not refer to.

        >>> Unpacker([]).finish()
        """
        if self._left:
            index = min(self._left)
            raise MalformedMessage(
                f"$.buffers[{index}]", "a tensor that uses this buffer", "none in the header"
            )
