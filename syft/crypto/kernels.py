"""Kernels: linear and bilinear maps that have a name, so that parties and provider compute alike.

A kernel is a number of this table and settings of plain numbers.  It can be compared, kept in a
dictionary and sent; :func:`kernel_from` checks what was received.  *Bilinear* kernels compute
products: on int64 and on float64.  *Linear* ones are sums and copies with whole coefficients for
which torch has kernels for floats only (average pooling, padding, upsampling), forward and
backward.  What torch computes on integers is no kernel but a local operation.

A kernel only says what is computed; ``ring_products`` computes it exactly in the ring.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import torch

from syft.crypto.convolutions import convolve, input_gradient, weight_gradient
from syft.exceptions import ProgramError

aten = torch.ops.aten

Shape = tuple[int, ...]


class KernelCode(IntEnum):
    """The kernels: wire numbers, only ever added to. Bilinear ones are below 32."""

    MULTIPLY = 1
    """Elementwise, with broadcasting."""
    MATMUL = 2
    """``torch.matmul``. Settings: none, or whether to transpose the first and the second one."""
    CONVOLUTION = 3
    """Settings: stride, padding, dilation, transposed, output_padding, groups."""
    CONVOLUTION_GRAD_INPUT = 4
    """Of the gradient and the weight. Settings: those of the convolution, shape of the input."""
    CONVOLUTION_GRAD_WEIGHT = 5
    """Of the gradient and the input. Settings: those of the convolution, shape of the weight."""
    CROSS = 6
    """``torch.linalg.cross``. Settings: the dimension."""

    # The settings of what follows are the arguments of torch's operation after the tensor.
    AVG_POOL2D = 32
    AVG_POOL3D = 33
    REFLECTION_PAD1D = 34
    REFLECTION_PAD2D = 35
    REFLECTION_PAD3D = 36
    REPLICATION_PAD1D = 37
    REPLICATION_PAD2D = 38
    REPLICATION_PAD3D = 39
    UPSAMPLE_NEAREST1D = 40
    UPSAMPLE_NEAREST2D = 41
    UPSAMPLE_NEAREST3D = 42
    UPSAMPLE_NEAREST_EXACT1D = 43
    UPSAMPLE_NEAREST_EXACT2D = 44
    UPSAMPLE_NEAREST_EXACT3D = 45
    IM2COL = 46
    COL2IM = 47
    UPSAMPLE_NEAREST1D_BACKWARD = 48
    UPSAMPLE_NEAREST2D_BACKWARD = 49
    UPSAMPLE_NEAREST3D_BACKWARD = 50
    UPSAMPLE_NEAREST_EXACT1D_BACKWARD = 51
    UPSAMPLE_NEAREST_EXACT2D_BACKWARD = 52
    UPSAMPLE_NEAREST_EXACT3D_BACKWARD = 53

    # These have the shape of the input as their first setting.
    AVG_POOL2D_BACKWARD = 64
    AVG_POOL3D_BACKWARD = 65
    REFLECTION_PAD1D_BACKWARD = 66
    REFLECTION_PAD2D_BACKWARD = 67
    REFLECTION_PAD3D_BACKWARD = 68
    REPLICATION_PAD1D_BACKWARD = 69
    REPLICATION_PAD2D_BACKWARD = 70
    REPLICATION_PAD3D_BACKWARD = 71


@dataclass(frozen=True, slots=True)
class Kernel:
    """A linear or bilinear map: its code and its settings, which are nested tuples of numbers.

    Called, it computes on float64 tensors (and on int64 ones where it is bilinear), and does not
    look after sums that grow too large.

    >>> product = Kernel(KernelCode.MATMUL)
    >>> product(torch.ones(2, 3), torch.ones(3)), product.terms((2, 3), (3,))
    (tensor([3., 3.]), 3)
    >>> product.shape((2, 3), (3,))
    torch.Size([2])
    """

    code: KernelCode
    settings: tuple[Any, ...] = ()

    def __call__(self, *operands: torch.Tensor) -> torch.Tensor:
        """Compute it with torch."""
        return _COMPUTE[self.code](*operands, *self.settings)

    @property
    def bilinear(self) -> bool:
        """Whether it takes two operands.

        >>> Kernel(KernelCode.CROSS, (-1,)).bilinear
        True
        """
        return self.code < KernelCode.AVG_POOL2D

    def native(self, device: str) -> bool:
        """Whether torch computes it on int64 tensors of such a device.

        >>> Kernel(KernelCode.MATMUL).native("cpu"), Kernel(KernelCode.MATMUL).native("cuda")
        (True, False)
        """
        return self.elementwise or self.bilinear and device == "cpu"

    @property
    def elementwise(self) -> bool:
        """Whether each element of the result is made of two products at most: native everywhere.

        >>> Kernel(KernelCode.MULTIPLY).elementwise
        True
        """
        return self.code in _ELEMENTWISE

    def terms(self, *shapes: Shape) -> int:
        """How many products (or elements, where it is linear) one element of the result sums.

        For linear kernels this is an upper bound.

        >>> Kernel(KernelCode.CROSS, (-1,)).terms((4, 3), (4, 3))
        2
        """
        count = _TERMS.get(self.code)
        return torch.Size(shapes[0]).numel() if count is None else count(*shapes, *self.settings)

    def shape(self, *shapes: Shape) -> torch.Size:
        """The shape of the result for operands of these shapes.

        Raises :class:`~syft.exceptions.ProgramError` where torch takes no such operands.

        >>> Kernel(KernelCode.MULTIPLY).shape((2, 1), (3,))
        torch.Size([2, 3])
        """
        return _shape_of(self, shapes)


def frozen(settings: Any) -> Any:
    """Settings of a torch operation as a kernel keeps them: lists become tuples.

    >>> frozen([[1, 2], False])
    ((1, 2), False)
    """
    return tuple(map(frozen, settings)) if isinstance(settings, (list, tuple)) else settings


def kernel_of(operation: Any, *settings: Any) -> Kernel:
    """The linear kernel that is named after an aten operation.

    >>> kernel_of(aten.reflection_pad1d.default, [1, 0])
    Kernel(code=<KernelCode.REFLECTION_PAD1D: 34>, settings=((1, 0),))
    """
    name = operation.overloadpacket.__name__.lstrip("_").upper()
    return Kernel(KernelCode[name], frozen(settings))


@functools.lru_cache(maxsize=4096)
def _shape_of(kernel: Kernel, shapes: tuple[Shape, ...]) -> torch.Size:
    forward = _GRADIENT_OF.get(kernel.code)
    if forward is not None:
        return forward(kernel, shapes)
    operands = [torch.empty(shape, dtype=torch.float64, device="meta") for shape in shapes]
    try:
        return (_multiplied if kernel.code is KernelCode.MULTIPLY else kernel)(*operands).shape
    except (RuntimeError, IndexError, ValueError, ArithmeticError) as error:
        raise ProgramError(f"{kernel.code.name} of shapes {shapes}: {error}") from error


def _multiplied(*operands: torch.Tensor) -> torch.Tensor:
    """A tensor of the meta device with the shape of a product.

    The product itself would import torch's compiler: a second and more of a worker's first
    comparison.
    """
    expanded: torch.Tensor = aten.broadcast_tensors.default(operands)[0]
    return expanded.new_empty(expanded.shape)


# --------------------------------------------------------------------------------- bilinear kernels


def _matmul(
    a: torch.Tensor, b: torch.Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> torch.Tensor:
    if transpose_a:
        a = a.mT
    if transpose_b:
        b = b.mT
    if a.dtype is torch.int64 and a.dim() == b.dim() == 2 and a.device.type == "cpu":
        return _integer_matmul(a, b)
    return torch.matmul(a, b)


def _integer_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Thin products as matrix times vector, where torch's matrix product of int64 takes up to
    seventeen times as long (of 4096 x 4096 by 1, torch 2.13)."""
    if b.shape[1] <= _FEW_COLUMNS and a.stride(1) == 1 and a.numel() > _MANY and b.shape[1]:
        return torch.stack([torch.mv(a, column) for column in b.t().contiguous()], 1)
    if a.shape[0] <= _FEW_ROWS and b.stride(0) == 1 and b.numel() > _MANY and a.shape[0]:
        rows = b.t()
        return torch.stack([torch.mv(rows, row) for row in a.contiguous()])
    return torch.mm(a, b)


_FEW_COLUMNS, _FEW_ROWS = 4, 2
_MANY = 4096
"""Elements of the other operand above which that is faster."""


def _convolution_terms(_: Shape, weight: Shape, *settings: Any) -> int:
    transposed: bool = settings[3]
    groups: int = settings[5]
    if transposed:
        weight = (weight[1] * groups, weight[0] // groups, *weight[2:])
    return torch.Size(weight[1:]).numel()


def _grad_input_terms(grad: Shape, weight: Shape, *settings: Any) -> int:
    turned = (*settings[:3], not settings[3], *settings[4:])
    return _convolution_terms(grad, weight, *turned)


def _grad_weight_terms(grad: Shape, x: Shape, *settings: Any) -> int:
    summed = x if settings[3] else grad
    return torch.Size(summed).numel() // max(summed[1], 1)


def _same_gradient(kernel: Kernel, grad: Shape, x: Shape, weight: Shape) -> None:
    """Check that the gradient has the shape of what the convolution makes."""
    made = Kernel(KernelCode.CONVOLUTION, kernel.settings[:-1]).shape(x, weight)
    if made != grad:
        raise ProgramError(f"{kernel.code.name} of shape {grad}, for a result of {tuple(made)}")


def _shape_of_grad_input(kernel: Kernel, shapes: tuple[Shape, ...]) -> torch.Size:
    grad, weight = shapes
    _same_gradient(kernel, grad, kernel.settings[-1], weight)
    return torch.Size(kernel.settings[-1])


def _shape_of_grad_weight(kernel: Kernel, shapes: tuple[Shape, ...]) -> torch.Size:
    grad, x = shapes
    _same_gradient(kernel, grad, x, kernel.settings[-1])
    return torch.Size(kernel.settings[-1])


_GRADIENT_OF: Final = {
    KernelCode.CONVOLUTION_GRAD_INPUT: _shape_of_grad_input,
    KernelCode.CONVOLUTION_GRAD_WEIGHT: _shape_of_grad_weight,
}

_ELEMENTWISE: Final = frozenset({KernelCode.MULTIPLY, KernelCode.CROSS})
"""Kernels whose elements are made of at most two products."""

_TERMS: Final[dict[KernelCode, Callable[..., int]]] = {
    KernelCode.MULTIPLY: lambda a, b: 1,
    KernelCode.MATMUL: lambda a, b, *turn: a[-2 if turn and turn[0] else -1],
    KernelCode.CONVOLUTION: _convolution_terms,
    KernelCode.CONVOLUTION_GRAD_INPUT: _grad_input_terms,
    KernelCode.CONVOLUTION_GRAD_WEIGHT: _grad_weight_terms,
    KernelCode.CROSS: lambda a, b, dim: 2,
}

# ----------------------------------------------------------------------------------- linear kernels


def _overload(code: KernelCode) -> Any:
    """The operation of torch that a linear kernel is named after."""
    name = code.name.lower()
    return getattr(aten, f"_{name}" if "exact" in name else name).default


def _from_shape(op: Any, *last: Any) -> Callable[..., torch.Tensor]:
    """A backward operation that wants the input, but looks at its shape only."""
    return lambda grad, shape, *settings: op(grad, grad.new_empty(shape), *settings, *last)


def _linear_kernel(code: KernelCode) -> Callable[..., torch.Tensor]:
    op = _overload(code)
    if code in (KernelCode.AVG_POOL2D, KernelCode.AVG_POOL3D):
        return lambda x, *window: op(x, *window, 1)  # a divisor of 1: the sums of the windows
    if code < KernelCode.AVG_POOL2D_BACKWARD:
        made: Callable[..., torch.Tensor] = op
        return made
    return _from_shape(op, *(1,) if "AVG_POOL" in code.name else ())


_COMPUTE: Final[dict[KernelCode, Callable[..., torch.Tensor]]] = {
    KernelCode.MULTIPLY: torch.mul,
    KernelCode.MATMUL: _matmul,
    KernelCode.CONVOLUTION: convolve,
    KernelCode.CONVOLUTION_GRAD_INPUT: input_gradient,
    KernelCode.CONVOLUTION_GRAD_WEIGHT: weight_gradient,
    KernelCode.CROSS: lambda a, b, dim: torch.linalg.cross(a, b, dim=dim),
    **{code: _linear_kernel(code) for code in KernelCode if code >= KernelCode.AVG_POOL2D},
}

# ------------------------------------------------------------------------------ kernels from a wire

MOST_DIMENSIONS: Final = 16
"""Dimensions of a shape, and numbers in a setting."""
MOST: Final = 1 << 31
"""The largest number in a setting."""
LEAST_SCALE, MOST_SCALE = 2.0**-20, 2.0**20
"""Bounds of the factors of upsampling: torch computes places in float32 and does not check them."""

_AT_LEAST_ONE: Final = frozenset({"kernel_size", "stride", "dilation", "groups"})
_NOT_NEGATIVE: Final = frozenset({"output_size", "input_size", "output_padding", "shape"})


def kernel_from(code: Any, settings: Any) -> Kernel:
    """The kernel of a code and settings that were received, checked.

    Raises :class:`~syft.exceptions.ProgramError` for an unknown code and for settings of another
    number, kind or size than the kernel has.

    >>> kernel_from(2, ())
    Kernel(code=<KernelCode.MATMUL: 2>, settings=())
    >>> kernel_from(6, ("x",))
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: settings ('x',) of kernel CROSS
    """
    try:
        return _checked_kernel(code, settings)
    except TypeError as error:  # something that cannot be hashed
        raise ProgramError("a kernel with settings that are no tuples of numbers") from error


@functools.lru_cache(maxsize=4096)
def _checked_kernel(code: Any, settings: Any) -> Kernel:
    if type(code) not in (int, KernelCode) or code not in _KINDS:
        raise ProgramError("a kernel of an unknown number")
    code = KernelCode(code)
    kinds = _KINDS[code]
    if type(settings) is not tuple or not _fits(code, settings, kinds):
        raise ProgramError(f"settings {settings!r:.200} of kernel {code.name}")
    return Kernel(code, settings)


def _fits(code: KernelCode, settings: tuple[Any, ...], kinds: tuple[tuple[str, str], ...]) -> bool:
    if code is KernelCode.MATMUL and not settings:
        return True
    return len(settings) == len(kinds) and all(
        _CHECKS[kind](value, 1 if name in _AT_LEAST_ONE else 0 if name in _NOT_NEGATIVE else -MOST)
        for value, (name, kind) in zip(settings, kinds, strict=True)
    )


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= MOST


def _are_whole(value: Any, least: int) -> bool:
    return (
        type(value) is tuple
        and len(value) <= MOST_DIMENSIONS
        and all(_is_whole(item, least) for item in value)
    )


def _is_scale(value: Any, _: int) -> bool:
    return value is None or type(value) is float and LEAST_SCALE <= value <= MOST_SCALE


_CHECKS: Final[dict[str, Callable[[Any, int], bool]]] = {
    "int": _is_whole,
    "List[int]": _are_whole,
    "bool": lambda value, _: type(value) is bool,
    "Optional[float]": _is_scale,
}
"""How to check a setting, by the type that torch's schema gives for it."""

_CONVOLUTION_KINDS: Final = tuple(
    (argument.name, str(argument.type)) for argument in aten.convolution.default._schema.arguments
)[3:]


def _kinds_of(code: KernelCode) -> tuple[tuple[str, str], ...]:
    """The names and types of the settings of a linear kernel, from torch's schema."""
    kinds = [(argument.name, str(argument.type)) for argument in _overload(code)._schema.arguments]
    if code >= KernelCode.AVG_POOL2D_BACKWARD:
        kinds[1] = ("shape", "List[int]")
    return tuple(kinds[1:-1] if kinds[-1][0] == "divisor_override" else kinds[1:])


_KINDS: Final[dict[int, tuple[tuple[str, str], ...]]] = {
    KernelCode.MULTIPLY: (),
    KernelCode.MATMUL: (("transpose_a", "bool"), ("transpose_b", "bool")),
    KernelCode.CONVOLUTION: _CONVOLUTION_KINDS,
    KernelCode.CONVOLUTION_GRAD_INPUT: (*_CONVOLUTION_KINDS, ("shape", "List[int]")),
    KernelCode.CONVOLUTION_GRAD_WEIGHT: (*_CONVOLUTION_KINDS, ("shape", "List[int]")),
    KernelCode.CROSS: (("dim", "int"),),
    **{code: _kinds_of(code) for code in KernelCode if code >= KernelCode.AVG_POOL2D},
}
"""The settings of each kernel: names and types."""
