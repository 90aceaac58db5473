"""Questions about a line: only the line that was asked answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from examples.clients.minimal_client import Client
from tests.workers.sockets.line_records import message_of


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "introduction", "name": "carol", "unknown": True},
        {"kind": "settled", "moved": False},
        {"kind": "told", "answer": 5},
    ],
    ids=lambda answer: str(answer["kind"]),
)
def test_a_stranger_does_not_answer_for_a_caller(hook: sy.TorchHook, answer: Any) -> None:
    """The numbers of questions can be guessed: an answer would send data to another worker."""
    with sy.WebsocketServerWorker(hook, port=0, id="bob") as bob:
        with sy.WebsocketServerWorker(hook, port=0, id="carol") as carol:
            with Client(str(bob.address)) as stranger:
                for number in range(1, 20):
                    stranger.websocket.send(*message_of({"number": number, **answer}))
                assert stranger.search("#nothing") == []
                at_bob = sy.WebsocketClientWorker(hook, port=bob.port)
                at_carol = sy.WebsocketClientWorker(hook, port=carol.port)
                moved = torch.ones(3).send(at_bob).move(at_carol)
                assert moved.location is at_carol
                assert moved.get().tolist() == [1, 1, 1]
                assert not bob.board._asked, "nothing is kept of questions and answers"
                at_bob.close()
                at_carol.close()
