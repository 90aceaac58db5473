"""How far each operator may be off in fixed precision, and which do not work, with the reasons.

A bound is in steps of the grid (2**-16), against float64 on the same numbers.  What is in no table
is held to ``DEFAULT_STEPS`` (a result is rounded once, to the nearest) and, for gradients,
``DEFAULT_GRADIENT_STEPS``.  The tables of what does not work may only shrink: a test fails when
something in them works.
"""

from __future__ import annotations


def parsed(text: str) -> dict[str, float]:
    """Read ``"name=bound name=bound"``."""
    return {name: float(bound) for name, _, bound in (item.partition("=") for item in text.split())}


DEFAULT_STEPS = 1.0
DEFAULT_GRADIENT_STEPS = 2.5

STEPS = {
    # the reference rounds to 8 and to 11 bits
    **parsed("bfloat16=1900 half=220"),
    # several roundings one after the other, or one multiplied up by what follows
    **parsed("""
    baddbmm=1.5 nn.functional.scaled_dot_product_attention=34 nn.functional.alpha_dropout=5
    nn.functional.feature_alpha_dropout.with_train=6
    nn.functional.multi_head_attention_forward=9 nn.functional.gaussian_nll_loss=1.5
    nn.functional.poisson_nll_loss=10
        """),
    # a rounded number in a denominator, at a pole, or in a difference of near equals
    **parsed("""
    nn.functional.normalize=190 nn.functional.cosine_similarity=3
    nn.functional.rms_norm=190000 nn.functional.local_response_norm=7 __rdiv__=6
        """),
    # matrix algorithms multiply the rounding of their input and of each step up
    **parsed("""
    svd_lowrank=110 pca_lowrank=110 linalg.cond=17 linalg.matrix_power=560 linalg.multi_dot=7
        """),
}

GRADIENT_STEPS = {
    # the reference rounds to 8 and to 11 bits
    **parsed("bfloat16=200 half=40"),
    # a rounded number in a denominator, at a pole, or in a difference of near equals
    **parsed("""
    acos=4 addcdiv=110000 asin=300 atan2=8 atanh=8000 std_mean=10 std_mean.unbiased=5
    nn.functional.normalize=48 nn.functional.rms_norm=32000
    nn.functional.local_response_norm=15 dist=830 pow=2500 float_power=2500 __rdiv__=4 tan=860
    rsqrt=4 sqrt=10 renorm=3 erfinv=58 norm=27 std=10 std.unbiased=5
    nn.functional.cosine_embedding_loss=1300 linalg.vector_norm=23000 special.ndtri=19
    special.log_ndtr=9 masked.std=10
        """),
    # several roundings one after the other, or one multiplied up by what follows
    **parsed("""
    cov=10 cumprod=240 var_mean=7 var_mean.unbiased=6 nn.functional.linear_cross_entropy=3
    native_group_norm=9 native_layer_norm=4 native_batch_norm=11 _native_batch_norm_legit=11
    _batch_norm_with_update=11 nn.functional.group_norm=5 nn.functional.instance_norm=18
    nn.functional.layer_norm=5 nn.functional.multilabel_soft_margin_loss=5
    nn.functional.scaled_dot_product_attention=57 nn.functional.silu=5 nn.functional.mish=5
    nn.functional.batch_norm=11 trapz=7 trapezoid=7 cumulative_trapezoid=8 kron=11
    logcumsumexp=3 nn.functional.multi_head_attention_forward=26 var=7 var.unbiased=6
    nn.functional.gaussian_nll_loss=5 nn.functional.poisson_nll_loss=4 scatter_reduce.prod=15
    masked.var=13 torch.ops.aten._scaled_dot_product_flash_attention_for_cpu=57
        """),
    # matrix algorithms multiply the rounding of their input and of each step up
    **parsed("""
    lu=4 ormqr=17 qr=4 triangular_solve=16 svd_lowrank=25 pca_lowrank=17 pinverse=4
    linalg.cond=14 linalg.eigh=3 linalg.householder_product=830 linalg.lstsq=25
    linalg.lstsq.grad_oriented=25 linalg.matrix_power=230 linalg.qr=4 linalg.lu_factor=4
    linalg.lu_factor_ex=3 linalg.inv=3 linalg.inv_ex=3 linalg.solve=13 linalg.solve_ex=13
    linalg.pinv=4 linalg.pinv.hermitian=5 linalg.tensorinv=7 linalg.tensorsolve=25
    linalg.polar=5
        """),
}

# Torch's database has the first until 2.13, the others from 2.14 on.
NOT_IN_EVERY_TORCH = """
    qr linalg.polar torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
""".split()

# Numbers drawn from a seed are those of float32, so that is what these are compared with.
RANDOM = """
    normal.in_place uniform randn_like rand_like normal bernoulli cauchy exponential geometric
    log_normal nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
""".split()

# Memory with anything in it: only the kind of the result can be compared.
UNDEFINED = """
    empty_like new_empty new_empty_strided
""".split()

UNSUPPORTED = {
    "the grid holds no complex numbers": """
        view_as_complex complex stft polar cdouble cfloat chalf fft.fft fft.fft2 fft.fftn
        fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn fft.ifft fft.ifft2 fft.ifftn
        fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn linalg.eig
        linalg.eigvals
    """.split(),
    "torch makes it with a NaN of its own, which the grid cannot hold": """
        logdet masked.median
    """.split(),
    "hands minus infinity and NaN to its own backward": """
        nn.functional.ctc_loss
    """.split(),
    "makes a float of a plain index, which stays plain": """
        masked.argmax masked.argmin
    """.split(),
    "the rank of a singular matrix hangs on the bits that rounding changes": """
        linalg.pinv.singular
    """.split(),
}

UNSUPPORTED_GRADIENTS = {
    "nn.functional.linear_cross_entropy.chunked_none": "writes its gradient into plain tensors",
    "as_strided.partial_views": "reaches outside the tensor: the reference fails",
    "linalg.norm.subgradients_at_zero": "divides by a norm of zero",
    "special.i1": "divides by zero where float masks the infinity afterwards",
    "special.i1e": "divides by zero where float masks the infinity afterwards",
    "special.erfcx": "a factor of the derivative is larger than the ring",
    "masked.logaddexp": "needs the exponential of an infinity",
}

# Operators whose samples all run on the integers alone: decoding is forbidden while they do.
WITHOUT_DECODING = """
    abs add item clamp_max clamp_min mul sub addmm addmm.decomposed addmv addbmm baddbmm dot
    vdot bmm mv addr addcmul addcdiv broadcast_to broadcast_tensors block_diag combinations
    cartesian_prod ceil chunk unsafe_chunk clone contiguous sum_to_size clamp positive conj
    conj_physical resolve_conj resolve_neg cov cross cumsum cummax cummin diff
    div.no_rounding_mode div.trunc_rounding div.floor_rounding true_divide equal expand
    expand_as expand_copy diag diag_embed diagonal diagonal_copy diagonal_scatter alias_copy
    eq fmax fmin fmod remainder frac floor flip fliplr flipud floor_divide ge gt gradient isin
    kthvalue le logical_not lt masked_fill masked_scatter masked_select matmul
    max.reduction_with_dim max.reduction_no_dim median nanmedian meshgrid.variadic_tensors
    meshgrid.list_of_tensors min.reduction_with_dim min.reduction_no_dim quantile nanquantile
    max.binary maximum min.binary minimum logical_and logical_or logical_xor heaviside isclose
    aminmax as_strided as_strided.partial_views as_strided_copy as_strided_scatter
    nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
    nn.functional.adaptive_max_pool3d nn.functional.avg_pool1d nn.functional.avg_pool3d
    nn.functional.relu nn.functional.conv_transpose1d nn.functional.conv_transpose2d
    nn.functional.conv_transpose3d nn.functional.conv1d nn.functional.conv2d
    nn.functional.conv3d constant_pad_nd nn.functional.pad.constant nn.functional.pad.reflect
    nn.functional.pad.replicate nn.functional.pad.replicate_negative
    nn.functional.pad.circular nn.functional.unfold nn.functional.interpolate.nearest
    nn.functional.interpolate.nearest-exact nn.functional.upsample_nearest
    nn.functional.margin_ranking_loss nn.functional.leaky_relu nn.functional.avg_pool2d
    nn.functional.max_pool1d nn.functional.max_pool2d max_pool2d_with_indices_backward
    nn.functional.max_pool3d nn.functional.max_unpool1d nn.functional.max_unpool1d.grad
    nn.functional.max_unpool2d nn.functional.max_unpool2d.grad nn.functional.max_unpool3d
    nn.functional.max_unpool3d.grad nn.functional.linear nn.functional.prelu
    nn.functional.softsign nn.functional.threshold to topk nn.functional.hardtanh
    nn.functional.relu6 mm mode ne narrow narrow_copy view_copy neg outer permute permute_copy
    real roll rot90 round sign sgn split split.list_args unsafe_split split_with_sizes
    split_with_sizes_copy __radd__ __rdiv__ __rmul__ __rmatmul__ __rmod__ __rsub__ rsub select
    select_scatter slice slice_scatter signbit tensor_split hsplit vsplit dsplit trunc
    nan_to_num reciprocal square lerp isfinite isinf isposinf isneginf isreal isnan einsum
    ravel reshape reshape_as view view_as atleast_1d atleast_2d atleast_3d flatten unflatten
    column_stack gather index_fill index_copy index_select index_add index_reduce.amin
    index_reduce.amax __getitem__ index_put sort unique unique_consecutive put take bfloat16
    bool byte char double float half int long short empty_like zeros_like ones_like full_like
    new_zeros new_ones new_empty new_empty_strided new_full scatter_add stack hstack bucketize
    searchsorted cat unbind unbind_copy vstack dstack unfold unfold_copy msort movedim repeat
    squeeze squeeze.multiple squeeze_copy fill resize_ take_along_dim tile trapz trapezoid
    cumulative_trapezoid unsqueeze unsqueeze_copy zero_ trace transpose transpose_copy T H mT
    mH tril triu kron inner tensordot nn.functional.l1_loss where nonzero nonzero_static t
    t_copy nn.functional.dropout native_dropout_backward nn.functional.dropout2d
    nn.functional.dropout3d nn.functional.alpha_dropout
    nn.functional.feature_alpha_dropout.with_train
    nn.functional.feature_alpha_dropout.without_train nn.functional.mse_loss argwhere all any
    amax amin argmax argmin count_nonzero mean nanmean sum nansum
    nn.functional.hinge_embedding_loss argsort repeat_interleave nn.functional.pixel_shuffle
    nn.functional.pixel_unshuffle nn.functional.channel_shuffle diagflat scatter_reduce.sum
    scatter_reduce.amin scatter_reduce.amax fft.fftshift fft.ifftshift linalg.cross
    linalg.diagonal linalg.vecdot linalg.multi_dot masked.sum masked.cumsum masked.amax
    masked.amin masked.mean masked.var bmm.triton_optimized
""".split()
