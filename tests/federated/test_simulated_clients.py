"""Rounds with simulated clients, held against a plain loop over the same batches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import syft as sy
from syft.exceptions import UnusableSetting
from syft.federated.memory_orders import KeptStacks
from syft.federated.stacked_clients import StackedSGD

Samples = list[tuple[torch.Tensor, torch.Tensor]]

SGD: dict[str, dict[str, Any]] = {
    "plain": {"lr": 0.1},
    "momentum": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "dampened": {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "maximize": True},
}


def sgd(**options: Any) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, **options)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )


class Tied(nn.Module):
    """One weight in two places, a parameter that is not used, and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.last, self.unused = nn.Linear(16, 3), nn.Linear(1, 1)
        self.last.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        return self.last(torch.tanh(self.second(x)))  # type: ignore[no-any-return]


class Branching(nn.Module):
    """A path that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y if y.sum() > 0 else 2 * y


class Counting(nn.Module):
    """What it computes depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = mlp(), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.calls * self.inner(x)  # type: ignore[no-any-return]


class Alternating(Counting):
    """Which of its parameters are used depends on how often it was called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        first: torch.Tensor = self.inner[:2](x)
        return first[:, :3] if self.calls > 2 else self.inner[2:](first)


class Silent(nn.Module):
    """It refuses to be run for several clients at once, without a word."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch._C._functorch.is_batchedtensor(x):
            raise ValueError
        return self.inner(x)  # type: ignore[no-any-return]


def centred() -> nn.Module:
    """The bias before the norm has gradients that are nothing but rounding."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.BatchNorm1d(8, track_running_stats=False),
        nn.Linear(8, 3),
    )


def normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(), nn.Linear(8, 3))


TOGETHER = {"mlp": mlp, "cnn": cnn, "tied": Tied, "centred": centred}
ALONE = {
    "BatchNorm": (normed, "it changes its buffer '2.running_mean'"),
    "dropout": (dropping, "torch.func.vmap cannot run it: vmap: called random operation"),
    "silent": (Silent, "torch.func.vmap cannot run it: ValueError"),
    "branches": (Branching, "torch.func.vmap cannot run it: "),
    "counting": (Counting, "several at once have other gradients"),
    "alternating": (Alternating, "several at once have other gradients"),
}


def samples(counts: list[int], dtype: torch.dtype = torch.float32) -> Samples:
    dice = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(count, 1, 4, 4, generator=dice, dtype=dtype),
            torch.randint(3, (count,), generator=dice),
        )
        for count in counts
    ]


def model_of(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.default_generator.manual_seed(3)
    return make().to(dtype)


def plain_round(
    model: nn.Module, data: Samples, make: Any, batches: list[list[torch.Tensor]], loss_fn: Any
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The state after one round of a plain loop, and the mean loss of each client."""
    states, losses = [], []
    for (x, y), own in zip(data, batches, strict=True):
        client = copy.deepcopy(model)
        optimizer = make(list(client.parameters()))
        total = 0.0
        for rows in own:
            optimizer.zero_grad()
            loss = loss_fn(client(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        states.append(client.state_dict())
        losses.append(total / max(1, sum(map(len, own))))
    total_weight = sum(len(x) for x, _ in data)
    mean = {
        name: sum(
            (state[name].double() * len(x) for state, (x, _) in zip(states, data, strict=True)),
            torch.zeros(()),
        )
        / total_weight
        for name in states[0]
    }
    return mean, losses


def check_round(
    make: Callable[[], nn.Module],
    options: dict[str, Any],
    counts: list[int],
    dtype: torch.dtype = torch.float32,
    loss_fn: Any = F.cross_entropy,
    rounds: int = 1,
    **division: Any,
) -> sy.SimulatedClients:
    """Rounds of simulated clients give what the plain loop gives."""
    data = samples(counts, dtype)
    model = model_of(make, dtype)
    clients = sy.SimulatedClients(
        model, data, loss_fn, sgd(**options), **{"batch_size": 4, **division}
    )
    for number in range(rounds):
        batches = [clients.order(client, number) for client in range(len(counts))]
        expected, losses = plain_round(model, data, sgd(**options), batches, loss_fn)
        report = clients.round()
        assert report.number == number and report.samples == counts
        rtol = 1e-10 if dtype is torch.float64 else 1e-4
        atol = 1e-12 if dtype is torch.float64 else 1e-6
        for name, value in model.state_dict().items():
            wanted = expected[name] if value.is_floating_point() else expected[name].round()
            torch.testing.assert_close(value, wanted.to(value.dtype), rtol=rtol, atol=atol)
        torch.testing.assert_close(
            report.losses, torch.tensor(losses, dtype=torch.float64), rtol=rtol, atol=atol
        )
    return clients


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("options", SGD.values(), ids=SGD)
@pytest.mark.parametrize("make", TOGETHER.values(), ids=TOGETHER)
def test_a_round_together_is_a_round_of_the_loop(
    make: Callable[[], nn.Module], options: dict[str, Any], dtype: torch.dtype
) -> None:
    clients = check_round(make, options, [8, 6, 3, 10, 8], dtype, epochs=2)
    assert clients.obstacle == ""


@pytest.mark.parametrize("make, reason", ALONE.values(), ids=ALONE)
def test_what_cannot_be_stacked_is_trained_one_by_one(
    make: Callable[[], nn.Module], reason: str
) -> None:
    data, model = samples([6, 8, 6]), model_of(make)
    clients = sy.SimulatedClients(model, data, F.cross_entropy, sgd(lr=0.1), batch_size=4)
    duplicate = copy.deepcopy(model)
    clients.round()
    assert clients.obstacle is not None and clients.obstacle.startswith(reason)
    singly = sy.SimulatedClients(
        duplicate, data, F.cross_entropy, sgd(lr=0.1), batch_size=4, clients_at_once=1
    )
    singly.round()
    assert singly.obstacle is None
    for mine, other in zip(
        model.state_dict().values(), duplicate.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, other)
    untrained = dict(model_of(make).named_parameters())
    assert not any(torch.equal(x, untrained[name]) for name, x in model.named_parameters())


def test_statistics_of_batches_are_averaged_too() -> None:
    clients = check_round(normed, SGD["momentum"], [8, 6, 4])
    assert clients.model.state_dict()["2.num_batches_tracked"] == 2


def test_another_optimizer_trains_one_by_one() -> None:
    data, model = samples([5, 8]), model_of(mlp)
    clients = sy.SimulatedClients(model, data, F.cross_entropy, torch.optim.Adam, batch_size=4)
    batches = [clients.order(client, 0) for client in range(2)]
    expected, _ = plain_round(model, data, torch.optim.Adam, batches, F.cross_entropy)
    clients.round()
    assert clients.obstacle == "its optimizer is Adam, not SGD"
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[name].float())


def test_parameters_lie_in_memory_as_their_gradients_do() -> None:
    """Of all clients and of some; the next round begins so, in the same memory."""
    names, stacks = {"weight": nn.Parameter(torch.arange(6.0).view(2, 3))}, KeptStacks()
    gradient = torch.ones(4, 3, 2).transpose(1, 2)
    places = set()
    for clients in (torch.arange(4), torch.tensor([2, 0])):
        groups = torch.optim.SGD(names.values(), lr=1.0, momentum=0.5).param_groups
        stacked = StackedSGD(groups, names, 4, stacks)
        for _ in range(2):
            stacked.step(clients, {"weight": gradient[: len(clients)]})
        expected = names["weight"].expand(4, 2, 3).clone()
        expected[clients] -= 2.5
        assert torch.equal(stacked.parameters["weight"], expected)
        assert stacked.parameters["weight"].stride() == gradient.stride()
        assert stacked._momenta["weight"].stride() == gradient.stride()
        assert stacked.of(clients)["weight"].stride() == gradient.stride()
        places.add((stacked.parameters["weight"].data_ptr(), stacked._momenta["weight"].data_ptr()))
    assert len(places) == 1 and len(places.pop()) == 2


def test_groups_of_an_optimizer_keep_their_settings() -> None:
    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": parameters[:1], "lr": 0.5}, {"params": parameters[1:3]}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.5)

    data, model = samples([4, 4]), model_of(mlp)
    before = copy.deepcopy(model)
    clients = sy.SimulatedClients(model, data, F.cross_entropy, make, batch_size=2)
    batches = [clients.order(client, 0) for client in range(2)]
    expected, _ = plain_round(model, data, make, batches, F.cross_entropy)
    clients.round()
    assert clients.obstacle == ""
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[name].float(), rtol=1e-4, atol=1e-6)
    assert torch.equal(model.state_dict()["3.bias"], before.state_dict()["3.bias"])
    assert not torch.equal(model.state_dict()["3.weight"], before.state_dict()["3.weight"])


@settings(max_examples=15)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    batch_size=st.integers(1, 5),
    epochs=st.integers(1, 3),
    shuffle=st.booleans(),
    max_nr_batches=st.integers(0, 4),
    at_once=st.integers(1, 4),
)
def test_any_division_into_batches(counts: list[int], at_once: int, **division: Any) -> None:
    check_round(
        mlp, SGD["dampened"], counts, torch.float64, rounds=2, clients_at_once=at_once, **division
    )


def normed_images() -> nn.Module:
    """A norm after a convolution of groups, in which torch looks at the layout."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 2, groups=2),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def one_channel() -> nn.Module:
    """What comes out of its convolutions, of one client, has one channel."""
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Conv2d(2, 1, 2), nn.Flatten(), nn.Linear(4, 3))


def group_normed() -> nn.Module:
    """``vmap`` takes its norm of channels that come first, and no other."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("make", [cnn, normed_images, one_channel, group_normed])
@pytest.mark.parametrize("at_once", [2, 3, 5])
def test_images_in_any_number(
    make: Callable[[], nn.Module], at_once: int, dtype: torch.dtype
) -> None:
    """Also one of them, and of one client alone."""
    counts = [1, 1, 9, 4, 5, 13]
    clients = check_round(
        make, {"lr": 0.1, "momentum": 0.9}, counts, dtype, rounds=2, clients_at_once=at_once
    )
    assert clients.obstacle == ""


def test_a_model_that_fails_with_a_later_batch_says_why() -> None:
    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = cnn()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) == 1:
                raise ValueError("one image")
            return self.inner(x)  # type: ignore[no-any-return]

    clients = sy.SimulatedClients(
        Once(), samples([5, 5]), F.cross_entropy, sgd(lr=0.1), batch_size=4
    )
    with pytest.raises(ValueError, match="one image"):
        clients.round()
    assert clients.obstacle == ""


def test_losses_of_ones_own() -> None:
    def loss_fn(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (output - F.one_hot(y, 3)).abs().mean() + 0.1 * output.square().mean()

    assert check_round(mlp, SGD["plain"], [4, 5, 6], loss_fn=loss_fn).obstacle == ""


def test_one_seed_gives_the_same_bits_whatever_torch_has_drawn() -> None:
    def trained(make: Callable[[], nn.Module], seed: int, draws: int) -> list[torch.Tensor]:
        model = model_of(make)
        clients = sy.SimulatedClients(
            model, samples([7, 9, 8, 3]), F.cross_entropy, sgd(lr=0.1), batch_size=4, seed=seed
        )
        for _ in range(3):
            torch.randn(draws)
            state = torch.get_rng_state()
            clients.round()
            assert torch.equal(torch.get_rng_state(), state)
        return list(model.state_dict().values())

    for make in (mlp, cnn, dropping):
        first, second, third = trained(make, 1, 1), trained(make, 1, 5), trained(make, 2, 1)
        assert all(map(torch.equal, first, second))
        assert not all(map(torch.equal, first, third))


def test_each_round_and_client_has_an_order_of_its_own() -> None:
    clients = sy.SimulatedClients(
        model_of(mlp), samples([30, 30]), F.cross_entropy, sgd(lr=0.1), batch_size=30
    )
    orders = [clients.order(client, number)[0] for client in (0, 1) for number in (0, 1)]
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert all(sorted(order.tolist()) == list(range(30)) for order in orders)


def test_some_clients_take_part() -> None:
    data, model = samples([4, 6, 8, 0]), model_of(mlp)
    clients = sy.SimulatedClients(model, data, F.cross_entropy, sgd(lr=0.1), batch_size=4)
    chosen = [2, 0]
    batches = [clients.order(client, 0) for client in chosen]
    expected, _ = plain_round(
        model, [data[client] for client in chosen], sgd(lr=0.1), batches, F.cross_entropy
    )
    report = clients.round([*chosen, 3])
    assert (report.clients, report.samples) == (chosen, [8, 4]) and len(clients) == 4
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[name].float(), rtol=1e-4, atol=1e-6)
    with pytest.raises(UnusableSetting, match="different numbers under 4"):
        clients.round([1, 1])
    with pytest.raises(UnusableSetting, match="different numbers under 4"):
        clients.round([4])
    with pytest.raises(UnusableSetting, match="some with samples"):
        clients.round([3])
    assert clients.rounds == 1


def test_clients_whose_only_batch_is_dropped_take_no_part() -> None:
    clients = sy.SimulatedClients(
        model_of(mlp),
        samples([4, 3, 5]),
        F.cross_entropy,
        sgd(lr=0.1),
        batch_size=4,
        drop_last=True,
    )
    assert clients.round().clients == [0, 2]


def test_chunks_change_nothing_but_memory() -> None:
    results = []
    for at_once in (2, 100):
        model = model_of(mlp, torch.float64)
        sy.SimulatedClients(
            model,
            samples([4] * 7, torch.float64),
            F.cross_entropy,
            sgd(lr=0.1, momentum=0.9),
            batch_size=2,
            clients_at_once=at_once,
        ).round()
        results.append(model.state_dict())
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=1e-10, atol=1e-12)


def test_large_models_are_trained_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from syft.federated import simulated_clients

    sizes = []

    class Noted(simulated_clients.StackedSGD):
        def __init__(self, groups: Any, names: Any, clients: int, stacks: Any) -> None:
            sizes.append(clients)
            super().__init__(groups, names, clients, stacks)

    monkeypatch.setattr(simulated_clients, "StackedSGD", Noted)
    monkeypatch.setattr(simulated_clients, "_STACK_BYTES", 3000)  # a model has 652 bytes
    clients = sy.SimulatedClients(
        model_of(mlp), samples([4] * 6), F.cross_entropy, sgd(lr=0.1), batch_size=4
    )
    clients.round()
    assert sizes == [4, 2]


def test_models_too_large_for_the_cache_are_trained_one_by_one_on_a_cpu(
    device: torch.device,
) -> None:
    def round_of(model: nn.Module, at_once: int | None = None) -> sy.SimulatedClients:
        data = [(torch.ones(2, width), torch.ones(2, 1)) for _ in range(2)]
        optimizer = sgd(lr=0.1)
        made = sy.SimulatedClients(
            model, data, F.mse_loss, optimizer, batch_size=2, clients_at_once=at_once
        )
        made.round()
        return made

    width = (2 << 18) - 1
    assert round_of(nn.Linear(width, 1).to(device)).obstacle == ""
    width += 1
    large = nn.Linear(width, 1).to(device)
    reason = "its parameters have more than 2 MB, and one by one is faster"
    assert round_of(large).obstacle == (reason if device.type == "cpu" else "")
    assert round_of(large, 2).obstacle == ""


def test_as_many_are_trained_at_once_as_memory_has_pages_for(device: torch.device) -> None:
    made = sy.SimulatedClients(
        nn.Linear(1 << 18, 1, bias=False).to(device),
        samples([2]),
        F.mse_loss,
        sgd(lr=1),
        batch_size=2,
    )
    assert made._size_of_chunk(0) == (31 if device.type == "cpu" else 128)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x, y: (x, y),
        lambda x, y: TensorDataset(x, y),
        lambda x, y: sy.BaseDataset(x / 2, y, transform=lambda data: data * 2),
        lambda x, y: list(zip(x, y, strict=True)),
    ],
    ids=["pair", "TensorDataset", "BaseDataset", "list"],
)
def test_data_sets_of_every_kind(hook: sy.TorchHook, wrap: Any) -> None:
    data, model, other = samples([4, 6]), model_of(mlp), model_of(mlp)
    for trained, datasets in ((model, data), (other, [wrap(x, y) for x, y in data])):
        sy.SimulatedClients(trained, datasets, F.cross_entropy, sgd(lr=0.1), batch_size=4).round()
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))


def test_samples_that_differ_are_trained_one_by_one() -> None:
    data = [(torch.randn(4, width, 2), torch.randn(4, width, 1)) for width in (2, 3)]
    model = nn.Linear(2, 1)
    clients = sy.SimulatedClients(model, data, F.mse_loss, sgd(lr=0.1), batch_size=2)
    clients.round()
    assert clients.obstacle == "the samples of its clients differ in shape or dtype"


def test_the_device_is_kept(device: torch.device) -> None:
    model = model_of(mlp).to(device)
    clients = sy.SimulatedClients(
        model,
        samples([4, 7]),
        F.cross_entropy,
        sgd(lr=0.1, momentum=0.9, dampening=0.1),
        batch_size=4,
    )
    clients.round()
    assert clients.obstacle == ""
    assert {parameter.device.type for parameter in model.parameters()} == {device.type}


def test_what_is_elsewhere_or_does_not_fit_is_refused(bob: sy.VirtualWorker) -> None:
    data: Any = samples([4])

    def made(model: Any = None, datasets: Any = data, **options: Any) -> sy.SimulatedClients:
        options = {"batch_size": 2, **options}
        return sy.SimulatedClients(
            model or mlp(), datasets, F.cross_entropy, torch.optim.SGD, **options
        )

    x, y = data[0]
    away: Any = mlp()
    with pytest.raises(UnusableSetting, match="model must be a module in this process"):
        made(away.send(bob))
    with pytest.raises(UnusableSetting, match="pairs of tensors in this process"):
        made(datasets=[(x.send(bob), y)])
    with pytest.raises(UnusableSetting, match="pairs of tensors in this process"):
        made(datasets=[(x, y, y)])
    with pytest.raises(UnusableSetting, match="as many targets as samples: 4"):
        made(datasets=[(x, y[:2])])
    with pytest.raises(UnusableSetting, match="module with parameters"):
        made(nn.Flatten()).round()
    for name in ("batch_size", "epochs", "clients_at_once"):
        with pytest.raises(UnusableSetting, match=f"{name} must be 1 or more, got 0"):
            made(**{name: 0})
    with pytest.raises(UnusableSetting, match="max_nr_batches must be 0 or more, got -1"):
        made(max_nr_batches=-1)


def test_errors_of_the_model_are_its_own() -> None:
    clients = sy.SimulatedClients(
        nn.Linear(3, 1), samples([4, 4]), F.cross_entropy, torch.optim.SGD, batch_size=2
    )
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        clients.round()


@pytest.mark.parametrize(
    "make, at_once",
    [(mlp, None), (mlp, 1), (mlp, 2), (normed, None)],
    ids=["together", "one by one", "two at once", "BatchNorm"],
)
def test_clients_that_diverge_are_named(make: Callable[[], nn.Module], at_once: Any) -> None:
    data, model = samples([8, 8, 6, 8, 6]), model_of(make)
    data[1][0][7] = float("nan")
    clients = sy.SimulatedClients(
        model, data, F.cross_entropy, sgd(lr=float("inf")), batch_size=4, clients_at_once=at_once
    )
    gentle = sy.SimulatedClients(
        model, data, F.cross_entropy, sgd(lr=0.1), batch_size=4, clients_at_once=at_once
    )
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UnusableSetting) as caught:
        clients.round([0, 2, 3])
    text = str(caught.value)
    start = "clients must be finite, or infinite where all of them are, got NaN or Inf in "
    assert text.startswith(start) and all(f"of client {number}" in text for number in (0, 2, 3))
    with pytest.raises(UnusableSetting) as caught:
        gentle.round()
    text = str(caught.value)
    floating = [name for name, value in before.items() if value.is_floating_point()]
    assert text == f"{start}{', '.join(map(repr, floating))} of client 1."
    assert (clients.rounds, gentle.rounds) == (0, 0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the model stays as it was"
    assert gentle.round([0, 2, 3]).number == 0  # the control: what remains is averaged


class Masked(nn.Module):
    """Buffers that are the same at all clients, and a weight that is -inf where it is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.bias = mlp(), nn.Parameter(torch.tensor([0.0, 1.0, float("-inf")]))
        self.register_buffer("infinite", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("lowest", torch.full((2,), torch.finfo(torch.float32).min))
        self.register_buffer("salt", torch.tensor(2**62 + 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y + self.bias.clamp(min=-3)


@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_what_all_clients_hold_alike_stays(at_once: int | None) -> None:
    data, model = samples([7, 8, 6, 5, 9]), model_of(Masked)
    clients = sy.SimulatedClients(
        model, data, F.cross_entropy, sgd(lr=0.1), batch_size=4, clients_at_once=at_once
    )
    before = copy.deepcopy(model.state_dict())
    for _ in range(2):
        clients.round()
    for name in ("infinite", "lowest", "salt"):
        assert torch.equal(model.state_dict()[name], before[name])
    bias = model.state_dict()["bias"]
    assert bias[2] == -torch.inf and bool((bias[:2] != before["bias"][:2]).all())
