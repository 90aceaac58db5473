"""Private names of torch: where they stand, and that each still does what it is used for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from syft.torch_private import FakeFailure, ends_a_graph, fake_failure, fake_modules
from tests.test_house import ROOT, SOURCES, torch_names, tree_of

PRIVATE = "syft/torch_private.py"

ATTRIBUTES = {
    "_backward_hooks": "hooks on a gradient: such a tensor is not sent or recorded",
    "_base": "the tensor that a view is a view of",
    "_cdata": "the address of a storage of the present, by which memory is told apart",
    "_is_view": "whether a tensor is a view of another",
    "_post_accumulate_grad_hooks": "hooks on an accumulated gradient, as above",
    "_schema": "the signature of an operation of aten",
    "_version": "how often a tensor was written to",
}
"""Private attributes that may be read of torch's objects anywhere, which costs no call, and the
purpose of each."""

OF_TORCH = {
    name
    for kind in (torch.Tensor, torch.UntypedStorage, nn.Module, torch.optim.Optimizer)
    for base in kind.mro()
    for name in vars(base)
    if name.startswith("_") and not name.startswith("__")
} | {"_schema", "_input_metadata"}


def private_names(tree: ast.AST) -> Iterator[str]:
    """Name the private names of torch that a module imports, or reads of torch or its objects.

    Of ``aten`` they are names of operations, which are data.
    """
    torches = torch_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("torch") and "._" in a.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in full if "._" in name)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            own = ast.unparse(node.value) in ("self", "cls", "super()")
            if own or node.attr.startswith("__"):
                continue
            text = ast.unparse(node)
            root = text.split(".")[0]
            if root in torches and not text.startswith(("torch.ops.", "aten.")):
                yield node.attr if node.attr in ATTRIBUTES else text
            elif node.attr in OF_TORCH:
                yield node.attr


def test_private_names_stand_in_one_file() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in SOURCES
        if (names := set(private_names(tree_of(path))) - set(ATTRIBUTES))
    }
    del found[PRIVATE]
    assert not found, f"pass it on from {PRIVATE}, with its purpose"


def test_no_private_attribute_is_listed_for_nothing() -> None:
    found = {name for path in SOURCES for name in private_names(tree_of(path))}
    assert found >= set(ATTRIBUTES)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._foreach_add",
        "import torch._prims_common",
        "from torch._C import Graph",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "from torch import nn\nnn.Module._call_impl",
        "x._indices()",
        "storage._new_shared(3)",
    ],
)
def test_a_private_name_is_found(source: str) -> None:
    assert set(private_names(ast.parse(source))) - set(ATTRIBUTES)


@pytest.mark.parametrize(
    "source", ["from torch.ops import aten\naten._to_copy", "self._parameters", "x._ours"]
)
def test_what_is_no_private_name_of_torch_is_left_alone(source: str) -> None:
    assert not set(private_names(ast.parse(source)))


def test_listed_attributes_do_what_they_are_used_for() -> None:
    x = torch.ones(3)
    view = x[1:]
    assert view._base is x and view._is_view() and x._base is None and not x._is_view()
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert x.clone().untyped_storage()._cdata != x.untyped_storage()._cdata
    before = x._version
    view.add_(1)
    assert x._version == before + 1
    assert torch.ops.aten.add_.Tensor._schema.name == "aten::add_"
    leaf = torch.ones(1, requires_grad=True)
    assert not leaf._backward_hooks and not leaf._post_accumulate_grad_hooks
    leaf.register_hook(lambda grad: grad)
    leaf.register_post_accumulate_grad_hook(lambda tensor: None)
    assert len(leaf._backward_hooks) == len(leaf._post_accumulate_grad_hooks) == 1


# ------------------------------------------------------------ why a call on fake tensors has failed


def failure(
    call: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = None, static: bool = True
) -> FakeFailure:
    """Run a call on fake tensors as predictions do, and say why it failed."""
    fake_tensor, symbolic_shapes = fake_modules()
    sizes = symbolic_shapes.ShapeEnv(
        allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True
    )
    mode = fake_tensor.FakeTensorMode(allow_fallback_kernels=False, shape_env=sizes)
    made = (torch.ones(shape, dtype=dtype) for shape in shapes)
    tensors = [mode.from_tensor(tensor, static_shapes=static) for tensor in made]
    with mode, pytest.raises(Exception) as caught:  # noqa: B017 (which one is what is asked)
        call(*tensors)
    return fake_failure(caught.value)


@pytest.mark.parametrize(
    "call, shapes, dtype",
    [
        (lambda x: x.item(), [()], None),
        (lambda x, y: torch.equal(x, y), [(2,), (2,)], None),
        (lambda x: torch.zeros(3) if (x > 0).nonzero().shape[0] > 1 else x, [(3,)], None),
        # Told by its words: torch has no class for it.
        (lambda x, places: x.tensor_split(places), [(4,), (2,)], torch.int64),
    ],
    ids=["item", "equal", "a size that was chosen", "tensor_split"],
)
def test_a_value_that_is_read(call: Any, shapes: list[tuple[int, ...]], dtype: Any) -> None:
    assert failure(call, *shapes, dtype=dtype) is FakeFailure.READS_VALUES


def test_sizes_that_follow_from_values() -> None:
    assert failure(torch.linalg.lstsq, (3, 2), (3, 1)) is FakeFailure.SIZES_FROM_VALUES


def test_an_operation_that_cannot_count_open_sizes() -> None:
    """Told by its words, and not to anybody: the text names lines of torch's libraries."""
    call = torch.Tensor.tensor_split
    found = failure(call, (4,), (2,), dtype=torch.int64, static=False)
    assert found is FakeFailure.SIZES_FROM_VALUES


@pytest.mark.parametrize("call", [torch.geqrf, torch.Tensor.to_sparse])
def test_what_fake_tensors_cannot_run(call: Any) -> None:
    assert failure(call, (3, 3)) is FakeFailure.OF_FAKES


@pytest.mark.parametrize(
    "call, shapes",
    [
        (torch.mm, [(2, 3), (2, 3)]),
        (torch.view_as_real, [(2,)]),
        (lambda x: x.sum(7), [(2,)]),
        (lambda x: torch.nn.functional.one_hot(x), [(2,)]),
    ],
    ids=["mm", "view_as_real", "sum", "one_hot"],
)
def test_what_fails_for_all_values(call: Any, shapes: list[tuple[int, ...]]) -> None:
    assert failure(call, *shapes) is FakeFailure.OF_THE_CALL


def test_a_graph_is_asked_for_only_where_one_can_end() -> None:
    integers = torch.arange(3)
    kept = [integers, integers.view(3)]
    weight = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        part = weight[:2]
    assert not any(map(ends_a_graph, (*kept, part)))
    result = weight * 2
    assert ends_a_graph(weight) and result.requires_grad
