"""What docs/strangers.md says of an operation on private data is what a stranger meets."""

from __future__ import annotations

import doctest

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.ops.nested import replace
from syft.ops.table import BY_NAME, FLAGS, FUNCTIONS, GRADIENT, METADATA, NAMES
from tools import stranger_table
from tools.stranger_table import OWNED, RUNS, SIZED, calls_of, verdict_on, verdicts_on

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

BLOCKS = 48
"""Among how many cases the operations are divided."""


def opposite(tensor: torch.Tensor) -> torch.Tensor:
    """Other values than those of a sample: zeros for what is not zero, and ones for zeros."""
    return (tensor == 0).to(tensor.dtype) if tensor.layout is torch.strided else -tensor


def test_the_document_shows_the_tables_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    text = stranger_table.DOCUMENT.read_text(encoding="utf-8")
    renewed = stranger_table.with_tables(text)
    assert renewed == text, "run: PYTHONPATH=. python tools/stranger_table.py --write"
    named = sum(map(len, stranger_table.rows().values()))
    assert named == sum(function is not None for function in FUNCTIONS)
    stranger_table.main([])
    assert capsys.readouterr().out.strip() in text
    assert doctest.testmod(stranger_table).failed == 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_verdict_is_that_of_the_row_for_two_secrets(block: int) -> None:
    for number in range(block, len(NAMES), BLOCKS):
        if FUNCTIONS[number] is None or FLAGS[number] & (METADATA | GRADIENT):
            continue
        row = verdicts_on(number)
        for sample in calls_of(NAMES[number]):
            verdict = verdict_on(sample, opposite)
            assert verdict == verdict_on(sample, lambda tensor: tensor), NAMES[number]
            assert verdict is None or verdict in row


@pytest.mark.parametrize(
    "name",
    """torch.Tensor.add torch.matmul torch.nonzero torch.Tensor.unique torch.narrow torch.equal
    torch.Tensor.item torch.geqrf torch.bincount torch.cov torch.nn.functional.one_hot
    torch.repeat_interleave torch.nn.functional.cross_entropy torch.istft""".split(),
)
def test_a_worker_does_what_the_row_says(name: str, hook: sy.TorchHook) -> None:
    """The same at a worker, over its messages; on public data each of the calls runs."""
    bob = sy.VirtualWorker(hook, id="bob")
    function = FUNCTIONS[BY_NAME[name]]
    assert function is not None

    def run(sample: stranger_table.Sample, private: bool) -> str:
        def there(leaf: object) -> object:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return (leaf.private_tensor(["ann"]) if private else leaf.clone()).send(bob, user="ann")

        args, kwargs = replace((sample.args, sample.kwargs), there)
        try:
            function(*args, **kwargs)
        except PermissionDenied as error:
            return stranger_table.refused_with(error)[0]
        return RUNS

    for sample in calls_of(name):
        verdict = verdict_on(sample, opposite)
        assert verdict is not None
        assert run(sample, private=True) == verdict[0].replace(SIZED, RUNS)
        assert run(sample, private=False) == RUNS


def test_a_refusal_tells_what_would_run() -> None:
    """Where a size is private a mask is the way out, and elsewhere it is none."""
    (sparse,) = verdicts_on(BY_NAME["torch.Tensor.to_sparse"])
    assert "docs/strangers.md" in sparse[1] and "mask" not in sparse[1]
    (layout,) = verdicts_on(BY_NAME["torch.sparse.mm"])
    assert "to_dense()" in layout[1] and OWNED.admits("ann")


def test_a_mask_trains_on_the_same_part_as_a_private_shape_would(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    x, y, mask = torch.randn(9, 4), torch.arange(9) % 3, torch.arange(9) % 2 == 0
    wanted, model = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    model.load_state_dict(wanted.state_dict())
    torch.nn.functional.cross_entropy(wanted(x[mask]), y[mask]).backward()
    data = [one.private_tensor(["ann"]).send(bob, user="ann") for one in (x, y, mask)]
    there = model.send(bob)
    each = torch.nn.functional.cross_entropy(there(data[0]), data[1], reduction="none")
    ((each * data[2]).sum() / data[2].sum()).backward()
    gradient = there.weight.grad.detach().copy()
    with pytest.raises(PermissionDenied):
        gradient.copy().get(user="eve")
    torch.testing.assert_close(gradient.get(user="ann"), wanted.weight.grad)
