"""What would end the process is refused, and the worker goes on."""

import pytest
import torch

import syft as sy
from syft.exceptions import OperationRefused
from syft.program.op_table import FUNCTIONS
from syft.workers.precautions import RUNNABLE


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
    assert sum(one is not two for one, two in zip(FUNCTIONS, RUNNABLE, strict=True)) == 7


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_a_sparse_tensor_with_a_bad_index_is_not_made(bob: sy.VirtualWorker) -> None:
    index, value = torch.tensor([[0, 7]]).send(bob), torch.ones(2).send(bob)
    with pytest.raises(RuntimeError, match="found index 7"):
        bob.torch.sparse_coo_tensor(index, value, (2,), check_invariants=False)
    rows, columns = torch.tensor([0, 1]).send(bob), torch.tensor([7]).send(bob)
    with pytest.raises(RuntimeError, match="col_indices"):
        bob.torch.sparse_csr_tensor(rows, columns, torch.ones(1).send(bob), (1, 2))
