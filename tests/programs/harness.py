"""Programs as users of PyTorch write them, and the ways in which one harness runs each of them.

A program is a plain function of tensors and modules.  Its inputs are made anew, under a seed, for
each way.  What is compared with plain torch: what it returns, the gradients that a loss of its
results leaves in its inputs, and what it has left in them: parameters and buffers after a step of
an optimizer, tensors after writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

import syft as sy
from syft.chain.wrapper import Wrapper
from syft.ops.nested import leaves

Maker = Callable[[], Any]
PROGRAMS: Final[dict[str, Program]] = {}
WAYS: Final = ("virtual", "queued", "socket", "plan", "sent plan", "lazy", "held", "device")
"""On pointers, as plans, as tensors computed when they are asked for, on pointers whose operations
are held back, and on a device."""
_RUNS: Final = 4
"""How often a program is run whose operations are held back: what repeats is recognised."""


@dataclass(frozen=True)
class Program:
    """A function of inputs that ``makers`` make.

    ``drawn``: it draws random numbers, which another process draws differently.  ``makes``: it
    makes tensors of numbers outside of any module, which users write in ``with sy.at(worker):``.
    ``plan``: it is a function of tensors, as a plan is.
    """

    name: str
    run: Callable[..., Any]
    makers: tuple[Maker, ...]
    drawn: bool = False
    makes: bool = False
    plan: bool = True

    def inputs(self) -> list[Any]:
        """The inputs, the same each time."""
        torch.manual_seed(1)
        return [maker() for maker in self.makers]


def add(name: str, run: Callable[..., Any], *makers: Maker, **about: bool) -> None:
    """Add a program; a name is given once."""
    if name in PROGRAMS:
        raise ValueError(f"there is a program {name} already")
    PROGRAMS[name] = Program(name, run, makers, **about)


def program(*makers: Maker, **about: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the function below."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        add(run.__name__, run, *makers, **about)
        return run

    return register


def plainly(program: Program) -> list[Any]:
    """What plain torch gives: the oracle."""
    inputs = program.inputs()
    return _seen(_outcome(program.run, inputs), inputs)


def run_remotely(program: Program, worker: Any) -> list[Any]:
    """The same on pointers: tensors and modules are sent, and nothing else is changed."""
    inputs = [value.send(worker) if _travels(value) else value for value in program.inputs()]
    with sy.at(worker) if program.makes else contextlib.nullcontext():
        return _seen(_outcome(program.run, inputs), inputs)


def run_lazily(program: Program) -> list[Any]:
    """The same on lazy tensors and modules."""
    inputs = [value.to_lazy() if _travels(value) else value for value in program.inputs()]
    return _seen(_outcome(program.run, inputs), inputs)


def run_held(program: Program, worker: Any) -> list[Any]:
    """The same on pointers to a worker that is sent operations when something is asked, as often as
    a training loop repeats its step; what the last run gives."""
    for _ in range(_RUNS - 1):
        run_remotely(program, worker)
    return run_remotely(program, worker)


def run_on_device(program: Program, worker: Any) -> list[Any]:
    """The same where tensors and modules are brought to a device, and results back."""
    device: Any = sy.device(worker)
    inputs = [_on(device, value) for value in program.inputs()]
    with device if program.makes else contextlib.nullcontext():
        return _seen(_outcome(program.run, inputs), inputs)


def _on(device: Any, value: Any) -> Any:
    """What is brought to a device; a tensor with a gradient is a leaf there."""
    if _is_tensor(value):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value.to(device) if _travels(value) else value


def run_as_plan(program: Program) -> list[Any]:
    """The same as a plan of its tensors, with its modules in the closure."""
    plan, inputs = _built(program)
    return _seen(_outcome(plan, _tensors(inputs)), inputs)


def run_as_sent_plan(program: Program, worker: Any) -> list[Any]:
    """The same as a plan at a worker: results, the gradients of tensors, and the state that comes
    back with the plan."""
    plan, inputs = _built(program)
    pointer = plan.send(worker)
    tensors = [tensor.send(worker) for tensor in _tensors(inputs)]
    seen = _seen(_outcome(pointer, tensors), tensors)
    return seen + _state(pointer.get())


def plan_here(program: Program) -> list[Any]:
    """What a sent plan is compared with: the same plan here."""
    plan, inputs = _built(program)
    tensors = _tensors(inputs)
    return _seen(_outcome(plan, tensors), tensors) + _state(plan)


def _state(plan: Any) -> list[Any]:
    return [value.detach() for _, value in sorted(plan.state_dict().items())]


def _built(program: Program) -> tuple[Any, list[Any]]:
    inputs = program.inputs()

    def function(*given: torch.Tensor) -> Any:
        left = iter(given)
        return program.run(*[next(left) if _is_tensor(value) else value for value in inputs])

    plan = sy.func2plan()(function)
    torch.manual_seed(2)
    plan.build(*_tensors(inputs))
    return plan, inputs


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensors(inputs: list[Any]) -> list[torch.Tensor]:
    return [value for value in inputs if _is_tensor(value)]


def _travels(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, nn.Module))


def _outcome(run: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """The results, after a backward pass from those that have a graph."""
    torch.manual_seed(2)
    results = list(leaves(run(*inputs)))
    losses = [_loss(value) for value in results if _is_tensor(value) and value.requires_grad]
    if losses:
        sum(losses[1:], losses[0]).backward()
    return results


def _loss(value: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(value) if value.is_complex() else value
    return (real * real).sum() + real.sum()


def _seen(results: list[Any], inputs: list[Any]) -> list[Any]:
    """Results and inputs as plain tensors, the inputs' gradients among them."""
    fetched: dict[int, Any] = {}  # what a program returns may be what it was given
    tensors = _tensors(inputs)
    gradients = [value.grad if value.is_leaf else None for value in tensors]
    seen = [_fetched(value, fetched) for value in (*results, *gradients, *tensors)]
    for module in inputs:
        if isinstance(module, nn.Module):
            parts: Any = _parts(module)
            if any(_is_remote(part) and not part.is_lazy() for part in parts):
                module.get()  # type: ignore[operator]
            for part in _parts(module):
                seen += [_fetched(part, fetched), _fetched(part.grad, fetched)]
    return seen


def _parts(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _is_remote(value: Any) -> bool:
    return type(value) is Wrapper


def _fetched(value: Any, fetched: dict[int, Any]) -> Any:
    if _is_remote(value) and value.is_lazy():
        value = value.to_eager()
    elif _is_remote(value):
        id = value.id_at_location
        value = fetched[id] if id in fetched else fetched.setdefault(id, value.get())
    return value.detach() if _is_tensor(value) else value


def check_same(want: list[Any], got: list[Any], values: bool = True) -> None:
    """Assert that two outcomes are equal; without ``values`` in kind and shape alone."""
    assert len(want) == len(got)
    for mine, theirs in zip(want, got, strict=True):
        if not _is_tensor(mine):
            assert type(mine) is type(theirs) and (mine == theirs or not values or mine != mine)
        elif values:
            torch.testing.assert_close(theirs, mine, equal_nan=True)
        else:
            assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
