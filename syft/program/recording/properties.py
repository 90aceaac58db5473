"""What a function may ask of a tensor besides its sizes and values: properties that do not vary.

``torch.zeros(3, dtype=x.dtype)`` is recorded with the dtype of now.  So a recording notes which of
these properties a function asked for, and what was built fits inputs that have the same.
"""

from __future__ import annotations

from syft.ops.table import BY_NAME

_METHODS = {
    "dtype": "is_floating_point is_complex is_signed element_size type",
    "device": "get_device",
    "dim": "dim ndimension",
    "is_contiguous": "is_contiguous dim_order",
}
_ATTRIBUTES = {
    "dtype": "dtype itemsize",
    "device": "device is_cuda is_cpu is_meta is_mps is_xpu",
    "dim": "ndim",
    "layout": "layout is_sparse is_sparse_csr is_mkldnn",
    "requires_grad": "requires_grad is_leaf grad_fn",
}
_FUNCTIONS = {
    "dtype": "is_floating_point is_complex is_signed result_type",
    "device": "get_device",
}

PROPERTY_OF = {
    BY_NAME[pattern.format(name)]: read
    for pattern, table in (
        ("torch.Tensor.{}", _METHODS),
        ("torch.Tensor.{}.__get__", _ATTRIBUTES),
        ("torch.{}", _FUNCTIONS),
    )
    for read, names in table.items()
    for name in names.split()
}
"""The property that an operation of the op table asks for."""
