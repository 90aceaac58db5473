"""What a tensor is besides its data: requires_grad, Parameter or Buffer, grad, tags, description.

A tensor without any of these has nil in this field.  A tensor that requires grad and is the result
of a computation has a graph behind it, which cannot travel: serde packs it detached, without grad.
Whether that is refused (``NotALeaf``) is the caller's decision.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.codes import TensorFlag
from syft.exceptions import MalformedMessage
from syft.serde.expect import expect_int, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack_items, unpack_at

Attributes = tuple[int, Any, tuple[str, ...] | None, str | None] | None

_REQUIRES_GRAD, _PARAMETER = int(TensorFlag.REQUIRES_GRAD), int(TensorFlag.PARAMETER)
_BUFFER, _PERSISTENT = int(TensorFlag.BUFFER), int(TensorFlag.PERSISTENT)
# The combinations of flags that one tensor may have.
_ALLOWED = frozenset(
    (0, _REQUIRES_GRAD, _PARAMETER, _PARAMETER | _REQUIRES_GRAD)
    + (_BUFFER, _BUFFER | _PERSISTENT)
    + (_BUFFER | _REQUIRES_GRAD, _BUFFER | _PERSISTENT | _REQUIRES_GRAD)
)


def pack_attributes(tensor: torch.Tensor, packer: Packer) -> Attributes:
    """Return (flags, grad, tags, description), or None for a tensor that has none of them.

    >>> pack_attributes(torch.ones(2), Packer()) is None
    True
    >>> pack_attributes(torch.ones(2, requires_grad=True), Packer())
    (1, None, None, None)
    """
    leaf = tensor.is_leaf
    flags = _REQUIRES_GRAD if leaf and tensor.requires_grad else 0
    if isinstance(tensor, torch.nn.Parameter):
        flags |= _PARAMETER
    tags = description = None
    if tensor.__dict__:
        marks, tags, description = _from_dict(tensor.__dict__)
        flags |= marks
    grad = tensor.grad if leaf and packer.gradients else None
    if grad is not None:
        (operand,) = pack_items((grad,), packer)
        return flags, operand, tags, description
    if flags or tags is not None or description is not None:
        return flags, None, tags, description
    return None


def _from_dict(names: dict[str, Any]) -> tuple[int, tuple[str, ...] | None, str | None]:
    """The flags of a buffer, the tags and the description, which lie in the tensor's dict."""
    flags = 0
    if names.get("_is_buffer"):
        flags = _BUFFER | (_PERSISTENT if names["persistent"] else 0)
    tags = tuple(sorted(names["_tags"])) if names.get("_tags") else None
    return flags, tags, names.get("_description") or None


def attach_attributes(tensor: torch.Tensor, attributes: Any, unpacker: Unpacker) -> torch.Tensor:
    """Give a freshly built tensor the attributes in a field, and return it.

    >>> attach_attributes(torch.ones(2), [1, None, ["#x"], None], Unpacker([]))
    tensor([1., 1.], requires_grad=True)
    """
    if attributes is None:
        return tensor
    if (type(attributes) is not list and type(attributes) is not tuple) or len(attributes) != 4:
        raise malformed("nil, or flags, grad, tags and description", attributes, ".attributes")
    flags = expect_int(attributes[0], ".flags", high=15)
    if flags not in _ALLOWED:
        raise MalformedMessage("$.flags", "flags that go together", str(flags))
    tensor = _as_kind(tensor, flags)
    _attach_text(tensor, attributes[2], attributes[3])
    if attributes[1] is not None:
        _attach_grad(tensor, unpack_at(attributes[1], unpacker, ".grad"))
    return tensor


def _as_kind(tensor: torch.Tensor, flags: int) -> torch.Tensor:
    requires_grad = bool(flags & _REQUIRES_GRAD)
    if requires_grad and not (tensor.is_floating_point() or tensor.is_complex()):
        raise MalformedMessage("$.flags", "a dtype that can require grad", str(tensor.dtype))
    if flags & _PARAMETER:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    if flags & _BUFFER:
        tensor = torch.nn.Buffer(tensor, persistent=bool(flags & _PERSISTENT))
    return tensor.requires_grad_() if requires_grad else tensor


def _attach_text(tensor: torch.Tensor, tags: Any, description: Any) -> None:
    if tags is not None:
        expect_type(tags, (list, tuple), "an array of tags", ".tags")
        for index, tag in enumerate(tags):
            expect_type(tag, str, "a text", f".tags[{index}]")
        tensor.__dict__["_tags"] = set(tags)
    if description is not None:
        tensor.__dict__["_description"] = expect_type(
            description, str, "a text or nil", ".description"
        )


def _attach_grad(tensor: torch.Tensor, grad: Any) -> None:
    if not isinstance(grad, torch.Tensor):
        raise malformed("a tensor", grad, ".grad")
    try:
        tensor.grad = grad
    except (RuntimeError, TypeError) as error:
        # torch checks that the gradient has the same shape, device and dtype.
        raise MalformedMessage("$.grad", "a gradient that fits its tensor", str(error)) from error
