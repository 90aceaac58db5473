"""The options of ``syft worker`` that say where other workers are, and what it is called itself."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography import x509

import syft as sy
from syft.exceptions import PermissionDenied, ProviderDenied, UnusableSetting
from syft.node import worker_command
from syft.node.cli import main
from syft.node.destinations import read_destinations

FINGERPRINT = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "text, place",
    [
        (f"alice={FINGERPRINT}", FINGERPRINT),
        ("alice=/run/a=b.sock", "unix:///run/a=b.sock"),
        ("alice=unix:///run/alice.sock", "unix:///run/alice.sock"),
        ("alice=ws://[::1]:8777", "ws://[::1]:8777"),
    ],
)
def test_places_that_are_verified(text: str, place: str) -> None:
    assert read_destinations([text]) == {"alice": place}


@pytest.mark.parametrize(
    "given",
    [
        ["alice"],
        ["=/run/alice.sock"],
        ["alice="],
        ["alice=sha256:00"],
        [f"alice={FINGERPRINT.upper()}"],
        ["alice=wss://alice.example:8777"],
        ["alice=ws://192.0.2.1:8777"],
        [f"alice={FINGERPRINT}", "alice=/run/alice.sock"],
    ],
)
def test_what_proves_nothing_is_refused(given: list[str]) -> None:
    with pytest.raises(UnusableSetting, match="--destination"):
        read_destinations(given)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[sy.WebsocketServerWorker]:
    """The workers that the command makes; they do not serve."""
    made: list[sy.WebsocketServerWorker] = []

    def keep(server: sy.WebsocketServerWorker, *rest: Any) -> int:
        made.append(server)
        server.close()
        return 0

    monkeypatch.setattr(worker_command, "serve_until_stopped", keep)
    return made


def test_the_command_hands_them_on(
    tmp_path: Path, made: list[sy.WebsocketServerWorker], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["worker", "--id", "bob", "--host", "0.0.0.0", "--port", "0", "--anonymous"]
    given += ["--state", str(tmp_path), "--cert-name", "bob.example", "--cert-name", "192.0.2.7"]
    given += ["--limit", "bytes=1000", "--limit", "objects=7"]
    assert main([*given, "--destination", f"alice={FINGERPRINT}"]) == 0
    (server,) = made
    assert server.destinations == {"alice": FINGERPRINT}
    assert server.core.store.charges.limits == sy.PeerLimits(bytes=1000, objects=7)
    pem = (tmp_path / "certificate.pem").read_bytes()
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "bob.example"} <= set(names.get_values_for_type(x509.DNSName))
    assert "192.0.2.7" in map(str, names.get_values_for_type(x509.IPAddress))


@pytest.mark.parametrize(
    "wrong, said",
    [
        (["--destination", "alice"], "--destination"),
        (["--cert-name", "b.example", "--tls-cert", "c.pem", "--tls-key", "k.pem"], "--cert-name"),
        (["--cert-name", "b.example"], "--cert-name"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str], wrong: list[str], said: str
) -> None:
    assert main(["worker", "--port", "0", *wrong]) == worker_command.NOT_STARTED
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_private_values_go_where_the_option_says(hook: sy.TorchHook, tmp_path: Path) -> None:
    path = tmp_path / "alice.sock"
    for option, goes in ((f"alice={path}", True), ("alice=/elsewhere.sock", False)):
        secret = torch.ones(2).private_tensor(["ann"], allow_destinations=["alice"]).tag("#secret")
        places = read_destinations([option])
        with (
            sy.WebsocketServerWorker(hook, id="alice", unix=path) as alice_server,
            sy.WebsocketServerWorker(
                hook, port=0, id="bob", data=[secret], destinations=places
            ) as server,
        ):
            alice, bob = sy.connect(str(alice_server.address)), sy.connect(str(server.address))
            (found,) = bob.search("#secret")
            if goes:
                assert found.copy().move(alice).shape == (2,)
            else:
                with pytest.raises(PermissionDenied, match="may not go"):
                    found.copy().move(alice)
            del found
            alice.close()
            bob.close()


def test_whom_the_option_names_deals_for_private_values(hook: sy.TorchHook, tmp_path: Path) -> None:
    """At the worker that holds the data, and at the parties."""
    paths = {name: tmp_path / f"{name}.sock" for name in ("alice", "carl", "dora", "eve")}
    places = read_destinations(f"{name}={path}" for name, path in paths.items())
    data = torch.tensor([1, 2]).private_tensor(
        ["ann"], allow_destinations=["alice", "carl"], allow_providers=["dora"]
    )
    with contextlib.ExitStack() as stack:
        servers = [
            sy.WebsocketServerWorker(hook, id=name, unix=path, destinations=places)
            for name, path in paths.items()
        ]
        settings: Any = {"data": [data.tag("#secret")], "destinations": places}
        servers.append(sy.WebsocketServerWorker(hook, port=0, id="bob", **settings))
        alice, carl, dora, eve, bob = (
            sy.connect(str(stack.enter_context(server).address)) for server in servers
        )
        (found,) = bob.search("#secret")
        with pytest.raises(ProviderDenied, match="one of dora"):
            found.share(alice, carl, crypto_provider=eve)
        shared = found.share(alice, carl, crypto_provider=dora)
        assert (shared * shared).shape == (2,)
        with pytest.raises(PermissionDenied, match="private"):
            (shared * shared).get()
        del found, shared
        for worker in (alice, carl, dora, eve, bob):
            worker.close()
