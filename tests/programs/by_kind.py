"""Programs whose kinds are alike, from tables: losses, layers, optimizers, distributions, …"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn, optim

from tests.programs.harness import Maker, add

Tensor = torch.Tensor


def normal(*shape: int, grad: bool = True) -> Maker:
    """Normal numbers, a leaf that requires grad."""
    return lambda: torch.randn(shape).requires_grad_(grad)


def uniform(*shape: int, grad: bool = True) -> Maker:
    """Numbers between 0 and 1."""
    return lambda: (torch.rand(shape) * 0.9 + 0.05).requires_grad_(grad)


def whole(below: int, *shape: int) -> Maker:
    """Whole numbers, such as classes and tokens."""
    return lambda: torch.randint(below, shape)


def signs(*shape: int) -> Maker:
    """Each 1 or -1."""
    return lambda: torch.randint(2, shape) * 2.0 - 1


def positive_definite(n: int) -> Maker:
    """A symmetric matrix with eigenvalues from 1 on."""
    return lambda: ((a := torch.randn(n, n)) @ a.T + torch.eye(n)).requires_grad_()


def call(module: Any, *inputs: Any) -> Any:
    """Call a module."""
    return module(*inputs)


# ------------------------------------------------------------------------------------------ losses

X = normal(4, 3)
LOSSES: dict[str, tuple[Callable[[], nn.Module], tuple[Maker, ...]]] = {
    "l1": (nn.L1Loss, (X, X)),
    "mse": (nn.MSELoss, (X, X)),
    "mse_sum": (lambda: nn.MSELoss(reduction="sum"), (X, X)),
    "huber": (nn.HuberLoss, (X, X)),
    "smooth_l1": (nn.SmoothL1Loss, (X, X)),
    "cross_entropy": (nn.CrossEntropyLoss, (X, whole(3, 4))),
    "cross_entropy_soft": (nn.CrossEntropyLoss, (X, uniform(4, 3))),
    "cross_entropy_smooth": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), (X, whole(3, 4))),
    "cross_entropy_weights": (
        lambda: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3]), ignore_index=1),
        (X, whole(3, 4)),
    ),
    "cross_entropy_pixels": (nn.CrossEntropyLoss, (normal(2, 3, 4, 4), whole(3, 2, 4, 4))),
    "nll": (nn.NLLLoss, (X, whole(3, 4))),
    "poisson_nll": (nn.PoissonNLLLoss, (X, uniform(4, 3, grad=False))),
    "gaussian_nll": (nn.GaussianNLLLoss, (X, X, uniform(4, 3))),
    "kl_div": (lambda: nn.KLDivLoss(reduction="batchmean"), (X, uniform(4, 3))),
    "bce": (nn.BCELoss, (uniform(4, 3), uniform(4, 3, grad=False))),
    "bce_logits": (
        lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2, 3])),
        (X, uniform(4, 3)),
    ),
    "margin_ranking": (nn.MarginRankingLoss, (normal(4), normal(4), signs(4))),
    "hinge_embedding": (nn.HingeEmbeddingLoss, (X, signs(4, 3))),
    "multi_label_margin": (nn.MultiLabelMarginLoss, (X, whole(3, 4, 3))),
    "multi_label_soft": (nn.MultiLabelSoftMarginLoss, (X, uniform(4, 3, grad=False))),
    "soft_margin": (nn.SoftMarginLoss, (X, signs(4, 3))),
    "multi_margin": (nn.MultiMarginLoss, (X, whole(3, 4))),
    "cosine_embedding": (nn.CosineEmbeddingLoss, (X, X, signs(4))),
    "triplet": (nn.TripletMarginLoss, (X, X, X)),
    "triplet_distance": (
        lambda: nn.TripletMarginWithDistanceLoss(
            distance_function=lambda a, b: 1 - F.cosine_similarity(a, b)
        ),
        (X, X, X),
    ),
    "adaptive_softmax": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 8, cutoffs=[3, 5]),
        (normal(6, 4), whole(8, 6)),
    ),
}
for _name, (_make, _inputs) in LOSSES.items():
    add(f"loss_{_name}", call, _make, *_inputs)
    add(f"loss_{_name}_not_sent", (lambda m: lambda *xs: m()(*xs))(_make), *_inputs)

# ------------------------------------------------------------------------------------- activations

ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.LeakyReLU,
    nn.PReLU, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink,
    nn.Tanhshrink, nn.Softplus, nn.Softsign, nn.Sigmoid, nn.Tanh, nn.LogSigmoid,
]  # fmt: skip
for _kind in ACTIVATIONS:
    add(f"activation_{_kind.__name__}", call, _kind, X)  # type: ignore[attr-defined]

# ------------------------------------------------------------------------------------------ layers

IMAGE, ROW, VOXELS = normal(2, 4, 6, 6), normal(2, 4, 6), normal(2, 4, 4, 4, 4)
SEQUENCE = normal(5, 2, 4)
LAYERS: dict[str, tuple[Callable[[], nn.Module], Maker]] = {
    "linear": (lambda: nn.Linear(3, 2), X),
    "identity": (nn.Identity, X),
    "flatten": (nn.Flatten, IMAGE),
    "unflatten": (lambda: nn.Unflatten(1, (2, 2)), IMAGE),
    "softmax": (lambda: nn.Softmax(-1), X),
    "log_softmax": (lambda: nn.LogSoftmax(-1), X),
    "softmax2d": (nn.Softmax2d, IMAGE),
    "softmin": (lambda: nn.Softmin(-1), X),
    "threshold": (lambda: nn.Threshold(0.1, 0.5), X),
    "glu": (nn.GLU, IMAGE),
    "conv1d": (lambda: nn.Conv1d(4, 2, 3), ROW),
    "conv2d": (lambda: nn.Conv2d(4, 2, 3, padding=1), IMAGE),
    "conv2d_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding="same"), IMAGE),
    "conv2d_circular": (lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"), IMAGE),
    "conv3d": (lambda: nn.Conv3d(4, 2, 2), VOXELS),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 2, 3, stride=2), ROW),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 2, 3, stride=2), IMAGE),
    "unfold": (lambda: nn.Unfold(3), IMAGE),
    "fold": (lambda: nn.Fold((4, 4), 2), normal(2, 8, 9)),
    "max_pool1d": (lambda: nn.MaxPool1d(2), ROW),
    "max_pool2d": (lambda: nn.MaxPool2d(2), IMAGE),
    "max_pool_indices": (lambda: nn.MaxPool2d(2, return_indices=True), IMAGE),
    "avg_pool2d": (lambda: nn.AvgPool2d(2), IMAGE),
    "lp_pool2d": (lambda: nn.LPPool2d(2, 2), IMAGE),
    "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), IMAGE),
    "adaptive_max_pool2d": (lambda: nn.AdaptiveMaxPool2d(1), IMAGE),
    "fractional_pool": (lambda: nn.FractionalMaxPool2d(2, output_size=3), IMAGE),
    "batch_norm1d": (lambda: nn.BatchNorm1d(4), ROW),
    "batch_norm2d": (lambda: nn.BatchNorm2d(4), IMAGE),
    "batch_norm2d_eval": (lambda: nn.BatchNorm2d(4).eval(), IMAGE),
    "instance_norm2d": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "group_norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "layer_norm": (lambda: nn.LayerNorm(3), X),
    "rms_norm": (lambda: nn.RMSNorm(3), X),
    "local_response_norm": (lambda: nn.LocalResponseNorm(2), IMAGE),
    "dropout": (nn.Dropout, X),
    "dropout2d": (nn.Dropout2d, IMAGE),
    "alpha_dropout": (nn.AlphaDropout, X),
    "rrelu": (nn.RReLU, X),
    "upsample_nearest": (lambda: nn.Upsample(scale_factor=2), IMAGE),
    "upsample_bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "pixel_unshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE),
    "channel_shuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    "zero_pad": (lambda: nn.ZeroPad2d(1), IMAGE),
    "reflection_pad": (lambda: nn.ReflectionPad2d(1), IMAGE),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=0), whole(7, 2, 5)),
    "embedding_bag": (lambda: nn.EmbeddingBag(7, 3), whole(7, 2, 5)),
    "rnn": (lambda: nn.RNN(4, 3), SEQUENCE),
    "lstm": (lambda: nn.LSTM(4, 3, num_layers=2, bidirectional=True), SEQUENCE),
    "gru": (lambda: nn.GRU(4, 3, batch_first=True), SEQUENCE),
    "lstm_cell": (lambda: nn.LSTMCell(4, 3), normal(2, 4)),
    "encoder_layer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), SEQUENCE,
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 2, enable_nested_tensor=False
        ),
        SEQUENCE,
    ),
    "encoder_eval": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), SEQUENCE,
    ),
    "lazy_linear": (lambda: nn.LazyLinear(2), X),
    "lazy_conv": (lambda: nn.LazyConv2d(2, 3), IMAGE),
    "lazy_batch_norm": (nn.LazyBatchNorm2d, IMAGE),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), X),
    "old_weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(3, 2)), X),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)), X),
    "orthogonal": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), X),
}  # fmt: skip
DRAWN_LAYERS = {"dropout", "dropout2d", "alpha_dropout", "rrelu", "fractional_pool"}
for _name, (_layer, _input) in LAYERS.items():
    add(f"layer_{_name}", call, _layer, _input, drawn=_name in DRAWN_LAYERS)
add("layer_bilinear", call, lambda: nn.Bilinear(3, 3, 2), X, X)
add("layer_cosine_similarity", call, nn.CosineSimilarity, X, X)
add("layer_pairwise_distance", call, nn.PairwiseDistance, X, X)
add("layer_gru_cell", call, lambda: nn.GRUCell(4, 3), normal(2, 4), normal(2, 3))
add("layer_rnn_cell", call, lambda: nn.RNNCell(4, 3), normal(2, 4), normal(2, 3))
add("layer_multihead", call, lambda: nn.MultiheadAttention(4, 2), SEQUENCE, SEQUENCE, SEQUENCE)
add(
    "layer_transformer", call,
    lambda: nn.Transformer(4, 2, 1, 1, 8, dropout=0.0), SEQUENCE, SEQUENCE,
)  # fmt: skip
add(
    "layer_decoder", call,
    lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0), SEQUENCE, SEQUENCE,
)  # fmt: skip

# ---------------------------------------------------------------------- optimizers and schedulers


def net() -> nn.Module:
    """A small network."""
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))


class Trained(nn.Module):
    """A network with its optimizer, as trainers hold them: sent when the optimizer is there."""

    def __init__(self, make: Callable[..., Any], schedule: Callable[..., Any] | None) -> None:
        super().__init__()
        self.net = net()
        self.optimizer = make(self.net.parameters())
        self.scheduler = schedule(self.optimizer) if schedule is not None else None


def fit(model: Any, optimizer: Any, x: Any, y: Any, scheduler: Any = None) -> Any:
    """Three steps."""
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.detach())
    return losses


def train(trained: Any, x: Any, y: Any) -> Any:
    """Three steps with the optimizer that is there."""
    return fit(trained.net, trained.optimizer, x, y, trained.scheduler)


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 0.1),
    "amsgrad": lambda p: optim.Adam(p, 0.1, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, 0.1),
    "adam_foreach": lambda p: optim.Adam(p, 0.1, foreach=True),
    "groups": lambda p: optim.SGD([{"params": [w], "lr": 0.1 * i} for i, w in enumerate(p, 1)]),
} | {
    kind.__name__.lower(): (lambda p, kind=kind: kind(p, lr=0.1))
    for kind in (
        optim.NAdam, optim.RAdam, optim.Adamax, optim.Adagrad, optim.Adadelta, optim.RMSprop,
        optim.Rprop, optim.ASGD, optim.Adafactor, optim.Muon,
    )
}  # fmt: skip
for _name, _optimizer in OPTIMIZERS.items():
    add(
        f"optimizer_{_name}",
        train,
        lambda o=_optimizer: Trained(o, None),
        normal(5, 3, grad=False),
        whole(2, 5),
    )
    add(
        f"optimizer_{_name}_made_later",
        lambda model, x, y, o=_optimizer: fit(model, o(model.parameters()), x, y),
        net,
        normal(5, 3, grad=False),
        whole(2, 5),
        plan=_name in ("sgd", "momentum", "adam"),
    )

S = optim.lr_scheduler
SCHEDULERS: dict[str, Callable[..., Any]] = {
    "step": lambda o: S.StepLR(o, 1),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "cosine": lambda o: S.CosineAnnealingLR(o, 3),
    "warm_restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 2),
    "one_cycle": lambda o: S.OneCycleLR(o, 0.5, total_steps=5),
    "cyclic": lambda o: S.CyclicLR(o, 0.1, 0.5, step_size_up=2),
    "lambda": lambda o: S.LambdaLR(o, lambda epoch: 0.5**epoch),
    "polynomial": lambda o: S.PolynomialLR(o, 4),
    "sequential": lambda o: S.SequentialLR(o, [S.LinearLR(o), S.ExponentialLR(o, 0.9)], [1]),
}
for _name, _scheduler in SCHEDULERS.items():
    add(
        f"scheduler_{_name}",
        train,
        lambda s=_scheduler: Trained(OPTIMIZERS["momentum"], s),
        normal(5, 3, grad=False),
        whole(2, 5),
        plan=False,
    )

# ----------------------------------------------------------------------------------- distributions

M, V = normal(4, 3), uniform(4, 3)
DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], tuple[Maker, ...], Maker]] = {
    "normal": (D.Normal, (M, V), X),
    "log_normal": (D.LogNormal, (M, V), V),
    "laplace": (D.Laplace, (M, V), X),
    "gumbel": (D.Gumbel, (M, V), X),
    "cauchy": (D.Cauchy, (M, V), X),
    "student_t": (D.StudentT, (V,), X),
    "exponential": (D.Exponential, (V,), V),
    "gamma": (D.Gamma, (V, V), V),
    "beta": (D.Beta, (V, V), V),
    "dirichlet": (D.Dirichlet, (V,), lambda: torch.rand(4, 3).softmax(-1).requires_grad_()),
    "uniform": (lambda high: D.Uniform(high - 3, high), (V,), lambda: torch.zeros(4, 3)),
    "bernoulli": (lambda p: D.Bernoulli(logits=p), (M,), lambda: torch.ones(4, 3)),
    "categorical": (lambda p: D.Categorical(logits=p), (M,), whole(3, 4)),
    "one_hot": (lambda p: D.OneHotCategorical(logits=p), (M,), lambda: torch.eye(3)[[0, 1, 2, 1]]),
    "poisson": (D.Poisson, (V,), lambda: torch.ones(4, 3)),
    "multivariate": (
        lambda m, c: D.MultivariateNormal(m, c), (normal(3), positive_definite(3)), X,
    ),
    "low_rank": (D.LowRankMultivariateNormal, (normal(4), normal(4, 2), uniform(4)), normal(4)),
    "mixture": (
        lambda w, m: D.MixtureSameFamily(D.Categorical(logits=w), D.Normal(m, 1.0)),
        (normal(3), normal(3)), normal(3),
    ),
    "transformed": (
        lambda m: D.TransformedDistribution(D.Normal(m, 1.0), [D.SigmoidTransform()]), (M,), V,
    ),
    "independent": (lambda m, v: D.Independent(D.Normal(m, v), 1), (M, V), X),
}  # fmt: skip


def density(make: Callable[..., Any]) -> Any:
    """The logarithm of the density at the last input."""
    return lambda *inputs: make(*inputs[:-1]).log_prob(inputs[-1])


def drawing(make: Callable[..., Any]) -> Any:
    """A sample, that gradients go through if they can."""

    def draw(*inputs: Any) -> Any:
        made = make(*inputs)
        return made.rsample() if made.has_rsample else made.sample()

    return draw


for _name, (_of, _parameters, _at) in DISTRIBUTIONS.items():
    add(f"density_{_name}", density(_of), *_parameters, _at, makes=True)
    add(f"sample_{_name}", drawing(_of), *_parameters, drawn=True, makes=True)
add("kl_normal", lambda m, v: D.kl_divergence(D.Normal(m, v), D.Normal(0.0, 1.0)), M, V, makes=True)
add("entropy_categorical", lambda p: D.Categorical(logits=p).entropy(), M, makes=True)

# --------------------------------------------------------------------------------------- functions

SQUARE = positive_definite(3)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Maker, ...]]] = {
    "arithmetic": (lambda x, y: (x + 2 * y - 1) / (y.abs() + 3) ** 2, (X, X)),
    "operators": (
        lambda x: (-x, abs(x), 2 - x, 1 / (x * x + 1), 2**x, x % 2, x.detach() // 0.5),
        (X,),
    ),
    "comparisons": (lambda x, y: ((x > y) & (x <= 1) | ~(y == x), x.eq(y), x != 0), (X, X)),
    "statistics": (lambda x: (x.mean(0), x.std(0), x.var(1, correction=0), x.median()), (X,)),
    "reductions": (lambda x: (x.sum(), x.prod(1), x.amax(0), x.norm(), x.logsumexp(0)), (X,)),
    "quantiles": (lambda x: (x.quantile(0.25), x.nanmedian(), x.kthvalue(2, 0).values), (X,)),
    "maximum": (lambda x: (x.max(), *x.max(1), x.argmin(), *x.sort(0), *x.topk(2, 1)), (X,)),
    "cumulative": (lambda x: (x.cumsum(0), x.cumprod(1), x.logcumsumexp(0), *x.cummax(0)), (X,)),
    "shapes": (lambda x: (x.T, x.reshape(2, -1), x.view(12), x[None].expand(2, 4, 3)), (X,)),
    "joining": (lambda x, y: (torch.cat([x, y]), torch.stack([x, y], 1), *x.split(2)), (X, X)),
    "chunks": (
        lambda x: (*x.chunk(2), *x.unbind(1), x.roll(1, 0), x.flip(0), x.repeat(2, 1)),
        (X,),
    ),
    "indexing": (lambda x: (x[0], x[:, 1], x[1:, ::2], x[..., -1], x[[0, 2]], x[None, 1]), (X,)),
    "masking": (lambda x: (torch.where(x > 0, x, 0.0), x.masked_fill(x < 0, -1), x.clamp(0)), (X,)),
    "masked_rows": (lambda x: (x[x > 0], x[x[:, 0] > 0], x.nonzero()), (X,)),
    "gathering": (
        lambda x, i: (x.gather(1, i), x.index_select(0, i[0]), x.take(i)),
        (X, whole(3, 4, 3)),
    ),
    "scattering": (
        lambda x, i: (torch.zeros_like(x).scatter_add(1, i, x), x.index_add(0, i[:, 0], x)),
        (X, whole(3, 4, 3)),
    ),
    "einsum": (
        lambda x, y: (torch.einsum("ij,kj->ik", x, y), x @ y.T, torch.outer(x[0], y[0])),
        (X, X),
    ),
    "batches": (
        lambda x, y: (x @ y, torch.bmm(x, y), torch.baddbmm(x, x, y)),
        (normal(2, 3, 3),) * 2,
    ),
    "solving": (lambda a, b: torch.linalg.solve(a, b), (SQUARE, normal(3, 2))),
    "cholesky": (lambda a: (torch.linalg.cholesky(a), a.logdet(), torch.linalg.det(a)), (SQUARE,)),
    "eigenvalues": (lambda a: torch.linalg.eigvalsh(a), (SQUARE,)),
    "singular_values": (lambda a: torch.linalg.svdvals(a), (normal(4, 3),)),
    "qr": (lambda a: torch.linalg.qr(a).R.abs(), (normal(4, 3),)),
    "least_squares": (lambda a, b: torch.linalg.lstsq(a, b).solution, (normal(4, 3), normal(4, 2))),
    "inverse": (
        lambda a: (a.inverse(), torch.linalg.pinv(a), torch.linalg.matrix_exp(a / 5)),
        (SQUARE,),
    ),
    "norms": (
        lambda x: (torch.linalg.norm(x), F.normalize(x), torch.linalg.vector_norm(x, 1)),
        (X,),
    ),
    "distances": (lambda x, y: (torch.cdist(x, y), F.cosine_similarity(x, y)), (X, X)),
    "fourier": (lambda x: (torch.fft.rfft(x), torch.fft.ifft(torch.fft.fft(x)).real), (X,)),
    "complex": (lambda x, y: torch.complex(x, y).abs() + torch.polar(x, y).angle(), (X, X)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (SEQUENCE,) * 3,
    ),
    "one_hot": (lambda i: F.one_hot(i, 3), (whole(3, 4),)),
    "interpolate": (lambda x: F.interpolate(x, size=(3, 3), mode="area"), (IMAGE,)),
    "grid_sample": (
        lambda x, t: F.grid_sample(x, F.affine_grid(t, [2, 4, 6, 6], False), align_corners=False),
        (IMAGE, normal(2, 2, 3)),
    ),
    "padding": (lambda x: (F.pad(x, (1, 2)), F.pad(x[None], (1, 1), mode="replicate")), (X,)),
    "counting": (
        lambda i: (i.bincount(minlength=4), i.unique(), torch.histc(i.float(), 3)),
        (whole(3, 9),),
    ),
    "bits": (lambda i: (i & 1, i << 2, i ^ 3, ~i, i.bool().any()), (whole(8, 5),)),
    "dtypes": (
        lambda x: (x.double(), x.to(torch.float16), x.int(), x.long().float(), x.bool()),
        (X,),
    ),
    "as_tensor": (
        lambda x, i: (
            torch.as_tensor(x),
            torch.as_tensor(i, dtype=torch.float32),
            torch.asarray(i),
        ),
        (X, whole(3, 4)),
    ),
    "triangles": (
        lambda x: (x.tril(), x.triu(1), x.diag(), x.trace(), torch.diag_embed(x)),
        (normal(3, 3),),
    ),
    "like": (
        lambda x: (
            torch.zeros_like(x),
            torch.ones_like(x) * x,
            x.new_zeros(2),
            x.new_full((2,), 3),
        ),
        (X,),
    ),
    "questions": (
        lambda x: (x.shape[0], x.dim(), x.numel(), x.dtype == torch.float32, len(x), x.is_cuda),
        (X,),
    ),
    "numbers": (
        lambda x: (x.sum().item(), float(x[0, 0]), x[0].tolist(), bool((x > 9).any())),
        (X,),
    ),
    "branches": (lambda x: x * 2 if x.sum() > 0 else x - 1, (X,)),
    "in_place": (lambda x: x.mul_(2).add_(1).clamp_(0, 1).sqrt_(), (uniform(4, 3, grad=False),)),
    "writes": (
        lambda x, y: (x.__setitem__(0, y[0]), x[:, 1].zero_(), x)[2],
        (normal(4, 3, grad=False), normal(4, 3, grad=False)),
    ),
    "masked_writes": (lambda x: (x.__setitem__(x > 0, 1.5), x)[1], (normal(4, 3, grad=False),)),
    "out": (
        lambda x, y: torch.add(x, 1, out=y),
        (normal(4, 3, grad=False), normal(4, 3, grad=False)),
    ),
    "special": (
        lambda x: (torch.special.erf(x), torch.lgamma(x), torch.digamma(x), x.sinc()),
        (uniform(4, 3),),
    ),
    "math": (
        lambda x: (x * math.pi, x**math.e, x.exp().log1p(), x.atan2(x + 1), x.sigmoid()),
        (uniform(4, 3),),
    ),
    "pythons": (lambda x: (sum(x), max(x[0]), [row * 2 for row in x], list(zip(x, x))[0][0]), (X,)),
    "ctc": (
        lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (6, 6), (2, 3)),
        (normal(6, 2, 5), lambda: torch.randint(1, 5, (2, 3))),
    ),
    "ctc_tensors": (
        lambda x, t: F.ctc_loss(x.log_softmax(-1), t, torch.tensor([6, 6]), torch.tensor([2, 3])),
        (normal(6, 2, 5), lambda: torch.randint(1, 5, (2, 3))),
    ),
    "gumbel_softmax": (lambda x: F.gumbel_softmax(x, hard=True), (X,)),
    "vision": (lambda x: F.avg_pool2d(F.relu(F.conv2d(x, x[:, :, :3, :3])), 2), (IMAGE,)),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), (normal(3), normal(2))),
    "searching": (
        lambda x, y: (torch.searchsorted(x.sort().values, y), torch.isin(x, y)),
        (normal(5, grad=False), normal(3, grad=False)),
    ),
    "grad": (lambda x: torch.autograd.grad(x.pow(3).sum(), x, create_graph=True), (X,)),
    "hessian_product": (
        lambda x, y: torch.autograd.grad(
            (torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)[0] * y).sum(), x
        ),
        (X, X),
    ),
    "detached": (lambda x, y: x.detach() * y + (x * y).detach(), (X, X)),
    "jacobian": (lambda x: torch.autograd.functional.jacobian(lambda v: v.exp(), x), (normal(3),)),
    "autograd_hessian": (
        lambda x: torch.autograd.functional.hessian(lambda v: v.pow(3).sum(), x),
        (normal(3),),
    ),
}
for _name, (_function, _inputs) in FUNCTIONS.items():
    add(
        f"function_{_name}",
        _function,
        *_inputs,
        drawn=_name == "gumbel_softmax",
    )

# --------------------------------------------------------------------------------------- torch.func


def cubes(x: Any) -> Any:
    """A number of a row."""
    return (x.pow(3) * x.sum()).sum()


f = torch.func
TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda x: f.grad(lambda v: cubes(v))(x),
    "grad_and_value": lambda x: f.grad_and_value(cubes)(x),
    "vmap": lambda x: f.vmap(cubes)(x),
    "vmap_dims": lambda x: f.vmap(torch.dot, in_dims=(1, None))(x, x[:, 0]),
    "per_sample": lambda x: f.vmap(f.grad(cubes))(x),
    "jacrev": lambda x: f.jacrev(torch.sin)(x[0]),
    "jacfwd": lambda x: f.jacfwd(torch.sin)(x[0]),
    "hessian": lambda x: f.hessian(cubes)(x[0]),
    "jvp": lambda x: f.jvp(torch.sin, (x,), (x,)),
    "vjp": lambda x: (lambda out, pull: (out, pull(x)))(*f.vjp(torch.sin, x)),
    "twice": lambda x: f.grad(lambda v: f.grad(cubes)(v).sum())(x),
    "argnums": lambda x: f.grad(lambda a, b: (a * b**2).sum(), argnums=(0, 1))(x, x + 1),
    "aux": lambda x: f.grad(lambda v: (cubes(v), (v * 2, v.sum())), has_aux=True)(x),
    "nested": lambda x: f.grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [x + 1]}),
    "uses_outside": lambda x: f.grad(lambda v: (v.exp() * x).sum())(x.detach()),
    "ignores_one": lambda x: f.grad(lambda a, b: a.sum(), argnums=(0, 1))(x, x),
    "out_dims": lambda x: f.vmap(lambda v: (v * 2, v.sum()), out_dims=(1, 0))(x),
    "vmap_twice": lambda x: f.vmap(f.vmap(lambda a, b: a * b, (None, 0)), (0, None))(x, x),
    "vmap_jacobians": lambda x: f.vmap(f.jacrev(lambda v: v.cumsum(0) ** 2))(x),
    "vmap_in_grad": lambda x: f.grad(lambda v: f.vmap(cubes)(v).sum())(x),
    "jacrev_chunks": lambda x: f.jacrev(torch.exp, chunk_size=2)(x[0]),
    "jacfwd_two": lambda x: f.jacfwd(lambda a, b: a @ b, argnums=1)(x, x.T[:, :2]),
    "vmap_dict": lambda x: f.vmap(lambda d: {"r": d["a"] + d["b"]}, in_dims=({"a": 0, "b": 1},))(
        {"a": x, "b": x.T}
    ),
    "linearize": lambda x: f.linearize(torch.sin, x)[1](x),
    "functionalize": lambda x: f.functionalize(lambda v: v.clone().add_(1))(x),
    "vmap_same": lambda x: f.vmap(lambda v: v + torch.rand_like(v), randomness="same")(x),
}
for _name, _function in TRANSFORMS.items():
    add(f"func_{_name}", _function, normal(4, 3, grad=False), drawn=_name == "vmap_same")
    if _name not in ("functionalize", "vmap_same"):
        add(f"func_{_name}_with_a_graph", _function, normal(4, 3))
