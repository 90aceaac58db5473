"""What a notebook shows of pointers, workers, plans, groups and the hook, and what it costs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import syft as sy

HOSTILE = '<img src=x onerror="alert(1)">'


def shown(value: Any) -> str:
    """What a notebook shows of a value, for which no message may be sent, as text."""
    with sy.hook.record() as log:
        html = value._repr_html_()
    assert len(log) == 0
    return re.sub(r"<(?!br)[^>]*>", "", html)


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def bob(request: pytest.FixtureRequest, hook: sy.TorchHook) -> sy.VirtualWorker:
    """A worker of each kind."""
    return sy.VirtualWorker(hook, id="bob", pipelined=request.param)


# ----------------------------------------------------------------------------------------- pointers


def test_what_was_sent(bob: sy.VirtualWorker) -> None:
    x = torch.ones(4, 3).send(bob)
    facts = x.child.connection.facts
    assert shown(x) == shown(x.child) == "→ bob · float32 (4, 3)"
    assert not facts.active, "nothing is noted from now on for what was only shown"
    assert f'title="me:{x.id} -&gt; bob:{x.id_at_location}"' in x._repr_html_()
    assert repr(x) == f"(Wrapper)>[PointerTensor | me:{x.id} -> bob:{x.id_at_location}]"


def test_what_was_computed_is_known_once_it_was_asked_for(bob: sy.VirtualWorker) -> None:
    x = torch.ones(4, 3).send(bob)
    y = x.double() @ torch.ones(3, 2, dtype=torch.float64).send(bob)
    assert shown(y) == "→ bob"
    assert y.dtype == torch.float64
    assert shown(y) == "→ bob · float64"
    assert y.shape == (4, 2)
    assert shown(y) == "→ bob · float64 (4, 2)"
    y.t_()
    assert shown(y) == "→ bob", "what may have changed is not shown"


def test_what_was_made_after_somebody_asked(bob: sy.VirtualWorker) -> None:
    x = torch.ones(4, 3).send(bob)
    assert x.dim() == 2
    y = x * 2
    assert (x * 2).dtype == torch.float32
    assert "float32" in shown(y), "the same as that of its duplicate"


def test_private_tensors(bob: sy.VirtualWorker) -> None:
    x = torch.ones(4, 3).private_tensor(["ann"])
    pointer = x.send(bob, user="ann")
    assert shown(pointer) == "→ bob · float32 (4, 3) · private"
    (several,) = sy.send_all([x], bob, user="ann")
    assert shown(several) == "→ bob · float32 (4, 3) · private"
    pointer.t_()
    assert shown(pointer) == "→ bob · private"
    public, private = sy.send_all([torch.ones(2), x], bob, user="ann")
    assert "private" not in shown(public) and "private" in shown(private)


def test_tags_of_others_are_text(bob: sy.VirtualWorker) -> None:
    bob.hold(torch.ones(2, 5).tag(HOSTILE, "#b").describe(HOSTILE))
    (found,) = bob.search("#b")
    assert "<img" not in found._repr_html_()
    assert "· (2, 5) · #b &lt;img src=x onerror=&quot;" in shown(found)
    assert "<img" not in bob._repr_html_() and "#b &lt;img" in shown(bob)
    bob.clear_objects()


def test_names_of_others_are_text(hook: sy.TorchHook) -> None:
    strange = sy.VirtualWorker(hook, id=HOSTILE)
    x = torch.ones(2).send(strange)
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + 1).send(strange)
    for value in (x, strange, plan, hook, strange.group(), torch.ones(2).send(strange, "me")):
        assert "<img" not in value._repr_html_() and "&lt;img" in value._repr_html_()


def test_pointers_into_chains_and_to_several(bob: sy.VirtualWorker, hook: sy.TorchHook) -> None:
    sy.VirtualWorker(hook, id="alice")
    x = sy.LoggingTensor().on(torch.ones(2)).send(bob)
    assert shown(x.child.child) == "→ bob.child"
    both = torch.ones(2).send(bob, "alice")
    assert shown(both) == "→ bob · float32 (2,)<br>→ alice · float32 (2,)"


def test_tensors_that_are_here_look_as_ever(hook: sy.TorchHook) -> None:
    assert not hasattr(torch.Tensor, "_repr_html_")
    assert torch.ones(2).fix_precision()._repr_html_() is None
    assert sy.LoggingTensor().on(torch.ones(2))._repr_html_() is None


def test_shared_tensors(hook: sy.TorchHook) -> None:
    for name in ("ann", "ben", "carol"):
        sy.VirtualWorker(hook, id=name)
    x = torch.ones(2).fix_precision().share("ann", "ben", crypto_provider="carol")
    y = x + x  # not sent yet
    text = "FixedPrecisionTensor · base 2, 16 digits<br>→ ann, ben · shared · int64 (2,) · "
    assert shown(y) == f"{text}carol deals"
    session = y.child.child.child.cell.session
    session.ended = "it was enough"
    assert shown(y) == f"{text}ended"
    session.ended = None


# ----------------------------------------------------------------- workers, plans, groups, the hook


def test_workers(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True, user="ann")
    ids = dan.hold(torch.ones(2).tag("#b", "#a"), torch.ones(3))
    assert dan.cells_shown() == (
        *("dan", "VirtualWorker", "in this process · as ann · queued", f"{len(ids)}", "#a #b"),
    )
    assert shown(dan).startswith("workerkindwhereobjectstagsdanVirtualWorker")
    dan.clear_objects()
    dan.close()
    assert dan.cells_shown()[2:] == ("in this process · as ann · queued · closed", "0", "")


def test_the_hook() -> None:
    hook = sy.TorchHook(torch)
    sy.VirtualWorker(hook, id="bob")
    assert repr(hook) == "<TorchHook torch is hooked by me>"
    assert "torch is hooked by me" in shown(hook) and "bobVirtualWorker" in shown(hook)
    hook.close()
    assert repr(hook) == "<TorchHook of me, closed>"


def test_plans(bob: sy.VirtualWorker, hook: sy.TorchHook) -> None:
    sy.VirtualWorker(hook, id="alice")
    model = torch.nn.Linear(2, 1)

    @sy.func2plan()
    def predict(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    assert shown(predict) == "predict · Plan · not built · at me"
    predict.build(torch.ones(1, 2))
    text = shown(predict)
    assert text.startswith(
        "predict · Plan · 1 operation · state: 2 tensors · at mecodedef predict("
    )
    assert f'title="id {predict.id}"' in predict._repr_html_()
    there = "plan predict · takes x · state: 2 tensors"
    assert shown(predict.send(bob)) == f"→ bob · {there}"
    assert shown(predict.send(bob, "alice")) == f"→ bob · {there}<br>→ alice · {there}"
    hook.close()
    assert "at nobody" in predict._repr_html_()


def test_groups(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    with bob.group() as group:
        y = x + 1
        assert repr(group) == "<MessageGroup to bob: open, 1 operation held back>"
        z = y * 2
        assert shown(group) == "→ bob · message group · open, 2 operations held back"
    assert repr(group) == "<MessageGroup to bob: closed>"
    assert z.get().tolist() == [4, 4]
