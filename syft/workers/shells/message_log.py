"""A log of all messages between workers, for tests of which data was sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from syft.serde.frame import Frame
from syft.workers.shells.network import Network
from syft.workers.wire import messages
from syft.workers.wire.sealed_bytes import is_sealed


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """One message with its sender, receiver, tensor data and size.

    >>> with hook.record() as log:
    ...     x = torch.ones(2).send(bob)
    >>> log[0].sender, log[0].receiver, log[0].buffers[0].nbytes
    ('me', 'bob', 8)
    """

    sender: str
    receiver: str
    message: messages.Message
    buffers: tuple[torch.Tensor, ...]
    nbytes: int


class MessageLog:
    """Every message of a network while the ``with`` block runs. Iterate over it, or index it.

    The tensor data of a message is copied, so that an entry shows the data at the time of sending.

    >>> with hook.record() as log:
    ...     x = torch.ones(2).send(bob) + 1
    >>> [type(entry.message).__name__ for entry in log.to("bob")]
    ['Put', 'Command']
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._entries: list[LoggedMessage] = []

    def __enter__(self) -> MessageLog:
        self._network.observers.append(self._observe)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._network.observers.remove(self._observe)

    def _observe(self, sender: str, receiver: str, frame: Frame) -> None:
        if is_sealed(frame):
            return  # nobody can read it here
        buffers = tuple(buffer.clone() for buffer in frame.buffers)
        message = messages.decode(frame.header)
        self._entries.append(LoggedMessage(sender, receiver, message, buffers, frame.nbytes))

    def to(self, receiver: str) -> list[LoggedMessage]:
        """The messages that reached one worker.

        >>> with hook.record() as log:
        ...     x = torch.ones(2).send(bob)
        >>> len(log), len(log.to("bob")), len(log.to("me"))
        (2, 1, 1)
        """
        return [entry for entry in self._entries if entry.receiver == receiver]

    def __iter__(self) -> Iterator[LoggedMessage]:
        return iter(self._entries)

    def __getitem__(self, index: int) -> LoggedMessage:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)
