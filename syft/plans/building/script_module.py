"""A TorchScript module as an ordinary one, with parameters of the same names that can be trained.

What a plan is recorded from has to run in Python.  The code of the script, which stays here, is
walked through; nothing of it travels but the operations that a recording saw.
"""

from __future__ import annotations

import functools
import inspect
from itertools import chain as joined
from typing import Any, Final

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from syft.exceptions import CannotRecord
from syft.ops.nested import replace
from syft.plans.building.script_graph import ScriptGraph

ScriptFunction: Any = torch.jit.ScriptFunction

_NO_FORWARD: Final = "it has none; script a module that calls it"
_DENSE: Final = "pad it: torch.nn.utils.rnn.pad_packed_sequence"


class _Script:
    """A TorchScript module and its graph. Copies of a module share it: nothing in it changes."""

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self.module = module
        self.parts = dict(module.named_modules())
        forward = _dense_forward(module)
        self.graph = ScriptGraph(forward.inlined_graph)
        self.signature = _signature_of(forward.schema)
        named = module.named_parameters, module.named_buffers
        self.names = {id(tensor): name for each in named for name, tensor in each()}
        """The name of each parameter and buffer of the script, by the number of the object."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Script:
        return self


def _dense_forward(module: Any) -> Any:
    """The forward of a script; of several, as ``nn.LSTM`` and its like have them, that which takes
    tensors and no packed sequences."""
    for name in ("forward", "forward__0", "forward__1"):
        forward = getattr(module, name, None)
        if forward is not None and "PackedSequence" not in str(forward.schema):
            return forward
    raise CannotRecord(f"a TorchScript {module.original_name}", "its forward", _NO_FORWARD)


def _signature_of(schema: Any) -> inspect.Signature:
    """The parameters of a function of TorchScript as those of one of Python."""
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name, kind, default=each.default_value if each.has_default_value() else empty
            )
            for each in schema.arguments
        ]
    )


class _Part(nn.Module):
    """A module of a script, with the same parameters and buffers."""

    def __init__(self, script: _Script, path: str, parameters: dict[int, nn.Parameter]) -> None:
        super().__init__()
        self._script, self._path = script, path
        original: Any = script.parts[path]
        self.training = original.training
        for name, parameter in original.named_parameters(recurse=False, remove_duplicate=False):
            self.register_parameter(name, parameters[id(parameter)])
        for name, buffer in original.named_buffers(recurse=False, remove_duplicate=False):
            self.register_buffer(name, buffer)
        for name, _ in original.named_children():
            inner = f"{path}.{name}" if path else name
            self.add_module(name, _Part(script, inner, parameters))


class UnpackedScript(_Part):
    """A module of Python that does what a TorchScript module does, over the same memory.

    What is trained in one is trained in the other, and the names in its ``state_dict`` are those of
    the script.  A copy of it has parameters of its own.  A script that was traced stays in the
    mode, training or not, in which that was done; one that was scripted follows ``train()``.  A
    script of ``nn.LSTM`` and its like takes tensors, and no packed sequences.

    Raises :class:`~syft.exceptions.CannotRecord`, here or when it is called, for what a plan cannot
    keep.

    >>> script = torch.jit.trace(nn.Linear(2, 1), torch.ones(1, 2))
    >>> unpacked, x = UnpackedScript(script), torch.ones(3, 2)
    >>> torch.equal(unpacked(x), script(x)), list(unpacked.state_dict())
    (True, ['weight', 'bias'])
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        parameters = {id(each): _as_parameter(each) for each in module.parameters()}
        super().__init__(_Script(module), "", parameters)

    @property
    def script(self) -> torch.jit.ScriptModule:
        """The module that it was made of."""
        return self._script.module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the code of the script in Python."""
        if any(isinstance(each, PackedSequence) for each in (*args, *kwargs.values())):
            raise CannotRecord("a packed sequence", "the arguments of a TorchScript module", _DENSE)
        bound = self._script.signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        return self._script.graph.run(bound.args, functools.partial(_attribute, self))


def _as_parameter(tensor: torch.Tensor) -> nn.Parameter:
    """A parameter of a script; one that was loaded from a file is a tensor of another class."""
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)


def _attribute(unpacked: UnpackedScript, part: Any, name: str) -> Any:
    """What a module in a graph has: a parameter, buffer or part of the unpacked module, or what the
    script keeps besides, with the module's tensors in the place of the script's own."""
    if name == "training" or name in part._parameters or name in part._buffers:
        return getattr(part, name)
    if name in part._modules:
        return part._modules[name]
    script = unpacked._script
    tensors = dict(joined(unpacked.named_parameters(), unpacked.named_buffers()))

    def own(leaf: Any) -> Any:
        known = script.names.get(id(leaf))
        return leaf if known is None else tensors[known]

    return replace(getattr(script.parts[part._path], name), own)


def as_python(called: Any) -> Any:
    """What a recording sees each step of: anything but TorchScript is returned as it is.

    >>> as_python(len) is len
    True
    >>> as_python(torch.jit.trace(lambda x: x + 1, torch.ones(2)))(torch.ones(2))
    tensor([2., 2.])
    """
    if isinstance(called, torch.jit.ScriptModule):
        return UnpackedScript(called)
    if isinstance(called, ScriptFunction):
        return _function_of(called)
    return called


def _function_of(script: Any) -> Any:
    """A function of Python with the parameters of a scripted one."""
    graph = ScriptGraph(script.inlined_graph)
    signature = _signature_of(script.schema)

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return graph.run(bound.args)

    function.__name__ = script.name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
