"""Programs written out: models of users' own, training loops, hooks, and what else they write."""

from __future__ import annotations

import copy
import functools
import io
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector, prune
from torch.nn.utils import vector_to_parameters
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

from tests.programs.by_kind import IMAGE, SEQUENCE, X, call, net, normal, whole
from tests.programs.harness import add, program

DATA, LABELS = normal(5, 3, grad=False), whole(2, 5)

# ------------------------------------------------------------------------------- models of users'


class Positions(nn.Module):
    """Tokens with learned positions, and causal attention with a mask made in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 4), nn.Embedding(8, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, ids: Any) -> Any:
        n = ids.shape[1]
        x = self.tokens(ids) + self.places(torch.arange(n, device=ids.device))
        mask = torch.triu(torch.ones(n, n, device=ids.device), diagonal=1).bool()
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class Sinusoids(nn.Module):
    """Fixed positions in a buffer, made in the constructor."""

    def __init__(self) -> None:
        super().__init__()
        places = torch.arange(8.0)[:, None] * torch.exp(torch.arange(0, 4, 2) * -math.log(10))
        table = torch.zeros(8, 4)
        table[:, ::2], table[:, 1::2] = places.sin(), places.cos()
        self.register_buffer("table", table)
        self.tokens = nn.Embedding(7, 4)

    def forward(self, ids: Any) -> Any:
        return self.tokens(ids) * math.sqrt(4) + self.table[: ids.size(1)]


class Rotary(nn.Module):
    """Rotated queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        angle = torch.outer(torch.arange(x.shape[1]).float(), 1 / 10 ** torch.arange(2.0))
        angle = torch.cat((angle, angle), -1)

        def rotate(t: Any) -> Any:
            a, b = t.chunk(2, -1)
            return t * angle.cos() + torch.cat((-b, a), -1) * angle.sin()

        return F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)


class Unrolled(nn.Module):
    """A cell in a loop, from a first state of zeros."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.cell, self.size = cell(4, 3), 3  # type: ignore[call-arg]

    def forward(self, x: Any) -> Any:
        state: Any = torch.zeros(x.size(1), self.size)
        if isinstance(self.cell, nn.LSTMCell):
            state = state, torch.zeros(x.size(1), self.size)
        outputs = []
        for step in x:
            state = self.cell(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs)


class InLists(nn.Module):
    """Tensors in a list and a dictionary of the module, which are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scales = [torch.tensor([1.0, 2, 3]), torch.ones(3)]
        self.tables = {"low": torch.full((3,), -0.5)}

    def forward(self, x: Any) -> Any:
        for scale in self.scales:
            x = self.layer(x) * scale
        return torch.maximum(x, self.tables["low"])


class Residual(nn.Module):
    """A block with a skip connection, and parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(True))
        self.scale = nn.Parameter(torch.ones(1, 4, 1, 1))
        self.shifts = nn.ParameterList([torch.zeros(4, 1, 1), torch.ones(4, 1, 1)])

    def forward(self, x: Any) -> Any:
        x = x + self.body(x) * self.scale
        for shift in self.shifts:
            x = x + shift
        return x


class Squeeze(nn.Module):
    """Channels weighted by what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleDict({"down": nn.Linear(4, 2), "up": nn.Linear(2, 4)})

    def forward(self, x: Any) -> Any:
        weights = self.gates["up"](F.relu(self.gates["down"](x.mean((2, 3))))).sigmoid()
        return x * weights[:, :, None, None]


class Noisy(nn.Module):
    """Noise while it trains, and a mask of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        keep = (torch.rand(x.shape) > 0.5).float()
        return self.layer(x + 0.1 * torch.randn_like(x)) * keep


class Buckets(nn.Module):
    """Writes results into a tensor that it makes, at places that the input says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        out = torch.zeros(x.shape[0], 4, dtype=x.dtype, device=x.device)
        out[:, 1:3] = self.layer(x)
        out[0] += 1
        out[:, 3] = x.sum(1)
        return out


class Experts(nn.Module):
    """Sends each row to the expert with the highest score."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, None])
        return out


class Centers(nn.Module):
    """A loss with learned centers, and a buffer that it moves."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(2, 3))
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: Any, y: Any) -> Any:
        self.seen += torch.bincount(y, minlength=2)
        return (x - self.centers[y]).pow(2).sum(1).mean()


class Tied(nn.Module):
    """The embedding and the head have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.tokens(ids))


MODELS: dict[str, tuple[Any, Any]] = {
    "positions": (Positions, whole(7, 2, 5)),
    "sinusoids": (Sinusoids, whole(7, 2, 5)),
    "rotary": (Rotary, SEQUENCE),
    "rnn_in_a_loop": (lambda: Unrolled(nn.RNNCell), SEQUENCE),
    "gru_in_a_loop": (lambda: Unrolled(nn.GRUCell), SEQUENCE),
    "lstm_in_a_loop": (lambda: Unrolled(nn.LSTMCell), SEQUENCE),
    "tensors_in_lists": (InLists, X),
    "residual": (Residual, IMAGE),
    "squeeze": (Squeeze, IMAGE),
    "buckets": (Buckets, X),
    "experts": (Experts, X),
    "tied": (Tied, whole(7, 2, 5)),
}
for _name, (_make, _input) in MODELS.items():
    add(f"model_{_name}", call, _make, _input)
add("model_noisy", call, Noisy, X, drawn=True)
add("model_centers", call, Centers, DATA, LABELS)

# ---------------------------------------------------------------------------------- training loops


@program(net, DATA, LABELS)
def clipping(model: Any, x: Any, y: Any) -> Any:
    """Clips the norm and the values of gradients."""
    F.cross_entropy(model(x), y).backward()
    norm = clip_grad_norm_(model.parameters(), 0.1)
    clip_grad_value_(model.parameters(), 0.05)
    return norm.detach()


@program(net, DATA, LABELS)
def accumulation(model: Any, x: Any, y: Any) -> Any:
    """Adds up the gradients of small batches."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows, labels in zip(x.split(2), y.split(2), strict=True):
        (F.cross_entropy(model(rows), labels, reduction="sum") / 5).backward()
    optimizer.step()
    optimizer.zero_grad()
    return model(x).argmax(1)


@program(net, DATA, LABELS)
def by_hand_sgd(model: Any, x: Any, y: Any) -> Any:
    """Steps written out."""
    for _ in range(2):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
    return loss.detach()


@program(net, DATA, LABELS)
def data_sgd(model: Any, x: Any, y: Any) -> Any:
    """Steps through ``.data``, as old tutorials write them."""
    F.cross_entropy(model(x), y).backward()
    for weight in model.parameters():
        weight.data.sub_(weight.grad.data * 0.1)
        weight.grad.data.zero_()


@program(net, DATA, LABELS, plan=False)
def averaged(model: Any, x: Any, y: Any) -> Any:
    """A moving average of the weights."""
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        average.update_parameters(model)
    return average(x).detach()


@program(net, net, DATA)
def target_network(online: Any, target: Any, x: Any) -> Any:
    """A target that follows slowly, as in reinforcement learning."""
    F.mse_loss(online(x), target(x).detach()).backward()
    with torch.no_grad():
        for mine, theirs in zip(target.parameters(), online.parameters(), strict=True):
            mine.mul_(0.9).add_(theirs, alpha=0.1)
            mine.lerp_(theirs, 0.5)


@program(net, DATA, LABELS, plan=False)
def lbfgs(model: Any, x: Any, y: Any) -> Any:
    """An optimizer that calls a closure."""
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return optimizer.step(closure).detach()


@program(net, DATA, LABELS)
def penalties(model: Any, x: Any, y: Any) -> Any:
    """A loss with penalties on weights."""
    loss = F.cross_entropy(model(x), y)
    loss = loss + 0.01 * sum(w.abs().sum() for w in model.parameters())
    return loss + 0.1 * torch.norm(torch.cat([w.flatten() for w in model.parameters()]))


@program(net, DATA)
def gradient_penalty(model: Any, x: Any) -> Any:
    """The norm of the gradient at the input, as critics are trained."""
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (gradient.norm(2, dim=1) - 1).pow(2).mean()


@program(net, DATA, LABELS)
def attack(model: Any, x: Any, y: Any) -> Any:
    """The sign of the gradient added to the input."""
    x = x.clone().requires_grad_()
    F.cross_entropy(model(x), y).backward()
    return (x + 0.1 * x.grad.sign()).clamp(-1, 1).detach()


@program(net, net, DATA)
def distillation(student: Any, teacher: Any, x: Any) -> Any:
    """A student learns from soft labels."""
    with torch.no_grad():
        soft = F.softmax(teacher(x) / 2, -1)
    return F.kl_div(F.log_softmax(student(x) / 2, -1), soft, reduction="batchmean") * 4


@program(net, DATA, LABELS)
def frozen(model: Any, x: Any, y: Any) -> Any:
    """The first layer is not trained."""
    for weight in model[0].parameters():
        weight.requires_grad_(False)
    optimizer = torch.optim.Adam(filter(lambda w: w.requires_grad, model.parameters()), 0.1)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


@program(net, DATA, LABELS, plan=False)
def accuracy(model: Any, x: Any, y: Any) -> Any:
    """Counts what is right, without gradients, in evaluation mode."""
    model.eval()
    with torch.inference_mode():
        right = (model(x).argmax(dim=1) == y).sum().item()
    model.train()
    return right / len(y)


@program(net, DATA, LABELS)
def autocast(model: Any, x: Any, y: Any) -> Any:
    """Half precision where torch chooses it."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    return F.cross_entropy(logits.float(), y)


@program(net, DATA)
def line_search(model: Any, x: Any) -> Any:
    """Gradients with respect to chosen weights."""
    return torch.autograd.grad(model(x).square().mean(), list(model.parameters()))


# ------------------------------------------------------------------------ copies, states and files


@program(net, DATA, plan=False)
def state_dict_round_trip(model: Any, x: Any) -> Any:
    """Keeps the weights and brings them back."""
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    model.load_state_dict(kept)
    return model(x)


@program(net, DATA, plan=False)
def deep_copy(model: Any, x: Any) -> Any:
    """A copy is changed, the original is not."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.mul_(2)
    return (twin(x) - model(x)).detach()


@program(net, DATA, plan=False)
def saved(model: Any, x: Any) -> Any:
    """Saves weights to a file and loads them."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    return model(x)


@program(net, DATA)
def one_vector(model: Any, x: Any) -> Any:
    """All weights as one vector, and back."""
    vector = parameters_to_vector(model.parameters())
    vector_to_parameters(vector.detach() * 0.5, model.parameters())
    return model(x)


@program(net, DATA, plan=False)
def initialised(model: Any, x: Any) -> Any:
    """Weights set by ``nn.init`` and ``apply``."""
    model.apply(lambda part: isinstance(part, nn.Linear) and nn.init.constant_(part.weight, 0.3))
    nn.init.eye_(model[2].weight)
    return model(x)


@program(net, DATA, plan=False)
def pruned(model: Any, x: Any) -> Any:
    """Half of the weights of a layer are taken out."""
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    return model(x).detach()


@program(net, DATA, plan=False)
def in_double(model: Any, x: Any) -> Any:
    """The model in double precision."""
    return model.double()(x.double())


@program(net, DATA, plan=False)
def counted(model: Any, x: Any) -> Any:
    """What a summary of a model says."""
    shapes = [tuple(value.shape) for value in model.state_dict().values()]
    return sum(w.numel() for w in model.parameters() if w.requires_grad), len(shapes), x.size()


# ----------------------------------------------------------------------------------------- autograd


class Straight(torch.autograd.Function):
    """Rounds, and passes gradients through."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class Setup(torch.autograd.Function):
    """The exponential, written with a context that is set up later."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.saved_tensors[0]


add("own_function", lambda x: Straight.apply(x * 2), X)
add("own_function_setup", lambda x: Setup.apply(x), X)
add("straight_through", lambda x: x + (x.round() - x).detach(), X)


@program(X)
def hook_on_a_tensor(x: Any) -> Any:
    """A hook that changes a gradient."""
    y = x * 2
    y.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return y * 3


@program(X)
def hook_that_looks(x: Any) -> Any:
    """A hook that keeps a gradient."""
    seen: list[Any] = []
    y = x.exp()
    y.register_hook(seen.append)
    (y * y).sum().backward()
    return seen[0]


@program(X)
def kept_gradient(x: Any) -> Any:
    """The gradient of what is no leaf."""
    y = x.exp()
    y.retain_grad()
    (y * 3).sum().backward()
    return y.grad


@program(net, DATA, plan=False)
def forward_hook(model: Any, x: Any) -> Any:
    """Features of a layer inside a model."""
    kept: list[Any] = []
    handle = model[1].register_forward_hook(lambda part, given, result: kept.append(result))
    model(x)
    handle.remove()
    return kept


@program(net, DATA, plan=False)
def backward_hook(model: Any, x: Any) -> Any:
    """Gradients at a layer inside a model."""
    kept: list[Any] = []
    handle = model[2].register_full_backward_hook(lambda part, given, made: kept.extend(made))
    model(x).sum().backward()
    handle.remove()
    return kept


@program(net, DATA, plan=False)
def after_accumulation(model: Any, x: Any) -> Any:
    """A step inside the backward pass."""

    def step(weight: Any) -> None:
        weight.data.sub_(weight.grad, alpha=0.1)

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(step)
    model(x).sum().backward()


add("checkpoint", lambda m, x: checkpoint(m, x, use_reentrant=False), net, X)
add("checkpoint_reentrant", lambda m, x: checkpoint(m, x, use_reentrant=True), net, X)
add("twice", lambda x: ((y := x.exp().sum()).backward(retain_graph=True), y * 2)[1], X)


@program(net, DATA)
def functional_call(model: Any, x: Any) -> Any:
    """A model with other weights."""
    weights = {name: value * 2 for name, value in model.named_parameters()}
    return torch.func.functional_call(model, weights, (x,))


@program(net, DATA, LABELS)
def per_sample_gradients(model: Any, x: Any, y: Any) -> Any:
    """A gradient for each row, as private training needs them."""
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights: Any, row: Any, label: Any) -> Any:
        logits = torch.func.functional_call(model, weights, (row[None],))
        return F.cross_entropy(logits, label[None])

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, x, y)


@program(net, DATA, LABELS)
def private_step(model: Any, x: Any, y: Any) -> Any:
    """A step with clipped gradients of single rows."""
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights: Any, row: Any, label: Any) -> Any:
        return F.cross_entropy(torch.func.functional_call(model, weights, row), label)

    rows = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in rows.values()]).norm(dim=0)
    scale = (0.1 / norms).clamp(max=1.0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value -= torch.einsum("n,n...->...", scale, rows[name])


@program(net, DATA)
def input_gradient(model: Any, x: Any) -> Any:
    """A gradient in the input, which has a graph to the weights."""
    return torch.func.grad(lambda row: model(row).square().sum())(x).square().sum()


@program(net, net, DATA)
def ensemble(first: Any, second: Any, x: Any) -> Any:
    """Two models as one, their weights stacked."""
    weights, buffers = torch.func.stack_module_state([first, second])
    skeleton = copy.deepcopy(first)

    def one(weights: Any, buffers: Any) -> Any:
        return torch.func.functional_call(skeleton, (weights, buffers), (x,))

    return torch.func.vmap(one)(weights, buffers)


@program(net, DATA, LABELS)
def inner_loop(model: Any, x: Any, y: Any) -> Any:
    """A step of meta-learning: a loss after a step that gradients go through."""
    weights = dict(model.named_parameters())
    loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    faster = {n: w - 0.1 * g for (n, w), g in zip(weights.items(), gradients, strict=True)}
    return F.cross_entropy(torch.func.functional_call(model, faster, (x,)), y)


# ----------------------------------------------------------------------------------- numpy, python

add("numpy_scalar", lambda x: (x * np.float32(2), x + np.float64(1), x[np.int64(1)]), X)
add("numpy_array_0d", lambda x: x * np.array(2.0), DATA)
add("numpy_array", lambda x: x * torch.from_numpy(np.ones(3, dtype=np.float32)), X)
add("numpy_index", lambda x: x[np.array([0, 2])], X)
add("to_numpy", lambda x: x.detach().numpy().sum().item(), X, plan=False)
add("from_list", lambda x: x + torch.tensor([1.0, 2.0, 3.0]), X, makes=True)
add("arange_outside", lambda x: x * torch.arange(x.shape[1]), X, makes=True)
add("zeros_outside", lambda x: torch.zeros(4, 3).add_(x.detach()).sum(), X, makes=True)
add("eye_outside", lambda y: torch.eye(2)[y], LABELS, makes=True)
add("written_rows", lambda x: torch.stack([row / (i + 1) for i, row in enumerate(x)]), X)
add("text", lambda x: f"{x.sum().item():.3f}", X, plan=False)
add("folded", lambda x: functools.reduce(torch.add, x.unbind()), X)
add("formatted", lambda x: f"{x.sum():.3f}", X, plan=False)
add("rounded", lambda x: round(x.sum().item(), 2), X, plan=False)
add("device_moves", lambda x: x.to(x.device).cpu().to("cpu"), X)
add("type_as", lambda x, y: x.type_as(y).to(y), X, X)
add("device_factory", lambda x: x + torch.ones(3, device=x.device), X, makes=True)


@program(X, plan=False)
def loader(x: Any) -> Any:
    """Batches in an order of numbers."""
    order = [3, 1, 0, 2]
    return [x[order[i : i + 2]].mean() for i in range(0, 4, 2)]


@program(X, plan=False)
def early_stop(x: Any) -> Any:
    """Halves a step until a number is small."""
    steps = 0
    with torch.no_grad():
        while x.norm() > 0.5 and steps < 9:
            x = x * 0.5
            steps += 1
    return x, steps


@program(lambda: nn.LSTM(4, 3, batch_first=True), SEQUENCE)
def packed(model: Any, x: Any) -> Any:
    """Sequences of several lengths."""
    sequences = pack_padded_sequence(x, [2, 2, 1, 1, 1], batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(model(sequences)[0], batch_first=True)[0]


@program(normal(2, 3), normal(4, 3))
def padded(x: Any, y: Any) -> Any:
    """Sequences in one tensor."""
    return pad_sequence([x, y], batch_first=True)


@program(X, whole(3, 4))
def focal(logits: Any, y: Any) -> Any:
    """A loss written out."""
    log = F.log_softmax(logits, -1).gather(1, y[:, None]).squeeze(1)
    return (-((1 - log.exp()) ** 2) * log).mean()


@program(normal(2, 4, 4), whole(2, 2, 1, 4, 4))
def dice(logits: Any, y: Any) -> Any:
    """The loss of segmentations."""
    p = logits.sigmoid()
    y = y[:, 0].float()
    return 1 - (2 * (p * y).sum((1, 2)) + 1) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)


@program(X, X, makes=True)
def contrastive(x: Any, y: Any) -> Any:
    """Each row is to find its own partner: the labels are made of numbers."""
    scores = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T / 0.1
    labels = torch.arange(x.shape[0], device=x.device)
    return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2


@program(X, LABELS, plan=False)
def histogram(x: Any, y: Any) -> Any:
    """A table of how often classes occur."""
    return {int(k): int(n) for k, n in zip(*y.unique(return_counts=True), strict=True)}


@program(normal(6, 2, grad=False))
def k_means(x: Any) -> Any:
    """Two steps of clustering."""
    centers = x[:2].clone()
    for _ in range(2):
        nearest = torch.cdist(x, centers).argmin(1)
        centers = torch.stack([x[nearest == i].mean(0) for i in range(2)])
    return centers


@program(normal(6, 3, grad=False))
def principal_components(x: Any) -> Any:
    """The first directions of data."""
    x = x - x.mean(0)
    _, values, directions = torch.linalg.svd(x, full_matrices=False)
    return values, (x @ directions.T[:, :2]).abs()


@program(normal(6, 3, grad=False), normal(6, 1, grad=False), makes=True)
def normal_equations(x: Any, y: Any) -> Any:
    """Ridge regression in one line."""
    return torch.linalg.solve(x.T @ x + 0.1 * torch.eye(3), x.T @ y)


@program(normal(6, 3, grad=False))
def standardised(x: Any) -> Any:
    """Data with mean 0 and deviation 1, extreme values cut."""
    low, high = x.quantile(0.1, 0), x.quantile(0.9, 0)
    x = torch.minimum(torch.maximum(x, low), high)
    return (x - x.mean(0, keepdim=True)) / x.std(0, keepdim=True).clamp_min(1e-6)
