"""Programs written out, the second part: models, states of optimizers, and parts of tensors."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from tests.programs.by_hand import DATA, LABELS
from tests.programs.by_kind import IMAGE, SEQUENCE, SQUARE, X, fit, net, normal, uniform, whole
from tests.programs.harness import add, program

PLAIN = normal(4, 3, grad=False)

# ----------------------------------------------------------------------------- optimizers' states


def adam(model: Any) -> Any:
    """An optimizer with a state."""
    return torch.optim.Adam(model.parameters(), 0.1)


@program(net, DATA, LABELS, plan=False)
def optimizer_state_round_trip(model: Any, x: Any, y: Any) -> Any:
    """The state of an optimizer is put into another one."""
    first = adam(model)
    fit(model, first, x, y)
    second = adam(model)
    second.load_state_dict(first.state_dict())
    return fit(model, second, x, y)


@program(net, DATA, LABELS, plan=False)
def added_group(model: Any, x: Any, y: Any) -> Any:
    """A group of parameters is added later."""
    optimizer = torch.optim.SGD(model[0].parameters(), 0.1)
    fit(model, optimizer, x, y)
    optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.01})
    return fit(model, optimizer, x, y)


@program(net, DATA, LABELS, plan=False)
def plateau(model: Any, x: Any, y: Any) -> Any:
    """A scheduler that looks at the loss."""
    optimizer = torch.optim.SGD(model.parameters(), 5.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(4):
        scheduler.step(fit(model, optimizer, x, y)[-1])
    return optimizer.param_groups[0]["lr"]


@program(net, DATA, LABELS, plan=False)
def scaler(model: Any, x: Any, y: Any) -> Any:
    """A scaler of losses that is switched off, as scripts for several devices have it."""
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@program(net, DATA, LABELS, plan=False)
def enabled_scaler(model: Any, x: Any, y: Any) -> Any:
    """A scaler of losses that is switched on."""
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()


@program(net, DATA, LABELS, plan=False)
def stopped_early(model: Any, x: Any, y: Any) -> Any:
    """The best weights are kept and brought back."""
    optimizer, best, kept = torch.optim.SGD(model.parameters(), 3.0), math.inf, None
    for _ in range(3):
        loss = fit(model, optimizer, x, y)[-1].item()
        if loss < best:
            best, kept = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


@program(net, DATA, LABELS)
def sharpness_aware(model: Any, x: Any, y: Any) -> Any:
    """Two backward passes a step, at the weights and at their neighbours."""
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        norm = torch.norm(torch.stack([w.grad.norm() for w in model.parameters()]))
        moves = [w.grad * (0.05 / (norm + 1e-12)) for w in model.parameters()]
        for weight, move in zip(model.parameters(), moves, strict=True):
            weight.add_(move)
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for weight, move in zip(model.parameters(), moves, strict=True):
            weight.sub_(move).sub_(weight.grad, alpha=0.1)


# ------------------------------------------------------------------------ what models are made of


class Symmetric(nn.Module):
    """A parametrization."""

    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).transpose(-1, -2)


def symmetric() -> nn.Module:
    """A layer with symmetric weights."""
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


class Averaging(nn.Module):
    """Buffers that are assigned anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.tensor(0))
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean + self.bias


class Hyper(nn.Module):
    """One network makes the weights of another."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Linear(2, 12)
        self.code = nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.maker(self.code).view(4, 3))


class Named(nn.Module):
    """Layers by name, left out by chance or by choice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(OrderedDict(a=nn.Linear(3, 4), b=nn.Tanh(), c=nn.Linear(4, 3)))
        self.weights = nn.ParameterDict({"x": torch.ones(3), "y": torch.zeros(3)})

    def forward(self, x: Any, skip: bool = False) -> Any:
        for name, layer in self.layers.named_children():
            if not (skip and name == "b"):
                x = layer(x)
        return x * self.weights["x"] + self.weights["y"]


class Masked(nn.Module):
    """A transformer with a padding mask and a causal one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x: Any) -> Any:
        causal = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[:, -1] = True
        return self.layer(x, src_mask=causal, src_key_padding_mask=padding, is_causal=True)


add("parametrized", lambda m, x: m(x), symmetric, X)
add("assigned_buffers", lambda m, x: (m(x), m(x)), Averaging, X)
add("hyper_network", lambda m, x: m(x), Hyper, X)
add("named_layers", lambda m, x: (m(x), m(x, skip=True)), Named, X)
add("masked_transformer", lambda m, x: m(x), Masked, SEQUENCE)
add("double_then_float", lambda m, x: m.double().float()(x), net, DATA, plan=False)
add("bfloat16", lambda m, x: m.bfloat16()(x.bfloat16()).float(), net, DATA, plan=False)
add("layer_by_layer", lambda m, x: [x := layer(x) for layer in m], net, DATA)
add("cut_model", lambda m, x: nn.Sequential(*list(m.children())[:-1])(x), net, DATA)
add("added_layer", lambda m, x: nn.Sequential(m, nn.Softmax(-1))(x), net, DATA)
add("scripted", lambda m, x: torch.jit.script(m)(x), net, DATA, plan=False)
add("state_keys", lambda m: list(m.state_dict()), net, plan=False)
add("loaded_partly", lambda m: str(m.load_state_dict({}, strict=False)), net, plan=False)
add("weight_statistics", lambda m: [w.abs().mean().item() for w in m.parameters()], net, plan=False)
add("bagged", lambda m, x: m(x.flatten(), torch.arange(0, 10, 5)),
    lambda: nn.EmbeddingBag(7, 3, mode="sum"), whole(7, 2, 5), makes=True)  # fmt: skip
add("renormed", lambda m, x: m(x), lambda: nn.Embedding(7, 3, max_norm=0.5), whole(7, 2, 5))
add("cumulative_batch_norm", lambda m, x: (m(x), m(x)),
    lambda: nn.BatchNorm2d(4, momentum=None), IMAGE)  # fmt: skip
add("evaluated", lambda m, x: m.train()(x) + m.eval()(x), lambda: nn.BatchNorm1d(3), X)
add("attention_weights", lambda m, x: m(x, x, x, average_attn_weights=False),
    lambda: nn.MultiheadAttention(4, 2, batch_first=True), SEQUENCE)  # fmt: skip

# -------------------------------------------------------------------------------- parts of tensors


@program(PLAIN, PLAIN)
def written_parts(x: Any, y: Any) -> Any:
    """Writes through views, masks and lists of indices."""
    x[1] = y[0]
    x[:, 2] += 1
    x[[0, 3]] *= 2
    x[x > 1] = y[x > 1]
    x[2, 0] = 7.0
    x.diagonal().fill_(0.5)
    x.view(-1)[5] = -1
    row = x[3]
    row.add_(y[1])
    x.index_put_((torch.zeros_like(x[:, 0]).long(), x[:, 0].argsort() % 3), y[:, 0], True)
    return x


@program(X)
def graph_through_writes(x: Any) -> Any:
    """A graph through what is written."""
    y = x * 2
    y[0] = y[1] * 3
    y[:, 1].add_(y[:, 0].detach())
    z = torch.zeros_like(y)
    z[1:] = y[:-1]
    z[0].copy_(x[2])
    return z.masked_scatter(z > 1, x.exp())


@program(whole(5, 6), normal(6, 2))
def segments(groups: Any, x: Any) -> Any:
    """Sums, means and largest values of groups."""
    zero = torch.zeros_like(x[:5])
    sums = zero.index_add(0, groups, x)
    counts = torch.bincount(groups, minlength=5).clamp(min=1)
    index = groups[:, None].expand_as(x)
    return sums / counts[:, None], zero.scatter_reduce(0, index, x, "amax", include_self=False)


add("unique_rows", lambda i: torch.unique(i, dim=0, return_inverse=True), whole(2, 6, 2))
add("sizes_of_parts", lambda x: torch.split(x, [1, 3]) + torch.tensor_split(x, 3), X)
add("corner", lambda x: (x[..., :1], x[-1:, None], x[:, [True, False, True]], x[1:3, 1:].T), X)
add("loops", lambda x: [a * b for a, b in itertools.product(x[0], x[1])], X)
add("swapped", lambda x: (x.movedim(0, 1), x.swapaxes(0, 1), x.permute(1, 0), x.mT), X)
add("windows", lambda x: (x.unfold(0, 2, 1), x.diff(dim=0), x.as_strided((2, 2), (1, 3))), X)
add("sparse", lambda x: torch.sparse.mm(x.to_sparse(), x.T.contiguous()).sum(0), PLAIN)
add("averages", lambda x, w: (torch.average(x) if hasattr(torch, "average") else x.mean(),
                              (x * w).sum() / w.sum()), X, uniform(4, 3))  # fmt: skip
add("comparison_of_all", lambda x: (torch.equal(x, x), torch.allclose(x, x + 1)), X, plan=False)
add("correlations", lambda x: (torch.corrcoef(x.T), torch.cov(x.T)), X)
add("rounding", lambda x: (x.round(decimals=1), x.floor(), x.trunc(), x.frac(), x.sign()), X)
add("infinite", lambda x: ((x / 0).isinf(), (x * float("nan")).nan_to_num(3.0), x.isfinite()), X)
add("powers_of_matrices", lambda a: (torch.matrix_power(a, 3), torch.linalg.cond(a)), SQUARE)
add("kronecker", lambda x: (torch.kron(x, x).sum(0), torch.block_diag(x, x), x.tile(2)), X)
add(
    "polynomials",
    lambda x: (torch.vander(x[0].detach()), torch.trapezoid(x), torch.cross(x, x + 1, 1)),
    X,
)
add("copied", lambda x: (copy.deepcopy(x.detach()), x.clone().detach()), X)
add("data_of", lambda x: (x.data * 2, x.data.is_leaf, x.is_leaf, x.requires_grad), X)
add("mixed_dtypes", lambda x, i: (x + i, i / 2, i * 0.5, x.double() @ x.T.double(), i // 2),
    X, lambda: torch.arange(3))  # fmt: skip
add("scalar_tensors", lambda x: x.sum() * x / x.max() + x.mean().pow(2), X)


@program(X, plan=False)
def grad_modes(x: Any) -> Any:
    """Modes inside modes."""
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    with torch.set_grad_enabled(False):
        c = x.exp()
    with contextlib.suppress(RuntimeError), torch.inference_mode():
        d = x + 1
    return a.requires_grad, b.requires_grad, c.requires_grad, d.is_inference(), b


@program(X)
def partial_gradients(x: Any) -> Any:
    """Gradients in parts, with weights, and where nothing leads."""
    y = x.exp()
    z = y[:, 0].sum()
    first = torch.autograd.grad(z, y, retain_graph=True)[0]
    second = torch.autograd.grad(y, x, grad_outputs=torch.ones_like(y), retain_graph=True)[0]
    unused = torch.autograd.grad(z, [y, x], allow_unused=True)
    return first, second, unused


@program(X, X)
def accumulated(x: Any, y: Any) -> Any:
    """Backward passes that add up, and one that is cleared."""
    (x * y).sum().backward()
    (x * 2).sum().backward()
    y.grad = None
    (y**2).sum().backward()
    x.grad.mul_(0.5)


@program(normal(5, 2, grad=False), normal(5, 1, grad=False))
def regression_by_hand(x: Any, y: Any) -> Any:
    """Gradient descent on leaves that the program makes of what it was given."""
    w = (x[:2, :1] * 0).requires_grad_()
    for _ in range(3):
        loss = ((x @ w - y) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, w)
        w = (w - 0.1 * gradient).detach().requires_grad_()
    return w.detach()


@program(normal(3, 4, grad=False))
def beam(logits: Any) -> Any:
    """A search that keeps the best two."""
    scores, tokens = logits[0].log_softmax(-1).topk(2)
    sequences = tokens[:, None]
    for row in logits[1:]:
        both = scores[:, None] + row.log_softmax(-1)[None]
        scores, flat = both.view(-1).topk(2)
        parents = torch.div(flat, 4, rounding_mode="floor")
        sequences = torch.cat([sequences[parents], (flat % 4)[:, None]], dim=1)
    return scores, sequences


@program(normal(6, 3), whole(2, 6))
def viterbi(scores: Any, tags: Any) -> Any:
    """The forward algorithm of a chain, with the score of the true tags."""
    alpha = scores[0]
    for row in scores[1:]:
        alpha = torch.logsumexp(alpha[:, None] + row[None, :], dim=0)
    return torch.logsumexp(alpha, 0) - scores.gather(1, tags[:, None]).sum()
