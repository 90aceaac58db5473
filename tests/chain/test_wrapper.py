"""The two doors into torch, and the attributes torch keeps in C."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import syft as sy
from syft.chain.wrapper import Wrapper, place_of, wrap_like
from tests.chain.refusal import here, refusal, shown

KINDS = ["pointer", "logging", "multi", "fixed"]


Make = Callable[[str], torch.Tensor]


@pytest.fixture
def make(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> Make:
    """Makes one of each kind of wrapper. (A tensor as a fixture would outlive its test.)"""
    kinds: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "pointer": lambda x: x.send(bob),
        "logging": lambda x: sy.LoggingTensor().on(x),
        "multi": lambda x: x.send(alice, bob),
        "fixed": lambda x: x.fix_precision(),
    }
    return lambda kind: kinds[kind](torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_wrapper_is_a_tensor(kind: str, make: Make) -> None:
    x = make(kind)
    assert type(x) is Wrapper
    assert isinstance(x, torch.Tensor)
    assert torch.is_tensor(x)
    assert (x.shape, x.size(), x.dim(), len(x)) == (torch.Size([2]), torch.Size([2]), 1, 2)
    assert x.dtype is torch.float32
    assert x.device == torch.device("cpu")
    assert (x + x).sum().item() == 6.0


def test_mixed_chains_are_refused_with_both_places(make: Make, alice: sy.VirtualWorker) -> None:
    pointer, logging_tensor, multi, fixed = (
        make("pointer"),
        make("logging"),
        make("multi"),
        make("fixed"),
    )
    add, other = "torch.Tensor.add", torch.ones(2).send(alice)
    plain = torch.ones(2)
    assert refusal(lambda: pointer + other) == here(add, "bob", "alice")
    assert refusal(lambda: pointer + plain) == here(add, "bob", "me")
    assert refusal(lambda: plain + pointer) == here(add, "bob", "me")
    assert refusal(lambda: pointer + fixed) == here(add, "bob", "here")
    assert refusal(lambda: fixed + pointer) == here(add, "bob", "here")
    assert refusal(lambda: torch.cat([fixed, pointer])) == here("torch.cat", "bob", "here")
    assert refusal(lambda: pointer.add(other=fixed)).startswith("LocationMismatch")
    assert refusal(lambda: pointer + logging_tensor) == here(add, "bob", "LoggingTensor")
    assert "bob" in refusal(lambda: logging_tensor + pointer)
    for pair in ((multi, pointer), (pointer, multi), (multi, other), (multi, fixed)):
        assert refusal(lambda pair=pair: pair[0] + pair[1]).startswith("LocationMismatch")
    to_me = plain.send("me")
    assert refusal(lambda: to_me + plain) == here(add, "me", "here (not behind a pointer)")


def test_a_plain_target_is_not_written_to_by_a_pointer(make: Make) -> None:
    """A copy of it would be written to, elsewhere, and nobody would be told."""
    pointer = make("pointer")
    number, vector = torch.tensor(1.0), torch.zeros(2)
    scalar = pointer.sum()
    for attempt in (
        lambda: vector.copy_(pointer),
        lambda: number.copy_(scalar),
        lambda: number.add_(scalar),
        lambda: torch.add(scalar, scalar, out=number),
        lambda: torch._foreach_add_([number], [scalar]),
        lambda: vector.__setitem__(0, scalar),
    ):
        assert refusal(attempt).startswith("LocationMismatch")
    assert (number.item(), vector.tolist()) == (1.0, [0.0, 0.0])


def test_a_number_that_wants_a_gradient_does_not_travel(make: Make) -> None:
    pointer = make("pointer")
    scale = torch.tensor(2.0, requires_grad=True)
    assert refusal(lambda: pointer * scale) == here("torch.Tensor.mul", "bob", "me")
    with torch.no_grad():
        assert (pointer * scale).tolist() == [2.0, 4.0]
    assert (pointer * scale.detach()).tolist() == [2.0, 4.0]


def test_a_parameter_keeps_its_hash_when_it_is_sent(bob: sy.VirtualWorker) -> None:
    model = torch.nn.Linear(2, 1)
    state = {parameter: index for index, parameter in enumerate(model.parameters())}
    model.send(bob)
    assert [state[parameter] for parameter in model.parameters()] == [0, 1]


def test_place_of() -> None:
    assert place_of(3) == "here"
    assert place_of(sy.LoggingTensor().on(torch.ones(1))) == "LoggingTensor"


def test_below_autograd_two_kinds_are_refused(make: Make) -> None:
    fixed = make("fixed")

    class Other(sy.Link):
        level = sy.Level.DISPATCH

        def show(self) -> str:
            return "Other"

    other = wrap_like(Other(), torch.ones(2))
    assert refusal(lambda: fixed + other) == here(
        "aten.add.Tensor", "a FixedPrecisionTensor (here)", "a Other (Other)"
    )


# ------------------------------------------------------------------------------------------ data


@pytest.mark.parametrize("kind", KINDS)
def test_data_reads_and_writes_through_the_chain(kind: str, make: Make) -> None:
    x = nn.Parameter(make(kind))
    identity, remote = id(x), x.id_at_location
    assert not x.data.requires_grad
    x.data.mul_(2)
    assert x.tolist() == [2.0, 4.0]
    x.data = x.data + 1
    assert x.tolist() == [3.0, 5.0]
    assert (id(x), x.id_at_location) == (identity, remote)
    assert x.requires_grad
    assert isinstance(x, nn.Parameter)


def test_data_is_not_replaced_by_data_from_elsewhere(make: Make, alice: sy.VirtualWorker) -> None:
    pointer, fixed = make("pointer"), make("fixed")
    plain = torch.zeros(2)
    assert refusal(lambda: setattr(pointer, "data", plain)) == here(
        "torch.Tensor.data.__set__", "bob", "me"
    )
    assert refusal(lambda: setattr(pointer, "data", plain.send(alice))) == here(
        "torch.Tensor.data.__set__", "bob", "alice"
    )
    assert refusal(lambda: setattr(fixed, "data", plain)) == here(
        "torch.Tensor.data", "a FixedPrecisionTensor", "here"
    )
    assert refusal(lambda: setattr(fixed, "data", pointer)) == here(
        "torch.Tensor.data", "a FixedPrecisionTensor", "bob"
    )


def test_data_keeps_the_gradient_at_dispatch_level(make: Make) -> None:
    fixed = make("fixed")
    x = nn.Parameter(fixed)
    (x * 3).sum().backward()
    x.data = torch.tensor([7.0, 8.0]).fix_precision()
    assert x.tolist() == [7.0, 8.0]
    assert x.grad.tolist() == [3.0, 3.0]


def test_deepcopy_at_dispatch_level(make: Make) -> None:
    fixed = make("fixed")
    x = fixed.requires_grad_()
    (x * 3).sum().backward()
    duplicate = copy.deepcopy(x)
    assert duplicate.requires_grad
    assert duplicate.grad.tolist() == [3.0, 3.0]
    assert refusal(lambda: copy.deepcopy(x * 2)) == (
        "UnsupportedOperation: FixedPrecisionTensor has no rule for copy.deepcopy: only leaves can "
        "be copied; detach first."
    )


def test_wrappers_in_slices_and_keywords_are_found(make: Make) -> None:
    pointer = make("pointer")
    rows = torch.arange(4)
    assert rows[: torch.tensor(2).send(pointer.location) : 1].tolist() == [0, 1]
    assert torch.add(input=pointer, other=pointer).tolist() == [2.0, 4.0]
    assert torch.stack(tensors=[pointer, pointer]).shape == (2, 2)
    assert torch.einsum("i,i->", pointer, pointer).item() == 5.0


def test_reprs(make: Make) -> None:
    pointer, logging_tensor, multi, fixed = (
        make("pointer"),
        make("logging"),
        make("multi"),
        make("fixed"),
    )
    assert shown(pointer) == "(Wrapper)>[PointerTensor | me:N -> bob:N]"
    assert shown(pointer.child) == "[PointerTensor | me:N -> bob:N]"
    assert shown(logging_tensor) == "(Wrapper)>LoggingTensor>tensor([1., 2.])"
    assert shown(multi) == (
        "(Wrapper)>[MultiPointerTensor]\n\t-> [PointerTensor | me:N -> alice:N]"
        "\n\t-> [PointerTensor | me:N -> bob:N]"
    )
    assert shown(fixed) == "(Wrapper)>FixedPrecisionTensor>tensor([ 65536, 131072])"
    assert shown(nn.Parameter(pointer)) == (
        "Parameter containing:\n(Wrapper)>[PointerTensor | me:N -> bob:N]"
    )


def test_a_refusal_names_the_chain_of_a_parameter(bob: sy.VirtualWorker) -> None:
    layer = torch.nn.Linear(1, 1).send(bob)
    assert repr(layer.weight).startswith("Parameter containing:\n(Wrapper)>[PointerTensor")
    text = refusal(lambda: pickle.dumps(layer.weight))
    assert re.sub(r"\d{11,}", "N", text) == (
        "DataStaysPut: pickling would read data that is not here: "
        "(Wrapper)>[PointerTensor | me:N -> bob:N]. "
        "Bring it here first with .get() (or .float_prec()), if you may; a whole state_dict with "
        "sy.get_all(state, keep=True)."
    )
