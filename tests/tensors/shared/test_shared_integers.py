"""Shared whole numbers without fixed precision: torch's integer operations, exactly."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

import syft as sy
from syft.exceptions import (
    NotALeaf,
    NotSendable,
    NotShareable,
    NothingToGet,
    UnsupportedOperation,
)
from syft.serde import serialize
from syft.tensors.fixed.precision import fix_precision
from syft.tensors.logging import LoggingTensor
from syft.tensors.shared.shared_values import get_shared, is_shared, refresh, share_values
from tests.chain.refusal import refusal
from tests.tensors.shared.clear_parties import clear_session
from tests.tensors.shared.local_parties import local_session


def numbers(*shape, seed=0):
    return torch.randint(-99, 100, shape, generator=torch.Generator().manual_seed(seed))


X, Y, V = numbers(4, 6), numbers(6, 3, seed=1), numbers(6, seed=2)
IMAGE, FILTERS = numbers(2, 3, 7, 7), numbers(4, 3, 3, 3, seed=1)

CASES = {
    "mm": (torch.mm, X, Y),
    "mv": (torch.mv, X, V),
    "dot": (torch.dot, V, V),
    "bmm": (torch.bmm, X[None].expand(2, 4, 6), Y[None].expand(2, 6, 3)),
    "matmul of a batch": (torch.matmul, X[None], Y),
    "turned": (lambda a, b: b.t() @ a.t(), X, Y),
    "linear": (F.linear, X, Y.t(), numbers(3)),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), numbers(4, 3), X, Y),
    "addmm of nothing": (lambda c, a, b: torch.addmm(c, a, b, beta=0), numbers(4, 3), X, Y),
    "conv1d": (F.conv1d, IMAGE[..., 0], FILTERS[..., 0]),
    "conv2d": (lambda a, w, b: F.conv2d(a, w, b, 2, 1), IMAGE, FILTERS, numbers(4)),
    "conv_transpose2d": (F.conv_transpose2d, IMAGE, FILTERS.transpose(0, 1).contiguous()),
    "pow": (lambda a: a**5 + a**2 + a**1 + a**0, X),
    "multiply": (lambda a, b: a * b * 3 * a[0], X, X),
    "compare": (lambda a, b: torch.stack([a < b, a <= b, a > b, a >= b, a == b, a != b]), X, X % 7),
    "compare with numbers": (
        lambda a: torch.stack([a < 5, a <= 5, a > 5, a >= 5, a == 5, a != 5]),
        X,
    ),
    "sums": (lambda a: a.sum(0) + a.sum() + a.cumsum(1)[0], X),
    "pieces": (lambda a: torch.cat([a[1:, ::2].t().reshape(-1), a.flip(0).view(-1)]), X),
    "bits": (lambda a, b: (a > 0) & (b > 0), X, X % 7),
    "copies": (lambda a: (a.clone() + a.new_zeros(6) + torch.full_like(a, 3)), X),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("public", [None, 0, 1])
def test_an_operation_on_whole_numbers(name, public):
    function, *operands = CASES[name]
    if public is not None and public >= len(operands) - 1:
        pytest.skip("one operand at least is shared")
    session = clear_session()
    given = [x if at == public else share_values(x, session) for at, x in enumerate(operands)]
    (got,) = get_shared([function(*given)])
    want = function(*operands)
    assert got.dtype is want.dtype and torch.equal(got, want)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(2, 4))
def test_shares_add_up_modulo_the_ring(values, parties):
    x = torch.tensor(values)
    a = share_values(x, local_session(parties))
    assert torch.equal(get_shared([a])[0], x)
    assert torch.equal(get_shared([a + a])[0], x + x)
    assert torch.equal(get_shared([refresh(a)])[0], x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_kinds_of_integers(dtype):
    x = torch.tensor([[1, 0], [0, 1]]).to(dtype)
    shared = share_values(x.t(), clear_session())
    (got,) = get_shared([shared])
    assert got.dtype is (torch.bool if dtype is torch.bool else torch.int64)
    assert torch.equal(got.to(dtype), x.t())


@pytest.mark.parametrize("exponent", [-1, 0.5])
def test_powers_that_are_no_whole_numbers(exponent):
    with pytest.raises(UnsupportedOperation, match="whole powers"):
        share_values(X, clear_session()) ** exponent


def test_integers_that_would_get_fractions():
    shared = share_values(X, clear_session())
    for call in (lambda: shared / 2, lambda: shared / shared, lambda: shared.div_(2)):
        with pytest.raises(UnsupportedOperation, match=r"no rule for aten\.div.*fix_precision"):
            call()


def test_what_cannot_be_shared():
    session = clear_session()
    for x, error, text in [
        (torch.ones(2), NotShareable, r"torch.float32: call .fix_precision\(\) first"),
        (torch.ones(2, dtype=torch.complex64), NotShareable, "complex64"),
        (torch.eye(2).long().to_sparse(), NotShareable, r"call .to_dense\(\) first"),
        (share_values(X, session), NotShareable, "it is shared already"),
        (LoggingTensor().on(X), NotShareable, r"a LoggingTensor: get\(\) it first"),
        (fix_precision(torch.ones(2)).requires_grad_() * 2, NotALeaf, "MulBackward"),
    ]:
        with pytest.raises(error, match=text):
            share_values(x, session)


def test_a_remote_tensor_with_a_graph_is_not_split(hook, bob, alice):
    carol = sy.VirtualWorker(hook, id="carol")
    x = fix_precision(torch.ones(2)).requires_grad_().send(bob)
    y = x * 2
    text = refusal(lambda: y.share(bob, alice, crypto_provider=carol, requires_grad=True))
    assert text.startswith("NotALeaf") and "(at bob)" in text


def test_what_is_not_shared_cannot_be_put_together():
    for call in (lambda x: get_shared([x]), refresh):
        with pytest.raises(NothingToGet):
            call(X)
    assert not is_shared(X) and is_shared(share_values(X, clear_session()))


def test_shares_are_not_sent_a_second_time():
    shared = share_values(V, clear_session())
    with pytest.raises(NotSendable, match="its shares are at the workers that hold them already"):
        serialize(shared)


def test_bits_and_whole_numbers_become_fractions_as_in_torch(hook, bob, alice):
    carol = sy.VirtualWorker(hook, id="carol")
    predicted, right = torch.tensor([3, 1, 2, 2]), torch.tensor([3, 0, 2, 1])
    shared = predicted.share(alice, bob, crypto_provider=carol)
    for dtype in (torch.float32, torch.float64):
        assert shared.to(dtype).get().float_precision().tolist() == predicted.tolist()
    accuracy = (shared == right).float().mean()
    assert accuracy.get().float_precision().item() == (predicted == right).float().mean().item()


def test_an_older_protocol_is_named_and_not_run(hook, bob, alice):
    with pytest.warns(UserWarning, match="one protocol, 'snn'") as warned:
        assert X.share(bob, alice, crypto_provider=hook.local_worker, protocol="fss").get().equal(X)
    assert warned[0].filename == __file__


def test_numbers_inside_a_program_are_no_objects_of_a_worker(hook, bob, alice):
    carol = sy.VirtualWorker(hook, id="carol")
    table = torch.tensor([[3, 8], [5, 1]]).share(alice, bob, crypto_provider=carol)
    values, places = table.max(dim=0)  # workers this new hold no object 2, which the program names
    assert values.get().tolist() == [5, 8] and places.get().tolist() == [1, 0]
