"""Every op of the table can be written as a node of a torch.fx graph, and calls what the op is."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.fx.node import _get_qualified_name

from syft.exceptions import OtherPath, UnknownOperation
from syft.ops import numbers
from syft.plans.export.graph import _assert, node_call
from syft.ops.table import BY_NAME, FUNCTIONS, NAMES, PROGRAM_FUNCTIONS
from syft.ops.nested import leaves

CONTROL = {BY_NAME[f"syft.ops.control.{name}"] for name in ("cond", "while_loop")}
OPS = [op for op in range(len(NAMES)) if FUNCTIONS[op] or op in PROGRAM_FUNCTIONS.keys() - CONTROL]
X = torch.tensor([[1.5, -2.0], [3.0, 0.5]])
Y = torch.tensor([[2.0, 1.0], [-0.5, 4.0]])
I, J = torch.tensor([5, 2, 9]), torch.tensor([1, 3, 2])


def module_of(op: int, args: tuple[Any, ...]) -> GraphModule:
    """A module that makes one call; its operands are its arguments."""
    graph = Graph()
    names = [graph.placeholder(f"arg_{place}") for place in range(len(args))]
    call = node_call(op, tuple(names), {})
    graph.output(graph.create_node(call.kind, call.target, call.args, call.kwargs))
    graph.lint()
    return GraphModule({}, graph)


def test_every_op_is_written_as_python_that_compiles() -> None:
    arity = {"__get__": 1, "__set__": 2, "__delete__": 1, "__setitem__": 3}
    for op in OPS:
        count = arity.get(NAMES[op].rpartition(".")[2], 2)
        assert module_of(op, (None,) * count).code


def test_what_is_written_is_the_name_of_the_function_that_is_meant() -> None:
    """torch.fx writes a function of torch by its name, whatever stands under it."""
    for op in OPS:
        target = node_call(op, ("a", "b", "c"), {}).target
        if callable(target) and _get_qualified_name(target).startswith("torch."):
            path = _get_qualified_name(target).split(".")[1:]
            assert functools.reduce(getattr, path, torch) == target, NAMES[op]


X3 = torch.arange(12.0).reshape(2, 3, 2)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("atleast_1d", (torch.tensor(3.0),)),
        ("atleast_2d", ([X[0], X[1]],)),
        ("atleast_3d", (X,)),
        ("block_diag", ([X, Y],)),
        ("broadcast_tensors", ([X, Y[0]],)),
        ("cartesian_prod", ([X[0], Y[0]],)),
        ("cdist", (X, Y, 2.0, None)),
        ("chain_matmul", ([X, Y, X],)),
        ("einsum", ("ij,jk->ik", [X, Y])),
        ("meshgrid", ([X[0], Y[0]],)),
        ("norm", (X, 2)),
        ("split", (X3, 2, 1)),
        ("split", (X3, [1, 2], 1)),
        ("stft", (X3.reshape(-1), 4, 2, 4, torch.ones(4), False, True, True)),
        ("tensordot", (X3, Y, [2], [0])),
        ("unique_consecutive", (I,)),
        ("unique_dim", (X, 0)),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:torch.meshgrid. in an upcoming release:UserWarning",
    "ignore:torch.chain_matmul is deprecated:UserWarning",
)
def test_functions_hidden_behind_another_of_their_name(name: str, args: tuple[Any, ...]) -> None:
    op = BY_NAME[f"torch._C._VariableFunctions.{name}"]
    function = FUNCTIONS[op]
    assert function is not None
    expected, got = function(*args), module_of(op, args)(*args)
    for ours, theirs in zip(leaves(got), leaves(expected), strict=True):
        assert torch.equal(ours, theirs)


def test_a_call_without_positional_operands_is_a_call_of_the_function() -> None:
    op = BY_NAME["torch.Tensor.add"]
    call = node_call(op, (), {"input": "x"})
    assert call == ("call_function", torch.Tensor.add, (), {"input": "x"})


def test_an_op_that_this_torch_has_not_is_refused() -> None:
    missing = [op for op, f in enumerate(FUNCTIONS) if f is None and op not in PROGRAM_FUNCTIONS]
    for op in missing[:3]:
        with pytest.raises(UnknownOperation):
            node_call(op, (), {})


def special_methods() -> list[str]:
    unary = {"len", "bool", "complex", "float", "int", "index", "long", "nonzero", "reversed"}
    found = [name for name in NAMES if name.startswith("torch.Tensor.__")]
    return [name for name in found if name.split("__")[1] not in {"getitem", "setitem", *unary}]


@pytest.mark.parametrize("name", special_methods())
def test_operators_answer_as_the_special_method(name: str) -> None:
    op = BY_NAME[name]
    function = FUNCTIONS[op]
    assert function is not None
    integral = any(word in name for word in ("and", "or__", "xor", "shift", "invert"))
    values = [(I, J), (I, 2)] if integral else [(X.abs(), Y), (X.abs(), 2.5)]
    if "matmul" in name or "contains" in name:
        values = values[:1] if "matmul" in name else [(X, 1.5), (X, 7.0)]
    for first, second in values:
        args = (first,) if "invert" in name else (first, second)
        copies = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
        expected = function(*copies)
        again = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
        got = module_of(op, args)(*again)
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(expected))
        if isinstance(first, torch.Tensor):  # in place or not, alike
            assert torch.equal(again[0], copies[0])


@pytest.mark.parametrize("op", sorted(PROGRAM_FUNCTIONS.keys() - CONTROL), ids=NAMES.__getitem__)
def test_arithmetic_on_numbers_answers_as_the_op(op: int) -> None:
    function = PROGRAM_FUNCTIONS[op]
    if "numbers" not in NAMES[op]:
        x = torch.ones(2, requires_grad=True)
        module_of(op, (x,))(x)
        assert (x.grad is not None) == NAMES[op].endswith("ensure_grad")
        return
    if function is numbers.expect:
        module = module_of(op, ("gt", 3, 2, True))
        assert module("gt", 3, 2, True) is None
        with pytest.raises(OtherPath):
            module("gt", 2, 3, True)
        return
    unary = {"neg", "pos", "abs", "floor", "ceil", "trunc", "round"}
    pairs = [(7, 2), (-7, 3), (2.5, 0.5), (9, -2.0), (3.5, 2)]
    for pair in pairs:
        args = pair[:1] if NAMES[op].rpartition(".")[2] in unary else pair
        got = module_of(op, args)(*args)
        assert got == function(*args) and type(got) is type(function(*args))


def test_accessors_read_write_and_delete_attributes() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    assert torch.equal(module_of(BY_NAME["torch.Tensor.T.__get__"], (x,))(x), x.T)
    module_of(BY_NAME["torch.Tensor.grad.__set__"], (x, x))(x, torch.full((2, 3), 2.0))
    assert x.grad is not None and x.grad[0, 0] == 2
    module_of(BY_NAME["torch.Tensor.grad.__delete__"], (x,))(x)
    assert x.grad is None


def test_indices_are_read_and_written() -> None:
    x = torch.arange(4.0)
    assert module_of(BY_NAME["torch.Tensor.__getitem__"], (x, 1))(x, 1) == 1
    module_of(BY_NAME["torch.Tensor.__setitem__"], (x, 1, 2))(x, 1, 5.0)
    assert x.tolist() == [0.0, 5.0, 2.0, 3.0]


def test_an_expectation_of_a_traced_size_fails_where_it_is_not_met() -> None:
    """It is compiled before a trace calls it; here it runs as it is written."""
    for answer in (True, False):
        assert _assert(torch.tensor(answer), answer).item() is answer
        with pytest.raises(RuntimeError, match="with sizes by which its function decides"):
            _assert(torch.tensor(answer), not answer)
