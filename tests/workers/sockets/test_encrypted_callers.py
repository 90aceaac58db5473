"""A worker that is reached over TLS: those who call it, and those who do not know how to."""

from __future__ import annotations

import contextlib
import socket

import pytest
import torch

import syft as sy


@pytest.fixture
def encrypted(tmp_path):
    worker = sy.WebsocketServerWorker(
        host="0.0.0.0", port=0, id="dan", state=tmp_path, anonymous=True
    )
    with worker:
        yield worker


def call(hook, worker):
    return sy.WebsocketClientWorker(hook, port=worker.port, fingerprint=worker.identity.fingerprint)


def test_several_callers_are_served(hook, encrypted):
    for _ in range(2):
        dan = call(hook, encrypted)
        assert torch.equal((torch.ones(2).send(dan) + 1).get(), torch.full((2,), 2.0))
        dan.close()


def test_one_who_does_not_speak_tls_keeps_nobody_from_calling(hook, encrypted):
    with socket.create_connection(("127.0.0.1", encrypted.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while plain.recv(100):
                pass
    test_several_callers_are_served(hook, encrypted)
