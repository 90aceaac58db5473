"""A CNN, an LSTM and a transformer layer in every format, at other batch sizes than recorded."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from tqdm import tqdm

from syft.exceptions import ProgramError, UnsupportedOperation, WrongArguments
from syft.plans.export.fx import to_fx
from syft.plans.export.torch_export import to_exported, to_onnx, to_torchscript
from syft.plans.export.tracing import traceable
from syft.program.program import Mode, Program
from tests.outside import outside
from tests.plans.export.exported import MODELS, S, act, recorded, replayed, state_of

# torch.jit.trace says of each size check inside torch's own attention that it took one path.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

DEPRECATED = "torch has deprecated TorchScript"
OTHER_SIZES = (1, 2, 3, 7)


class Recorded(NamedTuple):
    """A model in eval mode, and the program of its forward pass."""

    model: nn.Module
    program: Program
    state: dict[str, torch.Tensor]
    sample: Callable[[int], torch.Tensor]


@pytest.fixture(autouse=True)
def no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's interpreter makes a progress bar, and its package starts a thread to watch it."""
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Recorded:
    make, shape = MODELS[request.param]
    torch.manual_seed(0)
    made = make().eval()
    state = state_of(made)
    program = recorded(made, [torch.randn(3, *shape)], state)
    return Recorded(made, program, state, lambda size: torch.randn(size, *shape))


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


# ---------------------------------------------------------------------------------------- models


def test_fx_gives_what_the_model_gives(model: Recorded) -> None:
    module = to_fx(model.program, ["x"], model.state, name="Net")
    assert type(module).__name__ == "Net"
    assert set(module.state_dict()) >= set(model.state)
    assert all(module.get_parameter(n) is p for n, p in model.model.named_parameters())
    for size in OTHER_SIZES:
        x = model.sample(size)
        assert torch.equal(module(x), model.model(x))
        assert torch.equal(module(x=x), replayed(model.program, [x], model.state))


def test_fx_module_can_be_trained(model: Recorded) -> None:
    module = to_fx(model.program, ["x"], model.state)
    x = model.sample(4)
    module(x).sum().backward()
    got = {name: parameter.grad for name, parameter in module.named_parameters()}
    model.model.zero_grad()
    model.model(x).sum().backward()
    for name, parameter in model.model.named_parameters():
        ours, theirs = got[name], parameter.grad
        assert ours is not None and theirs is not None and torch.equal(ours, theirs)
    model.model.zero_grad()


@pytest.mark.parametrize("size", [1, 3])
def test_export_gives_what_the_model_gives(model: Recorded, size: int) -> None:
    exported = to_exported(model.program, ["x"], model.state, [model.sample(size)])
    assert exported.range_constraints
    for other in OTHER_SIZES:
        x = model.sample(other)
        torch.testing.assert_close(exported.module()(x), model.model(x))


def test_onnx_gives_what_the_model_gives(model: Recorded, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    to_onnx(model.program, ["x"], model.state, [model.sample(3)], path)
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    runtime = session(path)
    assert [given.name for given in runtime.get_inputs()] == ["x"]
    for size in OTHER_SIZES:
        x = model.sample(size)
        (got,) = runtime.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), model.model(x).detach())


def test_torchscript_gives_what_the_model_gives_and_warns(model: Recorded, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        script = to_torchscript(model.program, ["x"], model.state, [model.sample(3)])
    script.eval()
    for size in OTHER_SIZES:
        x = model.sample(size)
        torch.testing.assert_close(script(x), model.model(x))


# --------------------------------------------------------------------------------- other programs


class Pair(NamedTuple):
    """Two tensors."""

    first: torch.Tensor
    second: torch.Tensor


NESTED = Program(
    inputs=3,
    actions=(
        act("torch.add", S(0), S(1), out=S(3)),
        act("torch.Tensor.mul", S(2), S(3), out=S(4)),
        act("torch.Tensor.max", S(4), 1, out=(S(5), None)),
    ),
    outputs={"sum": S(3), "rest": [S(4), (S(5),)]},
)
STRUCTURES = {"pair": (S(0), {"b": S(1)}), "flag": True, "c": S(2)}


def nested_oracle(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Any]:
    product = c * (a + b)
    return {"sum": a + b, "rest": [product, (product.max(1).values,)]}


def assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert torch.equal(got["sum"], expected["sum"])
    assert torch.equal(got["rest"][0], expected["rest"][0])
    assert torch.equal(got["rest"][1][0], expected["rest"][1][0])


def test_nested_arguments_and_results() -> None:
    a, b, c = torch.randn(3, 4, 2).unbind()
    module = to_fx(NESTED, STRUCTURES, {})
    exported = to_exported(NESTED, STRUCTURES, {}, [a, b, c]).module()
    for size in (4, 6):
        a, b, c = torch.randn(3, size, 2).unbind()
        for form in (module, exported):
            assert_same(form((a, {"b": b}), True, c), nested_oracle(a, b, c))


def test_named_tuples_as_arguments_and_results() -> None:
    swap = Program(inputs=2, actions=(), outputs=Pair(S(1), S(0)))
    structures = {"pair": Pair(S(0), S(1))}
    x, y = torch.ones(2), torch.zeros(2)
    got = to_fx(swap, structures, {})(Pair(x, y))
    assert type(got) is Pair and got.first is y and got.second is x
    maximum = Program(1, (act("torch.Tensor.max", S(0), 0, out=(S(1), S(2))),), None)
    outputs = torch.return_types.max((S(1), S(2)))
    kept = to_fx(replace(maximum, outputs=outputs), ["x"], {})(x)
    assert type(kept) is type(x.max(0)) and kept.values == 1


def test_only_some_inputs_may_be_a_batch() -> None:
    program = Program(2, (act("torch.matmul", S(0), S(1), out=S(2)),), S(2))
    weight = torch.randn(4, 2)
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        script = to_torchscript(program, "xw", {}, [torch.randn(3, 4), weight], batched=[0])
    exported = to_exported(program, "xw", {}, [torch.randn(3, 4), weight], batched=[0])
    x = torch.randn(5, 4)
    assert torch.equal(exported.module()(x, weight), x @ weight)
    assert torch.equal(script(x, weight), x @ weight)
    fixed = to_exported(program, "xw", {}, [torch.randn(3, 4), weight])  # nobody says which
    assert not fixed.range_constraints


def test_a_program_of_one_size_is_exported_for_that_size() -> None:
    program = Program(1, (act("torch.Tensor.view", S(0), 2, 3, out=S(1)),), S(1))
    x = torch.arange(6.0)
    exported = to_exported(program, "x", {}, [x])
    assert not exported.range_constraints
    assert torch.equal(exported.module()(x), x.view(2, 3))


def test_a_batch_without_rows_as_example() -> None:
    program = Program(1, (act("torch.Tensor.mul", S(0), 2, out=S(1)),), S(1))
    exported = to_exported(program, "x", {}, [torch.zeros(0, 3)])
    assert torch.equal(exported.module()(torch.ones(4, 3)), torch.full((4, 3), 2.0))


def test_sizes_follow_the_batch() -> None:
    program = Program(
        inputs=1,
        actions=(
            act("torch.Tensor.shape.__get__", S(0), out=(S(1), S(2))),
            act("syft.ops.numbers.mul", S(1), S(2), out=S(3)),
            act("torch.Tensor.view", S(0), S(3), out=S(4)),
            act("torch.ones", S(3), out=S(5)),
            act("torch.add", S(4), S(5), out=S(6)),
        ),
        outputs=S(6),
    )
    exported = to_exported(program, "x", {}, [torch.ones(3, 2)]).module()
    x = torch.randn(5, 2)
    assert torch.equal(exported(x), x.reshape(-1) + 1)


def test_random_programs_are_exported_and_leave_the_generator_alone() -> None:
    dropout = act("torch.nn.functional.dropout", S(0), 0.5, True, out=S(1))
    program = Program(1, (dropout,), S(1))
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    exported = to_exported(program, "x", {}, [torch.ones(4, 2)]).module()
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        to_torchscript(program, "x", {}, [torch.ones(4, 2)])
    assert torch.equal(torch.rand(3), expected)
    assert set(exported(torch.ones(50, 2)).unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("mode", [Mode(False), Mode(False, inference=True)])
def test_modes_are_exported(mode: Mode, tmp_path: Path) -> None:
    state = {"w": nn.Parameter(torch.tensor([2.0, 3.0]))}
    program = Program(
        inputs=1,
        state=1,
        actions=(
            act("torch.mul", S(0), S(1), out=S(2), mode=mode),
            act("torch.add", S(2), S(0), out=S(3)),
        ),
        outputs=S(3),
    )
    exported = to_exported(program, "x", state, [torch.ones(3, 2)]).module()
    x = torch.randn(4, 2)
    assert torch.equal(exported(x), x * state["w"] + x)
    to_onnx(program, "x", state, [torch.ones(3, 2)], tmp_path / "mode.onnx")
    (got,) = session(tmp_path / "mode.onnx").run(None, {"x": x.numpy()})
    np.testing.assert_allclose(got, (x * state["w"] + x).detach().numpy(), rtol=1e-6)


def test_autocast_is_exported() -> None:
    mode = Mode(True, autocast=(("cpu", torch.bfloat16),))
    program = Program(2, (act("torch.matmul", S(0), S(1), out=S(2), mode=mode),), S(2))
    x, y = torch.randn(2, 3, 3).unbind()
    exported = to_exported(program, "xy", {}, [x, y]).module()
    assert exported(x, y).dtype == torch.bfloat16
    assert torch.equal(exported(x, y), replayed(program, [x, y], {}))


# ----------------------------------------------------------------------------------- state written


def counter() -> tuple[Program, dict[str, torch.Tensor]]:
    program = Program(
        inputs=1,
        state=1,
        actions=(act("torch.Tensor.add_", S(1), 1), act("torch.add", S(0), S(1), out=S(2))),
        outputs=S(2),
    )
    return program, {"count": torch.zeros(1)}


def test_exporting_leaves_the_state_as_it_is() -> None:
    program, state = counter()
    exported = to_exported(program, "x", state, [torch.ones(3)])
    with pytest.warns(DeprecationWarning, match=DEPRECATED):
        script = to_torchscript(program, "x", state, [torch.ones(3)])
    assert state["count"] == 0
    module = exported.module()
    assert [module(torch.zeros(1)).item() for _ in range(2)] == [1, 2]
    assert script(torch.zeros(1)) == script(torch.zeros(1)) - 1


def test_onnx_has_no_place_for_written_state(tmp_path: Path) -> None:
    program, state = counter()
    with pytest.raises(UnsupportedOperation) as caught:
        to_onnx(program, "x", state, [torch.ones(3)], tmp_path / "count.onnx")
    assert str(caught.value) == (
        "ONNX has no rule for a write to 'count': "
        "export a plan that only reads, as of model.eval()."
    )
    writes = Program(1, (act("torch.Tensor.add_", S(0), 1),), S(0))
    with pytest.raises(UnsupportedOperation, match="a write to 'x'"):
        to_onnx(writes, "x", {}, [torch.ones(3)], tmp_path / "write.onnx")
    assert not list(tmp_path.iterdir())


def test_onnx_takes_tensors_only_as_results(tmp_path: Path) -> None:
    program = Program(1, (act("torch.abs", S(0), out=S(1)),), (S(1), "label"))
    with pytest.raises(UnsupportedOperation, match="ONNX has no rule for 'label' among the res"):
        to_onnx(program, "x", {}, [torch.ones(3)], tmp_path / "label.onnx")


# --------------------------------------------------------------------------------------- refusals

TRAINING = {
    "torch.Tensor.backward": (act("torch.Tensor.backward", S(2)),),
    "torch.autograd.grad": (act("torch.autograd.grad", S(2), S(1), out=(S(3),)),),
    "torch.Tensor.grad.__set__": (act("torch.Tensor.grad.__set__", S(1), None),),
    "torch.Tensor.grad.__get__": (act("torch.Tensor.grad.__get__", S(1), out=S(3)),),
    "syft.ops.control.ensure_grad": (act("syft.ops.control.ensure_grad", S(1)),),
}


@pytest.mark.parametrize("name", TRAINING)
def test_a_training_step_is_refused_by_name(name: str) -> None:
    loss = act("torch.dot", S(0), S(1), out=S(2))
    program = Program(1, (loss, *TRAINING[name]), S(2), state=1)
    state = {"w": nn.Parameter(torch.ones(2))}
    with pytest.raises(UnsupportedOperation) as caught:
        to_exported(program, "x", state, [torch.ones(2)])
    assert str(caught.value) == (
        f"Export has no rule for action 1, {name}: a training step cannot be exported; "
        "export the plan of the forward pass."
    )


def test_numbers_among_the_inputs_are_refused() -> None:
    program = Program(2, (act("torch.mul", S(0), S(1), out=S(2)),), S(2))
    with pytest.raises(UnsupportedOperation) as caught:
        to_exported(program, ["x", "factor"], {}, [torch.ones(2), 0.5])
    assert str(caught.value) == (
        "Export has no rule for the number among the inputs of the plan, in 'factor': "
        "torch would keep the number of this call; give it as a tensor."
    )


def test_an_example_for_each_input_is_needed() -> None:
    program = Program(2, (act("torch.mul", S(0), S(1), out=S(2)),), S(2))
    with pytest.raises(WrongArguments, match="Plan 'scale' takes 2 values, and got 1"):
        to_exported(program, ["x", "y"], {}, [torch.ones(2)], name="scale")


class Other(nn.Module):
    """Does not do what was recorded."""

    def __init__(self, result: torch.Tensor) -> None:
        super().__init__()
        self.result = result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Something else."""
        return self.result


def test_a_result_of_torch_that_disagrees_is_not_handed_out() -> None:
    program = Program(1, (act("torch.abs", S(0), out=S(1)),), S(1))
    plan = traceable(program, "x", {}, [torch.ones(3, 2)], "abs", None)
    plan.check(Other(torch.ones(4, 2)))
    for wrong in (torch.ones(3, 2), torch.zeros(4, 2)):
        with pytest.raises(ProgramError) as caught:
            plan.check(Other(wrong))
        assert str(caught.value) == (
            "torch exported something else than was recorded: "
            "with inputs of the shapes (4, 2) the results differ"
        )


# -------------------------------------------------------------------------------------- packages

MISSING = """
import sys, tempfile
sys.modules["onnxscript"] = None
import torch
from syft.plans.export.torch_export import to_onnx
from syft.program.program import Program, Slot
try:
    to_onnx(Program(1, (), (Slot(0),)), ["x"], {}, [torch.ones(2)], tempfile.mkdtemp() + "/x.onnx")
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_missing_package_is_named() -> None:
    command = [sys.executable, "-c", MISSING]
    done = subprocess.run(command, env=outside(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "to_onnx needs two packages that are no part of syft: pip install onnx onnxscript"
    )


def test_the_error_keeps_the_name_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(*args: Any, **kwargs: Any) -> None:
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr(torch.onnx, "export", export)
    program = Program(1, (act("torch.abs", S(0), out=S(1)),), S(1))
    with pytest.raises(ModuleNotFoundError, match="pip install onnx onnxscript") as caught:
        to_onnx(program, "x", {}, [torch.ones(3)], "never.onnx")
    assert caught.value.name == "onnxscript"


def test_the_core_imports_no_package_for_onnx() -> None:
    code = "import sys, syft, syft.plans.export.torch_export; print(*sorted(sys.modules))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=outside(), capture_output=True, text=True, check=True)
    assert not {"onnx", "onnxscript", "onnxruntime"} & set(done.stdout.split())


def test_warnings_of_torch_about_itself_are_kept_from_the_user() -> None:
    program = Program(1, (act("torch.abs", S(0), out=S(1)),), S(1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_exported(program, "x", {}, [torch.ones(3, 2)])
    assert [str(warning.message) for warning in caught] == []
