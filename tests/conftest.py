"""What every test runs inside: no cycle collector, and nothing left behind.

With the cycle collector off, an object that is only freed by it counts as a leak: a remote tensor
must die with its last pointer, not some time later.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft import c_extension
from tests.shells.child import hook_with_hub, make_worker, serve
from tests.shells.owner import inspect
from tests.shells.processes import ChildProcesses
from tests.shells.served import Served, serve_behind_socket
from tests.terminal import Terminal, show_at

SHELLS = [
    "virtual",
    pytest.param("child", marks=pytest.mark.database(together="child processes")),
    pytest.param("socket", marks=pytest.mark.database(together="sockets")),
]
OF_POINTERS = ("tests/tensors/test_", "tests/workers/client/test_")
EXTENSION = [
    pytest.param(True, id="in C"),
    pytest.param(False, id="in Python", marks=pytest.mark.database),
]
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


_UNHOOKED = {
    base: frozenset(vars(base))
    for kind in (torch.Tensor, nn.Module, torch.utils.data.Dataset)
    for base in kind.mro()
}


def _left_on_torch() -> list[str]:
    # Python itself puts dunders on classes: copyreg does (__slotnames__) where one is copied.
    changed = (vars(base).keys() ^ names for base, names in _UNHOOKED.items())
    return [name for names in changed for name in names if not name.startswith("__")]


_PATIENCE = 5.0
"""Seconds in which workers of other processes tell one another what is gone."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    setattr(item, f"report_{report.when}", report)
    return report


def _held(hook: sy.TorchHook) -> dict[str, Any]:
    """What lies on the workers, by their names."""
    workers = list(hook.local_worker.network.workers.values())
    held = {worker.id: inspect(worker).objects for worker in workers}
    return {name: objects for name, objects in held.items() if objects}


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves an object on a worker, a thread, or an attribute on torch."""
    gc.collect()
    gc.freeze()
    gc.disable()
    threads = set(threading.enumerate())
    grad_mode = torch.is_grad_enabled()
    try:
        yield
        report = getattr(request.node, "report_call", None)
        passed = report is not None and report.passed
        held = {}
        if sy.TorchHook._current is not None:
            current = sy.TorchHook._current
            if passed:
                end = time.monotonic() + _PATIENCE
                while (held := _held(current)) and time.monotonic() < end:
                    time.sleep(0.01)
            current.close()
        assert not held, f"objects left on workers: {held}"
        assert not (left := _left_on_torch()), f"attributes left on torch: {left}"
        assert torch.is_grad_enabled() is grad_mode, "grad mode left changed"
        end = time.monotonic() + _PATIENCE
        while (more := set(threading.enumerate()) - threads) and time.monotonic() < end:
            time.sleep(0.01)  # one of torch's loaders ends when it is scheduled
        assert not more, f"threads left running: {more}"
    finally:
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests that are marked ``every_shell`` with workers of every shell, and those of
    pointers with the extension in C and without it."""
    if c_extension.EXTENSION is not None and metafunc.definition.nodeid.startswith(OF_POINTERS):
        metafunc.parametrize("extension", EXTENSION, indirect=True)
    marked = metafunc.definition.get_closest_marker
    if "shell" in metafunc.fixturenames and marked("every_shell"):
        if marked("virtual_only") is None:
            metafunc.parametrize("shell", SHELLS, indirect=True)


@pytest.fixture(autouse=True)
def extension(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the extension in C, if it was built, or without it."""
    before = c_extension.use(getattr(request, "param", True))
    yield
    c_extension.use(before)


@pytest.fixture
def shell(request: pytest.FixtureRequest) -> str:
    """Where the workers of a test run: in this process, or each in a child process."""
    return getattr(request, "param", "virtual")


@pytest.fixture(scope="session")
def processes() -> Iterator[ChildProcesses]:
    """Child processes, each of which serves workers of many tests, one after another."""
    processes = ChildProcesses(serve)
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Child processes that serve workers over sockets."""
    processes = ChildProcesses(serve_behind_socket)
    yield Served(processes, tmp_path_factory.mktemp("servers"))
    processes.close()


@pytest.fixture
def hook(shell: str, request: pytest.FixtureRequest, nothing_left_behind: None) -> sy.TorchHook:
    """A hook of this test's own; closed afterwards."""
    if shell == "child":
        return hook_with_hub(request.getfixturevalue("processes"))
    hook = sy.TorchHook(torch)
    if shell == "socket":
        network: Any = hook.local_worker.network
        network.served = request.getfixturevalue("servers")
        network.served.forget()
    return hook


@pytest.fixture
def me(hook: sy.TorchHook) -> sy.VirtualWorker:
    """The local worker."""
    return hook.local_worker


@pytest.fixture
def bob(hook: sy.TorchHook) -> sy.VirtualWorker:
    """A worker that answers at once."""
    return make_worker(hook, "bob")


@pytest.fixture
def alice(hook: sy.TorchHook) -> sy.VirtualWorker:
    """Another worker that answers at once."""
    return make_worker(hook, "alice")


@pytest.fixture(params=["immediate", "queued"])
def worker(request: pytest.FixtureRequest, hook: sy.TorchHook) -> sy.VirtualWorker:
    """A worker of each kind: what runs on one must run on the other."""
    return make_worker(hook, "worker", pipelined=request.param == "queued")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What the status line is written to."""
    terminal = Terminal()
    show_at(terminal, monkeypatch)
    return terminal


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device of this machine."""
    return torch.device(request.param)
