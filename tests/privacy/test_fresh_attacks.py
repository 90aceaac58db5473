"""Attacks through the public interface, each on private data in two worlds and on public data too.

An attack is a program of a stranger.  It returns what she has got, and :mod:`fresh_world` asks all
of it for everything.  On private data she must observe the same, whatever the values are.  On
public data she must not, or the attack counts for nothing.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint

import syft as sy
from tests.privacy.fresh_world import INDICES, SINGULAR, Attacks, World, tests_of

ATTACKS = Attacks()


# ----------------------------------------------------------------------------- copies and aliases


@ATTACKS.enter
def copies(w: World) -> Any:
    x = w.secret(grad=True)
    return copy.deepcopy(x), copy.copy(x), w.tried(lambda: pickle.dumps(x), lambda: x * 1)


@ATTACKS.enter
def data_that_are_assigned(w: World) -> Any:
    x, z, leaf = w.secret(), w.public(), w.ones()
    view, product = z[1:], leaf * 2
    z.data = x * 1
    leaf.data = x * 1
    return z, view, product, w.tried(lambda: product.sum().backward()), leaf


@ATTACKS.enter
def memory_that_is_set(w: World) -> Any:
    x, z = w.secret(), w.public()
    alias = z.detach()
    return w.tried(lambda: z.set_(x), lambda: z.set_(x * 1)), z, alias


@ATTACKS.enter
def tensors_that_are_swapped(w: World) -> Any:
    z, y = w.public(), w.secret() * 1
    return w.tried(lambda: torch.utils.swap_tensors(z, y)), z, y


@ATTACKS.enter
def views_and_their_base(w: World) -> Any:
    x, z = w.secret(), w.public(0, 0, 0, 0, 0, 0)
    part, beside = z[1:5], z[:1]
    part.copy_(x)
    return z, part, beside, z.view(2, 3).t(), w.tried(lambda: part._base)


@ATTACKS.enter
def items_that_are_set(w: World) -> Any:
    x, z, index = w.secret(), w.public(), w.secret(1, 2)
    square = z.view(2, 2)
    z[1] = x[0]
    tried = w.tried(
        lambda: z.__setitem__(index, 3.0),
        lambda: z.__setitem__(slice(0, index), 1.0),
        lambda: z.__setitem__(x > 0, w.public(9, 9)),
        lambda: square[index],
    )
    return tried, z, square


@ATTACKS.enter
def given_outputs(w: World) -> Any:
    x, z, empty = w.secret(), w.public(0, 0, 0, 0, 0, 0), torch.zeros(0).send(w.eve)
    places, part = torch.zeros(0, dtype=torch.int64).send(w.eve), z[1:5]
    tried = w.tried(
        lambda: torch.add(x, 1, out=part),
        lambda: torch.masked_select(x, x > 0, out=empty),
        lambda: torch.nonzero(x > 0, out=places),
        lambda: torch.sort(x, out=(empty, places)),
        lambda: torch.topk(x, 2, out=(empty, places)),
        lambda: empty.is_contiguous(),
        lambda: len(places),
    )
    return tried, z, part, empty, places


@ATTACKS.enter
def memory_that_grows(w: World) -> Any:
    x, z = w.secret(), w.public(1, 2)
    chosen = x[x > 0]
    return w.tried(
        lambda: z.resize_as_(chosen),
        lambda: z.resize_(8),
        lambda: (x * 1).resize_(12),
        lambda: (x * 1)[1:].as_strided((4,), (1,), 0),
        lambda: chosen.resize_(2),
        lambda: z.set_(chosen),
        lambda: z,
    )


@ATTACKS.enter
def lists_of_tensors(w: World) -> Any:
    x, z, u = w.secret(), w.public(1, 1, 1, 1), w.public(2, 2, 2, 2)
    tried = w.tried(
        lambda: torch._foreach_norm([x, z]),
        lambda: torch._foreach_copy_([z], [x]),
        lambda: torch._foreach_add_([u, z], x[0]),
        lambda: torch._foreach_addcdiv_([z], [u], [x], 1.0),
    )
    return tried, z, u


@ATTACKS.enter
def one_tensor_in_two_places(w: World) -> Any:
    """What was worked out for other tensors of these shapes counts each of them once."""
    x, z, scale, leaf = w.secret(), w.public(), w.public(1, 1, 1, 1), w.ones()
    product, alias = z * leaf, z.data
    torch.addcmul(input=w.public(), tensor1=scale, out=x * 1, tensor2=x)
    torch.addcmul(input=scale, tensor1=scale, out=alias, tensor2=x)
    rates = {"lr": 0.1, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0, "eps": 1e-8}

    def step(p: Any, g: Any, m: Any) -> Any:
        lists: list[list[Any]] = [[p], [g], [m], [x * 0], [], [x[0] * 1]]
        return torch._fused_adam_(*lists, **rates, amsgrad=False, maximize=False)

    step(x * 1, x * 2, x * 3)
    gradient, state = x * 1, w.public()
    tried = w.tried(lambda: step(gradient, gradient, state), lambda: product.sum().backward())
    return tried, z, alias, state, leaf


@ATTACKS.enter
def another_dtype(w: World) -> Any:
    x, z = w.secret(), torch.zeros(4, dtype=torch.int64).send(w.eve)
    return w.tried(lambda: z.copy_(x), lambda: z.mul_(x > 0), lambda: z.floor_divide_(x.long())), z


# -------------------------------------------------------------------------------------- gradients


@ATTACKS.enter
def hooks(w: World) -> Any:
    x, z, seen = w.secret(), w.ones(), []  # type: ignore[var-annotated]
    y = z * 1
    tried = w.tried(
        lambda: y.register_hook(seen.append),
        lambda: z.register_post_accumulate_grad_hook(seen.append),
    )
    (y * x).sum().backward()
    return tried, seen, z


@ATTACKS.enter
def gradients_that_are_kept(w: World) -> Any:
    x, z = w.secret(), w.ones()
    y = z * 2
    y.retain_grad()
    (y * x).sum().backward()
    return y, z


@ATTACKS.enter
def gradients_in_memory_of_hers(w: World) -> Any:
    x, z, numbers = w.secret(), w.ones(), w.public(0, 0, 0, 0, 5, 5)
    z.grad = numbers[:4]
    beside = numbers[4:]
    (z * x).sum().backward()
    return numbers, beside, z


@ATTACKS.enter
def gradients_that_are_set(w: World) -> Any:
    x, z = w.secret(), w.ones()
    alias, optimizer = z.detach(), torch.optim.SGD([z], lr=0.5)
    z.grad = x * 1
    tried = w.tried(
        lambda: z.grad.data,
        optimizer.step,
        lambda: optimizer.zero_grad(set_to_none=False),
        lambda: (z * 2).sum().backward(),
    )
    return tried, z, alias


@ATTACKS.enter
def gradients_of_second_order(w: World) -> Any:
    x, z = w.secret(), w.public(1, 2, 3, 4, grad=True)
    (first,) = torch.autograd.grad((z**3 * x).sum(), z, create_graph=True)
    (largest,) = torch.autograd.grad((z * x).max(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z, retain_graph=True)
    first.sum().backward()
    return first, second, largest, z, w.tried(lambda: torch.autograd.grad(largest.sum(), z))


@ATTACKS.enter
def second_order_of_what_failed(w: World) -> Any:
    x, z = w.secret(*SINGULAR), w.ones()
    y = torch.linalg.inv(x * z.view(2, 2))
    (first,) = torch.autograd.grad(y.sum(), z, create_graph=True)
    return first, w.tried(
        lambda: torch.autograd.grad(first.sum(), z, create_graph=True),
        lambda: first.sum().backward(),
        lambda: z,
    )


@ATTACKS.enter
def a_write_that_failed_and_its_graph(w: World) -> Any:
    index, z = w.secret(*INDICES), w.ones()
    y = z * z
    y.index_add_(0, index, z[:2] * z[:2])
    (first,) = torch.autograd.grad(y.sum(), z, create_graph=True)
    return y, first, w.tried(lambda: torch.autograd.grad(first.sum(), z))


@ATTACKS.enter
def graphs_of_a_base_whose_view_is_written(w: World) -> Any:
    index, x, leaf, z = w.secret(*INDICES), w.secret(grad=True), w.ones(), w.public()
    view, other, beside = z[:2], z[1:3], z.view(2, 2).t()
    view.index_add_(0, index, leaf[:2])
    view.mul_(x[:2])
    return w.tried(
        lambda: (z * 2).sum().backward(retain_graph=True),
        lambda: torch.autograd.grad(other.sum(), leaf),
        lambda: [z, view, other, beside, leaf],
    )


@ATTACKS.enter
def backward_passes_that_fail(w: World) -> Any:
    """Torch refuses a gradient of complex singular vectors unless it is zero."""
    scale, numbers = w.secret([0.0], [1.0]), torch.tensor([[1 + 1j, 2], [3, 4 - 1j]])
    z = numbers.requires_grad_().send(w.eve)
    left, values, _ = torch.linalg.svd(z)
    loss = (scale * left.real.sum()).sum()
    return w.tried(
        lambda: torch.autograd.grad(loss, z, retain_graph=True),
        lambda: loss.backward(retain_graph=True),
        loss.backward,
        loss.backward,
        lambda: values.sum().backward(),
        lambda: z,
    )


@ATTACKS.enter
def branches_of_a_graph(w: World) -> Any:
    chosen, a, b = w.secret(True, False), w.ones(), w.ones()
    torch.where(chosen, a, b).sum().backward()
    return a, b, w.tried(lambda: sy.cond(chosen, lambda p, q: p * 2, lambda p, q: q * 3, a, b))


@ATTACKS.enter
def anomalies(w: World) -> Any:
    x, z = w.secret([0.0] * 4, [1.0] * 4), w.ones()

    def run() -> None:
        with torch.autograd.detect_anomaly():
            (z * x).sqrt().sum().backward()

    return w.tried(run), z


@ATTACKS.enter
def what_a_graph_saves(w: World) -> Any:
    x, z, seen = w.secret(), w.ones(), []  # type: ignore[var-annotated]
    with torch.autograd.graph.saved_tensors_hooks(
        lambda it: (seen.append(it), it)[1], lambda it: it
    ):
        y = (z * x).exp()
    y.sum().backward()
    again = checkpoint(lambda it: (it * x).relu(), z, use_reentrant=False)
    return seen, z, w.tried(lambda: y.grad_fn._saved_result, lambda: again.sum().backward()), z


@ATTACKS.enter
def gradients_that_return(w: World) -> Any:
    x, z, alice = w.secret(torch.ones(4), -torch.ones(4)), w.ones(), w.alice.as_user("eve")
    there = z.move(alice)
    back = (there * 2).move(w.eve)
    return w.tried(lambda: (back * x).sum().backward()), there, w.alice.objects_count()


@ATTACKS.enter
def gradients_that_follow_to_her_worker(w: World) -> Any:
    x, z = w.secret(), w.ones()
    loss = (z * x).sum()
    moved = z.move(w.mallory.as_user("eve"), requires_grad=True)
    return w.tried(loss.backward, lambda: moved.grad), moved


@ATTACKS.enter
def transforms(w: World) -> Any:
    x, z = w.secret(), w.public(1, 2, 3, 4)
    layer = torch.nn.Linear(4, 1).send(w.eve)
    return w.tried(
        lambda: torch.func.grad(lambda it: (it * it * x).sum())(z),
        lambda: torch.func.vmap(lambda it: it * x)(torch.ones(2, 4).send(w.eve)),
        lambda: torch.func.vjp(lambda it: it * x, z)[1](z),
        lambda: torch.func.functional_call(layer, {"weight": x.view(1, 4)}, (z,)),
        lambda: torch.autograd.functional.jacobian(lambda it: it * x, z),
    )


# ------------------------------------------------------------------------- modules and optimizers


@ATTACKS.enter
def optimizers_with_state(w: World) -> Any:
    x = w.secret()

    def trained(kind: Any, **settings: Any) -> Any:
        z = w.ones()
        optimizer = kind([z], **settings)
        (z * x).sum().backward()
        return w.tried(optimizer.step, lambda: optimizer.state_dict()["state"], lambda: z)

    kinds = torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad
    return trained(torch.optim.SGD, lr=0.1, momentum=0.9), [trained(kind) for kind in kinds]


@ATTACKS.enter
def steps_that_look_at_a_loss(w: World) -> Any:
    x, z = w.secret([float("inf")] * 4, [1.0] * 4), w.ones()
    optimizer = torch.optim.SGD([z], lr=0.1)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=2.0)

    def scaled() -> Any:
        scaler.scale((z * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    def searched() -> Any:
        by_value = torch.optim.LBFGS([z], max_iter=2)
        return by_value.step(lambda: ((z - x) ** 2).sum())

    return w.tried(scaled, searched, lambda: torch.nn.utils.clip_grad_norm_([z], 1.0)), z


@ATTACKS.enter
def rates_that_are_private(w: World) -> Any:
    x, z = w.secret(), w.ones()
    z.sum().backward()
    by_tensor = torch.optim.SGD([z], lr=x.abs().sum())
    return w.tried(by_tensor.step, lambda: torch.optim.Adam([z], lr=x.abs().sum()).step()), z


@ATTACKS.enter
def statistics_of_a_normalization(w: World) -> Any:
    x = w.secret(torch.arange(12.0).view(4, 3), torch.ones(4, 3) * 3)
    layer = torch.nn.BatchNorm1d(3).send(w.eve)
    y = layer(x)
    state = layer.running_mean, layer.running_var, layer.num_batches_tracked
    return y, state, w.tried(lambda: layer.get().running_mean)


@ATTACKS.enter
def parameters_that_are_written(w: World) -> Any:
    x, layer = w.secret(), torch.nn.Linear(4, 1).send(w.eve)
    with torch.no_grad():
        layer.weight.copy_(x.view(1, 4))
    return w.tried(
        lambda: layer.copy().get().weight, layer.state_dict, lambda: copy.deepcopy(layer).weight
    )


@ATTACKS.enter
def attention(w: World) -> Any:
    mask = w.secret([[True, False, False]], [[True, True, False]])
    q = torch.ones(1, 3, 4).send(w.eve)
    one = torch.nn.MultiheadAttention(4, 2, batch_first=True).send(w.eve)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval().send(w.eve)

    def fast() -> Any:
        with torch.no_grad():
            return encoder(q, src_key_padding_mask=mask)

    return w.tried(lambda: one(q, q, q, key_padding_mask=mask), fast), w.tried(
        lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    )


@ATTACKS.enter
def sequences(w: World) -> Any:
    lengths, q = w.secret([3, 1], [2, 2]), torch.ones(2, 3, 4).send(w.eve)
    gru = torch.nn.GRU(4, 2, batch_first=True).send(w.eve)
    packed: Callable[..., Any] = rnn.pack_padded_sequence
    return w.tried(
        lambda: packed(q, lengths, batch_first=True),
        lambda: torch._pack_padded_sequence(q, lengths, True),
        lambda: gru(packed(q, lengths, batch_first=True, enforce_sorted=False))[1],
    )


@ATTACKS.enter
def distributions(w: World) -> Any:
    x, d = w.secret([1.0, -1.0], [1.0, 1.0]), torch.distributions
    return w.tried(
        lambda: d.Normal(0.0, x),
        lambda: d.Normal(w.public(0, 0), x, validate_args=False).sample(),
        lambda: d.Bernoulli(x, validate_args=False).log_prob(w.public(1, 0)),
        lambda: d.Gamma(x, x, validate_args=False).rsample(),
        lambda: F.gumbel_softmax(x),
        lambda: torch.rand(2),
        lambda: torch.randn(2).send(w.eve),
    )


@ATTACKS.enter
def generators(w: World) -> Any:
    x, given = w.secret([0.0, 0.0, 1.0, 1.0], [1.0, 0, 1.0, 1.0]), torch.Generator().manual_seed(1)
    return w.tried(
        lambda: torch.poisson(x * 9, generator=given),
        given.get_state,
        lambda: torch.bernoulli(x, generator=given),
        lambda: torch.multinomial(x, 2, generator=given),
        lambda: torch.rand(3, generator=given),
        given.initial_seed,
        lambda: F.dropout(x[x > 0]),
        lambda: w.public().normal_(),
        lambda: torch.rand(2),
    )


@ATTACKS.enter
def quantization(w: World) -> Any:
    x = w.secret()
    return w.tried(
        lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255),
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        lambda: torch._choose_qparams_per_tensor(x),
        lambda: torch.quantize_per_tensor(w.public(1, 2), x[0], 0, torch.quint8).q_scale(),
    )


test_nothing_is_learned_of_what_is_private, test_what_is_public_is_learned = tests_of(ATTACKS)
