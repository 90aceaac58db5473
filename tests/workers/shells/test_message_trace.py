"""Traces: every message, as a table, and never a value."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import HookError
from syft.workers.shells.message_trace import Trace


def test_a_trace_lists_every_message(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    ticks = iter(range(100))
    trace = Trace(hook.local_worker.network, clock=lambda: next(ticks) / 1000)
    with trace:
        x = torch.tensor([123.456]).send(bob)
        for _ in range(2):
            with bob.group():
                y = x * 654.321
        del y
    assert repr(trace).splitlines() == [
        "   ms  from  to   bytes  what",
        f"1.000  me    bob     {trace[0].nbytes}  Put",
        "2.000  bob   me       3  Done",
        f"3.000  me    bob     {trace[2].nbytes}  Run 0, new",
        "4.000  bob   me       3  Done",
        f"5.000  me    bob     {trace[4].nbytes}  Run 0",
        "6.000  bob   me       3  Done",
        f"6 messages, {trace.nbytes} bytes, 6.000 ms",
    ]
    html = trace._repr_html_()
    assert html.count("<tr>") == 7 and html.endswith("6.000 ms</p>")
    assert "<td>Run 0</td>" in html and "123" not in html and "654" not in html
    assert len(trace) == 6 and sum(line.nbytes for line in trace) == trace.nbytes
    assert hook.local_worker.network.observers == []


def test_names_are_shown_as_text(hook: sy.TorchHook) -> None:
    strange = sy.VirtualWorker(hook, id="<b>")
    with sy.trace() as trace:
        x = torch.ones(1).send(strange)
    assert "<td>&lt;b&gt;</td>" in trace._repr_html_()
    del x


def test_an_empty_trace_says_so(hook: sy.TorchHook) -> None:
    with sy.trace() as trace:
        pass
    assert repr(trace) == "ms  from  to  bytes  what\n0 messages, 0 bytes, 0.000 ms"


def test_one_message_and_an_op_that_nobody_knows(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    with sy.trace() as trace:
        with pytest.raises(sy.exceptions.UnknownOperation) as caught:
            hook.local_worker.connection_to(bob).operations.command(10**6, (), None, 0, [], None)
        del caught
    assert [line.what for line in trace] == ["op 1000000", "Failure"]
    short = Trace(hook.local_worker.network)
    short._lines = trace._lines[:1]
    assert short._total().startswith("1 message, ")


def test_a_trace_needs_a_hook() -> None:
    with pytest.raises(HookError, match="not hooked"):
        sy.trace()
