"""Tracebacks stay with the owner: callers get class, text, their own line, and a reference."""

from __future__ import annotations

import logging
import re
import time

import pytest
import torch

import syft as sy
from syft.trust.tokens import TokenBook
from syft.workers.sockets.failure_log import MOST, FailureLog


def failed(worker: sy.WebsocketClientWorker, **options: object) -> BaseException:
    x, y = torch.ones(2).send(worker), torch.ones(3).send(worker)
    with pytest.raises(RuntimeError, match="must match the size") as caught:
        (x + y).get(**options)
    return caught.value


def test_a_caller_is_told_no_file_of_the_owner(
    hook: sy.TorchHook, caplog: pytest.LogCaptureFixture
) -> None:
    book = TokenBook(None)
    token = book.make("ann", time.time())
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book) as server:
        dan = sy.connect(str(server.address), token)
        with caplog.at_level(logging.INFO, "syft.worker"):
            error = failed(dan)
        dan.close()
    notes = "\n".join(error.__notes__)
    assert "Raised on worker 'dan', asked for at" in notes and __file__ in notes
    assert "workers/handlers" not in notes and "Tensor.add" not in str(error)
    found = re.search(r"in the log of its owner, under reference ([0-9a-f]{8})", notes)
    assert found is not None, notes
    (line,) = [one for one in caplog.messages if "a request failed" in one]
    assert line.startswith(f"a request failed, reference {found[1]} (torch.Tensor.add for ann)\n")
    assert "workers/handlers" in line and "RuntimeError: The size of tensor a" in line


def test_errors_of_syft_leave_no_traceback_in_the_log(
    hook: sy.TorchHook, caplog: pytest.LogCaptureFixture
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        dan = sy.connect(str(server.address))
        x = torch.ones(2).send(dan)
        assert dan.objects_count() == 1
        server.clear_objects()
        with caplog.at_level(logging.INFO, "syft.worker"):
            with pytest.raises(sy.exceptions.ObjectNotFound) as caught:
                x.get()
        dan.close()
    assert not any("a request failed" in one for one in caplog.messages)
    assert "handlers" not in "".join(caught.value.__notes__)


def test_a_worker_of_this_process_shows_its_traceback(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    x, y = torch.ones(2).send(bob), torch.ones(3).send(bob)
    with pytest.raises(RuntimeError) as caught:
        (x + y).get()
    assert "handlers/commands.py" in "".join(caught.value.__notes__)
    bob.clear_objects()


def test_who_fails_all_the_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(lambda: "nothing", clock=lambda: 5.0)
    with caplog.at_level(logging.INFO, "syft.worker"):
        told = [log(ValueError("x")) for _ in range(MOST + 5)]
    assert len(caplog.messages) == MOST and len(set(told)) == MOST + 1
    assert told[-1] == "not kept: too many requests failed in this second"
