"""The op table is complete, append-only and safe; what it refuses, and what it does not know."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import get_overridable_functions, get_testing_overrides

from syft.exceptions import MalformedMessage, OperationRefused, UnknownOperation
from syft.ops import table as op_table
from syft.ops.table import (
    BY_NAME,
    FLAGS,
    FUNCTIONS,
    NAMES,
    NUMBERS,
    PROGRAM_FUNCTIONS,
    REFUSED,
    REFUSED_NAMES,
    OpFlag,
    function_of,
    name_of,
    number_of,
)

HERE = Path(op_table.__file__).parent

# Numbered ops that not every torch has: the first version and the last that do.
NOT_EVERYWHERE = {
    "torch.Tensor.names.__get__": ("2.11", "2.12"),
    "torch.Tensor.names.__set__": ("2.11", "2.12"),
    "torch.Tensor.has_names": ("2.11", "2.12"),
    "torch.Tensor.rename": ("2.11", "2.12"),
    "torch.Tensor.rename_": ("2.11", "2.12"),
    "torch.Tensor.refine_names": ("2.11", "2.12"),
    "torch.Tensor.align_to": ("2.11", "2.12"),
    "torch.Tensor.align_as": ("2.11", "2.12"),
    "torch._C._VariableFunctions.align_tensors": ("2.11", "2.12"),
    "torch._foreach_clone": ("2.12", None),
    "torch._C._nn._upsample_lanczos2d_aa": ("2.12", None),
    "torch._foreach_mm": ("2.13", None),
    "torch.nn.functional.linear_cross_entropy": ("2.13", None),
    "torch.Tensor._has_grad_dtype_override.__get__": ("2.15", None),
    "torch.linalg.matrix_sqrth": ("2.14", None),
    "torch.linalg.polar": ("2.14", None),
}
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def expected_here(name: str) -> bool:
    first, last = NOT_EVERYWHERE.get(name, ("2.11", None))
    if name.startswith("torch.foreach."):
        first = "2.15"

    def parts(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.split(".")))

    return parts(first) <= VERSION and (last is None or VERSION <= parts(last))


def data_lines(file: str) -> list[str]:
    lines = (HERE / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


# ------------------------------------------------------------------------------------ the files


def test_ops_are_numbered_in_order_without_a_gap() -> None:
    assert [int(line.split()[0]) for line in data_lines("ops.txt")] == list(range(len(NAMES)))


def test_names_are_unique_and_stand_in_one_file() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(FLAGS) == len(FUNCTIONS) == len(BY_NAME)
    refused = [line.split(" | ")[0] for line in data_lines("refused.txt")]
    assert len(set(refused)) == len(refused) == len(REFUSED_NAMES)
    assert not set(refused) & set(NAMES)


OURS = ("syft.ops.numbers.", "syft.ops.control.")


def test_every_name_starts_at_torch_or_is_one_of_ours() -> None:
    theirs = [name for name in NAMES if not name.startswith((*OURS, "syft.ops.secret_integers."))]
    assert all(name.startswith("torch.") for name in [*theirs, *REFUSED_NAMES])


def test_every_reason_ends_the_sentence() -> None:
    for name, reason in REFUSED_NAMES.items():
        assert str(OperationRefused(name, reason)).endswith(
            f"cannot run on another worker: {reason}."
        )
        assert reason[0].islower() and not reason.endswith(".")


def test_the_first_numbers_never_change() -> None:
    # Append-only: these stand for all the others, some at each end of what the first release had.
    assert BY_NAME["torch.Tensor.add"] == 0
    assert BY_NAME["torch.Tensor.matmul"] == 4
    assert BY_NAME["torch.nn.functional.nll_loss"] == 127
    assert BY_NAME["torch.ops.aten.slice.Tensor"] == 1786
    assert BY_NAME["torch._C._VariableFunctions.align_tensors"] == 1900


def test_a_retired_number_stays_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "0 torch.add one",
        "1 torch.sub retired one",
        "2 torch.gone.long_ago",
        "3 torch.mul asks=x",
    ]
    monkeypatch.setattr(op_table, "COLUMNS", {"asks": {}})
    monkeypatch.setattr(op_table, "_lines", lambda file: iter(lines))
    names, flags, functions, inside = op_table._read_ops()
    assert names == ["torch.add", "torch.sub", "torch.gone.long_ago", "torch.mul"]
    assert not inside and op_table.COLUMNS == {"asks": {3: "x"}}
    assert flags == [OpFlag.ONE, OpFlag.ONE, 0, 0]
    assert functions == [torch.add, None, None, torch.mul]


# ------------------------------------------------------------------------------- names ↔ functions


@pytest.mark.filterwarnings("ignore")
def test_every_name_of_this_torch_resolves() -> None:
    absent = {name for name, function in zip(NAMES, FUNCTIONS, strict=True) if function is None}
    assert absent == {name for name in NAMES if name.startswith(OURS) or not expected_here(name)}


def test_ops_of_programs_stand_apart() -> None:
    only = {number for number, flags in enumerate(FLAGS) if flags & OpFlag.PROGRAM_ONLY}
    assert (
        only
        == set(PROGRAM_FUNCTIONS)
        == {BY_NAME[name] for name in NAMES if name[:4] == "syft" and "secret_integers" not in name}
    )
    assert {NAMES[number] for number in only} == {
        name_of(function) for function in PROGRAM_FUNCTIONS.values()
    }
    for number in only:
        with pytest.raises(UnknownOperation, match=NAMES[number]):
            function_of(number)
        with pytest.raises(UnknownOperation, match=NAMES[number]):
            number_of(PROGRAM_FUNCTIONS[number])


def test_number_function_name_and_back() -> None:
    for number, function in enumerate(FUNCTIONS):
        if function is not None:
            assert number_of(function) == NUMBERS[function] == number
            assert function_of(number) == function
            assert BY_NAME[name_of(function)] == number
    assert len(NUMBERS) == sum(function is not None for function in FUNCTIONS)


def test_a_property_is_found_though_each_access_makes_a_new_object() -> None:
    shape: Any = torch.Tensor.shape
    first, second = shape.__get__, shape.__get__
    assert first is not second
    assert number_of(first) == number_of(second) == BY_NAME["torch.Tensor.shape.__get__"]
    assert number_of(torch.Tensor.__abs__) == BY_NAME["torch.Tensor.abs"]


def test_a_refused_function_says_why() -> None:
    with pytest.raises(OperationRefused) as caught:
        number_of(torch.Tensor.data_ptr)
    assert caught.value.args == ("torch.Tensor.data_ptr", "it gives out raw memory addresses")


def test_a_refused_function_stays_refused_when_torch_wraps_it() -> None:
    # torch._dynamo, once imported, puts another object in the place of torch.manual_seed.
    with pytest.raises(OperationRefused, match="random state belongs to the worker"):
        number_of(torch.manual_seed)
    with pytest.raises(OperationRefused, match="random state belongs to the worker"):
        number_of(torch.compiler.disable(torch.random.manual_seed))  # type: ignore[no-untyped-call]


def test_of_two_names_the_first_in_the_file_counts() -> None:
    assert torch.vmap is torch.func.vmap
    assert name_of(torch.vmap) == "torch.vmap"


def looks_like_torch_add() -> None:
    """A stranger under a well-known name."""


looks_like_torch_add.__module__, looks_like_torch_add.__qualname__ = "torch", "add"


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (print, "builtins.print"),
        (looks_like_torch_add, "torch.add"),
        (torch.ops.aten.sub, "torch.ops.aten.sub"),
        (torch.ops.aten.sub.Scalar, "torch.ops.aten.sub.Scalar"),
        (partial(torch.add, 1), None),
        (Unhashable(), None),
    ],
)
def test_an_unknown_function_has_no_number(function: Any, name: str | None) -> None:
    with pytest.raises(UnknownOperation) as caught:
        number_of(function)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert caught.value.op == (name or repr(function))


@pytest.mark.parametrize("number", [-1, True, 1.0, "torch.save", None, [0]])
def test_a_number_that_is_none_is_malformed(number: Any) -> None:
    with pytest.raises(MalformedMessage) as caught:
        function_of(number, "$.command[1]")
    assert caught.value.args == ("$.command[1]", "the number of an op", repr(number))


def test_a_number_of_a_younger_table_is_unknown() -> None:
    with pytest.raises(UnknownOperation, match=f"'op {len(NAMES)}' is not in the op table"):
        function_of(len(NAMES))


def test_an_op_that_this_torch_does_not_have_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_table, "FUNCTIONS", [None])
    with pytest.raises(UnknownOperation, match="'torch.Tensor.add' is not in the op table"):
        function_of(0)


# ----------------------------------------------------------------------------------- completeness


@pytest.mark.filterwarnings("ignore")
def test_every_overridable_function_is_in_exactly_one_file() -> None:
    listed = {
        function for functions in get_overridable_functions().values() for function in functions
    }
    overridable = listed | set(get_testing_overrides())
    assert len(overridable) > 1300
    in_ops, in_refused = overridable & set(NUMBERS), overridable & set(REFUSED)
    assert [name_of(function) for function in overridable - in_ops - in_refused] == []
    assert [name_of(function) for function in in_ops & in_refused] == []
    assert not set(NUMBERS) & set(REFUSED)


FACTORIES = """
zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor scalar_tensor
as_tensor normal range tril_indices triu_indices empty_strided sparse_coo_tensor sparse_csr_tensor
bartlett_window blackman_window hamming_window hann_window kaiser_window fft.fftfreq fft.rfftfreq
signal.windows.hann signal.windows.kaiser
""".split()


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_are_in_the_table(name: str) -> None:
    assert FLAGS[BY_NAME[f"torch.{name}"]] & OpFlag.FACTORY


NEVER = """
save load from_file jit.load jit.save jit.script hub.load ops.load_library classes.load_library
import_ir_module compile vmap cond while_loop func.vmap func.grad fork
set_default_dtype set_default_device set_num_threads set_printoptions manual_seed seed set_rng_state
get_rng_state use_deterministic_algorithms set_grad_enabled no_grad autocast _C._set_grad_enabled
from_numpy frombuffer from_dlpack to_dlpack distributed.send distributed.all_reduce
Tensor.data_ptr Tensor._cdata.__get__ Tensor.storage Tensor.untyped_storage Tensor._typed_storage
Tensor._base.__get__ Tensor.numpy Tensor.__array__ Tensor.__dlpack__
Tensor.__cuda_array_interface__.__get__
Tensor.share_memory_ Tensor.__reduce_ex__ Tensor.__setstate__ Tensor._reduce_ex_internal
Tensor.__deepcopy__ Tensor.__repr__ Tensor.__format__ Tensor.__hash__ Tensor.register_hook
Tensor.register_post_accumulate_grad_hook Tensor._backward_hooks.__get__ Tensor.apply_ Tensor.map_
Tensor.map2_ Tensor.module_load Tensor.as_subclass Tensor._make_subclass
Tensor._make_wrapper_subclass
Tensor.record_stream fbgemm_linear_int8_weight quantized_lstm_cell _assert_async
""".split()


@pytest.mark.parametrize("name", [f"torch.{name}" for name in NEVER])
def test_what_reaches_out_of_the_tensors_is_refused(name: str) -> None:
    assert name in REFUSED_NAMES
    function: Any = torch
    for part in name.split(".")[1:]:
        function = getattr(function, part)
    with pytest.raises(OperationRefused, match="cannot run on another worker"):
        number_of(function)


def test_no_op_of_the_table_has_a_name_that_reaches_out() -> None:
    suspicious = (
        "load",
        "save",
        "file",
        "pickle",
        "numpy",
        "dlpack",
        "storage",
        "hook",
        "ptr",
        "seed",
    )
    found = {name for name in NAMES if any(word in name.lower() for word in suspicious)}
    assert found == {
        "torch.Tensor.storage_offset",  # a number
        "torch.Tensor._nested_tensor_storage_offsets",  # a tensor of such numbers
    }


# ------------------------------------------------------------------------------ the module itself


def test_nothing_is_imported_by_name_or_evaluated() -> None:
    tree = ast.parse(Path(op_table.__file__).read_text(encoding="utf-8"))
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"eval", "exec", "compile", "__import__"}
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported == {"enum", "os", "torch"}
