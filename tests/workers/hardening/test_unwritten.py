"""What an operation returns lies in memory that it has written, or in zeros.

The calls are made over freed memory of two contents, in processes of their own: where the results
differ, they show that memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from syft.ops.table import BY_NAME
from syft.workers.hardening.precautions import RUNNABLE

ROOT = Path(__file__).parents[3]

CALLS = {
    "torch.nn.functional.mse_loss": "f(ones(9, 9), zeros(9, 9))",
    "torch._C._nn.mse_loss": "f(ones(9, 9), zeros(9, 9))",
    "torch.nn.functional.smooth_l1_loss": "f(ones(9, 9), zeros(9, 9))",
    "torch._C._nn.smooth_l1_loss": "f(ones(9, 9), zeros(9, 9), out=ones(2))",
    "torch.unique_consecutive": "f(ones(30), return_counts=True)",
    "torch.Tensor.unique_consecutive": "f(ones(30), return_inverse=True)",
    "torch._C._VariableFunctions.unique_dim": "f(ones(30, 3), 0)",
    "torch.nn.functional.unfold": "gradient(lambda x: f(x, 1, padding=1), ones(1, 1, 5, 5))",
    "torch._C._nn.im2col": "f(ones(5, 5, 5, 5), (3, 3), (3, 3), (1, 1), (1, 1)), "
    "gradient(lambda x: f(x, 1, 1, 1, 1), ones(1, 1, 5, 5))",
    "torch.autograd.grad": "f(*through_holes())",
    "torch.Tensor.backward": "gradient_kept(f, *through_holes())",
}
"""Calls of operations, as ``f``, which would leave memory unwritten by themselves."""

SCRIPT = """
import sys, warnings
from torch import ones, zeros
from torch.autograd import grad
from syft.ops.nested import leaves
from syft.ops.table import BY_NAME, FUNCTIONS
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.labels.walk import storages_of

warnings.simplefilter("ignore")

def gradient(function, x):
    x.requires_grad_()
    return grad(function(x).sum(), x)

def through_holes():
    holes, factor = ones(600)[::2].detach(), ones(599, requires_grad=True)
    functions[BY_NAME["torch.as_strided"]](holes, (599,), (1,)).mul_(factor)
    return holes.sum(), factor

def gradient_kept(backward, result, factor):
    backward(result)
    return factor.grad

for line in sys.stdin.read().splitlines():
    name, call = line.split("=", 1)
    for functions in FUNCTIONS, RUNNABLE:
        results = eval(call, {**globals(), "f": functions[BY_NAME[name]]})
        print(name, [bytes(memory) for leaf in leaves(results) for memory in storages_of(leaf)])
"""


def shown(content: int) -> list[str]:
    """The memory of all results, of torch's function and of what a worker runs, a line each, over
    freed memory of this content."""
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(f"{name}={call}" for name, call in CALLS.items()),
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
            "MALLOC_PERTURB_": str(content),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
    )
    return child.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc fills freed memory on request")
def test_results_do_not_depend_on_what_memory_held_before() -> None:
    one, other = shown(85), shown(170)
    assert len(one) == len(other) == 2 * len(CALLS)
    assert one[1::2] == other[1::2]
    differ = {
        mine.split()[0] for mine, its in zip(one[::2], other[::2], strict=True) if mine != its
    }
    assert differ >= {"torch.nn.functional.mse_loss", "torch.autograd.grad"}


def test_numbers_of_modes_that_there_are_not() -> None:
    image, grid = torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2)
    sample = RUNNABLE[BY_NAME["torch.grid_sampler_2d"]]
    assert sample is not None and sample(image, grid, 0, 0, True).shape == (1, 1, 2, 2)
    for modes in (3, 0), (-1, 0), (0, 3):
        with pytest.raises(RuntimeError, match="from 0 to 2"):
            sample(image, grid, *modes, True)
    with pytest.raises(RuntimeError, match="from 0 to 2"):
        sample(image, grid, interpolation_mode=4, padding_mode=0, align_corners=True)
    loss = RUNNABLE[BY_NAME["torch._C._nn.soft_margin_loss"]]
    assert loss is not None and loss(torch.ones(2), torch.ones(2), 0).shape == (2,)
    with pytest.raises(RuntimeError, match="from 0 to 2"):
        loss(torch.ones(0), torch.ones(0), 4)


@pytest.mark.parametrize("sizes", [(0, 1), (2, 1, 2, 1), (1, 0), (-1,)])
def test_batches_that_do_not_shrink(sizes: tuple[int, ...]) -> None:
    pad = RUNNABLE[BY_NAME["torch._pad_packed_sequence"]]
    assert pad is not None
    with pytest.raises(RuntimeError, match="none larger"):
        pad(torch.ones(6, 2), torch.tensor(sizes), True, 0.0, 4)
    padded, lengths = pad(torch.arange(6.0), torch.tensor([3, 2, 1]), True, 0.0, 4)
    assert lengths.tolist() == [3, 2, 1] and padded.shape == (3, 4)
    with pytest.raises(TypeError):  # torch says what it lacks
        pad(torch.ones(6, 2), None, True, 0.0, 4)


def test_a_gradient_of_unfold_is_what_it_was() -> None:
    unfold = RUNNABLE[BY_NAME["torch.nn.functional.unfold"]]
    assert unfold is not None
    x = torch.ones(1, 1, 4, 4, requires_grad=True)
    unfold(input=x, kernel_size=3, padding=1).sum().backward()
    (expected,) = torch.autograd.grad(torch.nn.functional.unfold(x, 3, padding=1).sum(), x)
    assert x.grad is not None and torch.equal(x.grad, expected)
    assert torch.equal(unfold(x.detach(), 2), torch.nn.functional.unfold(x.detach(), 2))
