"""Attack 6: a private value stands where torch reads a number, and decides something public.

Sizes, counts of results and flags are read from tensors of one element wherever torch takes a
Python number.
"""

from __future__ import annotations

import pytest
import torch

from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    Attack,
    check,
    check_reaches,
    flag,
    ones,
    real,
    secret,
    whole,
)
from tests.privacy.two_worlds.observer import Observer

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this


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
    numbers = eve.call("torch.arange", whole(eve))
    if isinstance(numbers, Reference):  # and it was not refused
        eve.call("torch.meshgrid", [numbers])
        eve.call("torch.Tensor.tolist", numbers)


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


def interpolate_by_a_real(eve: Observer) -> None:
    options = {"scale_factor": real(eve), "recompute_scale_factor": True}
    eve.call("torch.nn.functional.interpolate", image(eve), **options)


def interpolate_by_a_list(eve: Observer) -> None:
    options = {"scale_factor": [real(eve), 1.0], "recompute_scale_factor": True}
    eve.call("torch.nn.functional.interpolate", image(eve), **options)


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


def allow_unused(eve: Observer) -> None:
    leaf, other = ones(eve, grad=True), ones(eve, grad=True)
    loss = eve.call("torch.sum", leaf)
    eve.call("torch.autograd.grad", loss, [leaf, other], allow_unused=flag(eve))


def return_indices(eve: Observer) -> None:
    eve.call("torch.nn.functional.max_pool2d", image(eve), 2, return_indices=flag(eve))


def return_counts(eve: Observer) -> None:
    eve.call("torch.unique", ones(eve), return_counts=flag(eve))


def covariance_of_one_observation(eve: Observer) -> None:
    """Torch writes to the first operand, if the weights are good ones."""
    rows = eve.public(torch.tensor([[1.0], [2.0]]))
    weights = eve.secret(torch.tensor([1.0]), torch.tensor([-1.0]))
    eve.call("torch.cov", rows, correction=0, aweights=weights, grad=False)
    eve.fetch(rows.id)


ATTACKS: tuple[Attack, ...] = (
    covariance_of_one_observation,
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
    inplace,
    inplace_dropout,
    return_indices,
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
    arange_by_steps,
    packed_sequence,
    pool,
    pool_with_stride,
    padding,
    resized,
    expanded,
    transposed,
    transposed_in_place,
    squeezed_in_place,
    dtype_promoted,
    create_graph,
    return_counts,
    retain_graph,
    allow_unused,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_private_numbers_decide_nothing_public(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_private_numbers_decide_nothing_public_although_they_are_read(attack: Attack) -> None:
    check_reaches(attack)
