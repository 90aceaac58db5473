"""Attack 3: private values in memory at which nobody looks.

A guard on a tensor is asked when the tensor is used.  Gradients, the parts of sparse tensors, the
memory of opaque layouts and the parameters of quantization are used without being named.
"""

from __future__ import annotations

import pytest
import torch

from syft.workers.wire import messages
from tests.privacy.two_worlds.attacks import (
    ONE,
    OTHER,
    Attack,
    check,
    check_reaches,
    data_of,
    ones,
    secret,
    zeros,
)
from tests.privacy.two_worlds.observer import Observer

pytestmark = pytest.mark.filterwarnings("ignore")  # quantized tensors are deprecated

# ------------------------------------------------------------------------------------ gradients


def gradient_is_a_view(eve: Observer) -> None:
    """The gradient is a view of a base that is written later."""
    leaf, base = ones(eve, grad=True), zeros(eve, 1, 3)
    view = eve.call("torch.Tensor.select", base, 0, 0)
    eve.call("torch.Tensor.grad.__set__", leaf, view)
    eve.call("torch.Tensor.copy_", base, secret(eve, 1, 3))


def gradient_is_a_view_and_the_base_is_gone(eve: Observer) -> None:
    leaf, base = ones(eve, grad=True), zeros(eve, 1, 3)
    eve.call("torch.Tensor.grad.__set__", leaf, eve.call("torch.Tensor.view", base, 3))
    eve.call("torch.Tensor.copy_", data_of(eve, base), secret(eve, 1, 3))
    eve.call("torch.Tensor.set_", base, ones(eve), grad=False)


def gradient_is_written_in_place(eve: Observer) -> None:
    leaf = ones(eve, grad=True)
    eve.call("torch.Tensor.backward", eve.call("torch.sum", leaf))
    gradient = eve.call("torch.Tensor.grad.__get__", leaf)
    eve.call("torch.Tensor.copy_", data_of(eve, gradient), secret(eve))


def gradient_adds_to_a_view(eve: Observer) -> None:
    """A private gradient is added in place to one that is a view."""
    leaf, base = ones(eve, grad=True), zeros(eve, 1, 3)
    eve.call("torch.Tensor.grad.__set__", leaf, eve.call("torch.Tensor.view", base, 3))
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, secret(eve)))
    eve.call("torch.Tensor.backward", loss)


def gradient_of_a_gradient(eve: Observer) -> None:
    leaf, inner = ones(eve, grad=True), ones(eve, grad=True)
    eve.call("torch.Tensor.grad.__set__", inner, secret(eve))
    eve.call("torch.Tensor.grad.__set__", leaf, inner)
    again = eve.call("torch.Tensor.grad.__get__", eve.call("torch.Tensor.grad.__get__", leaf))
    eve.call("torch.Tensor.add", again, 0)


def gradient_of_a_copy(eve: Observer) -> None:
    leaf, base = ones(eve, grad=True), zeros(eve, 3)
    eve.call("torch.Tensor.grad.__set__", leaf, eve.call("torch.Tensor.view", base, 3))
    eve.call("torch.Tensor.copy_", base, secret(eve))
    duplicate = eve.call("torch._foreach_add", [leaf], 0)
    eve.gradient(duplicate[0].id)


def gradient_kept_by_an_optimizer_step(eve: Observer) -> None:
    """A list operation on gradients that are private, into a public parameter."""
    leaf = ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, secret(eve)))
    eve.call("torch.Tensor.backward", loss)
    gradient = eve.call("torch.Tensor.grad.__get__", leaf)
    state = zeros(eve)
    eve.call("torch._foreach_add_", [state], [gradient], grad=False)
    eve.call("torch._foreach_add_", [leaf], [state], alpha=-0.1, grad=False)


# --------------------------------------------------------------------------------- other layouts


def mkldnn_shares_memory(eve: Observer) -> None:
    opaque = eve.call("torch.Tensor.to_mkldnn", ones(eve))
    other = eve.call("torch.Tensor.detach", opaque)
    private = eve.call("torch.Tensor.to_mkldnn", secret(eve))
    eve.call("torch.Tensor.add_", opaque, private, grad=False)
    eve.call("torch.Tensor.to_dense", other)


def mkldnn_product(eve: Observer) -> None:
    opaque = eve.call("torch.Tensor.to_mkldnn", ones(eve))
    other = data_of(eve, opaque)
    eve.call(
        "torch.Tensor.mul_", opaque, eve.call("torch.Tensor.to_mkldnn", secret(eve)), grad=False
    )
    eve.call("torch.Tensor.to_dense", other)


def mkldnn_out(eve: Observer) -> None:
    opaque = eve.call("torch.Tensor.to_mkldnn", ones(eve))
    other = eve.call("torch.Tensor.detach", opaque)
    private = eve.call("torch.Tensor.to_mkldnn", secret(eve))
    eve.call("torch.add", private, private, out=opaque, grad=False)
    eve.call("torch.Tensor.to_dense", other)


def mkldnn_of_a_secret(eve: Observer) -> None:
    private = eve.call("torch.Tensor.to_mkldnn", secret(eve))
    for name in ("detach", "clone", "to_dense", "relu"):
        again = eve.call(f"torch.Tensor.{name}", private)
        eve.call("torch.Tensor.to_dense", again)


def sparse_values(eve: Observer) -> None:
    sparse = eve.call("torch.Tensor.coalesce", eve.public(torch.eye(3).to_sparse()))
    eve.call("torch.Tensor.copy_", eve.call("torch.Tensor.values", sparse), secret(eve), grad=False)
    eve.call("torch.Tensor.to_dense", sparse)


def sparse_from_public_values(eve: Observer) -> None:
    """The sparse tensor uses the memory of its values."""
    values, places = ones(eve), eve.public(torch.tensor([[0, 1, 2]]))
    sparse = eve.call("torch.sparse_coo_tensor", places, values, (3,))
    eve.call("torch.Tensor.copy_", data_of(eve, values), secret(eve))
    eve.call("torch.Tensor.to_dense", sparse)


def compressed_values(eve: Observer) -> None:
    compressed = eve.public(torch.eye(3).to_sparse_csr())
    values = eve.call("torch.Tensor.values", compressed)
    eve.call("torch.Tensor.copy_", values, secret(eve), grad=False)
    eve.call("torch.Tensor.to_dense", compressed)


def jagged_values(eve: Observer) -> None:
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    jagged = eve.public(nested)
    values = eve.call("torch.Tensor.values", jagged)
    eve.call("torch.Tensor.copy_", values, secret(eve), grad=False)
    eve.call("torch.Tensor.unbind", jagged)


def conjugate(eve: Observer) -> None:
    numbers = eve.public(torch.ones(3, dtype=torch.complex64))
    real = eve.call("torch.Tensor.real.__get__", eve.call("torch.Tensor.conj", numbers))
    eve.call("torch.Tensor.copy_", real, secret(eve), grad=False)


def real_part_is_set(eve: Observer) -> None:
    numbers = eve.public(torch.ones(3, dtype=torch.complex64))
    other = eve.call("torch.view_as_real", numbers)
    eve.call("torch.Tensor.real.__set__", numbers, secret(eve))
    eve.call("torch.Tensor.add", other, 0)


# --------------------------------------------------------------------------------- quantization


def scale_of_a_secret(eve: Observer) -> None:
    quantized = eve.call("torch.quantize_per_tensor_dynamic", secret(eve), torch.qint8, False)
    eve.call("torch.Tensor.q_scale", quantized)
    eve.call("torch.q_scale", quantized)
    eve.call("torch.Tensor.q_zero_point", quantized)
    eve.call("torch.Tensor.qscheme", quantized)


def scale_is_private(eve: Observer) -> None:
    """The scale is a private number, and it is in no memory."""
    scale = eve.secret(torch.tensor(0.5), torch.tensor(0.25))
    zero = eve.public(torch.tensor(0))
    quantized = eve.call("torch.quantize_per_tensor", ones(eve), scale, zero, torch.qint8)
    eve.call("torch.Tensor.dequantize", quantized)
    eve.call("torch.Tensor.q_scale", quantized)


def scales_are_written(eve: Observer) -> None:
    """A tensor quantized per channel keeps the memory of its scales."""
    scales = eve.public(torch.ones(3, dtype=torch.float64))
    zeros_at = eve.public(torch.zeros(3, dtype=torch.int64))
    numbers = eve.public(torch.ones(3, 2, dtype=torch.int8))
    quantized = eve.call("torch._make_per_channel_quantized_tensor", numbers, scales, zeros_at, 0)
    eve.call("torch.Tensor.copy_", data_of(eve, scales), secret(eve))
    eve.call("torch.Tensor.dequantize", quantized)


def scales_are_asked_for(eve: Observer) -> None:
    private = eve.secret(ONE.double().abs(), OTHER.double().abs())
    zeros_at = eve.public(torch.zeros(3, dtype=torch.int64))
    quantized = eve.call(
        "torch.quantize_per_channel", ones(eve, 3, 2), private, zeros_at, 0, torch.qint8
    )
    scales = eve.call("torch.Tensor.q_per_channel_scales", quantized)
    eve.call("torch.Tensor.add", scales, 0)
    eve.call("torch.Tensor.int_repr", quantized)


def scales_of_a_view(eve: Observer) -> None:
    """The scales are handed out, and written through."""
    scales = torch.ones(3, dtype=torch.float64)
    plain = torch.quantize_per_channel(
        torch.ones(3, 2), scales, torch.zeros(3, dtype=torch.int64), 0, torch.qint8
    )
    quantized = eve.public(plain)
    eve.call(
        "torch.Tensor.copy_",
        eve.call("torch.Tensor.q_per_channel_scales", quantized),
        secret(eve),
        grad=False,
    )
    eve.call("torch.Tensor.dequantize", quantized)


def quantized_copy(eve: Observer) -> None:
    quantized = eve.public(torch.quantize_per_tensor(torch.zeros(3), 100.0, 0, torch.qint8))
    other = eve.call("torch.Tensor.view", quantized, 3)
    eve.call("torch.Tensor.copy_", quantized, secret(eve), grad=False)
    eve.call("torch.Tensor.int_repr", other)


def observed_ranges(eve: Observer) -> None:
    """An operation for quantized training writes what it saw into six other arguments."""
    low, high, scale = zeros(eve, 1), ones(eve, 1), ones(eve, 1)
    zero = eve.public(torch.zeros(1, dtype=torch.int32))
    on = eve.public(torch.ones(1, dtype=torch.int64))
    eve.call(
        "torch.fused_moving_avg_obs_fake_quant",
        *(secret(eve), on, on, low, high, scale, zero, 0.1, 0, 255, 0),
        grad=False,
    )


# --------------------------------------------------------------------------------- shared memory


def set_to_public_memory(eve: Observer) -> None:
    """Two tensors over one memory, of which one is written by a third."""
    base, other, third = ones(eve), ones(eve), ones(eve)
    eve.call("torch.Tensor.set_", other, base, grad=False)
    eve.call("torch.Tensor.data.__set__", third, other)
    eve.call("torch.Tensor.copy_", third, secret(eve), grad=False)


def failure_set_to_public_memory(eve: Observer) -> None:
    """What a private index may have failed to make is put over public memory, and is read."""
    indices = eve.secret(torch.arange(3), torch.tensor([0, 1, 99]))
    made = eve.call("torch.index_select", ones(eve), 0, indices)
    eve.call("torch.Tensor.set_", made, ones(eve), grad=False)
    eve.fetch(made.id)


def resized_away(eve: Observer) -> None:
    """A tensor is shortened, the rest is written, and the tensor is enlarged again."""
    base = ones(eve, 6)
    rest = eve.call("torch.Tensor.narrow", base, 0, 3, 3)
    eve.call("torch.Tensor.resize_", base, (3,), grad=False)
    eve.call("torch.Tensor.copy_", rest, secret(eve), grad=False)
    eve.call("torch.Tensor.resize_", base, (6,), grad=False)


def other_dtype(eve: Observer) -> None:
    base = ones(eve)
    octets = eve.call("torch.Tensor.view", base, torch.uint8)
    eve.call("torch.Tensor.copy_", base, secret(eve), grad=False)
    eve.call("torch.Tensor.add", octets, 0)


def freed_memory(eve: Observer) -> None:
    """New memory that nobody writes may be what a private result has left."""
    for size in (64, 4096):
        private = secret(eve, size)
        for _ in range(4):
            made = eve.call("torch.mul", private, 1)
            eve.request(messages.Drop(0, (made.id,)))
            eve.call("torch.empty", size)
            eve.call("torch.Tensor.new_empty", ones(eve), (size,))
            eve.call("torch.Tensor.resize_", zeros(eve, 1), (size,), grad=False)


ATTACKS: tuple[Attack, ...] = (
    mkldnn_shares_memory,
    mkldnn_product,
    mkldnn_out,
    gradient_adds_to_a_view,
    gradient_is_a_view,
    gradient_is_a_view_and_the_base_is_gone,
    gradient_is_written_in_place,
    gradient_of_a_copy,
    gradient_of_a_gradient,
    gradient_kept_by_an_optimizer_step,
    mkldnn_of_a_secret,
    sparse_values,
    sparse_from_public_values,
    compressed_values,
    jagged_values,
    conjugate,
    real_part_is_set,
    scale_of_a_secret,
    scale_is_private,
    scales_are_asked_for,
    quantized_copy,
    observed_ranges,
    set_to_public_memory,
    failure_set_to_public_memory,
    resized_away,
    other_dtype,
    freed_memory,
    scales_are_written,
    scales_of_a_view,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_memory_nobody_looks_at(attack: Attack) -> None:
    check(attack)


REFUSED = (freed_memory, observed_ranges)
"""What lies in freed memory varies, and a stranger writes no ranges of the owner's."""


@pytest.mark.parametrize("attack", [one for one in ATTACKS if one not in REFUSED])
def test_the_memory_is_reached(attack: Attack) -> None:
    check_reaches(attack)
