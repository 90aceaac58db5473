"""Views share memory, in-place changes are seen through them, and nothing is kept alive."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from syft.tensors.fixed.precision import fix_precision, fix_precision_, float_precision

VIEWS = {
    "index": lambda x: x[1],
    "slice": lambda x: x[:, 1:],
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(3, 2),
    "expand": lambda x: x[None].expand(4, 2, 3),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.as_strided((2,), (3,)),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "split": lambda x: x.split(1)[1],
    "chunk": lambda x: x.chunk(2)[0],
    "unbind": lambda x: x.unbind()[0],
    "copy.copy of the wrapper": lambda x: x.__copy__(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_sees_what_is_done_to_its_base_and_the_other_way_round(name):
    x = fix_precision(torch.arange(6.0).view(2, 3))
    plain = torch.arange(6.0).view(2, 3)
    view, reference = VIEWS[name](x), (VIEWS[name](plain) if "copy" not in name else plain)
    assert view.shape == reference.shape and view.stride() == reference.stride()
    assert view.storage_offset() == reference.storage_offset()
    for tensor in (x, plain):
        tensor.mul_(2)
    assert float_precision(view).tolist() == reference.tolist()
    if name != "expand":
        for tensor in (view, reference):
            tensor.add_(0.5)
    assert float_precision(x).tolist() == plain.tolist()


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.clone(),
        lambda x: x.contiguous().flip(0),
        lambda x: x[[0, 1]],
        lambda x: x.t().reshape(-1),
        lambda x: x + 0,
        lambda x: x.double(),
    ],
)
def test_a_copy_does_not(copy):
    x = fix_precision(torch.arange(6.0).view(2, 3))
    copied = copy(x)
    before = float_precision(copied).tolist()
    x.zero_()
    assert float_precision(copied).tolist() == before


def test_assignment_by_index_changes_the_memory():
    x = fix_precision(torch.zeros(2, 3))
    view = x[1]
    x[1, 2] = 1.5
    x[:, 0] = torch.tensor([2.0, 3.0])
    x[x > 2.5] = -1.0
    assert float_precision(view).tolist() == [-1.0, 0.0, 1.5]


def test_gradients_flow_through_in_place_changes_of_views():
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0].mul_(3)
        y[:, 1].add_(x[:, 0])
        y.view(-1)[2:].relu_()
        y.sum().backward()
        return x.grad

    numbers = torch.tensor([[1.0, -2.0, 0.5], [-1.0, 4.0, 0.25]])
    plain = numbers.clone().requires_grad_()
    fixed = fix_precision(numbers).requires_grad_()
    assert float_precision(run(fixed)).tolist() == run(plain).tolist()


def test_torch_sees_in_place_changes_that_break_a_graph():
    x = fix_precision(torch.ones(2)).requires_grad_()
    y = x * 1
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1)


def test_an_optimizer_changes_parameters_in_their_memory():
    model = nn.Linear(2, 1)
    for p in model.parameters():
        fix_precision_(p)
    view, child = model.weight.detach()[0], model.weight.child.child
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(fix_precision(torch.tensor([[1.0, 2.0]]))).sum().backward()
    before = float_precision(view)
    optimizer.step()
    assert model.weight.child.child is child
    assert (before - float_precision(view)).tolist() == [0.5, 1.0]


def test_data_can_be_assigned():
    p = nn.Parameter(torch.ones(2))
    fix_precision_(p)
    before = id(p)
    p.data = fix_precision(torch.tensor([3.0, 4.0]))
    assert id(p) == before and isinstance(p, nn.Parameter) and p.requires_grad
    assert float_precision(p).tolist() == [3.0, 4.0]


def test_data_of_another_form_can_be_assigned():
    p = nn.Parameter(fix_precision(torch.ones(2)))
    p.data = fix_precision(torch.tensor([[3.0], [4.0]]))
    assert p.shape == (2, 1) and p.requires_grad and float_precision(p).tolist() == [[3.0], [4.0]]


def test_a_module_moves_with_its_gradients():
    """The module holds the gradient that its data is assigned to, so it cannot be swapped."""
    model = fix_precision_module()
    model(fix_precision(torch.tensor([[1.0, 2.0]]))).sum().backward()
    gradient = model.weight.grad
    model.to("cpu").double()
    assert model.weight.grad is gradient and float_precision(gradient).tolist() == [[1.0, 2.0]]


def fix_precision_module():
    model = nn.Linear(2, 1)
    for p in model.parameters():
        fix_precision_(p)
    return model


def test_nothing_is_kept_alive():
    gc.collect()
    assert not gc.isenabled()  # the fixture around every test sees to it
    x = fix_precision(torch.randn(3, 4)).requires_grad_()
    w = fix_precision(torch.randn(4, 2)).requires_grad_()
    hidden = (x @ w).relu()
    loss = (hidden.exp() * hidden[0] + hidden.view(-1)[:2]).softmax(0).sum()
    watched = [weakref.ref(t.child) for t in (x, w, hidden, loss)]
    watched += [weakref.ref(t.child.child) for t in (x, w, hidden, loss)]
    loss.backward()
    watched.append(weakref.ref(x.grad.child))
    back = float_precision(fix_precision(torch.ones(2, requires_grad=True) * 2)).sum()
    back.backward()
    del x, w, hidden, loss, back
    assert [ref() for ref in watched] == [None] * len(watched)


def test_a_tensor_fixed_in_place_lets_go_of_its_old_memory():
    x = torch.ones(1000)
    other = x.untyped_storage()
    watched = weakref.ref(other)
    del other
    fix_precision_(x)
    assert watched() is None
