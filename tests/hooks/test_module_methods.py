"""nn.Module.send, get, move and copy: every kind of module, in place, all or nothing."""

from __future__ import annotations

import copy
import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, rnn
from torch.nn.utils.rnn import PackedSequence

import syft as sy
from syft.exceptions import LocationMismatch, NoSuchDevice, NotSendable
from tests.chain.refusal import here, notes_of, refusal, shown
from tests.shells.owner import inspect, seed

pytestmark = pytest.mark.every_shell

Module = Callable[[], nn.Module]


class Mixture(nn.Module):
    """Lists, dictionaries, tied and frozen parameters, buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.layers[1].weight = self.layers[0].weight
        self.named = nn.ParameterDict({"a": torch.randn(3)})
        self.listed = nn.ParameterList([torch.randn(3)])
        self.parts = nn.ModuleDict({"tanh": nn.Tanh()})
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.whole = nn.Parameter(torch.tensor([1, 2, 3]), requires_grad=False)
        self.register_buffer("passing", torch.randn(3), persistent=False)
        self.register_buffer("absent", None)
        self.kept = nn.Buffer(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.parts["tanh"](self.layers[1](self.layers[0](x)))
        return (x * self.named["a"] + self.listed[0]) * self.passing * self.kept * self.whole


def padded() -> PackedSequence:
    return rnn.pack_padded_sequence(torch.randn(4, 2, 3), [4, 2])


SEQUENCE, ROWS, IMAGE = (4, 2, 3), (4, 3), (2, 3, 5, 5)
WORDS = torch.tensor([[1, 2, 4]])
CASES: dict[str, tuple[Module, Any]] = {
    "linear": (lambda: nn.Linear(3, 2), ROWS),
    "sequential": (lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Dropout(0.5)), ROWS),
    "rnn": (lambda: nn.RNN(3, 5, nonlinearity="relu"), SEQUENCE),
    "lstm": (lambda: nn.LSTM(3, 5), SEQUENCE),
    "lstm, batch first": (lambda: nn.LSTM(3, 5, batch_first=True), SEQUENCE),
    "lstm, two ways": (lambda: nn.LSTM(3, 5, 2, bidirectional=True, dropout=0.5), SEQUENCE),
    "lstm, projected": (lambda: nn.LSTM(3, 5, proj_size=2), SEQUENCE),
    "gru, no bias": (lambda: nn.GRU(3, 5, bias=False), SEQUENCE),
    "lstm, packed": (lambda: nn.LSTM(3, 5), padded),
    "gru, packed": (lambda: nn.GRU(3, 5), padded),
    "lstm cell": (lambda: nn.LSTMCell(3, 5), ROWS),
    "gru cell": (lambda: nn.GRUCell(3, 5), ROWS),
    "batch norm": (lambda: nn.BatchNorm1d(3), ROWS),
    "batch norm, cumulative": (lambda: nn.BatchNorm2d(3, momentum=None), IMAGE),
    "instance norm": (lambda: nn.InstanceNorm2d(3, track_running_stats=True), IMAGE),
    "group norm": (lambda: nn.GroupNorm(1, 3), IMAGE),
    "layer norm": (lambda: nn.LayerNorm(3), ROWS),
    "convolution": (lambda: nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular"), IMAGE),
    "transformer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 3, 4)),
    "transformer, eval": (lambda: nn.TransformerEncoderLayer(4, 2, 8).eval(), (2, 3, 4)),
    "embedding": (lambda: nn.Embedding(5, 3, padding_idx=1, max_norm=1.0), WORDS),
    "embedding bag": (lambda: nn.EmbeddingBag(5, 3), WORDS),
    "mixture": (Mixture, ROWS),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(3, 2)), ROWS),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(3, 2)), ROWS),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(3, 3)), ROWS),
    "double precision": (lambda: nn.Linear(3, 2).double(), torch.randn(4, 3).double()),
    "PReLU": (nn.PReLU, ROWS),
    "no parameters": (lambda: nn.Softmax(1), ROWS),
}


def sent(value: Any, worker: sy.VirtualWorker) -> Any:
    if isinstance(value, PackedSequence):
        return PackedSequence(value.data.send(worker), value.batch_sizes)
    return value.send(worker)


def first_of(output: Any) -> torch.Tensor:
    while isinstance(output, tuple):
        output = output[0]
    return output


def run(module: nn.Module, value: Any) -> torch.Tensor:
    """One forward and backward pass; the output."""
    output = first_of(module(value))
    if output.requires_grad:
        output.pow(2).sum().backward()
    return output.detach()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_every_kind_of_module(worker: sy.VirtualWorker, alice: sy.VirtualWorker, case: str) -> None:
    make, shape = CASES[case]
    torch.manual_seed(0)
    module = make()
    value = shape() if callable(shape) else torch.randn(shape) if type(shape) is tuple else shape
    duplicate = copy.deepcopy(module)
    torch.manual_seed(7)
    expected = run(duplicate, value)
    tensors = [*module.parameters(), *module.buffers()]
    identities = [id(tensor) for tensor in tensors]

    assert module.send(worker) is module
    assert module.location is (worker if tensors else None)
    assert all(type(tensor) is sy.Wrapper for tensor in [*module.parameters(), *module.buffers()])
    assert all(isinstance(p, nn.Parameter) for p in module.parameters())
    there = sent(value, worker)
    seed(worker, 7)
    output = run(module, there)
    del there
    assert torch.allclose(output.get(), expected, atol=1e-5)

    assert module.move(alice) is module
    assert module.location is (alice if tensors else None)
    assert inspect(worker).objects == {}
    assert module.get() is module
    assert module.location is None
    assert inspect(alice).objects == {}
    after = [*module.parameters(), *module.buffers()]
    assert [id(tensor) for tensor in after] == identities
    assert all(type(p) is nn.Parameter for p in module.parameters())
    assert list(module.state_dict()) == list(duplicate.state_dict())
    for mine, theirs in zip(after, [*duplicate.parameters(), *duplicate.buffers()], strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
        assert mine.requires_grad == theirs.requires_grad
        assert (mine.grad is None) == (theirs.grad is None)
        assert mine.grad is None or torch.allclose(mine.grad, theirs.grad, atol=1e-4)
    duplicate.zero_grad()
    torch.manual_seed(7)
    expected = run(duplicate, value)
    torch.manual_seed(7)
    assert torch.allclose(run(module, value), expected, atol=1e-4)


def test_sequences_packed_there(bob: sy.VirtualWorker) -> None:
    lstm = nn.LSTM(3, 5)
    x = torch.randn(4, 2, 3)
    with torch.no_grad():
        expected, lengths = rnn.pad_packed_sequence(lstm(rnn.pack_padded_sequence(x, [4, 2]))[0])
    lstm.send(bob)
    packed = rnn.pack_padded_sequence(x.send(bob), [4, 2])
    output, remote_lengths = rnn.pad_packed_sequence(lstm(packed)[0])
    assert torch.allclose(output.detach().get(), expected, atol=1e-6)
    assert remote_lengths.tolist() == lengths.tolist()


def test_a_recurrent_layer_keeps_its_weak_references(bob: sy.VirtualWorker) -> None:
    lstm = nn.LSTM(3, 4).send(bob)
    assert [ref() for ref in lstm._flat_weight_refs] == lstm._flat_weights
    lstm.get()
    assert all(
        ref() is weight
        for ref, weight in zip(lstm._flat_weight_refs, lstm._flat_weights, strict=True)
    )
    duplicate = lstm.send(bob).copy()
    assert all(a is b for a, b in zip(duplicate._flat_weights, duplicate.parameters(), strict=True))
    assert duplicate(torch.ones(1, 1, 3).send(bob))[0].shape == (1, 1, 4)


def test_tied_parameters_stay_tied(bob: sy.VirtualWorker) -> None:
    module = Mixture().send(bob)
    assert module.layers[0].weight is module.layers[1].weight
    duplicate = module.copy()
    assert duplicate.layers[0].weight is duplicate.layers[1].weight
    assert duplicate.layers[0].weight is not module.layers[0].weight
    assert len(inspect(bob)) == 2 * 9
    assert Mixture().layers[0].weight is not module.get().layers[0].weight


def test_copy(bob: sy.VirtualWorker) -> None:
    module = nn.Linear(2, 1)
    duplicate = module.copy()
    assert duplicate.weight is not module.weight
    assert torch.equal(duplicate.weight, module.weight)
    module.send(bob)
    remote = module.copy()
    assert remote.location is bob
    assert isinstance(remote.weight, nn.Parameter)
    assert remote.weight.id_at_location != module.weight.id_at_location
    with torch.no_grad():
        remote.weight.zero_()
    assert not torch.equal(module.get().weight, remote.get().weight)


def test_location_owner_and_repr(bob: sy.VirtualWorker, me: sy.VirtualWorker) -> None:
    module = nn.Linear(2, 1)
    assert (module.location, module.owner) == (None, me)
    module.send(bob)
    assert (module.location, module.owner, nn.ReLU().owner) == (bob, me, me)
    assert shown(module.bias) == (
        "Parameter containing:\n(Wrapper)>[PointerTensor | me:N -> bob:N]"
    )
    assert repr(module) == "Linear(in_features=2, out_features=1, bias=True)"
    assert module.move(me).location is None
    assert inspect(bob).objects == {}


def test_a_module_that_is_elsewhere_is_moved(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    module = nn.Linear(2, 1)
    weight = module.weight.detach().clone()
    module.send(bob)
    assert refusal(lambda: module.send(alice)) == (
        "NotSendable: Cannot send a module that is at bob: model.move(alice) takes it there; or "
        "bring it here first: model.get()."
    )
    assert inspect(alice).objects == {} and module.move(alice).location is alice
    assert torch.equal(module.get().weight, weight)


def test_a_module_that_is_there_is_not_sent_again(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    """A cell is run twice; a part that was added meanwhile is sent."""
    module = nn.Sequential(nn.Linear(2, 1)).send(bob)
    held, ids = set(inspect(bob).objects), [p.id_at_location for p in module.parameters()]
    with hook.record() as log:
        assert module.send(bob) is module
    assert len(log) == 0 and [p.id_at_location for p in module.parameters()] == ids
    module.append(nn.Linear(1, 1))
    assert module.send("bob")(torch.ones(1, 2).send(bob)).shape == (1, 1)
    assert held < set(inspect(bob).objects) and len(inspect(bob)) == 4
    assert module.get().location is None


def test_a_parameter_stays_with_its_module(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    module = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    weight = module[0].weight.detach().clone()
    module.send(bob)
    for part in (module[0].weight, module.copy()[0].weight):
        assert torch.equal(part.get(), weight) and torch.equal(part.get(), weight)
        assert torch.equal(part.get(wait=False).result(), weight)
        assert refusal(lambda part=part: part.move(alice)) == (
            "UnsupportedOperation: a parameter of a module has no rule for move: move the whole: "
            "model.move(worker), or a copy of it: x.copy().move(worker)."
        )
        assert torch.equal(part.copy().move(alice).get(), weight)
    assert module[1].running_mean.get().tolist() == [0.0]
    assert module(torch.ones(3, 2).send(bob)).shape == (3, 1)
    assert module.move(alice)[0].weight.get().shape == (1, 2)
    part = None
    assert module.get().location is None
    alone = nn.Parameter(torch.ones(2)).send(bob)
    assert alone.get().tolist() == [1.0, 1.0] and inspect(bob).objects == {}


def test_the_state_of_a_module_that_is_elsewhere_is_saved(bob: sy.VirtualWorker) -> None:
    module, file = nn.Linear(2, 1).send(bob), io.BytesIO()
    for what in (module, module.state_dict()):
        text = refusal(lambda what=what: torch.save(what, io.BytesIO()))
        assert text.startswith("DataStaysPut: pickling would read data that is not here: (Wrapper)")
        assert text.endswith("a whole state_dict with sy.get_all(state, keep=True).")
    what = None
    torch.save(sy.get_all(module.state_dict(), keep=True), file)
    file.seek(0)
    other = nn.Linear(2, 1)
    other.load_state_dict(torch.load(file))
    assert torch.equal(module.get().weight, other.weight)


# ------------------------------------------------------------------------------- all or nothing


def as_it_was(module: nn.Module, worker: sy.VirtualWorker) -> None:
    assert all(parameter.location is worker for parameter in module.parameters())
    assert module(torch.ones(1, 3).send(worker)).shape == (1, 3)
    ids = {parameter.id_at_location for parameter in module.parameters()}
    assert ids == set(inspect(worker).objects)


def three() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))


class Mine(torch.Tensor):
    """A subclass of a user."""


def test_a_send_that_fails_half_way(bob: sy.VirtualWorker) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].register_buffer("mine", torch.ones(3).as_subclass(Mine))
    assert refusal(lambda: module.send(bob)) == (
        "NotSendable: Cannot send a value of type tests.hooks.test_module_methods.Mine: this "
        "subclass of torch.Tensor has no codec; send x.as_subclass(torch.Tensor)."
    )
    assert module.location is None
    assert inspect(bob).objects == {}
    module(torch.ones(1, 3))


def test_a_lazy_module_goes_when_it_has_a_shape(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    model = nn.Sequential(nn.LazyLinear(2), nn.ReLU(), nn.LazyLinear(1)).send(bob)
    twin = copy.deepcopy(model)
    model.move(alice)
    x = torch.ones(4, 3)
    assert model(x.send(alice)).get().shape == (4, 1)
    assert twin(x.send(bob)).get().shape == (4, 1)
    assert (model.location, twin.location) == (alice, bob)
    assert model[0].weight.shape == (2, 3)
    for one in (model, twin):
        one.get()
    assert torch.equal(model(x), model.copy()(x))


def test_a_lazy_module_that_came_back_stays(bob: sy.VirtualWorker) -> None:
    model = nn.LazyLinear(2).send(bob).get()
    assert model(torch.ones(4, 3)).shape == (4, 2)
    assert model.location is None and inspect(bob).objects == {}


def broken(worker: sy.VirtualWorker, module: nn.Module) -> torch.Tensor:
    """Takes the last parameter of a sent module away; the module works without it."""
    last = list(module.parameters())[-1]
    (found,) = worker.search(str(last.id_at_location))
    return found.get()


@pytest.mark.parametrize("action", ["get", "move", "send"])
def test_a_journey_that_fails_half_way(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, action: str
) -> None:
    module = three().send(bob)
    number = module[2].bias.id_at_location
    if action == "send":  # the last parameter cannot leave: it is private
        module.get()
        guarded = torch.ones(3).private_tensor(["ann"])
        module[2].bias = nn.Parameter(guarded)
        module[2].bias.__dict__.update(guarded.__dict__)
        expected = "PermissionDenied: send"
    else:
        kept = broken(bob, module)
        expected = (
            f"ObjectNotFound: Worker 'bob' holds no object {number}: me fetched it with get()."
        )
    attempts = {
        "get": module.get,
        "move": lambda: module.move(alice),
        "send": lambda: module.send(alice),
    }
    assert refusal(attempts[action]).startswith(expected)
    assert inspect(alice).objects == {}
    if action == "send":
        assert module.location is None
        return
    kept.send(bob, id=number, garbage_collect_data=False)
    as_it_was(module, bob)


def test_a_parameter_that_is_held_elsewhere(bob: sy.VirtualWorker) -> None:
    module = three()
    reference = weakref.ref(module[2].weight)
    text = refusal(lambda: module.send(bob))
    assert text.startswith(
        "NotSendable: Cannot send a module whose parameters are still held by a graph or a weak "
        "reference: delete the outputs and losses computed with it first ("
    )
    assert all(type(parameter) is nn.Parameter for parameter in module.parameters())
    assert inspect(bob).objects == {}
    del reference
    module.send(bob)
    reference = weakref.ref(module[2].weight)
    assert refusal(module.get).startswith("NotSendable")
    as_it_was(module, bob)
    del reference
    module.get()


def test_a_graph_over_a_recurrent_layer(bob: sy.VirtualWorker) -> None:
    lstm = nn.LSTM(3, 4)
    output = lstm(torch.ones(1, 1, 3))[0]
    assert refusal(lambda: lstm.send(bob)).startswith("NotSendable")
    assert lstm.location is None
    del output
    lstm.send(bob)


@pytest.mark.parametrize("action", ["get", "move"])
def test_what_was_never_sent(bob: sy.VirtualWorker, action: str) -> None:
    module = nn.Linear(1, 1)
    attempts = {"get": module.get, "move": lambda: module.move(bob)}
    assert refusal(attempts[action]).startswith(f"NothingToGet: {action}(): this tensor is here")


def test_where_a_module_can_be_sent(bob: sy.VirtualWorker) -> None:
    assert refusal(lambda: nn.Linear(1, 1).send("nobody")).startswith(
        "UnknownWorker: 'me' knows no"
    )
    assert refusal(lambda: nn.Linear(1, 1).send()).startswith(
        "NotSendable: Cannot send a module to"
    )
    assert nn.Linear(1, 1).send("bob").location is bob


# ------------------------------------------------------------------- what else modules are used for


def test_state_dicts(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    module, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    nn.init.constant_(other.weight, 5.0)
    module.send(bob)
    state = module.state_dict()
    assert all(tensor.location is bob for tensor in state.values())
    module.load_state_dict(other.state_dict())
    assert module.weight.tolist() == [5.0] * 3
    assert module.location is bob
    second = nn.BatchNorm1d(3).send(bob)
    second.load_state_dict(state)
    assert second.weight.tolist() == [5.0] * 3
    for wrong in (nn.BatchNorm1d(3), nn.BatchNorm1d(3).send(alice)):
        place = "here" if wrong.location is None else "alice"
        text = here("load_state_dict: 'weight'", place, "bob")
        assert refusal(lambda wrong=wrong: wrong.load_state_dict(state)) == text
        note = notes_of(lambda wrong=wrong: wrong.load_state_dict(state), LocationMismatch)
        assert note.startswith("sy.get_all(state, keep=True) brings a whole state here;")
        wrong.load_state_dict(sy.get_all(state, keep=True))
        assert wrong.weight.tolist() == [5.0] * 3
    assert nn.BatchNorm1d(3).load_state_dict(state, assign=True).missing_keys == []
    assert nn.BatchNorm1d(3).load_state_dict(state, True, True).missing_keys == []
    assert "Unexpected key" in refusal(lambda: nn.ReLU().load_state_dict(state))
    module.load_state_dict(other.state_dict(), assign=True)
    assert module.location is None


def test_ordinary_methods(bob: sy.VirtualWorker) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3)).send(bob)
    x = torch.randn(4, 3).send(bob)
    assert module.eval()(x).shape == module.train()(x).shape == (4, 3)
    module.double()
    assert (module[0].weight.dtype, module[2].running_mean.dtype) == (torch.float64,) * 2
    assert module(x.double()).dtype is torch.float64
    module.to(torch.float32).to("cpu").requires_grad_(False).requires_grad_(True)
    assert module(x).dtype is torch.float32
    assert sum(parameter.numel() for parameter in module.parameters()) == 18
    nn.init.zeros_(module[0].bias)
    nn.init.xavier_uniform_(module[0].weight)
    module(x).sum().backward()
    module.zero_grad(set_to_none=False)
    assert module[0].weight.grad.abs().sum().item() == 0.0
    module.zero_grad()
    assert module[0].weight.grad is None
    assert module.location is bob


def test_tools_of_nn_utils(bob: sy.VirtualWorker) -> None:
    module = nn.Linear(3, 2).send(bob)
    module(torch.full((4, 3), 10.0).send(bob)).sum().backward()
    assert nn.utils.clip_grad_norm_(module.parameters(), 1.0).item() > 1.0
    assert nn.utils.get_total_norm([p.grad for p in module.parameters()]).item() <= 1.001
    nn.utils.clip_grad_value_(module.parameters(), 0.01)
    assert module.weight.grad.abs().max().item() <= 0.0101
    vector = nn.utils.parameters_to_vector(module.parameters())
    assert (vector.location, vector.shape) == (bob, (8,))
    identity = module.weight.id_at_location
    nn.utils.vector_to_parameters(vector * 0 + 3, module.parameters())
    assert (module.weight.tolist(), module.location) == ([[3.0] * 3] * 2, bob)
    assert module.weight.id_at_location == identity
    plain = nn.Linear(3, 2)
    assert refusal(lambda: nn.utils.vector_to_parameters(vector, plain.parameters())) == here(
        "torch.Tensor.view_as", "bob", "me"
    )


def test_averaged_models(bob: sy.VirtualWorker) -> None:
    module = nn.Linear(1, 1).send(bob)
    averaged = torch.optim.swa_utils.AveragedModel(module)
    for _ in range(2):
        averaged.update_parameters(module)
    assert averaged.module.weight.item() == module.weight.item()
    assert averaged.module.location is bob


def test_operands_at_the_wrong_place(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    module, x = nn.Linear(3, 2), torch.ones(1, 3)
    linear = "torch.nn.functional.linear"
    assert refusal(lambda: module(x.send(bob))) == here(linear, "bob", "me")
    module.send(alice)
    assert refusal(lambda: module(x)) == here(linear, "alice", "me")
    assert refusal(lambda: module(x.send(bob))) == here(linear, "bob", "alice")


# ----------------------------------------------------------------------------- modules of the user


class Ours(nn.Module):
    """Has attributes of all the names syft uses."""

    def __init__(self) -> None:
        super().__init__()
        self.location, self.owner = "kitchen", 5
        self.copy = nn.Linear(1, 1)
        self.get = nn.Parameter(torch.ones(1))
        self.register_buffer("move", torch.zeros(1))
        self.add_module("fix_precision", nn.ReLU())


class Sender(nn.Module):
    def send(self) -> str:
        return "mine"

    @property
    def location(self) -> str:
        return "at home"


def test_names_of_the_users_own_win(bob: sy.VirtualWorker) -> None:
    module = Ours()
    assert (module.location, module.owner) == ("kitchen", 5)
    assert type(module.copy) is nn.Linear
    assert type(module.get) is nn.Parameter
    assert module.move.tolist() == [0.0]
    assert type(module.fix_precision) is nn.ReLU
    assert set(module._parameters) | set(module._buffers) | set(module._modules) == {
        "copy",
        "get",
        "move",
        "fix_precision",
    }
    assert module.send(bob) is module
    assert module.copy.location is bob
    assert module.location == "kitchen"
    assert (Sender().send(), Sender().location) == ("mine", "at home")
    assert "copy" in dir(module)
    assert refusal(lambda: Ours().register_buffer("forward", torch.ones(1))) == (
        "KeyError: \"attribute 'forward' already exists\""
    )


def test_through_the_class(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    module = nn.Linear(1, 1)
    assert nn.Module.send(module, bob) is module
    assert nn.Module.get(module).location is None
    assert "worker" in (nn.Module.send.__doc__ or "")
    assert "worker" in (vars(nn.Module)["location"].__doc__ or "")
    assert nn.Module.location is vars(nn.Module)["location"]


def test_fixed_precision_of_a_module(hook: sy.TorchHook) -> None:
    module = nn.BatchNorm1d(2)
    module.bias.grad = torch.tensor([1.0, 2.0])
    assert module.fix_precision() is module
    assert repr(module.weight.child).startswith("FixedPrecisionTensor>")
    assert isinstance(module.weight, nn.Parameter)
    assert (module.weight.is_leaf, module.weight.requires_grad) == (True, True)
    assert type(module.num_batches_tracked) is torch.Tensor
    module.float_precision()
    assert type(module.weight) is nn.Parameter
    assert (module.weight.is_leaf, module.weight.requires_grad) == (True, True)
    assert module.weight.tolist() == [1.0, 1.0]
    assert module.bias.grad.tolist() == [1.0, 2.0]


def test_a_module_of_torchscript_is_not_sent(bob: sy.VirtualWorker) -> None:
    with pytest.warns(DeprecationWarning):
        script = torch.jit.script(nn.Linear(2, 1))
    for module in (script, nn.Sequential(script)):
        with pytest.raises(NotSendable, match="TorchScript: send the module that it was compiled"):
            module.send(bob)
        assert type(script.weight) is nn.Parameter


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
@pytest.mark.parametrize(
    "call",
    [
        lambda x, module: x.cuda(),
        lambda x, module: x.to("cuda"),
        lambda x, module: x.to(torch.device("cuda:0")),
        lambda x, module: torch.zeros_like(x, device="cuda"),
        lambda x, module: module.cuda(),
        lambda x, module: module.to("cuda"),
    ],
)
def test_a_device_that_a_worker_has_not_is_told_in_one_sentence(
    call: Any, bob: sy.VirtualWorker
) -> None:
    module = nn.Linear(2, 1).send(bob)
    with pytest.raises(NoSuchDevice, match="Worker 'bob' has no such device .*leave out"):
        call(torch.ones(2).send(bob), module)
    assert module(torch.ones(2).send(bob)).get().shape == (1,)


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_module_moves_before_what_its_parameters_wait_for(
    hook: sy.TorchHook, pipelined: bool
) -> None:
    """Also where a graph, which stays, waits for them."""
    here, there = (sy.VirtualWorker(hook, id=id, pipelined=pipelined) for id in ("here", "there"))
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    plain = copy.deepcopy(model)
    model.send(here)
    factor = here.promise()
    for each in (plain, model):
        with torch.no_grad():
            each[1].weight.mul_(factor.sum() if each is model else 2.0)
    loss = model(torch.ones(2, 3).send(here)).sum()
    model.move(there)
    assert {parameter.location.id for parameter in model.parameters()} == {"there"}
    torch.ones(2).send(here, id=factor.id_at_location)
    loss.backward()
    plain(torch.ones(2, 3)).sum().backward()
    for want, got in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad.get(), want.grad)
        torch.testing.assert_close(got.detach().get(), want.detach())
