"""A link made outside the package: one class, one table, one codec, and everything works on it.

``docs/new_tensor_type.md`` tells how; this one also remembers something, which travels with it.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import syft as sy
from syft.chain.wrapper import Wrapper, links_in, wrap
from syft.codes import WireCode
from syft.exceptions import (
    HookError,
    LocationMismatch,
    MalformedMessage,
    NotALeaf,
    NotSendable,
    SyftError,
)
from syft.ops.nested import Arguments, Keywords
from syft.ops.table import name_of
from syft.serde import Packer, Unpacker, pack, register, unpack, unpack_at
from syft.serde.expect import expect_fields
from tests.chain.refusal import refusal
from tests.shells.owner import inspect


class Code(WireCode):
    """The numbers of this file."""

    JOURNAL_TENSOR = 2_000_001, "title, [entry, …], the tensor behind it"


class JournalTensor(sy.LocalLink):
    """Keeps a journal of what was computed, which all tensors of one computation write together."""

    __slots__ = ("title", "entries")

    def __init__(self, title: str, entries: list[str] | None = None) -> None:
        super().__init__()
        self.title = title
        self.entries: list[str] = [] if entries is None else entries

    def like(self) -> JournalTensor:
        return JournalTensor(self.title, self.entries)

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        name = name_of(operation).removeprefix("torch.").removeprefix("Tensor.")
        if not name.endswith("__get__"):  # reading an attribute is not worth a line
            links = (link for link in links_in(args, kwargs) if isinstance(link, JournalTensor))
            next(links).entries.append(name)
        return super().call(operation, args, kwargs)


@JournalTensor.rule(torch.mean, torch.Tensor.mean)
def _mean(operation: Any, args: Arguments, kwargs: Keywords) -> Any:
    """Here, the mean of nothing is 0."""
    return operation(*args, **kwargs) if args[0].numel() else torch.zeros(())


def _pack(link: JournalTensor, packer: Packer) -> Any:
    entries = pack(list(link.entries), packer)
    return (int(Code.JOURNAL_TENSOR), link.title, entries, pack(link.tensor, packer))


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    expect_fields(operand, 3)
    entries = unpack_at(operand[2], unpacker, ".entries")
    return JournalTensor(operand[1], entries).on(unpack_at(operand[3], unpacker, ".tensor"))


register(Code.JOURNAL_TENSOR, JournalTensor, _pack, _unpack)


class PackedTensor(sy.Link):
    """A tensor as compressed bytes: it answers `get` and `copy` itself, and nothing else."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def show(self) -> str:
        return "PackedTensor"

    def get(self, user: str | None = None, sum_results: bool = False, keep: bool = False) -> Any:
        return sy.serde.deserialize(self.data)

    def copy(self, memo: dict[int, Any] | None = None) -> torch.Tensor:
        return wrap(PackedTensor(self.data))


class Homebound(sy.LocalLink):
    """A link without a codec: it stays in the process where it was made."""

    __slots__ = ()


def journal(*values: float, requires_grad: bool = False) -> Wrapper:
    return JournalTensor("lab").on(
        torch.tensor(values, dtype=torch.float32, requires_grad=requires_grad)
    )


def entries_of(tensor: Any) -> list[str]:
    return list(tensor.child.entries)


def test_it_shows_itself_as_links_do() -> None:
    x = journal(1, 2)
    assert repr(x) == "(Wrapper)>JournalTensor>tensor([1., 2.])"
    assert repr(JournalTensor("lab")) == "JournalTensor>None"
    assert isinstance(x, torch.Tensor)


def test_any_torch_call_works_and_results_remember() -> None:
    x = journal(1, 2)
    y = torch.stack([x * 2, x], dim=0).sum(dim=0, keepdim=True)
    values, _ = y.sort(descending=True)
    assert repr(values) == "(Wrapper)>JournalTensor>tensor([[6., 3.]])"
    assert entries_of(values) == entries_of(x) == ["mul", "stack", "sum", "sort"]
    assert x.shape == (2,)


def test_in_place_and_out_keep_the_object() -> None:
    x, y = journal(1, 2), journal(0, 0)
    alias = x
    x += 1
    assert x is alias and repr(x) == "(Wrapper)>JournalTensor>tensor([2., 3.])"
    assert torch.add(x, x, out=y) is y
    assert repr(y) == "(Wrapper)>JournalTensor>tensor([4., 6.])"


def test_rules_are_for_the_operations_they_name() -> None:
    nothing = JournalTensor("lab").on(torch.empty(0))
    assert repr(nothing.mean()) == "(Wrapper)>JournalTensor>tensor(0.)"
    assert repr(torch.mean(nothing)) == "(Wrapper)>JournalTensor>tensor(0.)"
    assert repr(journal(1, 2).mean()) == "(Wrapper)>JournalTensor>tensor(1.5000)"
    assert repr(nothing.sum()) == "(Wrapper)>JournalTensor>tensor(0.)"
    assert torch.mean not in sy.LocalLink.rules and torch.mean not in sy.LoggingTensor.rules


def test_a_second_rule_for_an_operation_is_refused() -> None:
    with pytest.raises(HookError, match="^JournalTensor has two rules for .*: keep one of them.$"):
        JournalTensor.rule(torch.mean)(_mean)
    assert JournalTensor.rules[torch.mean] is _mean


def test_a_subclass_inherits_the_table_and_may_replace_a_rule() -> None:
    class Louder(JournalTensor):
        __slots__ = ()

    assert Louder.rules[torch.mean] is _mean

    @Louder.rule(torch.mean)
    def other(operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        return torch.ones(())

    assert Louder.rules[torch.mean] is other and JournalTensor.rules[torch.mean] is _mean


def test_autograd_and_modules_work() -> None:
    layer = nn.Linear(2, 1)
    x = journal(1, 2, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad.child.tensor, layer.weight.detach()[0])
    assert repr(layer.weight.grad) == "tensor([[1., 2.]])"


def test_a_deep_copy_is_its_own() -> None:
    x = journal(1, 2)
    duplicate = copy.deepcopy(x)
    duplicate += 1
    assert repr(x) == "(Wrapper)>JournalTensor>tensor([1., 2.])"
    assert repr(duplicate) == "(Wrapper)>JournalTensor>tensor([2., 3.])"


def test_two_kinds_do_not_mix() -> None:
    with pytest.raises(LocationMismatch, match="JournalTensor and LoggingTensor"):
        journal(1) + sy.LoggingTensor().on(torch.ones(1))


# ------------------------------------------------------------------------------------- it travels


def test_it_is_sent_computed_with_and_fetched(bob: Any) -> None:
    x = journal(1, 2)
    torch.add(x, x)
    pointer = x.send(bob)
    there = pointer * 3
    assert [type(tensor.child) for tensor in bob._objects.values()] == [JournalTensor] * 2
    back = there.get()
    assert repr(back) == "(Wrapper)>JournalTensor>tensor([3., 6.])"
    assert back.child.title == "lab"
    assert entries_of(back) == ["add", "mul"], "it went on writing at bob"
    assert entries_of(x) == ["add"], "on a copy of the journal"
    assert repr(pointer.mean().get()) == "(Wrapper)>JournalTensor>tensor(1.5000)"


def test_it_trains_at_a_worker(bob: Any) -> None:
    weight = journal(1, 2, requires_grad=True)
    pointer = weight.send(bob)
    (pointer * pointer).sum().backward()
    assert repr(pointer.grad.get()) == "(Wrapper)>JournalTensor>tensor([2., 4.])"


def test_it_moves_on(bob: Any, alice: Any) -> None:
    moved = journal(1, 2).send(bob).move(alice)
    assert list(inspect(bob).objects) == []
    assert repr(moved.get()) == "(Wrapper)>JournalTensor>tensor([1., 2.])"


@pytest.mark.parametrize("outer", ["logging", "journal"])
def test_links_nest_in_any_order(outer: str, bob: Any, caplog: pytest.LogCaptureFixture) -> None:
    if outer == "logging":
        x = sy.LoggingTensor().on(journal(1, 2))
        shown = "(Wrapper)>LoggingTensor>JournalTensor>tensor([2., 4.])"
    else:
        x = JournalTensor("lab").on(sy.LoggingTensor().on(torch.tensor([1.0, 2.0])))
        shown = "(Wrapper)>JournalTensor>LoggingTensor>tensor([2., 4.])"
    with caplog.at_level(logging.INFO, "syft.tensors.logging"):
        assert repr(x + x) == shown
        assert repr((x.send(bob) * 2).get()) == shown
    computed = [message for message in caplog.messages if not message.endswith("__get__")]
    assert computed == ["torch.Tensor.add", "torch.Tensor.mul"]


def test_it_stands_before_a_pointer_too(bob: Any) -> None:
    x = JournalTensor("lab").on(torch.tensor([1.0, 2.0]).send(bob))
    y = x + x
    assert repr(y).startswith("(Wrapper)>JournalTensor>[PointerTensor | me:")
    assert repr(y.get()) == "(Wrapper)>JournalTensor>tensor([2., 4.])"
    assert entries_of(x) == ["add"]


def test_without_a_codec_it_stays(bob: Any) -> None:
    x = Homebound().on(torch.ones(2))
    assert repr(x + 1) == "(Wrapper)>Homebound>tensor([2., 2.])"
    with pytest.raises(NotSendable, match="Homebound"):
        x.send(bob)
    assert inspect(bob).objects == {}


def test_a_number_or_a_class_is_given_once() -> None:
    with pytest.raises(SyftError, match="JOURNAL_TENSOR has a codec already"):
        register(Code.JOURNAL_TENSOR, Homebound, _pack, _unpack)
    with pytest.raises(SyftError, match="JournalTensor has a codec already"):
        register(Other.UNUSED, JournalTensor, _pack, _unpack)


class Other(WireCode):
    """Another number of this file."""

    UNUSED = 2_000_002, "nothing"


def test_a_bad_message_is_refused_with_its_path() -> None:
    packer = Packer()
    operand = pack(journal(1, 2), packer)
    with pytest.raises(MalformedMessage, match=r"expected 3 fields after type code 2000001, got 2"):
        unpack(list(operand)[:3], Unpacker(packer.buffers))
    spoiled = [*operand[:2], [99_999], operand[3]]
    with pytest.raises(MalformedMessage, match=r"\.entries"):
        unpack(spoiled, Unpacker(packer.buffers))


# ------------------------------------------------------------- methods of tensors that it answers


def packed(*values: float) -> Wrapper:
    return wrap(PackedTensor(bytes(sy.serde.serialize(torch.tensor(values)))))


def test_a_link_answers_what_it_overrides(hook: sy.TorchHook) -> None:
    x = packed(1, 2)
    assert x.get().tolist() == [1.0, 2.0]
    duplicate = x.copy()
    assert duplicate is not x and duplicate.child is not x.child
    assert copy.deepcopy(x).get().tolist() == [1.0, 2.0]


def test_the_other_answers_are_those_of_a_tensor_that_is_here(bob: Any, alice: Any) -> None:
    x = packed(1, 2)
    assert (x.location, x.owner, x.id_at_location) == (None, sy.local_worker, None)
    assert x.id == x.id and (x.tags, x.description) == (set(), None)
    assert x.tag("#a").describe("words").tags == {"#a"}
    here = "this tensor is here already (it was never sent, or has been fetched). Use it as it is."
    for name, call in {
        "move": lambda: x.move(bob),
        "remote_get": lambda: x.remote_get(),
        "remote_send": lambda: x.remote_send(bob),
        "begin_msg_group": lambda: x.begin_msg_group(),
        "release_msg_group": lambda: x.release_msg_group(),
    }.items():
        assert refusal(call) == f"NothingToGet: {name}(): {here}"
    assert refusal(lambda: x + 1).endswith("this kind of link runs nothing.")
    assert inspect(bob).objects == {}


def test_a_link_before_it_passes_the_questions_on(hook: sy.TorchHook) -> None:
    x = sy.LoggingTensor().on(packed(1.0, 2.0))
    assert repr(x.get()) == "(Wrapper)>LoggingTensor>tensor([1., 2.])"
    assert repr(x.copy()) == "(Wrapper)>LoggingTensor>PackedTensor"
    assert x.location is None
    assert refusal(lambda: x.move("bob")).startswith("NothingToGet: move()")


def test_a_link_decides_how_it_is_sent(bob: Any) -> None:
    class Sendable(sy.LocalLink):
        """Sends only what is behind it."""

        __slots__ = ()

        def deliver(self, tensor: torch.Tensor, delivery: Any) -> torch.Tensor:
            return delivery.put(self.tensor)

    x = Sendable().on(torch.ones(2))
    assert x.send(bob).get().tolist() == [1.0, 1.0]
    graph = Sendable().on(torch.ones(2, requires_grad=True) * 2)
    assert graph.send(bob).get().tolist() == [2.0, 2.0], "it did not ask for a leaf"


def test_a_link_decides_how_it_is_converted(hook: sy.TorchHook) -> None:
    class Unconverted(sy.LocalLink):
        """Stays in floating point."""

        __slots__ = ()

        def convert(self, tensor: torch.Tensor, conversion: Any, args: Arguments) -> torch.Tensor:
            return tensor

    x = Unconverted().on(torch.ones(2))
    assert x.fix_precision() is x


@pytest.fixture(autouse=True)
def no_journal_leaves_a_trace() -> Iterator[None]:
    """A new kind of link changes nothing but its own table."""
    rules = dict(sy.LocalLink.rules), dict(sy.LoggingTensor.rules), dict(sy.Link.rules)
    yield
    assert rules == (sy.LocalLink.rules, sy.LoggingTensor.rules, sy.Link.rules)


class Questions(sy.LocalLink):
    """A link that keeps the names of all operations it sees."""

    __slots__ = ()

    seen: ClassVar[list[str]] = []

    @classmethod
    def on_call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        cls.seen.append(name_of(operation))
        return operation(*args, **kwargs)


@pytest.mark.parametrize("grad", [False, True])
def test_sending_asks_the_link_nothing(bob: sy.VirtualWorker, grad: bool) -> None:
    x = Questions().on(Questions().on(torch.ones(2, requires_grad=grad)))
    Questions.seen.clear()
    with pytest.raises(NotSendable) as caught:
        x.send(bob)
    assert Questions.seen == []
    assert str(caught.value).endswith(
        "Questions: a kind of link travels once it has a codec: syft.serde.register(...), "
        "docs/new_tensor_type.md."
    )


def test_a_graph_behind_links_is_not_sent(bob: sy.VirtualWorker) -> None:
    x = Questions().on(Questions().on(torch.ones(2, requires_grad=True)))
    with pytest.raises(NotALeaf, match="MulBackward0"):
        (x * 2).send(bob)
