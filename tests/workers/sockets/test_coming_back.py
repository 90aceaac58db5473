"""Callers who say that they come back: what they claim is compared, and can be any text."""

from __future__ import annotations

import pytest

import syft as sy
from examples.clients.minimal_client import Client, Refused


@pytest.mark.parametrize("secret", ["", "x" * 43, "é" * 43, "\0", "\U0001f600"])
@pytest.mark.parametrize("knows_the_line", [False, True])
def test_a_wrong_secret_is_refused(
    hook: sy.TorchHook, secret: str, knows_the_line: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="bob") as bob:
        with Client(str(bob.address)) as client:
            line = client.welcome["line"] if knows_the_line else "x"
            resume = {"line": line, "secret": secret, "received": 0}
            tell = Client.tell
            with monkeypatch.context() as patch:
                patch.setattr(
                    Client, "tell", lambda self, text: tell(self, {**text, "resume": resume})
                )
                with pytest.raises(Refused) as refusal:
                    Client(str(bob.address))
            assert refusal.value.code == "unknown line"
            assert client.search("#nothing") == [], "the worker serves on, and the line is whole"
