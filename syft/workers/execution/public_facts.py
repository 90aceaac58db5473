"""What somebody who may not see a value may ask about it: a list, and everything else is refused.

A question about a tensor (its shape, its dtype) has an answer that follows from the program, as
long as the forecast fixes it: a command that fails in secret leaves results of the same shape,
strides, dtype, device and graph as one that succeeds.  It does not leave the same version counter,
node of the graph, place in memory or names.  So the questions whose answers the forecast fixes have
a row here, with the reason; those that are refused have one too, so that a new operation of the op
table is decided about and not forgotten.  A question without a row is refused.

Of a value whose shape is private as well, only what follows from its dtype, device and layout is
told.

Tags and descriptions are not asked of torch: their owner wrote them in order to be found, so they
are shown to everybody (:mod:`syft.workers.handlers.objects`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.ops.nested import leaves
from syft.ops.table import FLAGS, FUNCTIONS, METADATA, NAMES, PROGRAM_FUNCTIONS
from syft.workers.labels.guards import Guard

Function = Callable[..., Any]


class Basis(enum.Enum):
    """What the answer to a question follows from."""

    KIND = "dtype, device and layout"
    FORM = "shape and strides"
    GRAPH = "the graph, as far as a forecast knows it"
    SECRET = "what no forecast knows"


TOLD: Final[dict[str, tuple[Basis, str]]] = {
    "dtype": (Basis.KIND, "the forecast fixes it"),
    "device": (Basis.KIND, "a result is where its inputs are"),
    "layout": (Basis.KIND, "the forecast fixes it"),
    "type": (Basis.KIND, "dtype and layout in one name; with a dtype it is a conversion"),
    "element_size": (Basis.KIND, "the bytes of the dtype"),
    "itemsize": (Basis.KIND, "the bytes of the dtype"),
    "is_complex": (Basis.KIND, "the dtype"),
    "is_floating_point": (Basis.KIND, "the dtype"),
    "is_signed": (Basis.KIND, "the dtype"),
    "get_device": (Basis.KIND, "the device"),
    "is_cpu": (Basis.KIND, "the device"),
    "is_cuda": (Basis.KIND, "the device"),
    "is_ipu": (Basis.KIND, "the device"),
    "is_maia": (Basis.KIND, "the device"),
    "is_meta": (Basis.KIND, "the device"),
    "is_mps": (Basis.KIND, "the device"),
    "is_mtia": (Basis.KIND, "the device"),
    "is_vulkan": (Basis.KIND, "the device"),
    "is_xla": (Basis.KIND, "the device"),
    "is_xpu": (Basis.KIND, "the device"),
    "is_mkldnn": (Basis.KIND, "the layout"),
    "is_nested": (Basis.KIND, "the layout"),
    "is_quantized": (Basis.KIND, "the dtype"),
    "is_sparse": (Basis.KIND, "the layout"),
    "is_sparse_csr": (Basis.KIND, "the layout"),
    "shape": (Basis.FORM, "the forecast fixes it"),
    "size": (Basis.FORM, "the shape, or one number of it"),
    "__len__": (Basis.FORM, "the first number of the shape"),
    "dim": (Basis.FORM, "the length of the shape"),
    "ndim": (Basis.FORM, "the length of the shape"),
    "ndimension": (Basis.FORM, "the length of the shape"),
    "numel": (Basis.FORM, "the product of the shape"),
    "nelement": (Basis.FORM, "the product of the shape"),
    "nbytes": (Basis.FORM, "the product of the shape, times the bytes of the dtype"),
    "is_same_size": (Basis.FORM, "two shapes compared"),
    "result_type": (Basis.FORM, "two dtypes, and whether there are dimensions"),
    "stride": (Basis.FORM, "results are brought to the strides of the forecast"),
    "is_contiguous": (Basis.FORM, "shape and strides"),
    "dim_order": (Basis.FORM, "shape and strides"),
    "requires_grad": (Basis.GRAPH, "the forecast fixes it"),
    "is_leaf": (
        Basis.GRAPH,
        "a result that requires grad has a graph, whether it is sealed or not",
    ),
    "gradient_kind": (Basis.GRAPH, "it is of the kind that the requested passes leave"),
}
"""The questions that are answered, by the last part of their names: what the answer follows from,
and why it is public."""

_NODE: Final = "a sealed result has another node in its graph"
_NAMED: Final = "results that stand for a failure have no names"
_MEMORY: Final = "where values lie in memory is nobody's business"
_LAZY: Final = "whether a kernel left a conjugation or a sign to be done is not forecast"
_LAYOUT: Final = "there are no forecasts of sparse and quantized tensors"
_MACHINE: Final = "it asks about the machine of the worker"
_UNUSED: Final = "nothing needs it"

UNTOLD: Final[dict[str, str]] = {
    "_version": "it counts writes, also those of a command that failed in secret",
    "grad_fn": _NODE,
    "_grad_fn": _NODE,
    "output_nr": _NODE,
    "retains_grad": _NODE,
    "names": _NAMED,
    "has_names": _NAMED,
    "name": _NAMED,
    "storage_offset": _MEMORY,
    "is_set_to": _MEMORY,
    "is_shared": _MEMORY,
    "is_pinned": _MEMORY,
    "_is_view": _MEMORY,
    "is_conj": _LAZY,
    "is_neg": _LAZY,
    "_is_zerotensor": _LAZY,
    "is_coalesced": _LAYOUT,
    "dense_dim": _LAYOUT,
    "sparse_dim": _LAYOUT,
    "_dimI": _LAYOUT,
    "_dimV": _LAYOUT,
    "qscheme": _LAYOUT,
    "q_per_channel_axis": _LAYOUT,
    "cudnn_is_acceptable": _MACHINE,
    "_use_cudnn_rnn_flatten_weight": _MACHINE,
    "_has_compatible_shallow_copy_type": _UNUSED,
    "can_cast": _UNUSED,
    "promote_types": _UNUSED,
    "grad_dtype": _UNUSED,
    "_has_grad_dtype_override": _UNUSED,
    "is_distributed": _UNUSED,
    "is_inference": _UNUSED,
    "volatile": _UNUSED,
}
"""The questions that are refused, and why."""


def question(name: str) -> str:
    """The part of an operation's name under which a question is listed.

    >>> question("torch.Tensor.shape.__get__"), question("torch.is_complex")
    ('shape', 'is_complex')
    """
    return name.removesuffix(".__get__").rpartition(".")[2]


def basis(name: str) -> Basis:
    """What the answer to a question follows from, by the name of its operation.

    >>> basis("torch.Tensor.dtype.__get__").name, basis("torch.Tensor._version.__get__").name
    ('KIND', 'SECRET')
    """
    return TOLD.get(question(name), (Basis.SECRET, ""))[0]


_FACTS: Final[dict[Function, Basis]] = {
    function: basis(NAMES[number])
    for number, function in (*enumerate(FUNCTIONS), *PROGRAM_FUNCTIONS.items())
    if function is not None and FLAGS[number] & METADATA
}
_OF_TWO: Final = frozenset((torch.Tensor.is_same_size, torch.is_same_size, torch.result_type))
"""The questions about two tensors; in any other only the first argument is what is asked about."""


def is_told(function: Function, guard: Guard) -> bool:
    """Whether everybody may know what this function answers about a value with this guard.

    Only questions are: a function that computes something is not.

    >>> private = Guard(frozenset())
    >>> is_told(torch.Tensor.dim, private), is_told(torch.Tensor.is_set_to, private)
    (True, False)
    >>> is_told(torch.Tensor.dim, Guard(frozenset(), shape_hidden=True))
    False
    """
    return _is_known(_FACTS.get(function, Basis.SECRET), guard)


def tells(name: str, guard: Guard) -> bool:
    """The same by the name of a question: plans fix properties of their inputs by name.

    >>> hidden = Guard(frozenset(), shape_hidden=True)
    >>> tells("dtype", hidden), tells("is_contiguous", hidden), tells("_version", hidden)
    (True, False, False)
    """
    return _is_known(basis(name), guard)


def _is_known(follows_from: Basis, guard: Guard) -> bool:
    if follows_from is Basis.SECRET:
        return False
    return follows_from is Basis.KIND or not guard.shape_hidden


def asks_only(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether no tensor stands where a question takes a number, whose value the answer would tell.

    >>> x, private = torch.ones(2, 3), torch.tensor(1)
    >>> asks_only(torch.Tensor.size, (x, 1), {}), asks_only(torch.Tensor.size, (x, private), {})
    (True, False)
    """
    if function in _OF_TWO:
        return True
    others = {name: value for name, value in kwargs.items() if args or name != "input"}
    return not any(isinstance(leaf, torch.Tensor) for leaf in leaves((args[1:], others)))
