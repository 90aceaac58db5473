"""Several methods of one class that are plans."""

from __future__ import annotations

import weakref

import torch

import syft as sy
from tests.chain.refusal import refusal, shown

X = torch.tensor([[1.0, 2.0]])


class Coder(sy.Plan):
    """Encodes, decodes, and (as a whole) does both."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.key = torch.tensor(3.0)

    @sy.method2plan
    def encode(self, x: torch.Tensor, times: float = 1.0) -> torch.Tensor:
        """Shift by the key."""
        return self.layer(x) + self.key * times

    @sy.method2plan
    def decode(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.key

    @sy.method2plan
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(x))


def test_each_method_is_a_plan_of_its_own(hook: sy.TorchHook) -> None:
    coder = Coder()
    assert Coder.encode.__doc__ == "Shift by the key."
    assert shown(coder.encode) == "<Coder encode id:N owner:me>"
    coder.encode.build(X)
    assert coder.encode.is_built and not coder.decode.is_built and not coder.is_built
    assert coder.encode.id == coder.encode.id != coder.decode.id
    expected = coder.layer(X) + 3
    assert torch.equal(coder.encode(X), expected)
    assert torch.equal(coder.encode(X, times=2.0), expected + 3)
    assert "missing a required argument: 'x'" in refusal(lambda: coder.encode())
    assert coder.encode.actions and coder.encode.code.startswith("def encode(x, times, state):")


def test_methods_share_the_state_of_their_instance() -> None:
    coder, other = Coder(), Coder()
    coder.encode.build(X)
    coder.key = torch.tensor(10.0)
    with torch.no_grad():
        coder.layer.weight.zero_()
    assert torch.equal(coder.encode(X), coder.layer(X) + 10)
    assert not other.encode.is_built
    assert torch.equal(coder.decode(X), X - 10) and torch.equal(other.decode(X), X - 3)


def test_forward_is_the_plan_itself() -> None:
    coder = Coder()
    expected = coder.layer(X)
    assert torch.allclose(coder(X), expected) and coder.is_built
    assert torch.allclose(coder.forward(X), expected)
    coder.encode.build(X)
    coder.build(X)  # with a built plan inside
    assert torch.allclose(coder(X), expected)


def test_a_method_is_sent_by_itself(worker: sy.VirtualWorker) -> None:
    coder = Coder()
    assert refusal(lambda: coder.encode.send(worker)) == (
        "NotBuilt: A plan needs to be built before being sent to a worker."
    )
    coder.encode.build(X)
    pointer = coder.encode.tag("#encoder").send(worker)
    expected = coder.layer(X) + 3
    assert torch.equal(pointer(X.send(worker)).get(), expected)
    (found,) = worker.search("#encoder")
    assert torch.allclose(found(X.send(worker), times=2.0).get(), expected + 3)


def test_a_method_keeps_its_instance_and_nothing_else_does() -> None:
    coder = Coder()
    coder.encode.build(X)
    encode, weak = coder.encode, weakref.ref(coder)
    del coder
    assert weak() is not None and encode(X).shape == (1, 2)
    del encode
    assert weak() is None


def test_parentheses_change_nothing() -> None:
    class Shifted(sy.Plan):
        def __init__(self) -> None:
            super().__init__()
            self.key = torch.ones(1)

        @sy.method2plan()
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            """Add the key."""
            return x + self.key

    shifted = Shifted()
    assert torch.equal(shifted.encode(torch.ones(1)), torch.full((1,), 2.0))
    assert shifted.encode.is_built and Shifted.encode.__doc__ == "Add the key."


def test_only_a_plan_has_method_plans() -> None:
    class Module(torch.nn.Module):
        @sy.method2plan
        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    assert refusal(lambda: Module().twice(X)) == (
        "ProgramError: method2plan is for plans: let Module inherit from sy.Plan"
    )
