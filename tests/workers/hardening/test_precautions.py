"""What would end the process is refused, and the worker goes on."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import syft as sy
from syft.exceptions import OperationRefused
from syft.ops.table import FUNCTIONS
from syft.workers.hardening.precautions import RUNNABLE


def test_what_the_owner_holds_can_be_resized(bob: sy.VirtualWorker) -> None:
    """Or the tensor would reach outside its memory after an error."""
    array = np.arange(3.0)
    tensors = [torch.from_numpy(array), torch.from_numpy(array)[1:], torch.from_numpy(array)]
    tensors[2].requires_grad_()
    seen: Any = sy.LoggingTensor().on(torch.from_numpy(array))
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 2]]), torch.from_numpy(array), (4,), check_invariants=True
    )
    own = torch.ones(2)
    address = own.data_ptr()
    tagged = [tensor.tag("#a") for tensor in tensors]
    bob.hold(*tagged, seen, sparse, own, allow_writes=("me",))
    for pointer, tensor in zip(bob.search("#a"), tensors, strict=True):
        assert pointer.requires_grad is tensor.requires_grad and pointer.detach().sum() == 3
        larger = pointer.detach()
        assert larger.resize_(1000)[: len(tensor)].tolist() == tensor.tolist()
        assert larger.sum() == 3, "what is new is zero"
    for tensor in (seen.child.child, sparse._values()):
        assert tensor.untyped_storage().resizable() and tensor.tolist() == [0, 1, 2]
    assert own.data_ptr() == address and tensors[0].tag("#b").tags == {"#a", "#b"}
    bob.clear_objects()


@pytest.mark.every_shell
def test_what_arrived_can_be_resized(worker: sy.VirtualWorker) -> None:
    for size in (3, 100_000):
        x = torch.ones(size).send(worker)
        assert x.resize_(2 * size).sum() == size
        y = torch.ones(size).send(worker)
        assert torch.cat([x, x], out=y.resize_(0)).shape == (4 * size,)
        assert y.resize_as_(x).shape == (2 * size,)


@pytest.mark.filterwarnings("ignore:.*quantiz.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz.*:DeprecationWarning")
def test_a_quantized_tensor_is_not_viewed_as_bytes(bob: sy.VirtualWorker) -> None:
    x = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.quint8).send(bob)
    with pytest.raises(OperationRefused, match="a quantized tensor has no view as other dtype"):
        x.view(torch.uint8)
    assert x.view(2, 2).shape == (2, 2)


def test_other_views_are_those_of_torch(bob: sy.VirtualWorker) -> None:
    x = torch.arange(4, dtype=torch.int32)
    assert torch.equal(x.send(bob).view(torch.uint8).get(), x.view(torch.uint8))
    assert sum(one is not two for one, two in zip(FUNCTIONS, RUNNABLE, strict=True)) == 119


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_a_sparse_tensor_with_a_bad_index_is_not_made(bob: sy.VirtualWorker) -> None:
    index, value = torch.tensor([[0, 7]]).send(bob), torch.ones(2).send(bob)
    with pytest.raises(RuntimeError, match="found index 7"):
        bob.torch.sparse_coo_tensor(index, value, (2,), check_invariants=False)
    rows, columns = torch.tensor([0, 1]).send(bob), torch.tensor([7]).send(bob)
    with pytest.raises(RuntimeError, match="col_indices"):
        bob.torch.sparse_csr_tensor(rows, columns, torch.ones(1).send(bob), (1, 2))


SPARSE: dict[str, tuple[str, ...]] = {
    "sparse_coo": ("_indices", "indices"),
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
}


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta:UserWarning")
@pytest.mark.parametrize("layout", SPARSE)
def test_the_indices_of_a_sparse_tensor_are_handed_out_as_copies(
    bob: sy.VirtualWorker, layout: str
) -> None:
    x = torch.eye(3).to_sparse(layout=getattr(torch, layout)).send(bob)
    for name in SPARSE[layout]:
        getattr(x, name)().fill_(1)
    assert torch.equal(x.to_dense().get(), torch.eye(3))


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta:UserWarning")
def test_a_sparse_tensor_keeps_the_indices_that_were_checked(bob: sy.VirtualWorker) -> None:
    index = torch.tensor([[0, 1]]).send(bob)
    x = bob.torch.sparse_coo_tensor(index, torch.ones(2).send(bob), size=(2,))
    rows, columns = torch.tensor([0, 1]).send(bob), torch.tensor([1]).send(bob)
    y = bob.torch.sparse_csr_tensor(
        crow_indices=rows, col_indices=columns, values=torch.ones(1).send(bob), size=(1, 2)
    )
    for given in (index, rows, columns):
        given.fill_(0)
    assert x.to_dense().get().tolist() == [1, 1]
    assert y.to_dense().get().tolist() == [[0, 1]]


def test_segments_lie_within_the_data(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0, 3.0]).send(bob)
    for offsets in ([0, 1000], [-5, 3]):
        at = torch.tensor(offsets).send(bob)
        with pytest.raises(ValueError, match="expected offsets between 0 and the size of data"):
            torch.segment_reduce(x, "sum", offsets=at, unsafe=True)
    for lengths in ([10**6], [2, 2], [-1, 3]):
        long = torch.tensor(lengths).send(bob)
        with pytest.raises(ValueError, match="lengths from 0 that add up to the size of data"):
            torch.segment_reduce(x, "sum", lengths=long, unsafe=True)
    short = torch.tensor([1, 1]).send(bob)
    assert torch.segment_reduce(x, "sum", lengths=short, unsafe=True).get().tolist() == [1, 2]
    fits = torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 2, 3]).send(bob), unsafe=True)
    assert fits.get().tolist() == [3, 3]


WRONG_CTC = {
    "a class": ([[1, 3]], [4], [2], "targets between"),
    "a class below": ([[1, -1]], [4], [2], "targets between"),
    "a class in a row": ([1, 10**9], [4], [2], "targets between"),
    "an input length": ([[1, 2]], [5], [2], "input lengths"),
    "an input length below": ([[1, 2]], [-1], [2], "input lengths"),
    "a target length": ([[1, 2]], [4], [3], "target lengths"),
    "a target length below": ([[1, 2]], [4], [-1], "target lengths"),
    "a target length in a row": ([1, 2], [4], [3], "target lengths"),
}


@pytest.mark.parametrize("targets, inputs, lengths, text", WRONG_CTC.values(), ids=WRONG_CTC)
@pytest.mark.parametrize("as_tensors", [True, False])
def test_ctc_follows_no_label_or_length_out_of_its_memory(
    bob: sy.VirtualWorker,
    targets: Any,
    inputs: list[int],
    lengths: list[int],
    text: str,
    as_tensors: bool,
) -> None:
    scores, labels = torch.zeros(4, 1, 3).send(bob), torch.tensor(targets).send(bob)
    sizes: list[Any] = [inputs, lengths]
    if as_tensors:
        sizes = [torch.tensor(size).send(bob) for size in sizes]
    with pytest.raises(ValueError, match=f"ctc_loss: expected {text}"):
        F.ctc_loss(scores, labels, *sizes)
    with pytest.raises(ValueError, match=f"ctc_loss: expected {text}"):
        torch.ctc_loss(scores, labels, *sizes)


@pytest.mark.parametrize(
    "targets, lengths", [([[1, 2], [1, -100]], [2, 1]), ([1, 2, 1], [2, 1]), ([], [0, 0])]
)
def test_ctc_of_what_fits_is_that_of_torch(
    bob: sy.VirtualWorker, targets: list[Any], lengths: list[int]
) -> None:
    scores = torch.randn(4, 2, 3).log_softmax(2)
    labels = torch.tensor(targets, dtype=torch.int64)
    expected = F.ctc_loss(scores, labels, (4, 3), tuple(lengths))
    remote = F.ctc_loss(scores.send(bob), labels.send(bob), (4, 3), tuple(lengths))
    assert torch.equal(remote.get(), expected)


def test_ctc_of_one_sequence(bob: sy.VirtualWorker) -> None:
    scores, labels = torch.randn(4, 3).log_softmax(1), torch.tensor([1, 2])
    sizes = torch.tensor(4), torch.tensor(2)
    remote = F.ctc_loss(scores.send(bob), labels.send(bob), *(size.send(bob) for size in sizes))
    assert torch.equal(remote.get(), F.ctc_loss(scores, labels, *sizes))


@pytest.mark.parametrize("weights", [{"aweights": torch.ones(1)}, {"fweights": torch.tensor([2])}])
@pytest.mark.filterwarnings("ignore:cov")
def test_a_covariance_of_one_observation_leaves_its_operand_as_it_is(
    bob: sy.VirtualWorker, weights: dict[str, torch.Tensor]
) -> None:
    x = torch.tensor([[2.0], [3.0]])
    there = x.send(bob)
    torch.cov(there, **{name: value.send(bob) for name, value in weights.items()})
    assert torch.equal(there.get(), x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("write", ["data", "set_"])
def test_a_plain_tensor_gets_no_memory_of_a_nested_one(bob: sy.VirtualWorker, write: str) -> None:
    rows = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    plain, nested = torch.zeros(3).send(bob), rows.send(bob)
    with pytest.raises(RuntimeError, match="nested"):
        if write == "data":
            plain.data = nested
        else:
            plain.set_(nested)
    assert torch.equal((plain + 1).get(), torch.ones(3))
