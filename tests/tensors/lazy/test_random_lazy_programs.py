"""Random programs with views, writes and values that are asked, lazily and at once: bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import syft as sy
from syft.tensors.lazy.lazy_trace import TRACE

STEPS: dict[str, Callable[[Any, Any, int], Any]] = {
    "add": lambda x, y, n: x + y,
    "multiply": lambda x, y, n: x * y * 0.5,
    "scale": lambda x, y, n: x * (n / 7) + 0.25,
    "sine": lambda x, y, n: x.sin(),
    "product": lambda x, y, n: (x @ y) * 0.1,
    "view": lambda x, y, n: x.t(),
    "flip": lambda x, y, n: x.flip(0).reshape(2, 8).view(4, 4),
    "row": lambda x, y, n: x[n % 4].expand(4, 4),
    "part": lambda x, y, n: x[:, n % 4 : n % 4 + 1].expand(4, 4),
    "copy": lambda x, y, n: x.clone(),
    "draw": lambda x, y, n: torch.rand_like(x),
    "drop": lambda x, y, n: torch.dropout(x, 0.5, True),
    "sort": lambda x, y, n: x.sort(0)[0],
    "choose": lambda x, y, n: torch.where(x > y, x, y),
}
WRITES: dict[str, Callable[[Any, Any, int], Any]] = {
    "add in place": lambda x, y, n: x.add_(y.clone(), alpha=0.5),
    "scale in place": lambda x, y, n: x.mul_(n / 5),
    "write a row": lambda x, y, n: x.__setitem__(n % 4, y[0] * 0.5),
    "write a part": lambda x, y, n: x[1:3, :2].copy_(y[:2, 1:3].clone()),
    "fill": lambda x, y, n: x.diagonal().fill_(n),
    "turn": lambda x, y, n: x.t_(),
    "clamp": lambda x, y, n: x.clamp_(-2, 2),
    "give": lambda x, y, n: torch.add(x.clone(), y.clone(), out=x),
    "draw in place": lambda x, y, n: x.uniform_(),
    "list": lambda x, y, n: torch._foreach_mul_([x, y.clone()], n / 3),
}
ASKS: dict[str, Callable[[Any, Any, int], Any]] = {
    "item": lambda x, y, n: x[0, n % 4].item(),
    "sum": lambda x, y, n: float((x * y).sum()),
    "plain": lambda x, y, n: x.tolist(),
    "is": lambda x, y, n: torch.equal(x, y),
    "count": lambda x, y, n: x[x > 0].shape,
    "drop handles": lambda x, y, n: None,
}
EVERY = STEPS | WRITES | ASKS

programs = st.lists(
    st.tuples(
        st.sampled_from([*STEPS, *WRITES, *WRITES, *ASKS]), st.integers(0, 9), st.integers(0, 9)
    ),
    min_size=1,
    max_size=25,
)


def run(program: Any, start: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    """Run a program; what it asked, and the tensors that it has at the end."""
    torch.manual_seed(0)
    tensors, asked = start(), []
    for name, first, second in program:
        x, y = tensors[first % len(tensors)], tensors[second % len(tensors)]
        if name in WRITES and 0 in x.stride():
            continue  # torch refuses to write to an expanded view
        result = EVERY[name](x, y, first + second)
        if isinstance(result, torch.Tensor) and name not in WRITES:
            tensors.append(result)
        elif name in ASKS:
            asked.append(result)
        if name == "drop handles":
            del tensors[second % len(tensors)]
            tensors = tensors or start()
        del x, y, result
    return asked, tensors


def _starts() -> list[torch.Tensor]:
    made = torch.linspace(-1, 1, 32).view(2, 4, 4).clone()
    return [made[0], made[1], made.view(32)[8:24].view(4, 4)]


@pytest.mark.parametrize("line", [False, True], ids=["lazily", "at the line"])
@given(program=programs, order=st.randoms(use_true_random=False))
def test_random_programs(line: bool, program: Any, order: Any) -> None:
    sy.TorchHook(torch)
    want = run(program, _starts)
    with sy.lazy(False) if line else sy.lazy(False, backend=lambda program: None):
        asked, tensors = run(program, lambda: [one.to_lazy() for one in _starts()])
        assert asked == want[0]
        places = list(range(len(tensors)))
        order.shuffle(places)
        for place in places:
            assert torch.equal(want[1][place], tensors[place].to_eager()), program
            assert want[1][place].stride() == tensors[place].stride()
    del tensors
    TRACE.pending.clear()
