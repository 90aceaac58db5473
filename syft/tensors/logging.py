"""LoggingTensor: the smallest complete link. It logs each operation, and runs it.

Every operation goes to the logger ``syft.tensors.logging``, on whichever worker it runs: a
LoggingTensor that was sent to bob logs on bob.

>>> import logging, sys
>>> log = logging.getLogger("syft.tensors.logging")
>>> log.addHandler(handler := logging.StreamHandler(sys.stdout)); log.setLevel("INFO")
>>> x = LoggingTensor().on(torch.tensor([1.0, 2.0]))
>>> x + x
torch.Tensor.add
(Wrapper)>LoggingTensor>tensor([2., 4.])
>>> log.removeHandler(handler); log.setLevel("NOTSET")
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from syft.ops.nested import Arguments, Keywords
from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.ops.table import name_of
from syft.serde.expect import expect_fields
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, register, unpack_at
from syft.tensors.local import LocalLink

log = logging.getLogger(__name__)


class LoggingTensor(LocalLink):
    """Logs the name of every operation on the tensor behind it.

    >>> x = sy.LoggingTensor().on(torch.tensor([1.0, 2.0]))
    >>> x + x  # logged as "torch.Tensor.add"
    (Wrapper)>LoggingTensor>tensor([2., 4.])
    """

    __slots__ = ()

    @classmethod
    def on_call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Log the operation, then let the tensor behind the link run it.

        >>> LoggingTensor.on_call(torch.add, (torch.ones(2), 1), {})
        tensor([2., 2.])
        """
        log.info(name_of(operation))
        return operation(*args, **kwargs)


def _pack(link: LoggingTensor, packer: Packer) -> Operand:
    return (int(TypeCode.LOGGING_TENSOR), pack(link.tensor, packer))


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    expect_fields(operand, 1)
    tensor = unpack_at(operand[1], unpacker, ".tensor")
    if not isinstance(tensor, torch.Tensor):
        raise MalformedMessage("$.tensor", "a tensor", type(tensor).__name__)
    return LoggingTensor().on(tensor)


register(TypeCode.LOGGING_TENSOR, LoggingTensor, _pack, _unpack)
