"""The arguments of the functions that run a backward pass, and what can be said of them beforehand.

There are three such functions: ``tensor.backward``, ``torch.autograd.backward`` and
``torch.autograd.grad``.  Whether their arguments fit together follows from shapes, dtypes and
graphs.  So it is found before a pass over private values begins, and everybody may see it; what
goes wrong later may follow from values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Final

import torch

from syft.workers.labels.walk import recorded_of


@dataclass(frozen=True, slots=True)
class _Names:
    """How the arguments of a function are called that several functions have."""

    roots: str
    starts: str
    inputs: str = "inputs"


_NAMES: Final[dict[Any, _Names]] = {
    torch.Tensor.backward: _Names("self", "gradient"),
    torch.autograd.backward: _Names("tensors", "grad_tensors"),
    torch.autograd.grad: _Names("outputs", "grad_outputs"),
}
_SIGNATURES: Final = {function: signature(function) for function in _NAMES}
_DEFAULTS: Final = {
    function: {name: parameter.default for name, parameter in found.parameters.items()}
    for function, found in _SIGNATURES.items()
}
_OTHER_STARTS: Final = "grad_variables"
"""The name that ``grad_tensors`` once had."""


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """A call of a function that runs a backward pass, by what its arguments are for.

    ``starts`` are the gradients of the roots, None for the implicit one; ``inputs`` are the tensors
    to whose gradients the pass is limited, None for all leaves.

    >>> x = torch.ones((), requires_grad=True)
    >>> call = backward_call(torch.autograd.grad, (x * 2, [x]), {})
    >>> len(call.roots), call.starts, call.inputs, call.flags["allow_unused"], call.returns
    (1, (None,), (tensor(1., requires_grad=True),), None, True)
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    roots: tuple[Any, ...]
    starts: tuple[Any, ...]
    inputs: tuple[Any, ...] | None

    @property
    def returns(self) -> bool:
        """Whether gradients are returned, and not left in the leaves."""
        return self.function == torch.autograd.grad

    @property
    def flags(self) -> dict[str, Any]:
        """The arguments that are no tensors by their meaning."""
        names = _NAMES[self.function]
        tensors = (names.roots, names.starts, names.inputs, _OTHER_STARTS)
        return {name: value for name, value in self.arguments.items() if name not in tensors}

    @property
    def creates(self) -> bool:
        """Whether gradients get a graph of their own."""
        return bool(self.flags["create_graph"])

    @property
    def retains(self) -> bool:
        """Whether the graph can be used again afterwards."""
        retains = self.flags["retain_graph"]
        return self.creates if retains is None else bool(retains)

    def with_tensors(self, starts: Sequence[Any], inputs: Sequence[Any] | None) -> BackwardCall:
        """The same call with other gradients of the roots, and other inputs."""
        if inputs is None and all(start is None for start in starts):
            return self
        names = _NAMES[self.function]
        given = {**self.arguments, names.starts: _like(self.arguments[names.starts], starts)}
        given.pop(_OTHER_STARTS, None)
        if inputs is not None:
            given[names.inputs] = list(inputs)
        inputs = None if inputs is None else tuple(inputs)
        return replace(self, arguments=given, starts=tuple(starts), inputs=inputs)

    def run(self) -> Any:
        """Run the pass; returns gradients as a tuple, or None."""
        return self.function(**self.arguments)

    def shaped(self, gradients: Sequence[Any]) -> Any:
        """Gradients as the function returns them: by name if its inputs have names."""
        names = self.arguments[_NAMES[self.function].inputs]
        return dict(zip(names, gradients, strict=True)) if type(names) is dict else tuple(gradients)

    def misfit(self) -> str | None:
        """Why the pass cannot begin, whatever the values are; None if nothing is wrong."""
        if len(self.starts) != len(self.roots):
            return f"got {len(self.roots)} tensors and {len(self.starts)} gradients"
        pairs = enumerate(zip(self.roots, self.starts, strict=True))
        found = (_misfit_of(index, *pair) for index, pair in pairs)
        wrong = next((text for text in found if text is not None), None)
        return self._misfit_of_inputs() if wrong is None else wrong

    def _misfit_of_inputs(self) -> str | None:
        if self.inputs is None:
            return None
        if not self.inputs:
            return "`inputs` argument cannot be empty."
        if not all(isinstance(one, torch.Tensor) for one in self.inputs):
            return "`inputs` must be tensors"
        if not all(one.requires_grad for one in self.inputs):
            return "One of the differentiated Tensors does not require grad"
        return None


def backward_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> BackwardCall:
    """The call by the meaning of its arguments; raises TypeError if they are not the function's.

    >>> backward_call(torch.Tensor.backward, (torch.ones(1),), {"graph": True})
    Traceback (most recent call last):
    ...
    TypeError: got an unexpected keyword argument 'graph'
    """
    given, names = _given(function, args, kwargs), _NAMES[function]
    roots = _several(given[names.roots])
    starts = given[names.starts]
    if starts is None:
        starts = given.get(_OTHER_STARTS)
    inputs = given[names.inputs]
    return BackwardCall(
        function,
        given,
        roots,
        (None,) * len(roots) if starts is None else _several(starts),
        None if inputs is None else _several(inputs),
    )


def _given(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments by name, with the defaults of those that are not given."""
    if kwargs or len(args) != 1 or function == torch.autograd.grad:
        bound = _SIGNATURES[function].bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    return {**_DEFAULTS[function], _NAMES[function].roots: args[0]}  # nearly always


def _several(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _like(before: Any, starts: Sequence[Any]) -> Any:
    """The gradients of the roots as the function takes them: one, or a list."""
    if all(start is None for start in starts):
        return None
    return starts[0] if isinstance(before, torch.Tensor) else list(starts)


def _misfit_of(index: int, root: Any, start: Any) -> str | None:
    """Why no pass can begin at a root with this gradient."""
    if not isinstance(root, torch.Tensor) or not isinstance(start, torch.Tensor | None):
        return "a backward pass takes tensors, and gradients that are tensors or None"
    recorded = recorded_of(root)
    if recorded is not None and not recorded.requires_grad:
        return f"element {index} of tensors does not require grad and does not have a grad_fn"
    if start is None:
        return _implicit_misfit(root)
    if start.shape != root.shape:
        shapes = f"{start.shape} and output[{index}] has a shape of {root.shape}"
        return f"Mismatch in shape: grad_output[{index}] has a shape of {shapes}."
    if start.dtype.is_complex != root.dtype.is_complex or start.device != root.device:
        kinds = f"{start.dtype} on {start.device} for an output of {root.dtype} on {root.device}"
        return f"Mismatch: grad_output[{index}] is {kinds}."
    return None


def _implicit_misfit(root: torch.Tensor) -> str | None:
    if root.numel() != 1:
        return "grad can be implicitly created only for scalar outputs"
    if not root.dtype.is_floating_point:
        return f"grad can be implicitly created only for real scalar outputs but got {root.dtype}"
    return None
