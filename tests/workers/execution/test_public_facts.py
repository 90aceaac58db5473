"""What somebody who may not see a value may ask of it: every question has a row, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from syft.exceptions import PermissionDenied
from syft.ops.control import gradient_kind
from syft.ops.table import (
    BY_NAME,
    COLUMNS,
    FLAGS,
    FUNCTIONS,
    METADATA,
    NAMES,
    NUMBERS,
    OF_TWO,
    PROGRAM_FUNCTIONS,
    PROGRAM_ONLY,
    asked_by,
    name_of,
    ops_with,
)
from syft.workers.execution.private_commands import run_guarded
from syft.workers.execution.public_facts import (
    PROPERTIES,
    Basis,
    _least_known,
    asks_only,
    is_told,
    tells,
)
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect

QUESTIONS = {
    name: FUNCTIONS[number] or PROGRAM_FUNCTIONS.get(number)
    for number, name in enumerate(NAMES)
    if FLAGS[number] & METADATA
}
AVAILABLE = {name: function for name, function in QUESTIONS.items() if function is not None}
PRIVATE = Guard(frozenset({"ann"}))
HIDDEN = replace(PRIVATE, shape_hidden=True)


def secret(grad: bool = False) -> torch.Tensor:
    tensor = torch.ones(2, 3, requires_grad=grad)
    protect(tensor, PRIVATE)
    return tensor


def ask(
    function: Any, *args: Any, guard: Guard = PRIVATE, user: str | None = None, **named: Any
) -> Any:
    return run_guarded(function, list(args), named, METADATA, guard, [], "bob", user)


def test_every_question_is_decided_about_once() -> None:
    assert ops_with(METADATA) == COLUMNS["asks"].keys()
    properties = set().union(*map(asked_by, ops_with(METADATA)))
    assert properties == PROPERTIES.keys() and all(reason for _, reason in PROPERTIES.values())


def test_a_question_without_a_row_is_refused() -> None:
    assert not tells("what_comes_next", PRIVATE)
    with pytest.raises(PermissionDenied):
        ask(lambda tensor: 3, secret())


@pytest.mark.parametrize("name", AVAILABLE)
def test_what_has_a_row_is_answered_and_nothing_else(name: str) -> None:
    function = AVAILABLE[name]
    args = (secret(), torch.ones(2, 3))[: 2 if NUMBERS.get(function) in OF_TWO else 1]
    bases = {PROPERTIES[asked][0] for asked in asked_by(BY_NAME[name])}
    if Basis.SECRET in bases:
        with pytest.raises(PermissionDenied):
            ask(function, *args)
    else:
        assert ask(function, *args) == function(*args)
    if bases == {Basis.KIND}:
        assert ask(function, *args, guard=HIDDEN) == function(*args)
    else:
        with pytest.raises(PermissionDenied):
            ask(function, *args, guard=HIDDEN)


def test_refusals_are_alike() -> None:
    """A refusal says the same of every question, but for its name, and of every tensor, and
    nothing is run for it."""
    ran: list[torch.Tensor] = []
    made = secret(grad=True) * 2
    protect(made, PRIVATE)
    texts = set()
    for function in (torch.Tensor._version.__get__, torch.Tensor.grad_fn.__get__, ran.append):
        for tensor in (secret(), made):
            with pytest.raises(PermissionDenied) as caught:
                ask(function, tensor)
            texts.add(str(caught.value).replace(name_of(function), ""))
    assert len(texts) == 1 and not ran


def test_who_may_see_the_value_may_ask_anything() -> None:
    tensor = secret()
    tensor.add_(1)
    version = torch.Tensor._version.__get__
    assert ask(version, tensor, user="ann") == tensor._version > 0
    assert ask(torch.Tensor.storage_offset, tensor, guard=HIDDEN, user="ann") == 0


def test_a_private_number_is_no_question() -> None:
    """``x.size(n)`` would tell ``n``."""
    public, number = torch.ones(2, 3), torch.tensor(1)
    protect(number, PRIVATE)
    for call in (
        lambda: ask(torch.Tensor.size, public, number),
        lambda: ask(torch.Tensor.size, public, dim=number),
    ):
        with pytest.raises(PermissionDenied):
            call()
    assert asks_only(torch.is_complex, (), {"input": public})
    assert not asks_only(torch.is_complex, (public,), {"input": public})
    assert asks_only(torch.result_type, (), {"tensor": public, "other": number})


def test_a_conversion_is_as_private_as_before() -> None:
    made = ask(torch.Tensor.type, secret(), torch.float64)
    assert made.dtype is torch.float64 and full_guard_of(made) == PRIVATE


def test_what_computes_is_no_question() -> None:
    assert not is_told(torch.Tensor.item, PRIVATE) and not is_told(torch.add, PRIVATE)
    assert is_told(gradient_kind, PRIVATE)


def looks(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        name: ask(function, tensor)
        for name, function in AVAILABLE.items()
        if is_told(function, PRIVATE)
        and BY_NAME[name] not in OF_TWO
        and not FLAGS[BY_NAME[name]] & PROGRAM_ONLY
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda x, index: torch.take(x, index),
        lambda x, index: x.index_add(0, index, x),
        lambda x, index: x.t()[:, index].transpose(0, 1),
        lambda x, index: x.detach().clone().index_fill_(0, index, 2.0),
        lambda x, index: torch.linalg.cholesky(x.reshape(1, 6)[:, :1] - 2 * index.sum()),
    ],
)
def test_a_sealed_result_answers_as_one_that_succeeded(call: Callable[..., torch.Tensor]) -> None:
    """The reason of the list: all that is told is the same for results that stand for a failure."""
    answers = []
    for value in (0, 7):
        x, index = secret(grad=True), torch.tensor([value, 0])
        protect(index, PRIVATE)
        for tensor in (x, index):
            protect(tensor, PRIVATE)
        result = run_guarded(call, [x, index], {}, 0, PRIVATE, [], "bob", None)
        guard = full_guard_of(result)
        assert guard is not None and (guard.error is not None) is bool(value)
        answers.append(looks(result))
    assert answers[0] == answers[1]


def test_a_property_without_a_row_is_not_told() -> None:
    assert tells("dtype", Guard(frozenset())) and not tells("unheard of", Guard(frozenset()))
    assert _least_known(("dtype", "unheard of")) is Basis.SECRET
