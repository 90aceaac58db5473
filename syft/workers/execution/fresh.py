"""The operations whose results never share memory with their arguments.

Torch decides at run time whether ``reshape`` or ``contiguous`` copies, so a result may be a view of
any argument.  The operations of this list always allocate.  The list is short on purpose: an
operation that is missing costs some parallelism, one that is wrong costs correctness.  A test
compares it with every sample of torch's own operator database.
"""

from __future__ import annotations

from typing import Final

from syft.ops.table import FLAGS, INPLACE, NAMES, PROGRAM_ONLY

_ALLOCATING: Final = frozenset("""
    abs acos add addcdiv addcmul addmm addmv amax amin argmax argmin asin atan baddbmm batch_norm
    binary_cross_entropy binary_cross_entropy_with_logits bmm cat clamp clamp_max clamp_min clone
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cos cosh
    cosine_similarity cross_entropy cumprod cumsum div dot elu embedding eq erf exp expm1 floor
    fmod gather ge gelu group_norm gt hardtanh huber_loss index_select instance_norm kl_div l1_loss
    layer_norm le leaky_relu lerp linear log log1p log_softmax logical_and logical_not logical_or
    logsumexp lt masked_fill matmul maximum mean minimum mm mse_loss mul multiply mv ne neg negative
    nll_loss ones_like outer pow prod reciprocal relu relu6 remainder repeat rmatmul rmul rpow rsqrt
    rsub selu sigmoid sign silu sin sinh smooth_l1_loss softmax softplus sqrt square stack sub
    subtract sum tan tanh tril triu true_divide truediv var where xlogy zeros_like
    """.split())


def _allocates(name: str, flags: int) -> bool:
    leaf = name.rpartition(".")[2].strip("_")
    return leaf in _ALLOCATING and not flags & (INPLACE | PROGRAM_ONLY)


FRESH: Final = frozenset(
    number
    for number, (name, flags) in enumerate(zip(NAMES, FLAGS, strict=True))
    if _allocates(name, flags)
)
"""The numbers of these operations; with ``out=`` or ``inplace=`` they return their argument."""
