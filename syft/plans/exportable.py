"""Exporting a plan to other formats, for phones, browsers and servers.

:mod:`syft.plans.export` translates the recorded program, not the Python function.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from syft.plans.building.build import BuiltPlan
from syft.plans.building.template import TENSOR
from syft.plans.export.fx import to_fx
from syft.plans.export.torch_export import to_exported, to_onnx, to_torchscript
from syft.program.program import without_inputs


class Exportable(ABC):
    """Something with a recorded program that can be exported. Abstract."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the plan: that of its function, method or class."""

    @abstractmethod
    def _built(self, action: str) -> BuiltPlan:
        """The recording; raises NotBuilt, which names the ``action``."""

    def to_fx(self) -> GraphModule:
        """The plan as a ``torch.fx.GraphModule`` that shares its state.

        Raises :class:`~syft.exceptions.NotBuilt`, and
        :class:`~syft.exceptions.UnsupportedOperation` for what torch.fx cannot express.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.to_fx()(torch.ones(3))
        tensor([2., 2., 2.])
        """
        kinds = self._built("exported").blueprint.interface.kinds
        numbers = [index for index, kind in enumerate(kinds) if kind is not TENSOR]
        return to_fx(*self._parts(), name=_class_name(self.name), numbers=numbers)

    def export(self, *examples: Any) -> ExportedProgram:
        """The plan as a ``torch.export`` program, for any batch size if the plan takes any.

        ``examples`` are arguments of the plan; by default they are made with the sizes it was built
        with.  Raises :class:`~syft.exceptions.NotBuilt`, and
        :class:`~syft.exceptions.UnsupportedOperation` for a training step.

        >>> plan = sy.func2plan(args_shape=[(-1, 2)])(lambda x: x + x)
        >>> plan.export().module()(torch.ones(3, 2)).shape
        torch.Size([3, 2])
        """
        return to_exported(*self._parts(), self._examples(examples), name=_class_name(self.name))

    def to_onnx(self, path: str | os.PathLike[str], *examples: Any) -> None:
        """Write the plan to an ONNX file; arguments and errors are those of :meth:`export`.

        Raises ``ModuleNotFoundError`` if the packages that write the format are not installed.
        """
        to_onnx(*self._parts(), self._examples(examples), path, name=_class_name(self.name))

    @property
    def torchscript(self) -> torch.jit.ScriptModule:
        """The plan as TorchScript; warns that torch has deprecated it.

        Errors are those of :meth:`export`.
        """
        return to_torchscript(*self._parts(), self._examples(()), name=_class_name(self.name))

    def _parts(self) -> tuple[Any, Any, dict[str, torch.Tensor]]:
        built = self._built("exported")
        interface = built.blueprint.interface
        state = dict(zip(interface.state, built.state.read(), strict=True))
        first, numbers = len(interface.kinds), built.assumptions.options.numbers
        program = without_inputs(built.program, dict(enumerate(numbers, first)))
        return program, interface.template, state

    def _examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        built = self._built("exported")
        return built.blueprint.interface.bind(examples, {}) if examples else built.examples()


def _class_name(name: str) -> str:
    """The name, if it can be the name of a class in Python."""
    return name if name.isidentifier() else "Plan"
