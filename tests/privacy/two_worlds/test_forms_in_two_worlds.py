"""Attack: the results of what is evaluated by a form would tell values by their shapes, their
number or their failure."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import Attack, check, check_reaches
from tests.privacy.two_worlds.observer import Observer

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this

NAN, INF = float("nan"), float("inf")
GOOD = [0, 1, 2, 1, 0, 2]
MATRIX = [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]
FLAT = [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
"""A matrix that has not the full rank."""
CALLS: dict[str, tuple[str, Any, Any, tuple[Any, ...], dict[str, Any]]] = {
    "counts": ("bincount", GOOD, [0, 0, 0, 0, 0, 1], (), {"minlength": 3}),
    "a negative one": ("bincount", GOOD, [-1, 0, 0, 0, 0, 0], (), {"minlength": 3}),
    "a large one": ("bincount", GOOD, [10**12, 0, 0, 0, 0, 0], (), {"minlength": 3}),
    "without a bound": ("bincount", GOOD, [9, 0, 0, 0, 0, 0], (), {}),
    "weighted": ("bincount", GOOD, [9, 0, 0, 0, 0, 0], (torch.ones(6),), {"minlength": 3}),
    "cov": ("cov", MATRIX, [[NAN, 2.0], [3.0, INF], [5.0, 7.0]], (), {}),
    "cov by counts": (
        *("cov", MATRIX, [[NAN, 2.0], [3.0, INF], [5.0, 7.0]]),
        *((), {"fweights": torch.tensor([1, 2])}),
    ),
    "cov by weights": ("cov", MATRIX, FLAT, (), {"aweights": torch.tensor([0.5, 2.0])}),
    "counts of cov": ("cov", [1, 2], [-1, 0], (), {}),
    "weights of cov": ("cov", [1.0, 2.0], [-1.0, NAN], (), {}),
    "points": ("histogramdd", MATRIX, [[NAN, 2.0], [3.0, INF], [5.0, 7.0]], ([2, 3],), {}),
    "edges of points": ("histogramdd", [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], (torch.ones(3, 1),), {}),
    "corrcoef": ("corrcoef", MATRIX, [[0.0, 0.0], [3.0, INF], [5.0, 7.0]], (), {}),
    "histogram": ("histogram", MATRIX, FLAT, (4,), {}),
    "of nan": ("histogram", MATRIX, [[NAN, 2.0], [3.0, 4.0], [5.0, 7.0]], (4,), {}),
    "of inf": ("histogram", MATRIX, [[INF, 2.0], [3.0, 4.0], [5.0, 7.0]], (4,), {}),
    "edges": ("histogram", [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], (torch.ones(3),), {}),
    **{
        f"{name} by {driver}": ("linalg.lstsq", MATRIX, other, (torch.ones(3, 1),), how)
        for name, other in (("flat", FLAT), ("nan", [[NAN, 2.0], [3.0, 4.0], [5.0, 7.0]]))
        for driver in (None, "gelsy", "gels", "gelsd", "gelss")
        for how in ({"driver": driver},)
    },
}


def _results(eve: Observer, call: str, found: Any, given: list[Any]) -> Any:
    """What a call makes, with what is private in its place."""
    name, one, _, _, kwargs = CALLS[call]
    if call.startswith("edges"):
        edges = [found] if call == "edges of points" else found
        return eve.call(f"torch.{name}", *given, edges, **kwargs)
    if call.endswith(" of cov"):
        named = {"fweights" if type(one[0]) is int else "aweights": found}
        return eve.call(f"torch.{name}", eve.public(torch.eye(2)), **named)
    return eve.call(f"torch.{name}", found, *given, **kwargs)


def attack_by(call: str, grad: bool, subset: bool) -> Attack:
    name, one, other, args, kwargs = CALLS[call]

    def attack(eve: Observer) -> None:
        def made(values: Any) -> torch.Tensor:
            tensor = torch.tensor(values)
            return tensor.requires_grad_(grad and tensor.is_floating_point())

        found = eve.secret(made(one), made(other))
        if subset:
            found = eve.call("torch.masked_select", found, eve.call("torch.gt", found, 0))
        given = [
            eve.public(arg.requires_grad_(grad)) if isinstance(arg, torch.Tensor) else arg
            for arg in args
        ]
        results = _results(eve, call, found, given)
        for result in results if isinstance(results, (tuple, list)) else [results]:
            if isinstance(result, Reference) and grad:
                total = eve.call("torch.sum", result)
                eve.call("torch.Tensor.backward", total, retain_graph=True)
        for leaf in (found, *given):
            if isinstance(leaf, Reference):
                eve.gradient(leaf.id)

    return attack


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_what_has_a_form_tells_no_values(call: str, grad: bool) -> None:
    check(attack_by(call, grad, subset=False))


@pytest.mark.parametrize("call", ["counts", "a large one", "weighted", "histogram", "cov"])
def test_what_has_a_form_tells_no_private_size(call: str) -> None:
    check(attack_by(call, grad=False, subset=True))


@pytest.mark.parametrize("call", CALLS)
def test_what_has_a_form_tells_public_values(call: str) -> None:
    check_reaches(attack_by(call, grad=False, subset=False))
