"""Commands with keywords and lists, as the frames ask for them: the short way and the general one
agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, ObjectNotFound
from syft.ops.table import BY_NAME
from syft.serde.frame import Frame
from syft.tensors.logging import LoggingTensor
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.commands import _answer
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    IN_CONTAINER,
    Command,
    Done,
    Parked,
    Promise,
    Stale,
    Value,
)
from syft.workers.wire.references import REF, REFS
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


LIST = int(TypeCode.LIST)


def listed(name: str, out: int, *args: Any, **kwargs: Any) -> Command:
    """A command on lists, which makes two tensors or none."""
    flags = GRAD_MODE | (2 << COUNT_SHIFT | IN_CONTAINER if out else 0)
    return Command(1, BY_NAME[f"torch.{name}"], args, out, flags, (), kwargs or None)


def test_lists_of_references_and_of_floats(core: WorkerCore) -> None:
    put(core, 6, torch.ones(2))
    both = (REFS, 5, 6)
    assert ask(core, listed("_foreach_add_", 0, both, both, alpha=2.0)) == Done(1)
    assert core.store.objects[5].tolist() == [3, 6] and core.store.objects[6].tolist() == [3, 3]
    assert ask(core, listed("_foreach_mul_", 0, both, (LIST, 2.0, -1.0))) == Done(1)
    assert core.store.objects[5].tolist() == [6, 12] and core.store.objects[6].tolist() == [-3, -3]
    assert ask(core, listed("_foreach_neg", 20, both)) == Done(1)
    assert core.store.objects[20].tolist() == [-6, -12] and core.store.objects[21].tolist() == [
        3,
        3,
    ]
    flags = GRAD_MODE | ONE
    assert ask(core, Command(1, BY_NAME["torch.stack"], (both, 1), 30, flags)) == Done(1)
    assert core.store.objects[30].tolist() == [[6, -3], [12, -3]]


@pytest.mark.parametrize(
    "operand, error",
    [
        ((REFS, 5, 404), ObjectNotFound),
        ((REFS, 5, "6"), MalformedMessage),
        ((REFS, 5, (REF, 5)), MalformedMessage),
        ((), MalformedMessage),
        ((LIST, (REF, 5), (REF, 404)), ObjectNotFound),
        ((REFS, *[5] * (1 << 20), 5), LimitExceeded),
    ],
)
def test_a_list_that_is_no_list_of_objects_is_refused(
    core: WorkerCore, operand: Any, error: type[Exception]
) -> None:
    assert isinstance(error_in(ask(core, listed("_foreach_add_", 0, operand, 1.0))), error)
    assert core.store.objects[5].tolist() == [1, 2]


def test_a_list_waits_for_what_was_promised(core: WorkerCore) -> None:
    ask(core, Promise(2, (8,)))
    assert type(ask(core, listed("_foreach_add_", 0, (REFS, 5, 8), 1.0))) is Parked
    assert core.store.objects[5].tolist() == [1, 2]
    core.hold(8, torch.zeros(1))
    assert core.store.objects[5].tolist() == [2, 3] and core.store.objects[8].tolist() == [1]


def test_what_is_computed_from_a_list_with_a_private_tensor_is_private(core: WorkerCore) -> None:
    secret = torch.ones(2)
    protect(secret, Guard(frozenset(["ann"])))
    core.guard()
    core.store.put(6, secret)
    ask(core, Command(1, BY_NAME["torch.stack"], ((REFS, 5, 6),), 30, GRAD_MODE | ONE))
    guard = full_guard_of(core.store.objects[30])
    assert guard is not None and guard.users == {"ann"}


def test_what_writes_is_as_right_where_the_process_has_another_default_dtype(
    core: WorkerCore,
) -> None:
    """A command without one has float32, of which the short way knows nothing."""
    put(core, 5, torch.tensor([1, 2]))
    torch.set_default_dtype(torch.float64)
    try:
        assert ask(core, command("Tensor.add_", 0, {}, 3)) == Done(1)
        assert ask(core, command("Tensor.true_divide", 7, {}, 2)) == Done(1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert core.store.objects[5].tolist() == [4, 5]
    assert core.store.objects[7].tolist() == [2, 2.5]
    assert core.store.objects[7].dtype is torch.float32


def test_questions_in_other_forms_are_answered_or_refused_the_general_way(
    core: WorkerCore,
) -> None:
    """What the short way leaves: too many operands, keywords, results where a question has none."""
    question = BY_NAME["torch.Tensor.requires_grad.__get__"]
    asked = Command(1, question, (X,), 9, 0, (), None, None, 0)
    assert ask(core, asked, peer=Peer("eve")) == Value(1, False)
    assert ask(core, asked) == Value(1, False)
    with_owner = Command(1, question, (X, X), 9, 0, (), None, None, 0)  # as Python calls it, too
    assert ask(core, with_owner) == Value(1, False)
    for other in (
        Command(1, question, (X,), 9, 0, (), {"other": 1}, None, 0),
        Command(1, question, (X,), 9, ONE, (), None, None, 1),
    ):
        assert error_in(ask(core, other)), other
    assert list(core.store.objects) == [5]


@pytest.mark.parametrize(
    "args, out",
    [
        ([[REF, 5], 1], 9),  # too much
        ([[REF, 5]], 5),  # an id that is taken
        ([[REF, 7]], 9),  # not there
        ([[REF, 6]], 9),  # a chain
    ],
)
def test_questions_that_are_not_usual_go_the_general_way(
    core: WorkerCore, args: list[Any], out: int
) -> None:
    core.store.put(6, LoggingTensor().on(torch.ones(2)))
    number = BY_NAME["torch.Tensor.requires_grad.__get__"]
    usual = Command(1, number, ([REF, 5],), 9, GRAD_MODE, (), {})
    assert _answer(core, usual, Frame(b"", []), ME) == Value(1, False)
    other = Command(1, number, tuple(args), out, GRAD_MODE, (), {})
    assert _answer(core, other, Frame(b"", []), ME) is None
