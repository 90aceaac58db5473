"""Commands with keywords, as the frames ask for them: the short way and the general one agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import MalformedMessage, ObjectNotFound
from syft.ops.table import BY_NAME
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.wire.messages import COUNT_SHIFT, GRAD_MODE, Command, Done, Stale
from syft.workers.wire.references import REF
from tests.workers.core.peers import ME, ask, error_in, put, sent

ONE = 1 << COUNT_SHIFT
X = (REF, 5)


def command(name: str, out: int, kwargs: dict[str, Any], *args: Any) -> Command:
    """A command on the tensor under 5, in grad mode."""
    flags = GRAD_MODE | (ONE if out else 0)
    return Command(1, BY_NAME[f"torch.{name}"], (X, *args), out, flags, (), kwargs)


def test_keywords_may_be_numbers_and_references(core: WorkerCore) -> None:
    assert ask(core, command("add", 9, {"other": X, "alpha": 3})) == Done(1)
    assert core.store.objects[9].tolist() == [4, 8]
    assert ask(core, command("Tensor.add_", 0, {"alpha": 2}, X)) == Done(1)
    assert core.store.objects[5].tolist() == [3, 6]


@pytest.mark.parametrize("name, out", [("add", 9), ("Tensor.add_", 0)])
@pytest.mark.parametrize(
    "keyword, error",
    [((REF, 404), ObjectNotFound), ((REF,), MalformedMessage), ((99, 1), MalformedMessage)],
)
def test_a_keyword_that_is_no_operand_is_refused(
    core: WorkerCore, name: str, out: int, keyword: Any, error: type[Exception]
) -> None:
    given = {"other": keyword} if out else {"alpha": keyword}
    args = () if out else (X,)
    assert isinstance(error_in(ask(core, command(name, out, given, *args))), error)
    assert core.store.objects[5].tolist() == [1, 2] and list(core.store.objects) == [5]


@pytest.mark.parametrize("out", [9, 0])
def test_what_writes_to_out_is_told_to_those_who_know_its_shape(core: WorkerCore, out: int) -> None:
    other = Peer("eve")
    put(core, 6, torch.zeros(2))
    core.watch(other)
    told = sent(core, command("add", out, {"out": (REF, 6)}, X), peer=ME)
    assert (other, Stale(False)) in told
    assert core.store.objects[6].tolist() == [2, 4]
