"""Attack 6 on all of the op table that draws random numbers: what is drawn later tells nothing.

An operation draws for private operands, from the worker's stream or from a generator that is given.
Then somebody draws what is public.  A generator travels as a seed, another one from each place
where it is named, so two commands that are given one draw from two.  Only where it is an input of a
program do two actions draw from one.

The calls are found by trying: those that run and that move the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

from syft.ops.nested import replace
from syft.ops.table import FLAGS, FUNCTIONS, NAMES, OpFlag
from syft.program.program import Program, Slot
from tests.privacy.two_worlds.attacks import Attack, action, check_all, learned
from tests.privacy.two_worlds.leaks import LEAKS
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.samples import Sample
from tests.privacy.two_worlds.values import failing_values
from tests.torch_suite.cases import seed

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this

NOT_DRAWN = {
    "torch.miopen_rnn": "on a GPU alone",
    "torch._cudnn_init_dropout_state": "on a GPU alone",
    "torch._cudnn_rnn": "on a GPU alone",
    "torch._C._nn.fractional_max_pool2d": "is given what is drawn",
    "torch._C._nn.fractional_max_pool3d": "is given what is drawn",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "refuses to draw",
    "torch.rand": "has numbers for operands: see test_private_draws.py",
    "torch.randn": "has numbers for operands",
    "torch.randint": "has numbers for operands",
    "torch.randperm": "has numbers for operands",
    "syft.ops.secret_integers.secret_like": "draws from the operating system, of no stream",
}
"""The operations flagged ``random`` that draw for no tensor of this list, and why."""

REFUSED = (
    *("torch.binomial", "torch._sample_dirichlet", "torch.rrelu_"),
    *("torch._C._nn.rrelu_with_noise_", "torch.Tensor.cauchy_", "torch.Tensor.exponential_"),
    *("torch.Tensor.geometric_", "torch.Tensor.log_normal_"),
)
"""Those that may not be run for private operands with a generator: torch cannot tell what they do
without the values."""


def candidates(name: str) -> Iterator[tuple[Any, ...]]:
    """Arguments that an operation might take."""
    v, m = torch.full((9,), 0.5), torch.eye(6) + 0.5
    image, volume = torch.full((1, 2, 4, 4), 0.5), torch.full((1, 2, 4, 4, 4), 0.5)
    rows = torch.full((2, 1, 3), 0.5)
    if name.rpartition(".")[2] in ("gru", "lstm", "rnn_relu", "rnn_tanh"):
        gates = {"gru": 3, "lstm": 4}.get(name.rpartition(".")[2], 1)
        weights = [torch.full((3 * gates, 3), 0.1) for _ in range(4)]
        state = [rows, rows] if gates == 4 else rows
        yield rows, state, weights, False, 2, 0.5, True, False, False
    if name.endswith("multi_head_attention_forward"):
        given = torch.full((12, 4), 0.2), torch.zeros(12), None, None, False, 0.5
        yield *[torch.full((2, 1, 4), 0.5)] * 3, 4, 2, *given, torch.eye(4), torch.zeros(4)
    if "scaled_dot_product" in name:
        yield image, image, image, None, 0.5
        yield image, image, image, 0.5
    yield from ((v,), (v, 0.5, True), (v, 2), (v, v), (v, 0.5), (m,), (m, 2), (m, 0.5))
    yield from ((-v, 0.1, 0.3, True), (-v, v.clone(), 0.1, 0.3, True))
    yield from ((image, 0.5, True), (image,), (volume, 0.5, True))
    yield from ((image, 2, 2), (volume, 2, 2))


def own(value: Any) -> Any:
    """The same arguments with tensors of their own."""
    return replace(value, lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)


def drawing(name: str, *given: dict[str, Any], moves: torch.Generator) -> Sample | None:
    """The first call of an operation that runs and draws from a stream, if there is one."""
    function = FUNCTIONS[NAMES.index(name)]
    for args in candidates(name):
        for named in given:
            before = moves.get_state()
            try:
                function(*own(args), **named)  # type: ignore[misc]
            except (TypeError, RuntimeError, ValueError, IndexError, AttributeError):
                continue
            if not torch.equal(before, moves.get_state()):
                return Sample(name, args, named)
    return None


RANDOM = [name for name, flags in zip(NAMES, FLAGS, strict=True) if flags & OpFlag.RANDOM]


@pytest.fixture(scope="module")
def samples() -> dict[str, Sample]:
    """A call of each operation that draws from the worker's stream."""
    seed()
    found = {name: drawing(name, {}, moves=torch.default_generator) for name in RANDOM}
    return {name: sample for name, sample in found.items() if sample is not None}


def others(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Secrets of the other world: for which an operation draws more, less, or fails."""
    return [tensor * 60, tensor * 0, failing_values(tensor)]


def puts(eve: Observer, sample: Sample, number: int, into: list[Any]) -> Any:
    """The arguments with a private tensor in the place of each tensor."""

    def put(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        hers = eve.secret(leaf, others(leaf)[number])
        into.append(eve.call("torch.Tensor.clone", hers))  # which the observer may write to
        return into[-1]

    return replace((sample.args, sample.kwargs), put)


def from_the_worker(sample: Sample) -> Attack:
    """Private draws, and then a public one."""

    def attack(eve: Observer) -> None:
        for number in range(3):
            args, kwargs = puts(eve, sample, number, [])
            eve.call(sample.name, *args, grad=False, **kwargs)
            drawn = eve.call("torch.rand", 3)
            eve.fetch(drawn.id)
        eve.known.clear()  # the results are for other tests

    return attack


def from_one_given(sample: Sample) -> Attack:
    """The same in one program, from one generator."""

    def attack(eve: Observer) -> None:
        for number in range(3):
            inputs: list[Any] = []
            args, kwargs = puts(eve, sample, number, inputs)
            args, kwargs = replace((args, kwargs), partial(slot, inputs))
            count = len(inputs)
            draws = action(sample.name, *args, out=Slot(count + 1), **kwargs)
            rand = action("torch.rand", 3, generator=Slot(count), out=Slot(count + 2))
            program = Program(count + 1, (draws, rand), (Slot(count + 2),))
            made = eve.group(program, [*inputs, torch.Generator().manual_seed(7)], 1)
            if isinstance(made, Failed):
                assert sample.name in REFUSED
                continue
            eve.fetch(made[0].id)
        eve.known.clear()

    return attack


def slot(inputs: list[Any], leaf: Any) -> Any:
    """The slot of an input of a program, the last of which is the generator."""
    if isinstance(leaf, torch.Generator):
        return Slot(len(inputs))
    places = [place for place, one in enumerate(inputs) if one is leaf]
    return Slot(places[0]) if places else leaf


def test_every_operation_that_draws_is_tried(samples: dict[str, Sample]) -> None:
    assert {*RANDOM} - {*samples} == {*NOT_DRAWN}


def test_no_draw_from_the_stream_of_the_worker_is_told(samples: dict[str, Sample]) -> None:
    check_all({name: from_the_worker(sample) for name, sample in samples.items()})


@pytest.fixture(scope="module")
def given_samples(samples: dict[str, Sample]) -> dict[str, Sample]:
    """A call of each operation that draws from a generator that is given."""
    found = {}
    for name in samples:
        given = torch.Generator().manual_seed(7)
        sample = drawing(name, {"generator": given}, moves=given)
        if sample is not None:
            found[name] = sample
    return found


def test_no_draw_from_a_given_generator_is_told(given_samples: dict[str, Sample]) -> None:
    assert len(given_samples) > 30
    check_all({name: from_one_given(sample) for name, sample in given_samples.items()})


@pytest.mark.parametrize("leak", ["streams", "generators"])
def test_without_streams_of_their_own_draws_are_told(
    leak: str, samples: dict[str, Sample], given_samples: dict[str, Sample]
) -> None:
    by = {"streams": (samples, from_the_worker), "generators": (given_samples, from_one_given)}
    among, way = by[leak]
    with LEAKS[leak]():
        found = {name for name, sample in among.items() if learned(way(sample))}
    assert found >= {"torch.poisson", "torch._standard_gamma", "torch.multinomial"}
