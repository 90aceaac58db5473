"""Torch's own operations on real shares, against the same operations of torch.

Parties that compute on the values (``clear_parties``) cannot tell an operation that every share
goes through from one that only one share may go through: here each party has shares.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from syft.exceptions import UnsupportedOperation
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.shared.shared_values import get_shared, is_shared, share_values
from tests.tensors.shared.local_parties import local_session

N = torch.tensor([[3, -2, 0, 7], [-1, 5, 5, -9], [0, 4, -6, 2]])
B, C = N > 0, N % 2 == 0
X = N / 4
INDEX = torch.tensor([[1, 0, 3, 2], [3, 2, 1, 0], [0, 1, 2, 3]])
SQUARE, PLACES = N[:, :3], torch.tensor([[2, 0, 1], [0, 1, 2], [1, 2, 0]])


def opened(value):
    if isinstance(value, (tuple, list)):
        return [opened(one) for one in value]
    if not is_shared(value):
        return value
    (plain,) = get_shared([value])
    return plain if plain.dtype in (torch.int64, torch.bool) else float_precision(plain)


def given(session, x):
    return share_values(fix_precision(x) if x.is_floating_point() else x, session)


def written(write):
    def run(a, *rest):
        a = a.clone()
        write(a, *rest)
        return a

    return run


CASES = {
    "pad with a number": (lambda a: F.pad(a, (1, 2), value=1.5), X),
    "pad whole numbers": (lambda a: F.pad(a, (1, 0, 0, 2), value=7), N),
    "pad without its fraction": (lambda a: F.pad(a, (1, 1), value=2.7), N),
    "crop and pad": (lambda a: F.pad(a, (-1, 1), value=-3), N),
    "pad bits": (lambda a: F.pad(a, (1, 1), value=1), B),
    "gather from the end": (lambda a, i: a.gather(-1, i), N, INDEX),
    "gather from the end, square": (lambda a, i: a.gather(-2, i), SQUARE, PLACES),
    "scatter from the end": (lambda a, i: a.scatter(-1, i, a * 2), N, INDEX),
    "scatter_add from the end": (lambda a, i: a.scatter_add(-2, i, a), SQUARE, PLACES),
    "the largest by its place": (lambda a: a.gather(-1, a.argmax(-1, keepdim=True)), N),
    "set rows": (written(lambda a: a.__setitem__(0, 5)), N),
    "set columns": (written(lambda a: a[:, ::2].fill_(-4)), N),
    "fill without its fraction": (written(lambda a: a.fill_(2.7)), N),
    "fill the diagonal": (written(lambda a: a.fill_diagonal_(9)), N),
    "fill a new one": (lambda a: torch.fill(a, 3), N),
    "fill with a tensor": (written(lambda a: a.fill_(torch.tensor(4))), N),
    "out": (lambda a: torch.add(a, 1, out=torch.zeros_like(a)), N),
    "out is an operand": (written(lambda a: torch.mul(a, a, out=a)), N),
    "two outs": (
        lambda a: torch.max(a, 1, out=(torch.zeros_like(a[:, 0]), torch.zeros_like(a[:, 0]))),
        N,
    ),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b), N, N),
    "addcmul with a value": (lambda a, b: torch.addcmul(a, a, b, value=-2), N, N),
    "hardtanh": (lambda a: F.hardtanh(a, -2, 3), N),
    "relu6": (F.relu6, N),
    "aminmax": (torch.aminmax, N),
    "aminmax along": (lambda a: torch.aminmax(a, dim=0, keepdim=True), N),
    "nan_to_num": (torch.nan_to_num, N),
    "diag": (lambda a: torch.diag(a, 1), N),
    "diag of fractions": (torch.diag, X),
    "block_diag": (lambda a, b: torch.block_diag(a, b, a[0], a[0, 0]), N, N[:2]),
    "copies of views": (lambda a: torch.unbind_copy(torch.t_copy(a)), N),
    "bits times bits": (lambda a, b: ~(a * b), B, C),
    "bits times a public mask": (lambda a: a * C, B),
    "bits counted": (lambda a, b: (a * 1 + b * 1).sum(0), B, C),
    "bits chosen": (lambda a, b: torch.where(a, b, ~b), B, C),
    "bits chosen in public": (lambda a, b: torch.where(C, a, b), B, C),
    "bits under a mask": (lambda a, b: a.masked_fill(b, True), B, C),
    "bits read": (lambda a: a[:, torch.tensor([2, 0])], B),
    "bits read in secret": (lambda a, i: a[i], B, torch.tensor([2, 0])),
    "bits selected": (lambda a: a.index_select(1, torch.tensor([3])), B),
    "bits gathered": (lambda a, i: a.gather(1, i), B, INDEX),
    "bits scattered": (lambda a, i: a.scatter(1, i, a), B, INDEX),
    "bits written": (written(lambda a: a.__setitem__(torch.tensor([0]), True)), B),
    "bits written in secret": (lambda a, i: a.index_put((i,), a[:1]), B, torch.tensor([2])),
    "bits copied from numbers": (written(lambda a: a.copy_(N)), B),
    "bits filled": (written(lambda a: a.fill_(5)), B),
    "bits added in place": (lambda a: a.index_add(0, torch.tensor([1]), a[:1] * 1), N),
    "the larger bit": (lambda a, b: ~torch.maximum(a, b), B, C),
    "the larger bit of a public one": (lambda a: ~torch.fmax(C, a), B),
    "the smaller bit": (lambda a, b: ~torch.minimum(a, b), B, C),
    "the largest bit": (lambda a: ~a.max(), B),
    "the largest bits": (lambda a: ~a.amax(1, keepdim=True), B),
    "the smallest bits and where": (lambda a: a.min(0), B),
    "the sign of bits": (lambda a: ~a.sign(), B),
    "bits under a mask as numbers": (lambda a, b: ~a.masked_fill(b, 2), B, C),
    "bits under a mask as a tensor": (lambda a, b: ~a.masked_fill(b, torch.tensor(0)), B, C),
    "bits filled at an index": (lambda a: ~a.index_fill(1, torch.tensor([0, 3]), 2), B),
    "bits padded": (lambda a: ~F.pad(a, (1, 2), value=2), B),
    "bits like others": (lambda a: ~(torch.zeros_like(a) & torch.full_like(a, 2)), B),
    "new bits": (lambda a: torch.stack([~a.new_zeros(2), a.new_ones(2)]), B),
    "one number's extremes": (lambda a: (*a.aminmax(dim=-1), a.amax(0, keepdim=True)), N[0, 0]),
    "one number's place": (
        lambda a: a.argmax(-1) + a.argmin(0, keepdim=True) + a.max(0)[1],
        N[0, 0],
    ),
    "one bit's place": (lambda a: a.max(0), B[0, 0]),
    "isfinite": (torch.isfinite, X),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("parties", [2, 3])
def test_an_operation_on_shares(name, parties):
    function, *operands = CASES[name]
    session = local_session(parties)
    got = opened(function(*[given(session, x) for x in operands]))
    want = function(*operands)
    if isinstance(want, torch.Tensor):
        got, want = [got], [want]
    for one, expected in zip(got, want, strict=True):
        assert one.dtype is expected.dtype and torch.equal(one, expected)


BOUNDS = (2.5, -2.5, 0.5, -0.5, 2.0, 1e30, -1e30, float("inf"), -float("inf"))


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_integers_are_compared_with_fractions_exactly(name):
    compare, bounds = getattr(torch, name), torch.tensor(BOUNDS)
    shared = share_values(N, local_session())
    columns = share_values(N.reshape(-1, 1), local_session())
    for bound in BOUNDS:
        assert torch.equal(opened(compare(shared, bound)), compare(N, bound)), bound
    assert torch.equal(opened(compare(columns, bounds)), compare(N.reshape(-1, 1), bounds))
    assert torch.equal(opened(compare(bounds, columns)), compare(bounds, N.reshape(-1, 1)))


REFUSED = {
    "a comparison with NaN": (lambda a: a < float("nan"), "comparison with NaN.*nan_to_num"),
    "the larger of a fraction": (lambda a: torch.maximum(a, torch.tensor(0.5)), "encode it first"),
    "the smaller of a fraction": (lambda a: torch.minimum(torch.tensor(0.5), a), "encode it"),
    "logic of public integers": (lambda a: N & a, "bitwise_and.*get"),
    "a rounded quotient": (lambda a: a // 2, r"floor_divide[^:]*: its values are shared"),
    "a quotient rounded down": (
        lambda a: torch.div(a, 2, rounding_mode="floor"),
        r"Tensor_mode: its values are shared",
    ),
    "a sum as floats": (lambda a: a.sum(dtype=torch.float32), "64 bits; call .fix_precision"),
    "a mean": (lambda a: torch.mean(a), "mean.*no fractions; call fix_precision"),
    "a function": (lambda a: a.exp(), "exp.*no fractions; call fix_precision"),
    "fractions into integers": (
        lambda a: a.add_(fix_precision(X)),
        r"without fixed precision; call \.fix_prec\(\) on that one",
    ),
    "a plain target": (lambda a: torch.add(a, a, out=N.clone()), "into a plain tensor"),
    "a target of another shape": (
        lambda a: torch.add(a, a, out=torch.zeros_like(a[0])),
        r"out= of shape \(4,\).*shape of the result, \(3, 4\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    call, text = REFUSED[name]
    shared = share_values(N, local_session())
    with pytest.raises(UnsupportedOperation, match=text):
        call(shared)
    assert torch.equal(opened(shared), N)


SHAPES = {
    "matrices": lambda a: a @ a,
    "with a public one": lambda a: a @ N,
    "a product": lambda a: a * a[:, :3],
    "a choice": lambda a: torch.where(a > 0, a[:, :3], 0),
    "a convolution": lambda a: F.conv1d(a[None], a[:, :2, None]),
    "pooling": lambda a: F.max_pool2d(fix_precision(a)[None], 5),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit_are_runtime_errors(name):
    shared = share_values(N, local_session())
    with pytest.raises(RuntimeError):
        SHAPES[name](shared)
    assert torch.equal(opened(shared), N)


RESULTS = {
    "max": lambda a: a[:1, :1].max(),
    "max along": lambda a: a[:, :1].max(1)[0],
    "min along, kept": lambda a: a[:1].min(0, keepdim=True)[0],
    "amax": lambda a: a[:1].amax(0),
    "aminmax": lambda a: a[:, :1].aminmax(dim=1).min,
    "over one": lambda a: a / 1,
    "times one": lambda a: a * 1,
    "nothing added": lambda a: a + 0,
    "to the first power": lambda a: a**1,
    "one window": lambda a: F.max_pool1d(a[None], 1),
    "padded by nothing": lambda a: F.pad(a, (0, 0), value=1),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("x", [N, X], ids=["integers", "fractions"])
def test_results_have_memory_of_their_own(name, x):
    if not x.is_floating_point() and name in ("over one", "one window"):
        pytest.skip("integers have neither")
    shared = given(local_session(), x)
    RESULTS[name](shared).add_(1)
    assert torch.equal(opened(shared), x)
