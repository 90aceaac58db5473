"""What a server is told at its start: sockets and certificates that it can and cannot use."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import syft as sy
from syft.exceptions import FileRefused
from syft.trust.certificates import own_certificate


def test_a_file_at_the_path_of_a_socket_is_not_removed(tmp_path: Path, hook: sy.TorchHook) -> None:
    path = tmp_path / "data.npz"
    path.write_text("years of work")
    with pytest.raises(OSError, match="in use"):
        sy.WebsocketServerWorker(hook, unix=path, id="dan")
    assert path.read_text() == "years of work"


def test_a_socket_that_nobody_serves_is_replaced(tmp_path: Path, hook: sy.TorchHook) -> None:
    path = tmp_path / "dan.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with sy.WebsocketServerWorker(hook, unix=path, id="dan") as server:
        there = sy.connect(str(server.address))
        assert there.id == "dan"
        there.close()


def test_a_key_may_stand_before_the_certificate(tmp_path: Path, hook: sy.TorchHook) -> None:
    own = own_certificate(tmp_path / "own")
    both = tmp_path / "both.pem"
    both.write_bytes(own.key_path.read_bytes() + b"Subject: \xe9\n" + own.cert_path.read_bytes())
    with sy.WebsocketServerWorker(hook, port=0, id="dan", cert_path=both, key_path=both) as dan:
        assert dan.identity is not None and dan.identity.fingerprint == own.fingerprint
        there = sy.connect(str(dan.address), fingerprint=own.fingerprint)
        assert there.id == "dan"
        there.close()


@pytest.mark.parametrize(
    "content", ["1,2", "-----BEGIN{0} 1 -----END{0}", "-----BEGIN{0}é-----END{0}"]
)
def test_a_file_without_a_certificate_is_named(
    content: str, tmp_path: Path, hook: sy.TorchHook
) -> None:
    path = tmp_path / "ages.csv"
    path.write_text(content.format(" CERTIFICATE-----"))
    with pytest.raises(FileRefused, match="it holds no certificate"):
        sy.WebsocketServerWorker(hook, port=0, cert_path=path, key_path=path)
