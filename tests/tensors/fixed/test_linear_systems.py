"""Inverses, solutions and determinants of matrices that nobody may read, held against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.exceptions import UnsupportedOperation
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.fixed.blind_ring import BlindRing, blind, reveal
from tests.tensors.fixed.test_blind_rules import compare
from tests.tensors.shared.local_parties import local_session

STEP = 2.0**-16
linalg: Any = torch.linalg


@pytest.fixture
def ring() -> BlindRing:
    return BlindRing(noisy=True)


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    """A matrix whose rows must be exchanged: the first pivot is 0."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    if len(shape) > 1:
        made[..., 0, 0] = 0.0
    return made


A, B, V = matrix(3, 3, seed=4), matrix(3, 2, seed=5), matrix(3, seed=6)
MANY, RIGHT = matrix(4, 2, 2, seed=7), matrix(4, 2, 3, seed=8)

CASES: dict[str, tuple[Any, ...]] = {
    "inv": (linalg.inv, A),
    "inverse of a transpose": (lambda a: a.T.inverse(), A),
    "inverses": (torch.inverse, MANY),
    "solve": (linalg.solve, A, B),
    "solve for a transpose": (lambda a, b: linalg.solve(a.T, b), A, B),
    "solve a vector": (linalg.solve, A, V),
    "solve from the right": (lambda a, b: linalg.solve(a, b.T, left=False), A, B),
    "solve many": (linalg.solve, MANY, RIGHT),
    "solve many vectors": (linalg.solve, MANY, RIGHT[..., 0]),
    "solve many for one right side": (lambda a, b: linalg.solve(a, b), MANY, RIGHT[0]),
    "a public right side": (lambda a: linalg.solve(a, B.to(a.dtype)), A),
    "a public matrix": (lambda b: linalg.solve(A.to(b.dtype), b), B),
    "det": (lambda a: linalg.det(a.detach()), A),
    "dets": (lambda a: torch.det(a.detach()), MANY),
    "one number": (
        lambda a, b: linalg.solve(a, b) + linalg.inv(a) + a.detach().det(),
        A[1:2, 1:2],
        V[:1],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_nobody_may_read(name: str, ring: BlindRing) -> None:
    function, *operands = CASES[name]
    compare(function, operands, ring, (60, 400))


def test_a_first_pivot_of_zero_and_one_that_is_largest_in_the_middle(ring: BlindRing) -> None:
    """Rows are exchanged or not, each way: the sign of the determinant shows it."""
    for rows in ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 1]]):
        plain = torch.tensor(rows, dtype=torch.float32)
        found = reveal(linalg.inv(blind(plain, ring)))
        assert torch.allclose(found, plain.T, rtol=0, atol=2 * STEP)
        assert abs(reveal(linalg.det(blind(plain, ring))) - plain.det()) <= 8 * STEP


def well_conditioned(n: int, condition: float, size: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    left, _, right = torch.linalg.svd(torch.randn(n, n, generator=generator, dtype=torch.float64))
    values = torch.logspace(0, -1, n, base=condition, dtype=torch.float64) * size
    return left @ torch.diag(values) @ right


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 8),
    st.floats(1, 500),
    st.floats(0.5, 1000) | st.floats(1000, 500_000),
    st.integers(0, 10**6),
    st.sampled_from(["public", "private"]),
)
def test_how_exact_it_is(n: int, condition: float, size: float, seed: int, kind: str) -> None:
    """The bounds that docs/fixed_precision.md states, against the exact inverse of what is held."""
    ring = BlindRing(noisy=True)
    a = blind(well_conditioned(n, condition, size, seed), ring)
    held = reveal(a, torch.float64)
    over = torch.linalg.inv(held)
    norm = float(torch.linalg.matrix_norm(over, ord=torch.inf))
    found = reveal(linalg.inv(a), torch.float64)
    assert float((found - over).abs().max()) <= 2 * (1 + norm) * STEP
    matrix = a if kind == "private" else fix_precision(held)
    for large in (1.0, min(size, 50_000.0)):
        b = blind(torch.randn(n, 1) * large, ring)
        want = over @ reveal(b, torch.float64)
        bound = 2 * (1 + norm) * STEP
        assert float((reveal(linalg.solve(matrix, b), torch.float64) - want).abs().max()) <= bound
        left = reveal(linalg.solve(matrix, b.T, left=False), torch.float64)
        norm_of_columns = float(torch.linalg.matrix_norm(over.T, ord=torch.inf))
        assert float((left - want_left(b, over)).abs().max()) <= 2 * (1 + norm_of_columns) * STEP


def want_left(b: Any, over: torch.Tensor) -> torch.Tensor:
    return reveal(b, torch.float64).T @ over


def test_rows_of_many_sizes(ring: BlindRing) -> None:
    """The inverse of large numbers is less than a step; what it solves is not."""
    plain = torch.tensor([[3e5, 1.0, 2e5], [0.5, 2.0, 0.25], [1e5, -3e3, -4e5]])
    solution = torch.tensor([1.5, -2.0, 0.5])
    a, b = blind(plain, ring), blind(plain @ solution, ring)
    for matrix in (a, fix_precision(plain)):
        found = reveal(linalg.solve(matrix, b))
        assert torch.allclose(found, solution, rtol=0, atol=6 * STEP)


def test_a_matrix_without_rows_and_one_that_is_singular(ring: BlindRing) -> None:
    empty = blind(torch.ones(2, 0, 0), ring)
    assert reveal(linalg.det(empty)).tolist() == [1.0, 1.0]
    assert linalg.inv(empty).shape == (2, 0, 0)
    zero = blind(torch.zeros(2, 2), ring)
    assert reveal(linalg.det(zero)).item() == 0.0
    assert linalg.inv(zero).shape == (2, 2), "nobody may see that there is none"
    with pytest.raises(torch.linalg.LinAlgError):
        linalg.solve(torch.zeros(2, 2), blind(torch.ones(2), ring))


@pytest.mark.parametrize("left", [True, False])
def test_one_row_is_not_repeated_for_a_matrix_of_three(left: bool, ring: BlindRing) -> None:
    row = B[:1] if left else B[:, :1]
    for a, b in ((A, blind(row, ring)), (blind(A, ring), row), (blind(A, ring), blind(row, ring))):
        with pytest.raises(RuntimeError, match=r"B of \(\d, \d\) does not fit A of \(3, 3\)"):
            linalg.solve(a, b, left=left)


def test_what_is_not_there_says_what_is(ring: BlindRing) -> None:
    a = blind(A, ring).requires_grad_()
    for missing in (linalg.cholesky, linalg.qr, linalg.slogdet, linalg.pinv, linalg.eigh):
        with pytest.raises(UnsupportedOperation, match=r"inv, solve and det take such .least sq"):
            missing(a)
    with pytest.raises(UnsupportedOperation, match=r"the gradient of det.A. is det.A. \* inv"):
        linalg.det(a).backward()
    with torch.no_grad():
        for function, operands in ((linalg.inv, (a,)), (linalg.solve, (a, a)), (linalg.det, (a,))):
            with pytest.raises(UnsupportedOperation, match="leave out= away, and copy_"):
                function(*operands, out=torch.zeros_like(a))
    with pytest.raises(UnsupportedOperation, match="solve with the matrix itself"):
        linalg.lu_solve(a, torch.tensor([1, 2, 3], dtype=torch.int32), blind(B, ring))


@pytest.mark.parametrize("parties", [2, 3])
def test_over_shares(parties: int) -> None:
    """Least squares, and their gradient, by protocols and against torch."""
    session = local_session(parties)

    def shared(x: torch.Tensor) -> Any:
        return share_values(fix_precision(x.detach()), session, requires_grad=x.requires_grad)

    def opened(x: Any) -> torch.Tensor:
        return float_precision(get_shared([x.detach()])[0])

    data, target = matrix(20, 3, seed=1).requires_grad_(), matrix(20, seed=2)
    x, y = shared(data), shared(target)
    found = linalg.solve(x.T @ x / 20, x.T @ y / 20)
    want = linalg.lstsq(data.detach(), target[:, None]).solution[:, 0]
    assert torch.allclose(opened(found), want, atol=30 * STEP)
    found.sum().backward()
    linalg.solve(data.T @ data / 20, data.T @ target / 20).sum().backward()
    assert torch.allclose(opened(x.grad), data.grad, atol=60 * STEP)
    assert torch.allclose(opened(linalg.inv(x[:3])), linalg.inv(data[:3]), atol=300 * STEP)
    assert torch.allclose(opened(linalg.det(x[:3])), linalg.det(data[:3]), atol=60 * STEP)
