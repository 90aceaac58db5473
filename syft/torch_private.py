"""The private names of torch that syft uses, in one place, with the purpose of each.

Torch may change them in any release.  They were checked with torch 2.11, 2.13 and 2.14; if one
changes, only this file has to be adapted.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import Iterator
from enum import Enum, auto
from types import FrameType
from typing import Any

import torch
import torch._decomp
import torch._functorch.vmap
import torch._prims_common
import torch.multiprocessing.reductions
import torch.utils._python_dispatch
from torch._C._dynamo import eval_frame
from torch.nested._internal.nested_tensor import NestedTensor as _NestedTensor
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

# A mode that sees each operation of aten that runs in it, as a class to inherit from.  It is not
# given a name here as the others are: the pages of the modules would show torch's text of it.
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode  # noqa: F401

make_wrapper = torch.Tensor._make_wrapper_subclass
"""Makes a tensor of a subclass with a shape, a dtype and no memory (see subclass_zoo)."""

batched_inputs = torch._functorch.vmap._process_batched_inputs
"""The size of a batch, the dimension of each flat argument along which it lies, the flat arguments,
and how they were nested: what ``vmap`` finds out first."""

slice_arguments = torch._functorch.eager_transforms._slice_argnums
"""The arguments that ``argnums`` of a transform of ``torch.func`` names."""

tree_flatten = torch.utils._pytree.tree_flatten
tree_unflatten = torch.utils._pytree.tree_unflatten
spread = torch.utils._pytree._broadcast_to_and_flatten
"""Nested values as torch flattens them, and one value for each place of them."""

DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
"""Context manager: run a torch function as if no argument overrode ``__torch_function__``."""

any_autocast_enabled = torch._C._is_any_autocast_enabled
"""Whether autocast is on for any device; asking for each device costs ten times as much."""

set_grad_enabled = torch._C._set_grad_enabled
"""Sets grad mode without the context manager object (which costs a microsecond)."""

enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast
"""Autocast as two calls; torch's tracers write a region of autocast into a graph this way."""

broadcast_shape = torch._C._infer_size
"""The shape to which two broadcast; ``torch.broadcast_shapes`` imports sympy for it."""

set_version = torch._C._autograd._unsafe_set_version_counter
"""Sets the version counters of tensors, for tensors that were written to and restored."""

WeakStorage: Any = torch.multiprocessing.reductions.StorageWeakRef
"""A reference to a storage that tells whether it is still in use, and does not keep it."""

is_non_overlapping_and_dense_or_false = torch._prims_common.is_non_overlapping_and_dense_or_false
"""Whether the elements of a tensor lie in memory without gaps, each in one place."""

lazily_negated = torch._neg_view
"""A view of a tensor that torch negates when it is read."""

TENSOR_METHODS_FILE = torch._tensor.__file__
"""The file of the methods of tensors that torch wrote in Python."""

COO_PARTS = torch.Tensor._indices, torch.Tensor._values
"""Methods that return the indices and the values of a COO tensor, coalesced or not."""

kind_of_view = torch._C._autograd._get_creation_meta
"""How a view came to be, which decides whether it may be written in place."""

alias_of = torch.ops.aten.alias.default
"""The same memory and the same place in the graph, as another tensor object."""

functorch_level = torch._C._functorch.maybe_current_level
"""The level of the ``torch.func`` transform (``vmap``, ``grad``) that is running; None if none."""

correct_aliasing = torch.utils._python_dispatch.return_and_correct_aliasing
"""Gives a wrapper the new shape of an in-place view (``x.t_()``), which torch keeps in C."""

has_composite_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
"""Whether an operation has a kernel for a dispatch key: composite ones can be taken apart."""

int8_matmul = torch._int_mm
"""The product of two int8 matrices, summed in int32."""

get_mkldnn_enabled = torch._C._get_mkldnn_enabled
set_mkldnn_enabled = torch._C._set_mkldnn_enabled
"""oneDNN on or off; the public ``mkldnn.flags`` touches settings of GPUs too, which warns."""

decompositions: dict[Any, Any] = torch._decomp.decomposition_table
"""Torch's own decompositions of operations into simpler ones, by overload."""

is_fwd_grad_enabled = torch._C._is_fwd_grad_enabled
"""Forward-mode AD: on by default, off in inference mode and inside a custom autograd.Function."""

is_zero_tensor = torch.Tensor._is_zerotensor
"""Whether a tensor is zeros without memory, as some gradients are (that of ``sgn``)."""

is_tracing = torch._C._is_tracing
"""Whether ``torch.jit.trace`` is recording on this thread; it takes half as long as to ask what."""

tracing_state = torch._C._get_tracing_state
set_tracing_state = torch._C._set_tracing_state  # type: ignore[attr-defined]
"""What ``torch.jit.trace`` is recording on this thread, None if nothing; and to change that."""

OPTIMIZER_MARKS = ("step", "_opt_called", "_warned_capturable_if_run_uncaptured")
"""Attributes of an optimizer with which torch notes its scheduler and its warnings."""

NO_FUNCTION = (
    "torch.autograd.Function",
    "its own backward would be lost; write it with ordinary torch operations",
)
"""What is refused on a function-level wrapper, and why, for the error text."""
_NO_MODULE_HOOK = (
    "register_full_backward_hook",
    "a function cannot travel; in a forward hook, call retain_grad() of what the module returns, "
    "and read its .grad after the backward pass",
)
_MODULE_HOOKS_FILE = torch.nn.modules._functions.__file__


def inside_custom_function() -> bool:
    """Whether this is the forward of a custom ``torch.autograd.Function``.

    Torch switches off both grad modes there and computes the derivative by the function's own
    ``backward``.  An operation forwarded from there would silently lose its gradient.

    >>> inside_custom_function()
    False
    """
    return not (
        torch.is_grad_enabled() or is_fwd_grad_enabled() or torch.is_inference_mode_enabled()
    )


def custom_function() -> tuple[str, str]:
    """What the user wrote for which torch runs a custom function now, and what to do instead.

    >>> custom_function()[0]
    'torch.autograd.Function'
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == _MODULE_HOOKS_FILE:
            return _NO_MODULE_HOOK
        frame = frame.f_back
    return NO_FUNCTION


def hide_from_compiler(method: Any) -> None:
    """Have ``torch.compile`` run a method of ours, and all it calls, as ordinary Python.

    It marks the method's function and code; nothing of torch is written to.
    ``torch.compiler.disable`` does the same by a wrapper that costs a microsecond at each call.
    """
    function = getattr(method, "__func__", method)
    function._torchdynamo_disable = True  # where the compiler would inline the method
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)


def make_optimizer_state(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Have an optimizer make the state of a group of parameters, as its first step would.

    In torch's optimizers a method does this that also fills lists of parameters, gradients and
    state; the number of lists differs.  Returns False for an optimizer without that method.
    """
    make = getattr(optimizer, "_init_group", None)
    if make is None:
        return False
    lists = len(inspect.signature(make).parameters) - 1
    make(group, *([] for _ in range(lists)))
    return True


OVERLOAD = type(torch.ops.aten.add.Tensor)
"""The class of an overload of an operation of aten."""


def _current_keys() -> Any:
    return torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


_USUAL_KEYS: Any = _current_keys()
with torch._C._AutoDispatchBelowAutograd():
    _COUNTING_KEYS: Any = _current_keys()
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, True):
        _KEYS_BELOW: Any = _current_keys()


def usual_keys() -> Any:
    """A context in which operations take their usual way, also from inside of a
    ``__torch_dispatch__``, where torch leaves out autograd, version counters, and lazy conjugation
    and negation."""
    return torch._C._ForceDispatchKeyGuard(*_USUAL_KEYS)


def below_autograd(counting: bool = False) -> Any:
    """The same without autograd and autocast.  Version counters count writes if ``counting``."""
    return torch._C._ForceDispatchKeyGuard(*(_COUNTING_KEYS if counting else _KEYS_BELOW))


def mark_as_turned(tensor: torch.Tensor, conj: bool, neg: bool) -> None:
    """Have torch take a wrapper for one that it conjugates or negates when it is read."""
    torch._C._set_conj(tensor, conj)
    torch._C._set_neg(tensor, neg)


DisableTorchFunction = torch._C.DisableTorchFunction
"""Context manager: run torch functions unseen by every ``__torch_function__``, modes too."""

DisableTorchDispatch = torch._C._DisableTorchDispatch
"""Context manager: run aten operations unseen by every ``__torch_dispatch__``, modes too."""

JAGGED: type[torch.Tensor] = _NestedTensor
"""The class of tensors with layout ``torch.jagged``, which has no public name."""

MKLDNN: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
"""The layout of oneDNN tensors. Torch exchanges no tensor of it with a strided one."""


@functools.cache
def fake_modules() -> tuple[Any, Any]:
    """Torch's modules of fake tensors and of sizes that stand open; the import takes a second."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental import symbolic_shapes

    return fake_tensor, symbolic_shapes


@contextlib.contextmanager
def no_log_of_fakes() -> Iterator[None]:
    """A context in which torch does not log the calls that fail on fake tensors."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class FakeFailure(Enum):
    """Why a call on fake tensors, which have no values, failed."""

    READS_VALUES = auto()
    """It would have read a value."""
    SIZES_FROM_VALUES = auto()
    """Sizes of its results follow from values."""
    OF_FAKES = auto()
    """Torch cannot run the operation on fake tensors."""
    OF_THE_CALL = auto()
    """It would have failed on any values."""


_REASONS_IN_WORDS = (
    ("data is not allocated", FakeFailure.READS_VALUES),
    ("Unbacked", FakeFailure.SIZES_FROM_VALUES),
    ("symbolic sizes", FakeFailure.SIZES_FROM_VALUES),
    ("fake", FakeFailure.OF_FAKES),
    ("Fake", FakeFailure.OF_FAKES),
    ("meta", FakeFailure.OF_FAKES),
    ("Meta", FakeFailure.OF_FAKES),
)
"""Words by which a ``RuntimeError`` of torch is told where it has no class for the reason.  Of the
operators of its database (2.13), only ``tensor_split`` needs them."""


def fake_failure(error: Exception) -> FakeFailure:
    """Why a call on fake tensors raised ``error``.

    A reason that is not recognised counts as one of the call: it follows from sizes and dtypes
    alone, since there were no values, so its text may be told.

    >>> fake_failure(NotImplementedError("no kernel for it")), fake_failure(ValueError("odd"))
    (<FakeFailure.OF_FAKES: 3>, <FakeFailure.OF_THE_CALL: 4>)
    """
    fake_tensor, symbolic_shapes = fake_modules()
    by_class = (
        (symbolic_shapes.GuardOnDataDependentSymNode, FakeFailure.READS_VALUES),
        (fake_tensor.DataDependentOutputException, FakeFailure.READS_VALUES),
        (fake_tensor.DynamicOutputShapeException, FakeFailure.SIZES_FROM_VALUES),
        (fake_tensor.UnsupportedOperatorException, FakeFailure.OF_FAKES),
        (NotImplementedError, FakeFailure.OF_FAKES),
    )
    for kind, reason in by_class:
        if isinstance(error, kind):
            return reason
    text = fake_text(error)
    return next((why for words, why in _REASONS_IN_WORDS if words in text), FakeFailure.OF_THE_CALL)


def fake_text(error: Exception) -> str:
    """The text of an error of a call on fake tensors, as the same call on real ones has it.

    >>> fake_text(TypeError("abs(): argument 'input' must be a number, not FakeTensor"))
    "abs(): argument 'input' must be a number, not Tensor"
    """
    wrong_types = type(error) is TypeError  # the text lists the types of all arguments
    return str(error).replace("FakeTensor", "Tensor") if wrong_types else str(error)


def coo_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and values of a COO tensor; ``.indices()`` refuses uncoalesced ones.

    >>> coo_parts(torch.eye(2).to_sparse())[1]
    tensor([1., 1.])
    """
    return tensor._indices(), tensor._values()


def ragged_dimension(tensor: Any) -> int:
    """Return which dimension of a jagged tensor is ragged: 1, unless it was transposed.

    >>> ragged_dimension(torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged))
    1
    """
    return int(tensor._ragged_idx)


def per_tensor_quantized(
    dtype: torch.dtype, device: torch.device, scale: float, zero_point: int
) -> torch.Tensor:
    """Make an empty quantized tensor to lay over a buffer, as ``torch.load`` does.

    >>> per_tensor_quantized(torch.qint8, torch.device("cpu"), 0.5, 1).q_scale()
    0.5
    """
    return torch._empty_affine_quantized(
        (0,), scale=scale, zero_point=zero_point, dtype=dtype, device=device
    )


def per_channel_quantized(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    axis: int,
) -> torch.Tensor:
    """Make a quantized tensor with a scale for each index of ``axis``.

    >>> scales, zeros = torch.ones(2, dtype=torch.double), torch.zeros(2, dtype=torch.int64)
    >>> make = per_channel_quantized
    >>> make((2, 3), torch.qint8, torch.device("cpu"), scales, zeros, 0).q_per_channel_axis()
    0
    """
    return torch._empty_per_channel_affine_quantized(
        shape, scales=scales, zero_points=zero_points, axis=axis, dtype=dtype, device=device
    )


function_modes = torch._C._len_torch_function_stack
is_overriding = torch._C._is_torch_function_enabled
dispatch_modes = torch._C._len_torch_dispatch_stack
"""How many of each kind of mode are active in this thread; a default device is a function mode."""

saved_tensor_hooks = torch._C._autograd._top_saved_tensors_default_hooks
"""With True, the hooks that get what autograd saves in this thread, packer first; None if none."""


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """A context in which no mode and no hook on saved tensors of this thread sees a tensor;
    subclasses are asked as usual."""
    modes = torch.utils._python_dispatch
    autograd = torch._C._autograd
    with contextlib.ExitStack() as restored:
        while function_modes():
            mode = torch._C._pop_torch_function_stack()
            restored.callback(torch._C._push_on_torch_function_stack, mode)
        while dispatch_modes():
            restored.callback(modes._push_mode, modes._pop_mode())
        while (hooks := saved_tensor_hooks(True)) is not None:
            restored.callback(autograd._push_saved_tensors_default_hooks, *hooks)
            autograd._pop_saved_tensors_default_hooks()
        yield


def tensors_on(tensor: torch.Tensor) -> int:
    """How many tensors lie in the memory of a tensor, this one counted.

    >>> x = torch.ones(2); y = x.view(2); tensors_on(x), tensors_on(torch.ones(1))
    (2, 1)
    """
    storage = tensor.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata)) - 1  # less this name


hold_place: Any = torch.UntypedStorage._weak_ref
free_place: Any = torch.UntypedStorage._free_weak_ref
"""Keep the address of a storage itself from being used again, though its memory is freed, until
the address that the first one returns is given to the second one."""


def is_kept_by_torch(tensor: torch.Tensor) -> bool:
    """Whether torch itself keeps a tensor: the graphs that end at it do, and its views.

    >>> w = torch.ones(2, requires_grad=True); is_kept_by_torch(w)
    False
    >>> y = w * 2; w = w.requires_grad_(False); is_kept_by_torch(w)
    True
    """
    return bool(tensor._use_count() > 1)  # type: ignore[attr-defined]


def ends_a_graph(tensor: torch.Tensor) -> bool:
    """Whether a graph that is alive ends at a leaf, which may be frozen meanwhile.

    A leaf has one node for the ends of all graphs, which lives as long as they do.  So what is
    written to the node is found there again if there is a graph.

    >>> w = torch.ones(2, requires_grad=True); ends_a_graph(w)
    False
    >>> y = w * 2; w = w.requires_grad_(False); ends_a_graph(w)
    True
    """
    if not is_kept_by_torch(tensor):  # nearly always
        return False
    if tensor.is_inference() or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    with torch._C.DisableTorchFunctionSubclass(), torch.enable_grad(), as_leaf(tensor):
        mark, end = "asked", _end_of(tensor)
        if end is None:  # a view that was made where nothing is recorded
            return False
        end.metadata[mark] = None
        del end  # as a graph would keep it
        return mark in _end_of(tensor).metadata


def _end_of(leaf: torch.Tensor) -> Any:
    """The node at which all graphs end that know a leaf, made if there are none."""
    viewed = leaf.layout is torch.strided and not leaf.is_nested
    used: Any = leaf.view_as(leaf) if viewed else leaf.clone()
    return used.grad_fn.next_functions[0][0]


@contextlib.contextmanager
def as_leaf(tensor: torch.Tensor) -> Iterator[None]:
    """Have a tensor without a graph require a gradient for a time: hooks can be put on it then."""
    frozen = not tensor.requires_grad
    if frozen:
        tensor.requires_grad_()
    try:
        yield
    finally:
        if frozen:
            tensor.requires_grad_(False)


def is_accumulated() -> bool:
    """Whether the pass that calls a hook on a leaf adds to the gradient of the leaf, and does not
    only return what comes to it, as torch.autograd.grad does.

    >>> x = torch.ones(2, requires_grad=True); loss = (x * 2).sum()
    >>> handle = x.register_hook(lambda gradient: print(is_accumulated()))
    >>> loss.backward(retain_graph=True); gradient = torch.autograd.grad(loss, [x])
    True
    False
    """
    node = torch._C._current_autograd_node()
    try:
        if node is not None:
            torch._C._will_engine_execute_node(node)
    except RuntimeError as error:  # for a leaf, torch does not say no in another way
        if "autograd.grad()" not in str(error):
            raise
        return False
    return True


def exchange_contents(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Exchange what two tensors hold; hooks on the gradient of the first stay with it.

    ``torch.utils.swap_tensors`` leaves them listed at the object, where autograd does not look.

    >>> x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 3)
    >>> exchange_contents(x, y)
    >>> x.sum().backward()
    >>> x.grad
    tensor([3.])
    """
    torch.utils.swap_tensors(tensor, other)  # type: ignore[no-untyped-call]
    with torch._C.DisableTorchFunctionSubclass():
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            hooks = getattr(tensor, name)
            if hooks:
                setattr(tensor, name, hooks)


def graph_start(tensor: torch.Tensor) -> Any:
    """The node at which the graph of what is computed from a tensor ends: its own, or for a leaf
    the one that accumulates its gradient.

    >>> x = torch.ones(2, requires_grad=True)
    >>> graph_start(x) is (x * 2).grad_fn.next_functions[0][0]
    True
    """
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    with torch.enable_grad():
        node: Any = tensor.view_as(tensor).grad_fn
    return node.next_functions[0][0]


def zeros_received(node: Any) -> torch.Tensor:
    """Zeros like the gradient that a node of a graph gets first: its shape, dtype and device.

    >>> x = torch.ones(2, requires_grad=True); zeros_received((x * 2).grad_fn)
    tensor([0., 0.])
    """
    like = node._input_metadata[0]
    return torch.zeros(torch.Size(like.shape), dtype=like.dtype, device=like.device)


nn_functions = torch._C._nn
"""The module of C functions behind much of ``torch.nn.functional``."""

Graph = torch._C.Graph
Block = torch._C.Block
Node = torch._C.Node
parse_schema: Any = torch._C.parse_schema
"""What a TorchScript function consists of, and how the signature of an operation is read."""


def simplified_graph(graph: Any) -> Any:
    """A copy of a TorchScript graph with the functions it calls written out, and constants folded.

    >>> traced = torch.jit.trace(lambda x: x.abs(), torch.ones(2))
    >>> [node.kind() for node in simplified_graph(traced.graph).nodes()]
    ['aten::abs']
    """
    graph = graph.copy()
    torch._C._jit_pass_inline(graph)
    clean_graph(graph)
    return graph


def clean_graph(graph: Any) -> None:
    """Fold the constants of a TorchScript graph, and remove what nothing comes of."""
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_dce(graph)


def function_transforms() -> list[tuple[Any, str]]:
    """Where the functions are that compute the transforms of ``torch.func``: derivatives of a
    number, those of a backward and a forward pass, ``vmap``, and ``linearize``.

    >>> [name for _, name in function_transforms()]
    ['grad_and_value_impl', '_vjp_with_argnums', '_jvp_with_argnums', 'vmap_impl', 'linearize']
    """
    derivatives: Any = torch._functorch.eager_transforms
    names = ("grad_and_value_impl", "_vjp_with_argnums", "_jvp_with_argnums")
    others: list[tuple[Any, str]] = [
        (torch._functorch.apis, "vmap_impl"),
        (torch.func, "linearize"),
    ]
    return [(derivatives, name) for name in names] + others


open_device = torch._C._get_privateuse1_backend_name
"""The name of the one type of device that torch leaves open, as it is now."""


def name_open_device(name: str, module: Any) -> None:
    """Give the one type of device that torch leaves open a name, and what torch asks of such a
    device in Python.  Torch keeps both until the process ends; a second call changes nothing.

    Neither the guard nor the hooks of a device of this machine are registered: torch would start
    threads for it at the next backward pass, and none could run in a forked process after that.

    Raises ``RuntimeError`` if another package has named it.
    """
    if open_device() != name:
        torch._C._rename_privateuse1_backend(name)
    if not hasattr(torch, name):
        torch._register_device_module(name, module)  # type: ignore[no-untyped-call]


def step_hooks(optimizer: Any) -> list[Any]:
    """What torch calls before and after a step of an optimizer, for it alone or for all."""
    own = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    every = _global_optimizer_pre_hooks, _global_optimizer_post_hooks
    return [hook for hooks in (*own, *every) for hook in hooks.values()]
