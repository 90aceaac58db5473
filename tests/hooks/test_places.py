"""What a forward pass makes goes to where the module is; what a program has loaded does not."""

from __future__ import annotations

import copy
import inspect as inspecting
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.distributions import Categorical, Normal

import syft as sy
from syft.exceptions import DataStaysPut, LocationMismatch
from syft.hooks.places import SentForward, makes_tensors
from syft.tensors import constant
from syft.tensors.constant import MAKERS, ConstantTensor, MakingConstants, _whole_memory_of
from syft.torch_private import function_modes
from tests.shells.owner import inspect

LOADED = torch.tensor([1.0, 2.0, 3.0])
"""Data of the program, which no forward pass may take anywhere."""


class Layer(nn.Module):
    """A layer of three numbers, and a forward pass of whoever inherits it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)


class Positions(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 3)

    def forward(self, x: Any) -> Any:
        places = torch.arange(x.shape[1], device=x.device)
        return self.layer(self.embedding(places)[None] + x[:, :, None])


class Zeros(Layer):
    def forward(self, x: Any) -> Any:
        return self.layer(x + torch.zeros(2, 3)) / torch.sqrt(torch.tensor(3.0))


class Attribute(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor([1.0, 2.0, 3.0])
        self.low = torch.full((3, 2), -0.5)[:, 0]

    def forward(self, x: Any) -> Any:
        return torch.maximum(self.layer(x) * self.scale.view(1, -1), self.low)


class CausalMask(Layer):
    def forward(self, x: Any) -> Any:
        q = self.layer(x)
        mask = torch.triu(torch.ones(x.shape[0], x.shape[0]), 1).bool()
        return (q @ q.T).masked_fill(mask, float("-inf")).softmax(-1) @ q


class KeptMask(Layer):
    """Keeps what it made at the first call; a view that it expands goes for good."""

    mask: Any = None

    def forward(self, x: Any) -> Any:
        if self.mask is None:
            self.mask = torch.tril(torch.ones(3, 3))
            self.row = torch.arange(3.0)
        return self.layer(x) @ self.mask + self.row.expand_as(x)


class Noise(Layer):
    def forward(self, x: Any) -> Any:
        mean = self.layer(x)
        return Normal(mean, mean.exp()).rsample() + torch.randn(mean.shape) * 0.1


class Dropped(Layer):
    """Reads a number that it has drawn."""

    def forward(self, x: Any) -> Any:
        keep = torch.rand(1)
        if keep.item() < 2 and keep.numpy()[0] < 2 and np.asarray(keep)[0] < 2:
            x = x * keep
        return self.layer(x)


class Written(Layer):
    """Writes to what it has made, through views made before and after."""

    def forward(self, x: Any) -> Any:
        out = torch.zeros(3, 3)
        first, column = out[0], out[:, 1]
        first.copy_(self.layer(x)[0])
        out.index_add_(0, torch.tensor([1, 2]), self.layer(x))
        out[2] += first * 2
        return out + column


class Batches(Layer):
    """Makes a table of one class each, and picks rows of it."""

    def forward(self, x: Any) -> Any:
        codes = torch.eye(3)[x.argmax(-1)]
        return self.layer(torch.cat([codes, torch.full((1, 3), 0.5)]))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.layers = nn.GRUCell(3, 2), nn.LSTM(3, 2)

    def forward(self, x: Any) -> Any:
        state = torch.zeros(x.shape[0], 2)
        for _ in range(2):
            state = self.cell(x, state)
        return state + self.layers(x[None])[0][0]


class Nested(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Zeros(), CausalMask(), nn.Sequential(Written()))

    def forward(self, x: Any) -> Any:
        return super().forward(x) + torch.ones(3)


def _rows() -> torch.Tensor:
    return torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.2, -1.0]])


PROGRAMS: dict[str, tuple[type[nn.Module], Callable[[], torch.Tensor]]] = {
    kind.__name__: (kind, _rows)
    for kind in (
        Zeros, Attribute, CausalMask, KeptMask, Noise, Dropped, Written, Batches, Recurrent, Nested
    )
} | {"Positions": (Positions, _rows)}  # fmt: skip


@pytest.mark.every_shell
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_model_that_makes_tensors_runs_where_it_was_sent(name: str, worker: Any) -> None:
    kind, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    model, sent = kind(), kind()
    sent.load_state_dict(model.state_dict())
    attributes = {key: id(value) for key, value in vars(sent).items() if torch.is_tensor(value)}
    wanted, got = [], []
    for module, there, values in ((model, None, wanted), (sent, worker, got)):
        if there is not None:
            module.send(there)
        torch.manual_seed(1)
        for _ in range(2):
            x = inputs() if there is None else inputs().send(there)
            result = module(x)
            result.square().sum().backward()
            values.append(result.detach() if there is None else result.detach().get())
    assert sent.get() is sent and "forward" not in vars(sent) and not function_modes()
    for one, other in zip(wanted, got, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    for mine, theirs in zip(model.parameters(), sent.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-5)  # type: ignore[arg-type]
    assert attributes == {key: id(getattr(sent, key)) for key in attributes}
    torch.manual_seed(2)
    again = sent(inputs())
    torch.manual_seed(2)
    assert type(again) is torch.Tensor and torch.allclose(model(inputs()), again, atol=1e-6)


class Loading(Layer):
    """Uses data of the program in some way."""

    def __init__(self, way: Callable[[], Any]) -> None:
        super().__init__()
        self.__dict__["way"] = way

    def forward(self, x: Any) -> Any:
        return self.layer(x + self.way())


def _written() -> Any:
    made = torch.zeros(3)
    part = made[:2]
    part.copy_(LOADED[:2])
    return made


@pytest.mark.parametrize(
    "way",
    [
        lambda: LOADED,
        lambda: LOADED * 2,
        lambda: torch.ones(3) + LOADED,
        lambda: torch.ones(3).copy_(LOADED),
        lambda: torch.tensor(LOADED.numpy()),
        lambda: torch.as_tensor(LOADED),
        lambda: torch.from_numpy(LOADED.numpy()),
        lambda: torch.where(torch.ones(3) > 0, LOADED, torch.zeros(3)),
        _written,
        lambda: torch.ones(3).copy_(LOADED) * 2,
        lambda: _written().view(3),
        lambda: torch.zeros(3) + torch.ones(3).mul_(LOADED),
        lambda: torch.zeros(3).add_(torch.ones(3).mul_(LOADED)),
        lambda: torch.stack([torch.ones(3), torch.ones(3).mul_(LOADED)])[1],
        lambda: torch.ones(3, requires_grad=True),
    ],
)
def test_what_a_program_has_loaded_stays_here(way: Callable[[], Any], bob: Any) -> None:
    model, x = Loading(way).send(bob), torch.ones(3).send(bob)
    assert "forward" in vars(model)
    with pytest.raises(LocationMismatch):
        model(x)
    assert not function_modes()
    model.way = lambda: torch.zeros(3)  # the control: it is what was loaded that is refused
    assert model(x).shape == (3,)


def test_an_interrupt_ends_the_mode(bob: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    model = Loading(interrupt).send(bob)
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(3).send(bob))
    assert not function_modes()


def test_a_copy_runs_its_own_forward_pass(bob: Any) -> None:
    model = Zeros().send(bob)
    duplicate = copy.deepcopy(model)
    with torch.no_grad():
        duplicate.layer.weight.zero_()
        duplicate.layer.bias.zero_()
    x = torch.ones(2, 3).send(bob)
    assert duplicate(x).get().eq(0).all() and model(x).get().ne(0).any()
    assert inspecting.signature(duplicate.forward) == inspecting.signature(Zeros().forward)


def test_a_module_is_freed_with_its_last_reference(bob: Any) -> None:
    model = Attribute().send(bob)
    model(torch.ones(2, 3).send(bob))
    del model
    assert bob.objects_count() == 0


def test_a_large_attribute_stays_and_the_error_says_so(bob: Any) -> None:
    model = Attribute()
    model.scale = torch.ones(2**18 + 1)
    model.send(bob)
    wanted = "The tensor of shape (1, 262145) is here: x.send(bob)."
    assert _note_of(lambda: model(torch.ones(2, 3).send(bob))) == wanted


def _note_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except LocationMismatch as error:
        return error.__notes__[0]
    raise AssertionError("it was not refused")


def test_the_error_names_the_operand_and_the_cure(bob: Any) -> None:
    model, x = nn.Linear(3, 2), torch.ones(2, 3)
    wanted = "A parameter of shape (2, 3) is here: send its module, model.send(bob)."
    assert _note_of(lambda: model(x.send(bob))) == wanted
    model.send(bob)
    assert _note_of(lambda: model(x)) == "The tensor of shape (2, 3) is here: x.send(bob)."


@pytest.mark.every_shell
def test_tensors_are_made_at_a_worker(bob: Any) -> None:
    torch.manual_seed(3)
    wanted = torch.randn(3), torch.arange(4)
    torch.manual_seed(3)
    with sy.at(bob) as place:
        made = torch.randn(3), torch.arange(4)
        loaded = torch.tensor(LOADED.numpy())
    assert place is bob and all(one.location is bob for one in made)
    assert all(torch.equal(one.get(), other) for one, other in zip(made, wanted, strict=True))
    assert type(loaded) is torch.Tensor and not function_modes()


def test_a_plan_records_what_it_makes(bob: Any) -> None:
    with sy.at(bob):

        @sy.func2plan(args_shape=[(2,)])
        def other(x: Any) -> Any:
            return x + torch.ones(2)

    assert other(torch.ones(2)).eq(2).all()


def test_distributions_over_remote_parameters(bob: Any) -> None:
    logits, value = torch.tensor([[0.3, 0.2], [1.0, -1.0]]), torch.tensor([0, 1])
    wanted = Categorical(logits=logits).log_prob(value)
    got = Categorical(logits=logits.send(bob)).log_prob(value.send(bob))
    assert torch.allclose(got.get(), wanted)
    x = logits.send(bob)
    assert x.reshape(torch.Size([-1])).shape == (4,)
    assert x.expand(torch.Size([2, -1, -1])).shape == (2, 2, 2)


def _helper(x: Any) -> Any:
    return x


class Pure(Layer):
    def forward(self, x: Any) -> Any:
        return F.relu(self.layer(x)).view(x.shape[0], -1)


class Calling(Layer):
    def forward(self, x: Any) -> Any:
        return _helper(x)


class Looping(Layer):
    def forward(self, x: Any) -> Any:
        return [torch.zeros(1) for _ in range(2)]


class Normalised(Layer):
    @property
    def prior(self) -> Any:
        return Normal(0.0, 1.0)

    def forward(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    "kind, makes",
    [(Pure, False), (Calling, True), (Looping, True), (Normalised, True), (nn.GRU, False)],
)
def test_a_look_at_the_code_says_what_may_make_tensors(kind: Any, makes: bool) -> None:
    assert makes_tensors(kind) is makes


def test_the_links_of_a_constant(bob: Any) -> None:
    made = ConstantTensor().on(torch.arange(4.0))
    x = torch.ones(4).send(bob)
    assert type((made * 2).child) is ConstantTensor and made.location is None
    assert torch.equal((x * made).get(), torch.arange(4.0)) and made.location is None
    assert torch.equal(made.broadcast_to((2, 4)).sum(0).child.tensor, torch.arange(4.0) * 2)
    with pytest.raises(DataStaysPut):
        x.numpy()
    twice = copy.copy(made)
    made.mul_(x)
    assert made.location is bob
    with pytest.raises(LocationMismatch, match="nowhere"):
        twice + 1
    with MakingConstants(lambda tensor: ConstantTensor().on(tensor)):
        joined = torch.stack([torch.ones(2), torch.zeros(2)])
    assert type(joined.child) is ConstantTensor
    forward = SentForward(nn.Linear(1, 1))
    with pytest.raises(ReferenceError, match="outlived"):
        forward(torch.ones(1))


class Writing(Layer):
    """Writes to something that must not go, and would go if it were not for one reason."""

    def __init__(self, made: Callable[[], Any]) -> None:
        super().__init__()
        self.__dict__["made"] = made

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            return self.made().add_(self.layer(x))


def _with_array() -> Any:
    made = torch.zeros(3)
    array = made.numpy()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    assert np.asarray(made, dtype=np.float64).dtype == np.float64
    return made


def _with_plain_view() -> Any:
    made = torch.zeros(3)
    Writing.kept = made.expand_as(LOADED)  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    "made", [_with_array, _with_plain_view, lambda: torch.zeros(3, requires_grad=True)]
)
def test_what_could_not_follow_is_not_written_to_elsewhere(made: Any, bob: Any) -> None:
    model, x = Writing(made).send(bob), torch.ones(3).send(bob)
    with pytest.raises(LocationMismatch):
        model(x)
    model.__dict__["made"] = lambda: torch.zeros(3)  # the control
    assert model(x).location is bob


def test_attributes_that_may_not_go_stay_as_they_are(bob: Any) -> None:
    model = Attribute()
    mine, private = model.scale, torch.ones(3).private_tensor(["ann"])
    model.low = private
    model.send(bob)
    assert type(mine) is torch.Tensor and torch.equal(mine + 0, torch.tensor([1.0, 2.0, 3.0]))
    assert model.low is private and model.scale.location is None
    assert model.get().scale is mine


def test_layouts_that_have_no_memory_of_one_piece(bob: Any) -> None:
    def sparse() -> Any:
        made = torch.eye(3).to_sparse()
        assert made.is_sparse and made.to_dense().sum().item() == 3
        return made.to_dense().sum(0)

    assert Loading(sparse).send(bob)(torch.ones(3).send(bob)).shape == (3,)


def test_many_views_of_a_constant_are_not_all_noted(bob: Any) -> None:
    made = ConstantTensor().on(torch.zeros(2))
    for _ in range(200):
        made.view(2)
    assert len(made.child.memory.wrappers) < 200  # type: ignore[attr-defined]


def test_nothing_is_left_at_the_worker(bob: Any) -> None:
    model, x = Written().send(bob), torch.ones(2, 3).send(bob)
    before = inspect(bob).objects.keys()
    for _ in range(3):
        model(x)
    assert inspect(bob).objects.keys() == before


class Containers(Layer):
    """Tensors in a list, a tuple and a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = [torch.tensor([1.0, 2.0, 3.0]), None]
        self.pair = (torch.ones(3), 2)
        self.tables = {"low": {"deep": torch.full((3,), -0.5)}, "written": torch.zeros(3)}

    def forward(self, x: Any) -> Any:
        x = self.layer(x) * self.scales[0] + self.pair[0]
        self.tables["written"] += x.detach().sum(0)
        return torch.maximum(x, self.tables["low"]["deep"])


def test_tensors_in_containers_go_along_and_come_back(bob: sy.VirtualWorker) -> None:
    model, x = Containers(), torch.randn(2, 3)
    plain = copy.deepcopy(model)
    expected = plain(x)
    scales, low = model.scales, model.tables["low"]["deep"]
    assert torch.equal(model.send(bob)(x.send(bob)).get(), expected)
    model.get()
    assert model.scales is scales and model.tables["low"]["deep"] is low
    assert torch.equal(model.tables["written"], plain.tables["written"])
    assert type(model.pair[0]) is torch.Tensor and inspect(bob).objects == {}


class OnItsDevice(Layer):
    """Makes tensors on the device of what it is given."""

    def forward(self, x: Any) -> Any:
        places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        mask = torch.ones(x.shape[1]).to(x.device)
        return self.layer(x) * places + torch.full((3,), 2.0, device=str(x.device)) * mask


class Devices(TorchFunctionMode):
    """Sees on which devices this process makes tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MAKERS:
            self.seen.append(str((kwargs or {}).get("device")))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("here", [True, False])
def test_a_device_that_only_the_worker_has(
    bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    monkeypatch.setattr(constant, "_is_here", lambda device: here or str(device) != "meta")
    model, x = OnItsDevice().send(bob).to("meta"), torch.randn(2, 3, device="meta").send(bob)
    with Devices() as devices:
        out = model(x)
    assert ("meta" in devices.seen) is here
    assert (str(out.device), tuple(out.shape)) == ("meta", (2, 3))
    with sy.at(bob):
        made = torch.zeros(2, device="meta")
    assert str(made.device) == "meta" and made.location is bob


def test_devices_that_are_here() -> None:
    assert constant._is_here("cpu") and constant._is_here(torch.device("meta"))
    assert constant._is_here("cuda:0") is torch.cuda.is_available()


def test_the_whole_memory_of_a_constant_is_found_for_every_layout() -> None:
    sparse, whole = torch.eye(2).to_sparse(), torch.arange(6.0)
    assert _whole_memory_of(sparse) is sparse
    assert _whole_memory_of(whole[2:]).tolist() == whole.tolist()
    part = torch.empty(0).set_(whole.untyped_storage(), 2, (2,), (2,))  # a view of no tensor
    assert _whole_memory_of(part).tolist() == whole.tolist()
