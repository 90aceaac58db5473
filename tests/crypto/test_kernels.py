"""Kernels are torch's operations: on float64, on int64 where they are bilinear, and by shape."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto import kernels
from syft.crypto.kernels import Kernel, KernelCode, kernel_from, kernel_of
from syft.crypto.ring_products import ring_map
from syft.exceptions import ProgramError
from tests.conftest import DEVICES

aten = torch.ops.aten

BILINEAR = [
    (KernelCode.MULTIPLY, (), (2, 1, 3), (4, 1)),
    (KernelCode.MATMUL, (), (2, 3), (3, 4)),
    (KernelCode.MATMUL, (), (2, 3), (3,)),
    (KernelCode.MATMUL, (), (3,), (3,)),
    (KernelCode.MATMUL, (), (5, 2, 3), (5, 3, 4)),
    (KernelCode.MATMUL, (True, False), (3, 2), (3, 4)),
    (KernelCode.MATMUL, (False, True), (2, 3), (4, 3)),
    (KernelCode.MATMUL, (True, True), (5, 3, 2), (5, 4, 3)),
    (KernelCode.CROSS, (-1,), (4, 3), (4, 3)),
    (
        KernelCode.CONVOLUTION,
        ((1, 2), (1, 0), (1, 1), False, (0, 0), 2),
        (2, 4, 5, 6),
        (6, 2, 3, 2),
    ),
    (KernelCode.CONVOLUTION, ((2,), (1,), (1,), True, (1,), 1), (2, 4, 5), (4, 3, 3)),
]


def whole(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(-50, 50, shape)


@pytest.mark.parametrize("code, settings, one, other", BILINEAR)
@pytest.mark.parametrize("device", DEVICES)
def test_bilinear_kernels_are_alike_on_integers_and_floats(code, settings, one, other, device):
    kernel, a, b = Kernel(code, settings), whole(one), whole(other)
    result = kernel(a.double().to(device), b.double().to(device))
    assert torch.equal(result.cpu(), kernel(a, b).double())
    assert result.device.type == device
    assert kernel.shape(one, other) == result.shape
    ones = kernel(torch.ones(one), torch.ones(other))
    assert code is KernelCode.CROSS or ones.abs().max().item() <= kernel.terms(one, other)
    assert kernel_from(int(code), settings) == kernel and kernel.bilinear


@pytest.mark.parametrize(
    "rows, inner, columns", [*itertools.product([0, 1, 2, 3], [0, 1, 9], [0, 1, 4, 5])]
)
@pytest.mark.parametrize("turned", [False, True])
def test_thin_products_are_those_of_torch(rows, inner, columns, turned, monkeypatch):
    monkeypatch.setattr(kernels, "_MANY", 0)
    a, b = whole((rows, inner)), whole((columns, inner)).t()
    if turned:
        a, b = a.t().contiguous().t(), b.contiguous()
    assert torch.equal(Kernel(KernelCode.MATMUL)(a, b), torch.mm(a, b))


GEOMETRIES = [
    (dims, stride, padding, dilation, transposed, groups)
    for dims, stride, padding, dilation, transposed, groups in itertools.product(
        (1, 2, 3), (1, 2, 3), (0, 1), (1, 2), (False, True), (1, 2)
    )
]


@pytest.mark.parametrize("dims, stride, padding, dilation, transposed, groups", GEOMETRIES)
def test_gradients_of_convolutions_are_those_of_torch(
    dims, stride, padding, dilation, transposed, groups
):
    extra = max(stride, dilation) - 1 if transposed else 0
    each = [(value,) * dims for value in (stride, padding, dilation, extra)]
    settings = (*each[:3], transposed, each[3], groups)
    x = whole((2, 4, 9, 8, 7)[: 2 + dims])
    w = whole(((4, 6 // groups) if transposed else (6, 4 // groups)) + (3, 2, 3)[:dims])
    forward = Kernel(KernelCode.CONVOLUTION, settings)
    made = forward(x, w)
    assert torch.equal(made.double(), aten.convolution(x.double(), w.double(), None, *settings))
    grad = whole(tuple(made.shape))
    doubles = (grad.double(), x.double(), w.double(), None)
    expected = aten.convolution_backward(*doubles, *settings, [True, True, False])
    for code, other, like, want in (
        (KernelCode.CONVOLUTION_GRAD_INPUT, w, x, expected[0]),
        (KernelCode.CONVOLUTION_GRAD_WEIGHT, x, w, expected[1]),
    ):
        kernel = kernel_from(code, (*settings, tuple(like.shape)))
        got = kernel(grad, other)
        assert got.dtype is torch.int64 and torch.equal(got.double(), want)
        assert kernel.shape(tuple(grad.shape), tuple(other.shape)) == like.shape
        ones = kernel(torch.ones_like(grad), torch.ones_like(other))
        assert ones.max().item() <= kernel.terms(grad.shape, other.shape)
        with pytest.raises(ProgramError, match="of shape"):
            kernel.shape((9, *grad.shape[1:]), tuple(other.shape))


def test_windows_are_laid_out_for_some_images_at_a_time(monkeypatch):
    from syft.crypto import convolutions

    x, grad = whole((5, 2, 6)), whole((5, 3, 4))
    kernel = Kernel(
        KernelCode.CONVOLUTION_GRAD_WEIGHT, ((1,), (0,), (1,), False, (0,), 1, (3, 2, 3))
    )
    whole_at_once = kernel(grad, x)
    monkeypatch.setattr(convolutions, "LAID_OUT", 2 * 2 * 3 * 4)
    assert torch.equal(kernel(grad, x), whole_at_once)


LINEAR = [
    ("avg_pool2d", ([3, 2], [2, 1], [1, 0], True, False), (2, 3, 7, 6)),
    ("avg_pool3d", ([2, 2, 2], [], [0, 0, 0], False, True), (2, 4, 4, 5)),
    ("reflection_pad1d", ([1, 2],), (2, 4)),
    ("reflection_pad2d", ([1, 2, 0, 1],), (2, 4, 4)),
    ("reflection_pad3d", ([1, 0, 0, 1, 1, 1],), (2, 3, 4, 4)),
    ("replication_pad1d", ([1, 2],), (2, 4)),
    ("replication_pad2d", ([1, 2, 0, 1],), (2, 4, 4)),
    ("replication_pad3d", ([1, 0, 0, 1, 1, 1],), (2, 3, 4, 4)),
    ("upsample_nearest1d", ([7], None), (1, 2, 3)),
    ("upsample_nearest2d", ([7, 4], 2.5, None), (1, 2, 3, 2)),
    ("upsample_nearest3d", ([7, 4, 2], None, None, None), (1, 2, 3, 2, 2)),
    ("_upsample_nearest_exact1d", ([7], None), (1, 2, 3)),
    ("_upsample_nearest_exact2d", ([7, 4], None, None), (1, 2, 3, 2)),
    ("_upsample_nearest_exact3d", ([7, 4, 2], None, None, None), (1, 2, 3, 2, 2)),
    ("im2col", ([2, 3], [1, 1], [1, 0], [2, 1]), (2, 3, 5, 6)),
    ("col2im", ([5, 6], [2, 3], [1, 1], [1, 0], [2, 1]), (2, 18, 12)),
]


@pytest.mark.parametrize("name, settings, shape", LINEAR)
def test_linear_kernels_are_torch_operations_and_their_gradients(name, settings, shape):
    op = getattr(aten, name).default
    kernel, x = kernel_of(op, *settings), whole(shape)
    last = [1] if name.startswith("avg") else []
    leaf = x.double().requires_grad_()
    expected = op(leaf, *settings, *last)
    assert torch.equal(ring_map(kernel, x).double(), expected)
    assert kernel_from(int(kernel.code), kernel.settings) == kernel and not kernel.bilinear
    assert kernel.shape(shape) == expected.shape
    check_backward(name, settings, leaf, expected)


def check_backward(name, settings, leaf, expected) -> None:
    backward = f"{name}_backward"
    if not hasattr(aten, backward):
        return  # the gradient of im2col is col2im
    grad = whole(tuple(expected.shape))
    expected.backward(grad.double())
    shape = list(leaf.shape)
    given = (settings[0], shape, *settings[1:]) if "upsample" in name else (shape, *settings)
    kernel = kernel_of(getattr(aten, backward).default, *given)
    assert torch.equal(ring_map(kernel, grad).double(), leaf.grad)
    assert kernel_from(int(kernel.code), kernel.settings).shape(tuple(grad.shape)) == leaf.shape


def test_every_kernel_is_tried():
    tried = {code for code, *_ in BILINEAR}
    tried |= {KernelCode.CONVOLUTION_GRAD_INPUT, KernelCode.CONVOLUTION_GRAD_WEIGHT}
    for name, *_ in LINEAR:
        tried.add(KernelCode[name.lstrip("_").upper()])
        backward = f"{name.lstrip('_').upper()}_BACKWARD"
        tried |= {KernelCode[backward]} if backward in KernelCode.__members__ else set()
    assert tried == set(KernelCode)


CONVOLUTION = ((1,), (0,), (1,), False, (0,), 1)

WRONG = [
    (0, ()),
    (7, ()),
    (31, ()),
    ("2", ()),
    (None, ()),
    (1, (1,)),
    (1, []),
    (2, (True,)),
    (2, (3, 0)),
    (3, CONVOLUTION[:-1]),
    (3, ((0,), *CONVOLUTION[1:])),
    (3, ((1,), (0,), (0,), *CONVOLUTION[3:])),
    (3, (*CONVOLUTION[:4], (-1,), 1)),
    (3, (*CONVOLUTION[:5], 0)),
    (3, ((1 << 40,), *CONVOLUTION[1:])),
    (3, ((1,) * 17, *CONVOLUTION[1:])),
    (3, (1, *CONVOLUTION[1:])),
    (3, (*CONVOLUTION, (1, 1, 1))),
    (4, CONVOLUTION),
    (4, (*CONVOLUTION, (-1, 1, 1))),
    (6, (None,)),
    (32, ((2, 2), (0, 0), (0, 0), False, True)),
    (40, ((7,), 0.0)),
    (40, ((7,), float("nan"))),
    (40, ((7,), float("inf"))),
    (40, ((7,), -1.0)),
    (64, ((2, 2), (1, 1), (0, 0), False, True)),
    (64, ({}, (2, 2), (1, 1), (0, 0), False, True)),
]


@pytest.mark.parametrize("code, settings", WRONG)
def test_kernels_that_were_not_made_here_are_refused(code, settings):
    with pytest.raises(ProgramError):
        kernel_from(code, settings)


numbers = st.one_of(st.integers(-2, 4), st.booleans(), st.none(), st.floats())
nested = st.recursive(numbers, lambda inner: st.lists(inner, max_size=7).map(tuple), max_leaves=20)


@given(st.integers(0, 80), nested, st.lists(st.integers(0, 5), max_size=5).map(tuple))
def test_what_passes_the_check_has_a_shape_or_says_why(code, settings, shape):
    try:
        kernel = kernel_from(code, settings)
        kernel.shape(*(shape,) * (1 + kernel.bilinear))
    except ProgramError:
        pass


@pytest.mark.parametrize(
    "kernel, shapes",
    [
        (Kernel(KernelCode.MULTIPLY), ((2, 3), (2,))),
        (Kernel(KernelCode.MULTIPLY), ((2**31, 1), (1, 2**31))),
        (Kernel(KernelCode.MATMUL), ((2, 3), (2, 3))),
        (Kernel(KernelCode.CROSS, (9,)), ((4, 3), (4, 3))),
        (Kernel(KernelCode.AVG_POOL2D, ((9, 9), (), (0, 0), False, True)), ((1, 4, 4),)),
        (Kernel(KernelCode.CONVOLUTION_GRAD_INPUT, (*CONVOLUTION, (1,))), ((1, 1, 3), (1, 1, 2))),
    ],
)
def test_operands_that_do_not_fit_are_refused(kernel, shapes):
    with pytest.raises(ProgramError, match=kernel.code.name.split("_")[0]):
        kernel.shape(*shapes)
