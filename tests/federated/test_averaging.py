"""Means of updates, of every kind and wherever they are, and what is seen of each of them."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.exceptions import EncodingError, PermissionDenied, RemoteFailure, UnusableSetting
from syft.federated import secure_mean
from syft.workers.wire.messages import FetchAll, Run
from tests.shells.child import make_worker
from tests.shells.owner import inspect


class Net(nn.Module):
    """Two parameters are one, one is frozen, and one buffer is not persistent."""

    grid: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.register_buffer("grid", torch.full((2,), float("-inf")), persistent=False)


def nets(count: int = 3) -> list[Any]:
    made = []
    for number in range(count):
        net = Net()
        net.norm.running_mean = torch.randn(3)
        net.norm.num_batches_tracked = torch.tensor(10 * number)
        made.append(net)
    return made


def mean_of(tensors: list[torch.Tensor], weights: list[float]) -> torch.Tensor:
    total = sum(
        (weight * x.detach().double() for x, weight in zip(tensors, weights, strict=True)),
        torch.zeros((), dtype=torch.float64),
    )
    return total / sum(weights)


def check_state(made: dict[str, Any], states: list[dict[str, Any]], weights: list[float]) -> None:
    for name, value in made.items():
        wanted = mean_of([state[name] for state in states], weights)
        wanted = wanted if value.is_floating_point() else wanted.round()
        torch.testing.assert_close(value, wanted.to(value.dtype), rtol=1e-6, atol=1e-6)


@pytest.fixture(params=["here", "at workers", "masked", "shared"])
def way(request: pytest.FixtureRequest) -> str:
    """Where updates lie, and how they are added up."""
    return str(request.param)


@pytest.mark.every_shell
def test_modules(hook: sy.TorchHook, way: str) -> None:
    models, weights = nets(), [100.0, 300.0, 200.0]
    states = [copy.deepcopy(model.state_dict()) for model in models]
    options: dict[str, Any] = {}
    if way != "here":
        names = ("bob", "alice", "carol")
        workers = [make_worker(hook, name) for name in names]
        models = [model.send(place) for model, place in zip(models, workers, strict=True)]
        options = {
            "at workers": {},
            "masked": {"secure": True},
            "shared": {"workers": workers[:2], "crypto_provider": workers[2]},
        }[way]
    mean = sy.federated_average(models, weights, **options)
    check_state(mean.state_dict(), states, weights)
    assert type(mean) is Net and mean is not models[0] and mean.location is None
    assert mean.first.weight is mean.second.weight
    assert mean.first.bias.requires_grad and not mean.second.bias.requires_grad
    assert isinstance(mean.first.bias, nn.Parameter)
    assert torch.equal(mean.grid, torch.full((2,), float("-inf")))
    assert mean.norm.num_batches_tracked == 12  # 11.67, rounded
    for model, state in zip(models, states, strict=True):
        if way != "here":
            model.get()
        assert all(map(torch.equal, model.state_dict().values(), state.values()))


def test_state_dicts_lists_and_tensors() -> None:
    states = [model.state_dict() for model in nets()]
    for state in states:
        state["version"] = 7
    made = sy.federated_average(states, [1, 2, 3])
    assert type(made) is type(states[0]) and made.pop("version") == 7
    check_state(made, states, [1, 2, 3])
    assert made["norm.running_mean"] is not states[0]["norm.running_mean"]

    lists = [[torch.randn(2), torch.randn(3)] for _ in range(2)]
    made = sy.federated_average(iter(lists))
    assert type(made) is list and len(made) == 2
    torch.testing.assert_close(made[1], (lists[0][1] + lists[1][1]) / 2)
    made = sy.federated_average([(x for x in row) for row in lists], torch.tensor([3, 1]))
    torch.testing.assert_close(made[0], 0.75 * lists[0][0] + 0.25 * lists[1][0])

    x, y = torch.randn(2, requires_grad=True), torch.randn(2)
    made = sy.federated_average([x, y])
    torch.testing.assert_close(made, (x.detach() + y) / 2)
    assert not made.requires_grad


def test_tensors_are_found_by_name_in_whatever_order(way: str, hook: sy.TorchHook) -> None:
    updates: list[Any] = [
        {"a": torch.ones(2), "b": torch.zeros(3)},
        {"b": torch.full((3,), 4.0), "a": torch.zeros(2)},
    ]
    options: dict[str, Any] = {}
    if way != "here":
        names = ("bob", "alice", "carol")
        bob, alice, carol = workers = [make_worker(hook, name) for name in names]
        updates = [place_all(*pair) for pair in zip(updates, workers, strict=False)]
        options = {
            "at workers": {},
            "masked": {"secure": True},
            "shared": {"workers": (bob, alice), "crypto_provider": carol},
        }[way]
    made = sy.federated_average(updates, user="bea", **options)
    assert {key: value.tolist() for key, value in made.items()} == {"a": [0.5] * 2, "b": [2.0] * 3}


@pytest.mark.parametrize("secure", [False, True])
def test_what_is_encoded_here_is_refused_by_name(
    secure: bool, hook: sy.TorchHook, alice: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    fixed = torch.ones(2).fix_precision()
    carol = sy.VirtualWorker(hook, id="carol")
    shared = torch.ones(2).fix_precision().share(alice, bob, crypto_provider=carol)
    for update, kind in ((fixed, "fixed precision"), (shared, "shares")):
        with pytest.raises(UnusableSetting, match=f"{kind} in 'w' of update 1"):
            sy.federated_average([{"w": torch.ones(2)}, {"w": update}], secure=secure)
    carol.close()


def test_a_number_and_its_text_are_two_names() -> None:
    updates = [{1: torch.tensor([x]), "1": torch.tensor([10 * x])} for x in (1.0, 3.0)]
    made = sy.federated_average(updates)
    assert (made[1].item(), made["1"].item()) == (2, 20)
    with pytest.raises(UnusableSetting, match=r"'1' in only one of updates 0 and 1"):
        sy.federated_average([updates[0], {1: torch.ones(1)}])


class Computed(nn.Linear):
    """What it saves is no tensor that it holds."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.weight * 2


class Extra(nn.Linear):
    """It has state besides parameters and buffers."""

    def __init__(self, extra: float) -> None:
        super().__init__(1, 1)
        self.extra = extra

    def get_extra_state(self) -> torch.Tensor:
        return torch.tensor(self.extra)


def tied(weight: float, other: float | None = None) -> Any:
    """Two layers, of one weight unless there is another one."""
    layers = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    nn.init.constant_(layers[0].weight, weight)
    if other is None:
        layers[1].weight = layers[0].weight
    else:
        nn.init.constant_(layers[1].weight, other)
    return layers


@pytest.mark.parametrize(
    "models, name",
    [
        ([Computed(1, 1) for _ in range(2)], "weight"),
        ([Extra(extra) for extra in (1.0, 3.0)], "_extra_state"),
        ([tied(1.0), tied(2.0, 5.0)], "0.weight"),
        ([torch.jit.script(tied(1.0)), torch.jit.script(tied(2.0, 5.0))], "0.weight"),
    ],
    ids=("computed", "extra state", "tied", "tied script"),
)
def test_a_module_holds_the_mean_or_is_refused(models: list[Any], name: str) -> None:
    with pytest.raises(UnusableSetting, match=f"modules that cannot hold a mean of '{name}'"):
        sy.federated_average(models)
    states = [model.state_dict() for model in models]
    check_state(sy.federated_average(states), states, [1, 1])


@pytest.mark.parametrize(
    "update, named",
    [
        ([np.ones(1)], "'0' of ndarray"),
        ({"w": np.ones(1)}, "'w' of ndarray"),
        ([torch.ones(1), 2.0], "'1' of float"),
        ([[torch.ones(1)]], "'0' of list"),
        ({"epoch": 3, "model": {"w": torch.ones(1)}}, "'epoch' of int"),
        ({"w": torch.ones(1), "optimizer": {"state": [torch.ones(1)]}}, "'optimizer' of dict"),
    ],
    ids=str,
)
def test_what_would_not_be_averaged_is_refused(update: Any, named: str) -> None:
    message = f"updates must be modules, or tables or lists of tensors, got {named}"
    with pytest.raises(UnusableSetting, match=re.escape(message)):
        sy.federated_average([update, update])


def test_the_old_name_and_updates_by_name() -> None:
    assert sy.federated_avg is sy.federated_average
    models = dict(zip(("bob", "alice"), nets(2), strict=True))
    states = [model.state_dict() for model in models.values()]
    check_state(sy.federated_avg(models).state_dict(), states, [1, 1])
    weights = {"alice": 1, "bob": 3}
    check_state(sy.federated_avg(models, weights).state_dict(), states, [3, 1])


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0, 1e3)), min_size=1, max_size=6).filter(
        lambda pairs: sum(weight for _, weight in pairs) > 1e-3
    )
)
def test_the_mean_of_any_numbers(pairs: list[tuple[float, float]]) -> None:
    values = [torch.tensor([value], dtype=torch.float64) for value, _ in pairs]
    weights = [weight for _, weight in pairs]
    made = sy.federated_average(values, weights)
    torch.testing.assert_close(made, mean_of(values, weights), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int32], ids=str
)
def test_dtypes_stay(dtype: torch.dtype, device: torch.device) -> None:
    values = [torch.tensor([2, -2]).to(device, dtype), torch.tensor([3, 2]).to(device, dtype)]
    made = sy.federated_average(values, [3, 1])
    assert made.dtype is dtype and made.device == values[0].device
    exact = torch.tensor([2.25, -1.0])
    assert torch.equal(made.cpu(), (exact if dtype != torch.int32 else exact.round()).to(dtype))


def test_many_narrow_numbers_lose_nothing_on_the_way() -> None:
    ones = [torch.ones(1, dtype=torch.bfloat16)] * 1000  # a sum in bfloat16 stops at 256
    assert sy.federated_average(ones) == 1


def test_an_update_without_weight_does_not_count() -> None:
    values = [torch.tensor([float("nan")]), torch.tensor([2.0])]
    assert sy.federated_average(values, [0, 5]) == 2


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1, float("nan")], "finite numbers from 0, got nan"),
        ([1, float("inf")], "finite numbers from 0, got inf"),
        ([1, -1], "finite numbers from 0, got -1.0"),
        ([0, 0], "of a finite sum over 0, got 0.0"),
        ([1e308, 1e308], "finite sum over 0"),
        ([1], "one for each update: 2, got 1"),
        ({"bob": 1, "alice": 1}, "by the names of the updates"),
    ],
    ids=str,
)
def test_weights_that_make_no_mean(weights: Any, message: str) -> None:
    with pytest.raises(UnusableSetting, match=message):
        sy.federated_average([torch.ones(1), torch.ones(1)], weights)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64])
def test_numbers_that_make_no_mean_are_refused_by_name(value: float, dtype: torch.dtype) -> None:
    good = {"w": torch.ones(3, dtype=dtype), "n": torch.tensor(7)}
    bad = {**good, "w": torch.tensor([1.0, value, 1.0], dtype=dtype)}
    with pytest.raises(UnusableSetting) as caught:
        sy.federated_average({"bob": bad, "alice": good, "carol": bad})
    assert str(caught.value) == (
        "updates must be finite, or infinite where all of them are, got NaN or Inf in "
        "'w' of update bob; 'w' of update carol."
    )
    made = sy.federated_average({"bob": bad, "alice": good}, {"bob": 0, "alice": 1})
    assert torch.equal(made["w"], good["w"]), "an update of weight 0 is left out"


def test_numbers_that_make_no_mean_at_workers(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    models: list[Any] = [nn.Linear(2, 1) for _ in range(2)]
    models[1].weight.data[0, 1] = float("nan")
    models[1].bias.data[0] = float("inf")
    updates = [model.send(place) for model, place in zip(models, (bob, alice), strict=True)]
    with pytest.raises(UnusableSetting, match="'weight', 'bias' of update 1 at alice.$"):
        sy.federated_average(updates)


def test_what_may_not_be_read_is_not_checked(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x: Any = torch.tensor([float("nan")])
    readable: Any = x.clone().send(alice)
    with pytest.raises(UnusableSetting, match="'' of update 0 at alice"):  # the control
        sy.federated_average([readable, torch.ones(1)])
    private: Any = x.clone().private_tensor(allowed_users=("bea",)).send(bob, user="bea")
    with pytest.raises(PermissionDenied):
        sy.federated_average([private, torch.ones(1)], user="eve")
    with pytest.raises(UnusableSetting, match="'' of update 0 at bob"):
        sy.federated_average([private, torch.ones(1)], user="bea")


Secure = Callable[..., Any]


@pytest.fixture(params=["masked", "shared"])
def secure(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Secure:
    """Averages updates, by the names of their workers, so that none of them is seen."""
    workers = {name: make_worker(hook, name) for name in ("bob", "alice", "carol")}

    def averaged(updates: dict[str, Any], weights: Any = None, user: str | None = None) -> Any:
        sent = {name: place_all(update, workers[name]) for name, update in updates.items()}
        options: dict[str, Any] = {"secure": True}
        if request.param == "shared":
            holders = workers["bob"], workers["alice"]
            options = {"workers": holders, "crypto_provider": workers["carol"]}
        try:
            return sy.federated_average(sent, weights, user=user, **options)
        finally:
            for place in workers.values():  # nothing that failed is raised at a later question
                assert (torch.ones(1).send(place) + 1).get() == 2  # type: ignore[attr-defined]

    return averaged


def place_all(update: dict[str, Any], place: Any) -> dict[str, Any]:
    return {key: tensor.send(place, user="bea") for key, tensor in update.items()}


def text_of(places: int, what: str) -> str:
    return (
        f"updates must be finite, times their weights under 2^39 / {places} places, to be secure, "
        f"got others in {what}."
    )


def refused(places: int, what: str) -> Any:
    return pytest.raises(UnusableSetting, match=f"^{re.escape(text_of(places, what))}$")


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e30, -(2.0**39)], ids=str)
def test_secure_sums_name_what_their_grid_does_not_hold(secure: Secure, value: float) -> None:
    good = {"w": torch.ones(2, 2), "n": torch.tensor(7), "mask": torch.ones(3)}
    for key in ("w", "mask"):
        bad = {**good, key: torch.full_like(good[key], value)}
        with refused(2, f"'{key}' of update alice"):
            secure({"bob": good, "alice": bad}, [1, 3])
    with refused(2, "'n', 'mask' of update bob; 'mask' of update alice"):
        secure({"bob": {**bad, "n": torch.tensor(2**60)}, "alice": bad})
    left_out = secure({"bob": good, "alice": bad, "carol": good}, [1, 0, 1])
    assert left_out["n"] == 7, "an update of weight 0 is left out"


def test_secure_sums_do_not_wrap_around(secure: Secure) -> None:
    x = torch.tensor([2.0**39 - 2**20], dtype=torch.float64)  # in range, and the sum is not
    for sign in (1, -1):
        made = secure({name: {"w": sign * x} for name in ("bob", "alice", "carol")})
        torch.testing.assert_close(made["w"], sign * x, rtol=1e-12, atol=1e-6)
        with refused(2, "'w' of update alice"):
            secure({"bob": {"w": sign * x}, "alice": {"w": 2 * sign * x}})
        with refused(2, "'w' of update bob"):
            secure({"bob": {"w": sign * x}, "alice": {"w": sign * x}}, [3, 1])


@given(
    rows=st.lists(
        st.tuples(
            st.floats(-(2.0**41), 2.0**41),
            st.floats(-1e3, 1e3),
            st.integers(-(2**41), 2**41),
            st.floats(-1e3, 1e3),
            st.floats(0.1, 100),
        ),
        min_size=2,
        max_size=3,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_secure_means_are_those_of_float64_or_refused(
    secure: Secure, rows: list[tuple[float, float, int, float, float]]
) -> None:
    names = ("bob", "alice", "carol")[: len(rows)]
    weights = [row[4] for row in rows]
    updates = {
        name: {
            "w": torch.tensor([row[0], row[1]], dtype=torch.float64),
            "n": torch.tensor(row[2]),
            "z": torch.tensor([complex(row[1], row[3])], dtype=torch.complex128),
        }
        for name, row in zip(names, rows, strict=True)
    }
    most = 2**39 / len(rows) - 1
    bad = {
        name: [f"'{key}'" for key, x in (("w", row[0]), ("n", row[2])) if abs(x * share) >= most]
        for name, row, share in zip(
            names, rows, [weight / sum(weights) for weight in weights], strict=True
        )
    }
    named = "; ".join(f"{', '.join(keys)} of update {name}" for name, keys in bad.items() if keys)
    try:
        made = secure(updates, weights)
    except UnusableSetting as error:
        assert named and str(error) == text_of(len(rows), named)
        return
    assert not named
    for key, value in made.items():
        values = np.array([update[key].numpy() for update in updates.values()])
        expected = np.average(values, axis=0, weights=weights)
        atol = 1e-6 if key != "n" else 0.51
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-12, atol=atol)


def test_private_updates_are_named_for_those_who_may_see_them(secure: Secure) -> None:
    def private(*values: float) -> dict[str, Any]:
        x: Any = torch.tensor(values)
        places = ("bob", "alice", "carol")
        return {"w": x.private_tensor(allowed_users=("bea",), allow_destinations=places)}

    updates = {"bob": private(1.0), "alice": private(float("nan"))}
    with pytest.raises(PermissionDenied):
        secure(updates)
    with refused(2, "'w' of update alice"):
        secure(updates, user="bea")
    made = secure({"bob": private(1.0), "alice": private(2.0)}, user="bea")
    assert made["w"] == 1.5


def test_an_error_whose_tensors_nobody_may_name_is_raised_as_it_is(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(flags: Any, user: str | None) -> Any:
        raise PermissionDenied("get", "bob", user)

    monkeypatch.setattr(secure_mean, "fetched", denied)
    updates = {"bob": {"w": torch.ones(1)}, "alice": {"w": torch.tensor([float("nan")])}}
    with pytest.raises((EncodingError, RemoteFailure), match=r"^(?!.*'w')"):
        secure(updates)


def test_large_finite_numbers_are_averaged() -> None:
    top = torch.finfo(torch.float32).max
    for value in (1e30, top, -top):
        made = sy.federated_average([torch.tensor([value]), torch.tensor([value])])
        torch.testing.assert_close(made, torch.tensor([value]))


@pytest.mark.parametrize("at_workers", [False, True])
def test_a_mask_that_all_modules_hold_is_averaged(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, at_workers: bool
) -> None:
    mask = torch.full((3, 3), float("-inf")).triu(1)
    models: list[Any] = [nn.Linear(3, 3) for _ in range(2)]
    weights = [model.weight.detach().clone() for model in models]
    for model in models:
        model.register_buffer("mask", mask.clone())
    if at_workers:
        models = [model.send(place) for model, place in zip(models, (bob, alice), strict=True)]
    made = sy.federated_average(models, [1, 3])
    assert torch.equal(made.mask, mask)
    torch.testing.assert_close(made.weight.detach(), weights[0] / 4 + weights[1] * 3 / 4)
    text = "'mask' of update 0 at bob; 'mask' of update 1 at alice"
    if at_workers:  # nobody may see that the masks are equal
        with refused(2, text):
            sy.federated_average(models, secure=True)


def test_updates_that_differ() -> None:
    def refused(updates: Any, message: str, **options: Any) -> None:
        with pytest.raises(UnusableSetting, match=message):
            sy.federated_average(updates, **options)

    refused([nn.Linear(2, 1), nn.Linear(2, 1, bias=False)], "'bias' in only one of updates 0 and 1")
    refused([nn.Linear(2, 1), nn.Linear(3, 1)], r"'weight' of shape \(1, 2\).*\(1, 3\).*update 1")
    refused({"a": [torch.ones(1)], "b": [torch.ones(1).double()]}, "float64 in update b")
    refused({"a": [torch.ones(1)], "b": [torch.ones(1)]}, "names", weights={"a": 1, "c": 1})
    refused([], "one or more, got none")
    refused({}, "one or more, got none")
    refused(nn.Linear(2, 1), "a list of updates, got one Linear")
    refused(nn.Sequential(nn.Linear(2, 1)), "a list of updates, got one Sequential")
    refused(torch.ones(2), "a list of updates, got one Tensor")
    refused(nn.Linear(2, 1).state_dict(), "a list of updates, got one OrderedDict")


# ----------------------------------------------------------------------------- what is seen of them


def test_fetching_takes_one_message_each_and_no_gradient(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    models: list[Any] = nets(2)
    for model, place in zip(models, (bob, alice), strict=True):
        model.send(place)
        model.first.weight.sum().backward()
    hook = sy.TorchHook.current()
    with hook.record() as log:
        sy.federated_average(models)
    for place in (bob, alice):
        kinds = Counter(type(entry.message) for entry in log.to(place.id))
        # The state at once, and of the first module what is no state; its answers are flags.
        assert kinds[FetchAll] == (2 if place is bob else 1) and kinds[Run] == 1
        came = [entry for entry in log if entry.sender == place.id and entry.buffers]
        sizes = sum(len(buffer) for entry in came for buffer in entry.buffers)
        assert sizes <= sum(x.nbytes for x in Net().state_dict().values()) + 64


@pytest.mark.parametrize("way", ["masked", "shared"])
def test_no_update_is_seen_by_itself(hook: sy.TorchHook, way: str) -> None:
    workers = [make_worker(hook, name) for name in ("bob", "alice", "carol")]
    values = [torch.full((64,), number + 0.25, dtype=torch.float64) for number in range(3)]
    pointers = [x.send(place) for x, place in zip(values, workers, strict=True)]
    options: dict[str, Any] = {"workers": workers[:2], "crypto_provider": workers[2]}
    with hook.record() as log:
        mean = sy.federated_average(pointers, secure=True, **(options if way == "shared" else {}))
    expected = torch.full((64,), 1.25, dtype=torch.float64)
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-6)
    seen = [
        buffer.view(torch.int64)
        for entry in log
        for buffer in entry.buffers
        if len(buffer) == expected.nbytes
    ]
    # Every update repeats one number.  What is masked does not, and neither does a share.
    repeated = [vector for vector in seen if len(set(vector.tolist())) == 1]
    assert len(seen) > len(repeated)
    for vector in repeated:  # the sum, and the mean made of it
        numbers = (vector.double() / 2**24, vector.view(torch.float64))
        assert any(torch.allclose(number, expected, atol=1e-6) for number in numbers)


def test_private_updates_are_averaged_for_those_who_may_see_them(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    def private(place: Any, value: float) -> Any:
        x: Any = torch.full((2,), value)
        return x.private_tensor(allowed_users=("bea",)).send(place, user="bea")

    updates = [private(bob, 1.0), private(alice, 2.0)]
    with pytest.raises(PermissionDenied):
        sy.federated_average(updates)
    assert sy.federated_average(updates, user="bea").tolist() == [1.5, 1.5]
    with pytest.raises(PermissionDenied):  # they may not leave for one another
        sy.federated_average(updates, secure=True, user="bea")


def test_several_updates_of_a_worker_are_added_up_there(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    values = [torch.tensor([number]) for number in (1.0, 2.0, 6.0)]
    places = (bob, bob, alice)
    updates = [x.send(place) for x, place in zip(values, places, strict=True)]
    made = sy.federated_average(updates, [1, 2, 1], secure=True)
    torch.testing.assert_close(made, torch.tensor([11 / 4]))
    del updates
    assert not inspect(bob).objects and not inspect(alice).objects


def test_what_would_not_be_secure_is_refused(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x: Any = torch.ones(2)
    at_bob, at_alice = x.send(bob), x.send(alice)

    def refused(updates: Any, message: str, weights: Any = None) -> None:
        with pytest.raises(UnusableSetting, match=message):
            sy.federated_average(updates, weights, secure=True)

    refused([at_bob, at_bob], "two places or more, to be secure, got all at bob")
    refused([at_bob, at_alice], "two places or more, to be secure, got all at bob", [1, 0])
    refused([x, x], "got all at me")
    refused([at_bob, x], "at workers, to be secure, got one that is here")
    refused([[at_bob, at_alice]] * 2, "tensors at one worker each")
    refused([x.send(bob, alice)] * 2, "tensors at one worker each")
    refused([[], []], "tensors at one worker each")


def test_an_update_that_is_here_may_be_shared(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    carol = make_worker(hook, "carol")
    x: Any = torch.ones(2)
    made = sy.federated_average([x, (3 * x).send(bob)], workers=(bob, alice), crypto_provider=carol)
    torch.testing.assert_close(made, torch.tensor([2.0, 2.0]))


@pytest.mark.parametrize("way", ["traced", "scripted"])
def test_the_mean_of_scripts_is_a_script(way: str) -> None:
    models = [torch.nn.Linear(2, 1) for _ in range(2)]
    scripts: list[Any] = [torch.jit.script(model) for model in models]
    if way == "traced":
        scripts = [
            torch.jit.trace(model, torch.ones(1, 2))  # type: ignore[no-untyped-call]
            for model in models
        ]
    mean = sy.federated_average(scripts, [1, 3])
    expected = (models[0].weight + 3 * models[1].weight) / 4
    assert isinstance(mean, torch.jit.ScriptModule)
    assert torch.allclose(mean.weight, expected)
    assert torch.equal(scripts[0].weight, models[0].weight), "the updates stay as they are"
