"""The flags of the op table are true: each is compared with what torch does in its own cases."""

from __future__ import annotations

import inspect
import re
import sys
from itertools import product
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from syft.ops.calls import argument
from syft.ops.table import (
    BY_NAME,
    COLUMNS,
    FLAGS,
    FUNCTIONS,
    NAMES,
    NUMBERS,
    REFUSED,
    OpFlag,
    functions_with,
    name_of,
    ops_where,
    ops_with,
)
from tests.program.recorded import (
    FAILED,
    Call,
    Recorder,
    leaves,
    record_modules,
    record_operators,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's cases use much that is deprecated

AVAILABLE = {
    name: function for name, function in zip(NAMES, FUNCTIONS, strict=True) if function is not None
}


def flags_of(name: str) -> OpFlag:
    return OpFlag(FLAGS[BY_NAME[name]])


def named(flag: OpFlag) -> set[str]:
    return {name for name in NAMES if flag in flags_of(name)}


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def several() -> list[torch.Tensor]:
    return [torch.ones(3), torch.ones(2)]


BY_HAND: list[Callable[[], object]] = [
    lambda: torch.ones(3)[torch.tensor([True, False, True])],
    lambda: torch.where(torch.ones(3)),
    lambda: torch.ones(3).where(torch.ones(3) > 0, 0.0),
    lambda: [torch.ones(3).nonzero(), torch.nonzero(torch.ones(3))],
    lambda: [torch.ones(3).nonzero(as_tuple=True), torch.nonzero(torch.ones(3), as_tuple=True)],
    lambda: torch.unique(torch.arange(3)),
    lambda: torch.arange(3).unique(return_counts=True),  # type: ignore[no-untyped-call]
    lambda: torch.unique_consecutive(torch.arange(3)),
    lambda: torch.arange(3).unique_consecutive(),  # type: ignore[no-untyped-call]
    lambda: sparse().coalesce(),
    lambda: (sparse().coalesce().indices(), sparse().coalesce().values()),
    lambda: (sparse()._indices(), sparse()._values(), sparse()._nnz()),
    lambda: torch.eye(3).to_sparse_csr().col_indices(),
    lambda: torch.sparse_coo_tensor(torch.tensor([[2]]), torch.ones(1)),
    lambda: torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([2]), torch.ones(1)),
    lambda: setattr(torch.ones(3), "requires_grad", True),
    lambda: setattr(leaf(), "grad", torch.ones(3)),
    lambda: AVAILABLE["torch.Tensor.grad.__delete__"](leaf()),
    lambda: setattr(torch.ones(3), "data", torch.zeros(3)),
    lambda: setattr(torch.ones(3, dtype=torch.complex64), "real", torch.zeros(3)),
    lambda: setattr(torch.ones(3, dtype=torch.complex64), "imag", torch.zeros(3)),
    lambda: (leaf() * 2).retain_grad(),
    lambda: torch.autograd.backward([leaf().sum()]),
    lambda: torch.autograd.grad(leaf().sum() * 2, leaf(), allow_unused=True),
    lambda: torch.ones(3).__setitem__(0, 5.0),
    lambda: torch._assert(torch.ones(1) > 0, "no"),  # type: ignore[no-untyped-call]
    lambda: torch.ones(2).tolist(),
    lambda: 1 in torch.ones(2),
    lambda: [int(torch.ones(1)), complex(torch.ones(1)), [1, 2][torch.tensor(1)]],
    lambda: torch._foreach_add_(several(), 1.0),
    lambda: torch._foreach_mul(several(), 2.0),
    lambda: torch._foreach_copy_(several(), several()),
    lambda: torch._foreach_zero_(several()),
    lambda: functional.embedding(torch.tensor([1]), torch.ones(3, 4) * 9, max_norm=1.0),
    lambda: functional.embedding_bag(torch.tensor([[1]]), torch.ones(3, 4) * 9, max_norm=1.0),
    lambda: torch.empty(0).resize_(3),
    lambda: torch.Tensor.set_(torch.empty(0), torch.ones(3)),  # type: ignore[call-overload]
    lambda: torch.ones(3).requires_grad_(),
    lambda: torch.ones(1, 3).squeeze_().unsqueeze_(0).t_(),
    lambda: torch.nn.init.uniform_(torch.empty(3)),
    lambda: torch.nn.init.xavier_normal_(torch.empty(3, 3)),
    lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(2, 2)]),
    lambda: [torch.zeros(2), torch.tensor([1.0]), torch.arange(3), torch.eye(2), torch.rand(3)],
    lambda: [torch.ones(2, 3).max(1), torch.min(torch.ones(2), dim=0), torch.ones(2).median(0)],
    lambda: [torch.max(torch.ones(2), torch.ones(2)), torch.ones(2).min(other=torch.ones(2))],
    lambda: [torch.ones(4).split([1, 3]), torch.split(torch.ones(4), 2), torch.ones(4).chunk(3)],
    lambda: [torch.ones(4).split_with_sizes((1, 3)), torch.unsafe_split(torch.ones(4), 2)],
    lambda: [torch.ones(4).tensor_split(3), torch.ones(4).tensor_split((1, 2), dim=0)],
    lambda: [torch.ones(4).tensor_split(torch.tensor(3)), torch.ones(4, 4, 4).dsplit([1])],
    lambda: [torch.hsplit(torch.ones(4, 4), 2), torch.vsplit(torch.ones(4, 4), (1, 3))],
    lambda: [torch.where(torch.ones(2) > 0, 1.0, torch.ones(2)), torch.where(torch.ones(2, 2))],
    lambda: [torch.meshgrid(torch.ones(2), torch.ones(3)), torch.meshgrid([torch.ones(2)])],
    lambda: [torch.broadcast_tensors(*several()[:1]), torch.atleast_2d(several())],
    lambda: [torch.atleast_1d(torch.ones(2)), torch.atleast_3d(torch.ones(2), torch.ones(3))],
    lambda: [torch.unique(torch.ones(2), return_inverse=True, return_counts=True)],
    lambda: [torch.ones(2).unique(True, True), torch.unique_consecutive(torch.ones(2), True)],
    lambda: [torch.ones(2).type(), torch.ones(2).type(torch.int64), torch.ones(2).type(dtype=None)],
    lambda: torch.autograd.grad([leaf().sum(), (a := leaf()).sum()], a, allow_unused=True),
    lambda: torch.autograd.grad((a := leaf()).sum() * (b := leaf()).sum(), [a, b]),
    lambda: torch.autograd.grad(
        (a := leaf()).sum(), (a, leaf()), allow_unused=True, materialize_grads=True
    ),
    lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).dequantize(),
    lambda: torch.quantize_per_tensor(
        several(), torch.ones(2), torch.zeros(2, dtype=torch.int64), torch.qint8
    ),
    lambda: torch.dequantize([torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)] * 2),
    lambda: [torch._foreach_norm(several()), torch._foreach_pow(2.0, several())],
    lambda: [torch._foreach_max(several()), torch._foreach_lerp(several(), several(), 0.5)],
    lambda: functional.max_pool2d(torch.ones(1, 4, 4), 2, return_indices=True),
    lambda: [
        functional.max_pool1d(torch.ones(1, 4), 2),
        functional.max_pool3d(torch.ones(1, 4, 4, 4), 2),
    ],
    lambda: functional.adaptive_max_pool2d(torch.ones(1, 4, 4), 2, return_indices=True),
    lambda: functional.adaptive_max_pool1d(torch.ones(1, 4), 2),
    lambda: functional.fractional_max_pool2d(torch.ones(1, 4, 4), 2, output_size=2),
    lambda: torch.nn.MultiheadAttention(4, 2)(*[torch.ones(3, 4)] * 3, need_weights=False),
    lambda: torch.nn.MultiheadAttention(4, 2)(*[torch.ones(3, 4)] * 3),
    lambda: [torch.pca_lowrank(torch.ones(4, 4)), torch.svd_lowrank(torch.ones(4, 4))],
    lambda: torch.lobpcg(torch.eye(9), k=2),
    lambda: [torch.ones(2) == "a", torch.ones(2) == None, torch.ones(2).__rsub__([1, 2])],  # noqa
    lambda: [3 % torch.ones(2), 1 << torch.arange(3), True & (torch.ones(2) > 0), 2j * leaf()],
    lambda: [torch.full((2,), 1.0), torch.randperm(3), torch.randint(5, (2,)), torch.empty(2)],
    lambda: [torch.normal(0.0, 1.0, (2,)), torch.hann_window(3), torch.fft.fftfreq(3)],
]


def train_a_step(optimizer: type[torch.optim.Optimizer], **options: Any) -> None:
    layer = torch.nn.Linear(3, 2)
    steps = optimizer(layer.parameters(), **options)
    for _ in range(2):
        steps.zero_grad(set_to_none=False)
        layer(torch.ones(4, 3)).square().sum().backward()
        steps.step()


@pytest.fixture(scope="module")
def calls() -> dict[Call, str]:
    recorder = Recorder()
    record_operators(recorder)
    record_modules(recorder)
    for number, case in enumerate(BY_HAND):
        recorder.case = f"BY_HAND[{number}]"
        with recorder:
            case()
    for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
        for options in ({}, {"foreach": True}, {"fused": True}):
            recorder.case = f"{optimizer.__name__} {options}"
            with recorder:
                train_a_step(optimizer, **options)
    return recorder.calls


Rule = Callable[[Call, OpFlag], bool]

# None, or one tensor: nobody knows before.
WAITED_FOR = {"torch.Tensor.grad.__get__", "torch.Tensor._grad.__get__"}

RULES: dict[str, Rule] = {
    "ONE returns one fresh tensor": lambda call, flags: (
        OpFlag.ONE not in flags or call.out or call.result == "one"
    ),
    "TENSOR returns one tensor": lambda call, flags: (
        OpFlag.TENSOR not in flags or call.result in ("one", "first", "argument")
    ),
    "BINARY returns one fresh tensor": lambda call, flags: (
        OpFlag.BINARY not in flags or call.result in ("one", "NotImplementedType")
    ),
    "what comes back is what the caller was sure of": lambda call, flags: (
        call.foretold is None or call.parts == call.foretold
    ),
    "who gets one tensor was sure of it": lambda call, flags: (
        call.foretold is not None
        or call.result != "one"
        or bool(flags & (OpFlag.INPLACE | OpFlag.INPLACE_OPTION))
        or call.out
        or name_of(call.function) in WAITED_FOR
    ),
    "ONE_UNLESS_INPLACE does as its keyword says": lambda call, flags: (
        OpFlag.ONE_UNLESS_INPLACE not in flags
        or call.result == ("first" if call.inplace else "one")
    ),
    "INPLACE returns its first argument, or None with NOTHING": lambda call, flags: (
        OpFlag.INPLACE not in flags
        or call.result == ("NoneType" if OpFlag.NOTHING in flags else "first")
    ),
    "NOTHING returns None": lambda call, flags: (
        OpFlag.NOTHING not in flags or call.result == "NoneType"
    ),
    "Python values come from REVEALS or METADATA": lambda call, flags: (
        not call.values or bool(flags & (OpFlag.REVEALS | OpFlag.METADATA))
    ),
    "REVEALS returns Python values or nothing": lambda call, flags: (
        OpFlag.REVEALS not in flags or call.values or OpFlag.NOTHING in flags
    ),
    "an op that draws is RANDOM": lambda call, flags: not call.drew or OpFlag.RANDOM in flags,
    "an op that mutates its first argument is INPLACE": lambda call, flags: (
        not call.mutated_first
        or OpFlag.INPLACE in flags
        or (OpFlag.INPLACE_OPTION in flags and call.inplace)
    ),
    "an op that mutates more is MUTATES_OTHERS": lambda call, flags: (
        not call.mutated_other or OpFlag.MUTATES_OTHERS in flags
    ),
    "an op that changes shapes or dtypes ALTERS": lambda call, flags: (
        not call.altered or OpFlag.ALTERS in flags
    ),
    "an op that takes inplace= has INPLACE_OPTION": lambda call, flags: (
        not call.inplace or OpFlag.INPLACE_OPTION in flags
    ),
    "shapes follow values only in SHAPE_FROM_VALUES": lambda call, flags: (
        not call.shape_followed_values or OpFlag.SHAPE_FROM_VALUES in flags
    ),
    "tensors from nothing come from FACTORY": lambda call, flags: (
        call.took_tensors or call.result != "one" or OpFlag.FACTORY in flags
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_flags_are_true_of_every_recorded_call(calls: dict[Call, str], rule: Rule) -> None:
    wrong = [
        (name_of(call.function), call.result, case)
        for call, case in calls.items()
        if call.function in NUMBERS and not rule(call, flags_of(name_of(call.function)))
    ]
    assert wrong == []


def test_flags_that_exclude_one_another_are_apart() -> None:
    for one, others in (
        (OpFlag.BOUNDED, OpFlag.RANDOM | OpFlag.FACTORY | OpFlag.MUTATES_OTHERS),
        (OpFlag.ELEMENTWISE, OpFlag.SHAPE_FROM_VALUES | OpFlag.METADATA | OpFlag.SPLITS),
        (OpFlag.FRESH, OpFlag.INPLACE | OpFlag.NOTHING | OpFlag.SPLITS),
        (OpFlag.MATRIX_PRODUCT, OpFlag.ELEMENTWISE | OpFlag.SUMMED | OpFlag.INPLACE),
        (OpFlag.READS_GRADIENT, OpFlag.SETS_GRADIENT | OpFlag.FRESH),
    ):
        assert not [NAMES[op] for op in ops_with(one) if FLAGS[op] & others], one


def test_flags_fit_one_digit_of_an_integer() -> None:
    digit = 1 << sys.int_info.bits_per_digit
    assert all(flags & ~OpFlag.FAKE_FIRST < digit for flags in FLAGS)
    assert len(ops_with(OpFlag.FAKE_FIRST)) < 50, "it is the only flag in the second digit"


def test_columns_are_true() -> None:
    x = torch.ones(1, 2, dtype=torch.int16)
    for op, kind in COLUMNS["like"].items():
        made = AVAILABLE[NAMES[op]](x)
        assert made.shape == x.shape
        assert made.dtype is (x.dtype if kind == "first" else getattr(torch, kind)), NAMES[op]
    for op, value in COLUMNS["index"].items():
        for place, _, name in (one.partition(":") for one in value.split(",")):
            if NAMES[op].rpartition(".")[2] not in ("__getitem__", "__setitem__", "where"):
                assert argument(op, name, range(5), {}) == int(place), NAMES[op]
    assert torch.where(condition=x > 0, input=x, other=x).equal(x.where(condition=x > 0, other=x))
    for op in ops_where("dims", "sizes"):
        assert SIZES_DECIDE[NAMES[op].rpartition(".")[2].rstrip("_")](AVAILABLE[NAMES[op]])


INTEGERS = [
    torch.tensor([low, 0, 7, high], dtype=dtype)
    for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8)
    for low, high in [(torch.iinfo(dtype).min, torch.iinfo(dtype).max)]
]
TRUTHS = torch.tensor([True, False, False, True])
SINGLE = [torch.tensor(2**62), torch.tensor(-1), torch.tensor(True)]


@pytest.mark.parametrize("name", sorted(NAMES[op] for op in ops_where("fails", "first")))
def test_what_values_make_fail_first_has_written_nothing(name: str) -> None:
    """Zeros, extremes and numbers too large for the dtype, in each place of an operand."""
    ran = 0
    for target, *others in product([*INTEGERS, TRUTHS], *[[*INTEGERS, TRUTHS, *SINGLE, 300]] * 2):
        for count in range(3):
            written = target.clone()
            try:
                AVAILABLE[name](written, *others[:count])
            except (RuntimeError, TypeError):
                assert written.equal(target), others[:count]
            else:
                ran += 1
    assert ran, "no call of it ran"


def drops_ones(squeeze: Any) -> bool:
    return squeeze(torch.ones(1, 2)).dim() == 1 and squeeze(torch.ones(2, 2)).dim() == 2


def skips_empty(cat: Any) -> bool:
    """An empty vector goes with tensors of any number of dimensions."""
    return cat([torch.ones(0), torch.ones(1, 2)]).dim() == 2 and cat([torch.ones(0)] * 2).dim() == 1


def takes_several(atleast: Any) -> bool:
    return isinstance(atleast([torch.ones(1)]), tuple)


def has_one_variable(cov: Any) -> bool:
    return cov(torch.eye(3)[:1]).dim() == 0 and cov(torch.eye(3)).dim() == 2


def takes_vectors(solve: Any) -> bool:
    """A matrix with the sizes of the other operand but its last is many vectors."""
    many = torch.eye(3).repeat(3, 1, 1)
    dims = [innermost(solve(many, torch.ones(3, n).expand(*more, 3, n))).dim() for n, more in CASES]
    return dims == [2, 3]


CASES: list[tuple[int, tuple[int, ...]]] = [(3, ()), (2, (3,))]


def innermost(result: Any) -> Any:
    return result if isinstance(result, torch.Tensor) else result[0]


SIZES_DECIDE = {
    "squeeze": drops_ones,
    "squeeze_copy": drops_ones,
    **dict.fromkeys(("cov", "corrcoef"), has_one_variable),
    **dict.fromkeys(("solve", "solve_ex", "lstsq"), takes_vectors),
    "atleast_1d": takes_several,
    **dict.fromkeys(("cat", "concat", "concatenate"), skips_empty),
}


def test_every_operation_that_cuts_has_the_flag_and_a_count() -> None:
    leafs = "split chunk unbind split_with_sizes hsplit vsplit dsplit tensor_split".split()
    cut = re.compile(rf"(unsafe_)?({'|'.join(leafs)})(_copy)?")
    wanted = {op for op, name in enumerate(NAMES) if cut.fullmatch(name.rpartition(".")[2])}
    assert wanted == ops_with(OpFlag.SPLITS) == ops_where("pieces")


def test_results_of_fresh_operations_have_their_own_memory(calls: dict[Call, str]) -> None:
    fresh = functions_with(OpFlag.FRESH)
    made = {call for call in calls if call.function in fresh}
    assert len({call.function for call in made}) > 150
    wrong = {
        name_of(call.function): calls[call]
        for call in made
        if call.shared and not (call.out or call.inplace)
    }
    assert wrong == {}
    shared = {name_of(call.function) for call in calls if call.shared}
    assert shared >= {"torch.Tensor.view", "torch.Tensor.contiguous", "torch.nn.functional.dropout"}


def test_every_function_that_arrives_is_in_one_of_the_files(calls: dict[Call, str]) -> None:
    unknown = {
        name_of(call.function): case
        for call, case in calls.items()
        if call.function not in NUMBERS and call.function not in REFUSED
    }
    assert unknown == {}


def test_the_record_is_not_empty(calls: dict[Call, str]) -> None:
    def seen(what: Callable[[Call], bool]) -> set[str]:
        return {name_of(call.function) for call in calls if what(call)}

    assert len(seen(lambda call: True)) > 1100
    assert len(seen(lambda call: call.result == "one")) > 800
    assert len(seen(lambda call: call.mutated_first)) > 150
    assert len(seen(lambda call: call.drew)) > 25
    assert seen(lambda call: call.shape_followed_values) >= {
        "torch.Tensor.__getitem__",
        "torch.Tensor.nonzero",
        "torch.Tensor.unique",
        "torch.Tensor.to_sparse",
        "torch.masked_select",
        "torch.bincount",
        "torch.nonzero",
        "torch.nn.functional.one_hot",
        "torch.tensor_split",
        "torch.unique",
        "torch.where",
    }
    assert seen(lambda call: call.mutated_other) >= {
        "torch.nn.functional.batch_norm",
        "torch.nn.functional.embedding",
        "torch.nn.functional.embedding_bag",
        "torch.nn.functional.instance_norm",
        "torch._fused_adam_",
    }


def test_an_op_that_always_returned_none_says_so(calls: dict[Call, str]) -> None:
    results: dict[str, set[str]] = {}
    for call in calls:
        if call.function in NUMBERS:
            results.setdefault(name_of(call.function), set()).add(call.result)
    silent = {name for name, kinds in results.items() if kinds == {"NoneType"}}
    # These are None here because the cases ask plain leaves, which have no graph behind them.
    assert silent - named(OpFlag.NOTHING) <= {"torch.Tensor.grad_fn.__get__"}


# What a call returns that has nothing to do: this is where a function hands back what it was given.
def idle_calls(x: torch.Tensor) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    dims = tuple(range(x.dim()))
    return [
        ((x,), {}),
        ((x, 0), {}),
        ((x, 1), {}),
        ((x, -1), {}),
        ((x, 0, 0), {}),
        ((x, 0, -1), {}),
        ((x, ()), {}),
        ((x, dims), {}),
        ((x, x.shape), {}),
        ((x, x.dtype), {}),
        ((x, x), {}),
        ((x, None), {}),
        ((x, Ellipsis), {}),
        ((x, True), {}),
        ((x, (0, 0)), {}),
        ((x, 1.0), {}),
        ((x, 0, x.dtype), {}),
        ((x,), {"dtype": x.dtype}),
        ((x,), {"dim": ()}),
        ((x, x), {"reduction": "none"}),
        (([x],), {}),
        (([x], 0), {}),
        ((x, x.shape, x.stride()), {}),
    ]


IDLE_INPUTS = [torch.ones(shape) for shape in [(), (0,), (1,), (3,), (1, 1), (3, 3)]]
IDLE_INPUTS += [torch.tensor(1), torch.arange(3), torch.arange(3) > 0]
# These end the process when their indices, dtypes or sizes are nonsense (torch 2.13).
CRASHES = {"torch._weight_norm", "torch.ops.aten._safe_softmax.default"}


def test_one_holds_for_calls_that_have_nothing_to_do() -> None:
    wrong = set()
    for name in sorted(named(OpFlag.ONE) & set(AVAILABLE) - CRASHES):
        for x in IDLE_INPUTS:
            for args, kwargs in idle_calls(x):
                try:
                    result = AVAILABLE[name](*args, **kwargs)
                except FAILED:
                    continue
                fresh = isinstance(result, torch.Tensor) and all(
                    result is not given for given in leaves(args)
                )
                if not fresh:
                    wrong.add(name)
    assert wrong == set()


def test_one_is_not_claimed_where_torch_hands_back_what_it_got() -> None:
    x = torch.ones(3)
    same = "contiguous to float type_as cpu conj resolve_conj resolve_neg positive flatten ravel"
    for name in same.split():
        result = x.to(torch.float32) if name == "to" else x
        assert result is x
        assert OpFlag.ONE not in flags_of(f"torch.Tensor.{name}")
    assert functional.dropout(x, training=False) is x
    assert OpFlag.ONE not in flags_of("torch.nn.functional.dropout")


VALUES = [torch.zeros(2, 3), torch.full((2, 3), 7.5), torch.full((2, 3), float("nan"))]


@pytest.mark.parametrize("name", sorted(named(OpFlag.METADATA) & set(AVAILABLE)))
def test_metadata_does_not_depend_on_values(name: str) -> None:
    # Two tensors for the functions that compare them; none has a value in common with the other.
    for extra in ((), (torch.ones(2, 3),)):
        try:
            answers = [AVAILABLE[name](x, *extra) for x in VALUES]
        except FAILED:
            continue
        assert answers[0] == answers[1] == answers[2]


def mutates_by_name(name: str) -> bool:
    leaf_name = name.rpartition(".")[2]
    augmented = leaf_name.startswith("__i") and f"__{leaf_name[3:]}" in BINARY
    special = leaf_name in ("__setitem__", "__set__", "__delete__", "retain_grad")
    return augmented or special or (leaf_name.endswith("_") and not leaf_name.endswith("__"))


BINARY = "__add__ __and__ __div__ __floordiv__ __lshift__ __mod__ __mul__ __or__ __pow__ __rshift__"
BINARY += " __sub__ __truediv__ __xor__"


def test_inplace_is_what_mutates_by_name() -> None:
    assert named(OpFlag.INPLACE) == {name for name in NAMES if mutates_by_name(name)}


def test_flags_do_not_contradict_each_other() -> None:
    one = named(OpFlag.ONE)
    assert not one & (named(OpFlag.TENSOR) | named(OpFlag.BINARY))
    assert not named(OpFlag.TENSOR) & named(OpFlag.BINARY)
    assert not (named(OpFlag.TENSOR) | named(OpFlag.BINARY)) & named(OpFlag.METADATA)
    assert not one & named(OpFlag.INPLACE)
    assert not one & named(OpFlag.NOTHING)
    assert not one & (named(OpFlag.REVEALS) | named(OpFlag.METADATA))
    assert not one & named(OpFlag.INPLACE_OPTION)
    assert named(OpFlag.ONE_UNLESS_INPLACE) <= named(OpFlag.INPLACE_OPTION)
    assert not named(OpFlag.REVEALS) & named(OpFlag.METADATA)


def test_every_python_function_with_an_inplace_keyword_has_the_option() -> None:
    with_keyword = {
        name
        for name, function in AVAILABLE.items()
        if inspect.isfunction(function) and "inplace" in function.__code__.co_varnames
    }
    assert with_keyword == named(OpFlag.INPLACE_OPTION)


def test_flags_that_only_a_list_can_tell() -> None:
    assert named(OpFlag.GRADIENT) == {
        "torch.Tensor.backward",
        "torch.autograd.backward",
        "torch.autograd.grad",
    }
    assert named(OpFlag.UNINITIALIZED) == {
        "torch.Tensor.new",
        "torch.Tensor.new_empty",
        "torch.Tensor.new_empty_strided",
        "torch.Tensor.resize",
        "torch.Tensor.resize_",
        "torch.Tensor.resize_as",
        "torch.Tensor.resize_as_",
        "torch.Tensor.set_",
        "torch._empty_affine_quantized",
        "torch._empty_per_channel_affine_quantized",
        "torch.empty",
        "torch.empty_like",
        "torch.empty_permuted",
        "torch.empty_quantized",
        "torch.empty_strided",
        "torch.resize_as_",
    }


# Some overloads are for lists and dictionaries of TorchScript; ``x.where(y)`` alone is no method.
OF_SEVERAL_TYPES = {"__getitem__", "eq", "ne", "values", "where"}


def test_builtin_functions_that_return_one_tensor_do_so_in_every_overload() -> None:
    schemas: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and "out" not in schema.overload_name:
            schemas.setdefault(schema.name.removeprefix("aten::"), []).append(schema)
    compared = 0
    for name in named(OpFlag.TENSOR) | named(OpFlag.ONE):
        space, _, leaf_name = name.rpartition(".")
        overloads = schemas.get(leaf_name, [])
        if space not in ("torch", "torch.Tensor") or inspect.isfunction(AVAILABLE.get(name)):
            continue
        # Others are overloads for the numbers and lists of TorchScript.
        ours = [one for one in overloads if any("Tensor" in str(a.type) for a in one.arguments)]
        returned = {tuple(str(given.type) for given in one.returns) for one in ours}
        compared += bool(ours)
        assert returned <= {("Tensor",)} or leaf_name in OF_SEVERAL_TYPES, name
    assert compared > 700
