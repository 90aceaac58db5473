"""Attack 6: a private value stands where torch reads a number, and decides something public.

Sizes, counts of results, flags and probabilities are read from tensors of one element wherever
torch takes a Python number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from syft.ops.nested import leaves, replace
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    Attack,
    cases,
    check,
    check_all,
    leaks,
    ones,
    secret,
    zeros,
)
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.samples import Sample, Samples, can_travel

pytestmark = pytest.mark.filterwarnings("ignore")


def whole(eve: Observer, one: int = 1, other: int = 2) -> Reference:
    """A private integer."""
    return eve.secret(torch.tensor(one), torch.tensor(other))


def real(eve: Observer, one: float = 1.0, other: float = 2.0) -> Reference:
    """A private number."""
    return eve.secret(torch.tensor(one), torch.tensor(other))


def flag(eve: Observer) -> Reference:
    """A private truth."""
    return eve.secret(torch.tensor(True), torch.tensor(False))


def image(eve: Observer) -> Reference:
    return ones(eve, 1, 1, 4, 4)


# ----------------------------------------------------------------------------- counts of results


def split(eve: Observer) -> None:
    eve.call("torch.split", ones(eve, 4), whole(eve))


def split_method(eve: Observer) -> None:
    eve.call("torch.Tensor.split", ones(eve, 4), whole(eve))


def split_by_sizes(eve: Observer) -> None:
    rest = eve.secret(torch.tensor(3), torch.tensor(2))
    eve.call("torch.split", ones(eve, 4), [whole(eve), rest])


def chunk(eve: Observer) -> None:
    eve.call("torch.chunk", ones(eve, 4), whole(eve))


def tensor_split(eve: Observer) -> None:
    eve.call("torch.tensor_split", ones(eve, 4), whole(eve))


def tensor_split_at(eve: Observer) -> None:
    places = eve.secret(torch.tensor([1, 2]), torch.tensor([3, 4]))
    eve.call("torch.tensor_split", ones(eve, 4), places)


def unbind_of_private_size(eve: Observer) -> None:
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.call("torch.unbind", chosen)


def unbind_a_private_dimension(eve: Observer) -> None:
    eve.call("torch.unbind", ones(eve, 2, 3), whole(eve, 0, 1))


def list_of_private_length(eve: Observer) -> None:
    eve.call("torch.meshgrid", [eve.call("torch.arange", whole(eve))])
    eve.call("torch.Tensor.tolist", eve.call("torch.arange", whole(eve)))


# ----------------------------------------------------------------------------------------- sizes


def narrow(eve: Observer) -> None:
    eve.call("torch.narrow", ones(eve, 4), 0, 0, whole(eve))


def zeros_of(eve: Observer) -> None:
    eve.call("torch.zeros", whole(eve))


def arange(eve: Observer) -> None:
    eve.call("torch.arange", whole(eve))


def arange_of_a_real(eve: Observer) -> None:
    eve.call("torch.arange", real(eve))


def linspace(eve: Observer) -> None:
    eve.call("torch.linspace", 0.0, 1.0, whole(eve))


def sliced(eve: Observer) -> None:
    eve.call("torch.Tensor.__getitem__", ones(eve, 4), slice(None, whole(eve)))


def repeated(eve: Observer) -> None:
    eve.call("torch.Tensor.repeat", ones(eve), whole(eve))


def repeat_interleave(eve: Observer) -> None:
    eve.call("torch.repeat_interleave", ones(eve), whole(eve))


def repeat_interleave_by_many(eve: Observer) -> None:
    counts = eve.secret(torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3]))
    eve.call("torch.repeat_interleave", ones(eve), counts)


def pad(eve: Observer) -> None:
    eve.call("torch.nn.functional.pad", ones(eve), (whole(eve), 0))


def one_hot(eve: Observer) -> None:
    eve.call("torch.nn.functional.one_hot", eve.secret(torch.tensor([0]), torch.tensor([4])))


def bincount(eve: Observer) -> None:
    eve.call("torch.bincount", eve.secret(torch.tensor([0]), torch.tensor([4])))


def reshaped(eve: Observer) -> None:
    eve.call("torch.reshape", ones(eve, 4), (whole(eve), -1))


def unfolded(eve: Observer) -> None:
    eve.call("torch.Tensor.unfold", ones(eve, 4), 0, whole(eve), 1)


def interpolate_to(eve: Observer) -> None:
    eve.call("torch.nn.functional.interpolate", image(eve), size=(whole(eve), 2))


def interpolate_by(eve: Observer) -> None:
    eve.call("torch.nn.functional.interpolate", image(eve), scale_factor=real(eve))


def interpolate_by_two(eve: Observer) -> None:
    factors = eve.secret(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 1.0]))
    eve.call("torch.nn.functional.interpolate", image(eve), scale_factor=factors)


def interpolate_by_a_real(eve: Observer) -> None:
    options = {"scale_factor": real(eve), "recompute_scale_factor": True}
    eve.call("torch.nn.functional.interpolate", image(eve), **options)


def interpolate_by_a_list(eve: Observer) -> None:
    options = {"scale_factor": [real(eve), 1.0], "recompute_scale_factor": True}
    eve.call("torch.nn.functional.interpolate", image(eve), **options)


def upsample(eve: Observer) -> None:
    eve.call("torch.nn.functional.upsample", image(eve), scale_factor=real(eve))


def adaptive_pool(eve: Observer) -> None:
    eve.call("torch.nn.functional.adaptive_avg_pool2d", image(eve), whole(eve))


def adaptive_pool_to_a_vector(eve: Observer) -> None:
    size = eve.secret(torch.tensor([1, 1]), torch.tensor([2, 1]))
    eve.call("torch.nn.functional.adaptive_avg_pool2d", image(eve), size)


def adaptive_max_pool_to_a_vector(eve: Observer) -> None:
    size = eve.secret(torch.tensor([1, 1]), torch.tensor([2, 1]))
    eve.call("torch.nn.functional.adaptive_max_pool2d_with_indices", image(eve), size)


def arange_by_steps(eve: Observer) -> None:
    eve.call("torch.arange", 0, 4, real(eve))


def packed_sequence(eve: Observer) -> None:
    lengths = eve.secret(torch.tensor([3, 1]), torch.tensor([3, 2]))
    eve.call("torch._pack_padded_sequence", ones(eve, 3, 2, 1), lengths, False)


def pool(eve: Observer) -> None:
    eve.call("torch.nn.functional.max_pool2d", image(eve), whole(eve))


def pool_with_stride(eve: Observer) -> None:
    eve.call("torch.nn.functional.avg_pool2d", image(eve), 2, whole(eve))


def fractional_pool(eve: Observer) -> None:
    ratio = eve.secret(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.75]))
    eve.call("torch.nn.functional.fractional_max_pool2d", image(eve), 2, output_ratio=ratio)


def padding(eve: Observer) -> None:
    eve.call("torch.conv2d", image(eve), ones(eve, 1, 1, 1, 1), padding=whole(eve))


def unpooled(eve: Observer) -> None:
    places = eve.secret(torch.zeros(1, 1, 1, dtype=torch.int64), torch.ones(1, 1, 1).long())
    eve.call("torch.nn.functional.max_unpool1d", ones(eve, 1, 1, 1), places, whole(eve, 2, 3))


def resized(eve: Observer) -> None:
    eve.call("torch.Tensor.resize_", ones(eve, 4), (whole(eve),), grad=False)


def expanded(eve: Observer) -> None:
    eve.call("torch.Tensor.expand", ones(eve, 1), whole(eve))


def transposed(eve: Observer) -> None:
    eve.call("torch.transpose", ones(eve, 1, 2, 3), 0, whole(eve))


def transposed_in_place(eve: Observer) -> None:
    eve.call("torch.Tensor.transpose_", ones(eve, 1, 2, 3), 0, whole(eve), grad=False)


def squeezed_in_place(eve: Observer) -> None:
    eve.call("torch.Tensor.squeeze_", ones(eve, 1, 3), whole(eve, 0, 1), grad=False)


def dtype_promoted(eve: Observer) -> None:
    eve.call("torch.full", (2,), flag(eve))
    eve.call("torch.full", (2,), whole(eve))


# ----------------------------------------------------------------------------------------- flags


def retain_graph(eve: Observer) -> None:
    leaf = ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.exp", leaf))
    eve.call("torch.Tensor.backward", loss, retain_graph=flag(eve))
    eve.call("torch.Tensor.backward", loss)


def create_graph(eve: Observer) -> None:
    leaf = ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.exp", leaf))
    found = eve.call("torch.autograd.grad", loss, leaf, create_graph=flag(eve))
    if isinstance(found, tuple):
        eve.call("torch.Tensor.requires_grad.__get__", found[0])


def inplace(eve: Observer) -> None:
    target = eve.call("torch.neg", ones(eve))
    eve.call("torch.nn.functional.relu", target, inplace=flag(eve), grad=False)


def inplace_dropout(eve: Observer) -> None:
    eve.call("torch.nn.functional.dropout", ones(eve, 9), 0.5, True, flag(eve), grad=False)


def requires_grad(eve: Observer) -> None:
    eve.call("torch.Tensor.requires_grad_", ones(eve), flag(eve))


def requires_grad_set(eve: Observer) -> None:
    eve.call("torch.Tensor.requires_grad.__set__", ones(eve), flag(eve))


def keepdim(eve: Observer) -> None:
    eve.call("torch.sum", ones(eve, 2, 2), 0, flag(eve))


def training(eve: Observer) -> None:
    mean, variance = zeros(eve), ones(eve)
    rows = eve.public(torch.arange(6.0).view(2, 3))
    eve.call("torch.nn.functional.batch_norm", rows, mean, variance, training=flag(eve))


def accumulate(eve: Observer) -> None:
    place = eve.public(torch.tensor([0]))
    eve.call("torch.Tensor.put_", ones(eve), place, ones(eve, 1), flag(eve), grad=False)


def allow_unused(eve: Observer) -> None:
    leaf, other = ones(eve, grad=True), ones(eve, grad=True)
    loss = eve.call("torch.sum", leaf)
    eve.call("torch.autograd.grad", loss, [leaf, other], allow_unused=flag(eve))


def return_indices(eve: Observer) -> None:
    eve.call("torch.nn.functional.max_pool2d", image(eve), 2, return_indices=flag(eve))


def return_counts(eve: Observer) -> None:
    eve.call("torch.unique", ones(eve), return_counts=flag(eve))


def sorted_or_not(eve: Observer) -> None:
    eve.call("torch.Tensor.to", ones(eve), torch.float32, copy=flag(eve))


# ---------------------------------------------------------------------------------- random draws


def drawn_after(eve: Observer) -> None:
    """What anybody draws next tells how much was drawn."""
    eve.call("torch.rand", 3)


def dropout(eve: Observer) -> None:
    eve.call("torch.nn.functional.dropout", ones(eve), real(eve, 0.0, 0.5))
    drawn_after(eve)


def dropout_training(eve: Observer) -> None:
    eve.call("torch.nn.functional.dropout", ones(eve), 0.5, flag(eve))
    drawn_after(eve)


def permutation(eve: Observer) -> None:
    eve.call("torch.randperm", whole(eve, 3, 9))
    drawn_after(eve)


def random_size(eve: Observer) -> None:
    eve.call("torch.rand", whole(eve, 3, 9))
    drawn_after(eve)


def poisson(eve: Observer) -> None:
    eve.call("torch.poisson", eve.secret(torch.full((9,), 0.5), torch.full((9,), 90.0)))
    drawn_after(eve)


def binomial(eve: Observer) -> None:
    chance = eve.secret(torch.full((9,), 0.01), torch.full((9,), 0.5))
    eve.call("torch.binomial", eve.public(torch.full((9,), 50.0)), chance)
    drawn_after(eve)


def bernoulli(eve: Observer) -> None:
    eve.call("torch.bernoulli", eve.secret(torch.zeros(9), torch.full((9,), 0.5)))
    drawn_after(eve)


def multinomial(eve: Observer) -> None:
    weights = eve.secret(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 7.0]))
    eve.call("torch.multinomial", weights, 1)
    drawn_after(eve)


def normal(eve: Observer) -> None:
    eve.call("torch.normal", secret(eve), 1.0)
    drawn_after(eve)


def random_of_a_private_size(eve: Observer) -> None:
    """The secret decides how many there are, and that many numbers are drawn."""
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.call("torch.rand_like", chosen)
    drawn_after(eve)


def dropout_of_a_private_size(eve: Observer) -> None:
    private = secret(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.call("torch.nn.functional.dropout", chosen, 0.5)
    drawn_after(eve)


def beta(eve: Observer) -> None:
    eve.call("torch._sample_dirichlet", eve.secret(torch.full((3,), 0.1), torch.full((3,), 9.0)))
    drawn_after(eve)


def gamma(eve: Observer) -> None:
    eve.call("torch._standard_gamma", eve.secret(torch.full((9,), 0.1), torch.full((9,), 9.0)))
    drawn_after(eve)


def leaky_slopes(eve: Observer) -> None:
    """Numbers are drawn for what is negative."""
    eve.call("torch.nn.functional.rrelu", secret(eve), 0.1, 0.3, True)
    drawn_after(eve)


def geometric(eve: Observer) -> None:
    eve.call("torch.Tensor.geometric_", ones(eve), real(eve, 0.5, 0.9), grad=False)
    drawn_after(eve)


LEAKING: tuple[Attack, ...] = (
    split,
    split_method,
    chunk,
    tensor_split,
    unbind_a_private_dimension,
    interpolate_by_a_real,
    interpolate_by_a_list,
    adaptive_pool_to_a_vector,
    adaptive_max_pool_to_a_vector,
    fractional_pool,
    retain_graph,
    inplace,
    inplace_dropout,
    allow_unused,
    return_indices,
    dropout,
    permutation,
    random_size,
    poisson,
    binomial,
    random_of_a_private_size,
    dropout_of_a_private_size,
    beta,
    gamma,
)
HELD: tuple[Attack, ...] = (
    split_by_sizes,
    tensor_split_at,
    unbind_of_private_size,
    list_of_private_length,
    narrow,
    zeros_of,
    arange,
    arange_of_a_real,
    linspace,
    sliced,
    repeated,
    repeat_interleave,
    repeat_interleave_by_many,
    pad,
    one_hot,
    bincount,
    reshaped,
    unfolded,
    interpolate_to,
    interpolate_by,
    interpolate_by_two,
    upsample,
    adaptive_pool,
    arange_by_steps,
    packed_sequence,
    pool,
    pool_with_stride,
    padding,
    unpooled,
    resized,
    expanded,
    transposed,
    transposed_in_place,
    squeezed_in_place,
    dtype_promoted,
    create_graph,
    requires_grad,
    requires_grad_set,
    keepdim,
    training,
    accumulate,
    return_counts,
    sorted_or_not,
    dropout_training,
    bernoulli,
    multinomial,
    normal,
    leaky_slopes,
    geometric,
)


@pytest.mark.parametrize("attack", cases(6, LEAKING, held=HELD))
def test_private_numbers_decide_nothing_public(attack: Attack) -> None:
    check(attack)


# -------------------------------------------------------- every number of every sample, private


def other_number(number: float) -> torch.Tensor:
    """Another number of the same kind, as a tensor of the dtype that torch gives the first one."""
    if isinstance(number, bool):
        return torch.tensor(not number)
    return torch.tensor(number + 1 if isinstance(number, int) else number * 0.5 + 0.125)


def numbers_in(sample: Sample) -> list[float]:
    """The Python numbers among the arguments, in order."""
    return [leaf for leaf in leaves((sample.args, sample.kwargs)) if is_number(leaf)]


def is_number(leaf: Any) -> bool:
    return type(leaf) in (bool, int, float)


def with_private_number(sample: Sample, place: int) -> Attack:
    """The sample with a private tensor for its number ``place``."""

    def attack(eve: Observer) -> None:
        number = -1

        def put(leaf: Any) -> Any:
            nonlocal number
            if isinstance(leaf, torch.Tensor):
                return eve.public(leaf.detach())
            if not is_number(leaf):
                return leaf
            number += 1
            if number != place:
                return leaf
            return eve.secret(torch.tensor(leaf), other_number(leaf))

        args, kwargs = replace((sample.args, sample.kwargs), put)
        eve.call(sample.name, *args, **kwargs)
        drawn_after(eve)
        for id in list(eve.known["bob"]):
            eve.describe(id)
            if id not in eve.private:
                eve.fetch(id)
        eve.known.clear()  # everything has been looked at

    return attack


def every_number(samples: Samples) -> Iterator[tuple[str, Attack]]:
    """Each operation of the table with a private tensor for each of its numbers."""
    for name in samples.names:
        found = samples.of(name, torch.float32, False)
        richest = max(found, key=lambda one: len(numbers_in(one)), default=None)
        if richest is not None and can_travel(richest):
            for place, _ in enumerate(numbers_in(richest)):
                yield f"{name}[{place}]", with_private_number(richest, place)


@leaks(6)
def test_every_number_of_every_operation() -> None:
    attacks = dict(every_number(Samples()))
    assert len(attacks) > 700
    check_all(attacks)
