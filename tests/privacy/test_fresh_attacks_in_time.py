"""Attacks of a stranger by what comes later: withdrawn and parked requests, broken lines, plans,
shares, moves, gradients, optimizers, and several users.

See :mod:`test_fresh_attacks`, which says what an attack is.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import torch
from torch.nn import functional as F

import syft as sy
from tests.privacy.fresh_world import INDICES, SINGULAR, Attacks, World, tests_of

ATTACKS = Attacks()


# ------------------------------------------------------- withdrawn, parked, and asked once more


@ATTACKS.enter
def requests_that_are_withdrawn(w: World) -> Any:
    x, promise = w.secret(*SINGULAR), w.eve.promise()
    first = torch.linalg.inv(x)
    settled = w.outcome(sy.synchronize)
    waiting = torch.linalg.inv(x) * promise
    return settled, w.tried(
        lambda: first.copy(),
        lambda: w.eve.cancel(),
        lambda: waiting.shape,
        lambda: waiting.copy().get(),
        lambda: first + 1,
        lambda: w.eve.cancel(),
        lambda: w.bob.objects_count(),
    )


@ATTACKS.enter
def writes_that_are_withdrawn(w: World) -> Any:
    index, z, promise = w.secret(*INDICES), w.public(1, 2, 3, 4), w.eve.promise()
    alias = z.view(2, 2)
    return w.tried(
        lambda: z.index_fill_(0, index, 7.0),
        sy.synchronize,
        lambda: z.mul_(promise),
        lambda: w.eve.cancel(),
        lambda: (z, alias),
        lambda: w.bob.objects_count(),
    )


@ATTACKS.enter
def what_handles_say(w: World) -> Any:
    x = w.secret(*SINGULAR)
    made = torch.linalg.inv(x)
    handle = made.child.handle

    async def awaited() -> Any:
        return await x.get(wait=False)

    return w.tried(
        lambda: handle.exception(),
        lambda: handle.done(),
        lambda: handle.result(),
        lambda: x.get(wait=False).exception(),
        lambda: asyncio.run(awaited()),
        lambda: (made * 2).child.handle.exception(),
    )


@ATTACKS.enter
def lines_that_break(w: World) -> Any:
    """Her line is cut between a request and its answer; it is resumed where it can be."""
    x, index = w.secret(*SINGULAR), w.secret(*INDICES)
    line = getattr(w.eve.connection().transport, "line", None)

    def cut() -> None:
        if line is not None and getattr(line, "socket", None) is not None:
            line.socket.shutdown(2)

    z = w.public(1, 2, 3, 4)
    return w.tried(
        lambda: torch.linalg.inv(x),
        cut,
        lambda: torch.linalg.inv(x),
        lambda: z.index_fill_(0, index, 7.0),
        cut,
        lambda: z,
        lambda: w.eve.search("#secret1"),
    )


@ATTACKS.enter
def promises_that_the_owner_keeps(w: World) -> Any:
    """What waits is decided by a private value that comes later."""
    promise, z, target = w.eve.promise("ann"), w.public(1, 2, 3, 4), w.public()
    taken, chosen = z.take(promise), z[z > promise]
    target.add_(promise)
    picked = torch.where(promise > 1, z, target)
    value = torch.tensor((1, 9)[w.number])
    value = value.private_tensor(["ann"]) if w.private else value
    w.kept.append(value.send(w.ann, id=promise.id_at_location))
    return (
        taken,
        chosen,
        target,
        picked,
        w.tried(
            lambda: promise.copy().get(), lambda: z[: len(chosen)], lambda: w.bob.objects_count()
        ),
    )


@ATTACKS.enter
def promises_among_failures(w: World) -> Any:
    """What waits meets what fails; order and numbers of results must not tell."""
    x, promise, index = w.secret(*SINGULAR), w.eve.promise(), w.secret(*INDICES)
    z = w.public(1, 2, 3, 4)
    inverse = torch.linalg.inv(x) * promise
    z.index_fill_(0, index, 1.0)
    parts = (z * promise).split(2)
    found = [it.sum() for it in parts]
    kept = w.outcome(lambda: torch.ones(()).send(w.eve, id=promise.id_at_location))
    return kept, inverse, found, z, w.bob.objects_count()


@ATTACKS.enter
def moves_that_wait(w: World) -> Any:
    x = w.secret(allow_destinations=["alice"])
    promise, alice = w.eve.promise(), w.alice.as_user("eve")
    waiting = x[x > 1] * promise
    moved = [(waiting * n).move(to) for n, to in ((1, alice), (2, w.mallory.as_user("eve")))]
    kept = w.outcome(lambda: torch.ones(()).send(w.eve, id=promise.id_at_location))
    return kept, w.tried(
        sy.synchronize, *(lambda it=it: it.sum() for it in (waiting, *moved)), w.alice.objects_count
    )


@ATTACKS.enter
def promises_in_plans(w: World) -> Any:
    x, promise = w.secret(), w.eve.promise()

    @sy.func2plan(args_shape=[(4,), (4,)])
    def plan(a: Any, b: Any) -> Any:
        return sy.cond(a.sum() > 2, lambda p, q: p * q, lambda p, q: q + 1, a, b), b * 2

    there = plan.send(w.eve)
    made = there(x, promise)
    kept = w.outcome(lambda: torch.ones(4).send(w.eve, id=promise.id_at_location))
    return kept, made, w.bob.objects_count()


@ATTACKS.enter
def numbers_of_objects(w: World) -> Any:
    """What fails leaves as many objects as what does not, also after all is dropped."""
    x, index, counts = w.secret(*SINGULAR), w.secret(*INDICES), []  # type: ignore[var-annotated]
    z = w.public(1, 2, 3, 4)

    def counted(step: Any) -> None:
        made = w.outcome(step)
        counts.append((made, w.bob.objects_count()))

    for step in (
        lambda: torch.linalg.inv(x),
        lambda: torch.linalg.lu_factor(x),
        lambda: z[index].split(1),
        lambda: torch.linalg.eigh(x[[0, 1]]),
        lambda: z.gather(0, index).sum().backward(),
        lambda: z.sum(),
    ):
        counted(step)
    return counts, len(w.bob.list_objects())


@ATTACKS.enter
def traces_and_counters(w: World) -> Any:
    x, index = w.secret(*SINGULAR), w.secret(*INDICES)
    z = w.public(1, 2, 3, 4)
    with sy.trace() as trace:
        tried = w.tried(
            lambda: torch.linalg.inv(x),
            lambda: z[index],
            lambda: x[x > 0].sum(),
            lambda: z.index_fill_(0, index, 1.0),
            sy.synchronize,
        )
    stats = w.bob.stats
    counts = stats.messages_in, stats.messages_out, stats.cache_hits
    return tried, [(it.sender, it.receiver, it.what) for it in trace], counts


# -------------------------------------------------------------------------------------- plans


@ATTACKS.enter
def plans_that_train(w: World) -> Any:
    x, y = w.secret(torch.eye(2, 4), torch.ones(2, 4)), w.secret([0, 1], [1, 1])
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    @sy.func2plan(state=(model, optimizer))
    def step(data: Any, target: Any, state: Any) -> Any:
        model, optimizer = state.read()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        return loss

    step.build(torch.ones(2, 4), torch.tensor([0, 1]))
    there = step.send(w.eve)
    return w.tried(
        lambda: there(x, y),
        lambda: there(x, y + 1),
        lambda: there(x[x[:, 1] > 0], y[:1]),
        lambda: [*there.parameters()],
        there.state_dict,
        lambda: there.copy().get().state_dict(),
        lambda: there.move(w.mallory.as_user("eve")),
        lambda: there.get().state_dict(),
        lambda: [it.grad for it in there.parameters()],
    )


@ATTACKS.enter
def plans_that_decide_by_sizes(w: World) -> Any:
    """A row more or less takes another path of the function."""
    x = w.secret([[2.0], [3.0], [0.0]], [[2.0], [0.0], [0.0]])
    rows = x[x[:, 0] > 1]

    @sy.func2plan(args_shape=[(2, 1)])
    def loop(a: Any) -> Any:
        total = a.sum() * 0
        for row in a:
            total = total + row.sum()
        return total

    @sy.func2plan(args_shape=[(2, 1)])
    def branch(a: Any) -> Any:
        return a * 2 if a.shape[0] > 1 else a + 1

    @sy.func2plan(args_shape=[(2, 1)])
    def sized(a: Any) -> Any:
        return torch.zeros(a.shape[0]), a.shape[0], a.reshape(2), a.numel() * 2

    @sy.func2plan(args_shape=[(2, 1)])
    def parts(a: Any) -> Any:
        one, other = a.unbind(0)
        return one + other

    return w.tried(*(lambda it=it: it.send(w.eve)(rows) for it in (loop, branch, sized, parts)))


@ATTACKS.enter
def plans_that_read_numbers(w: World) -> Any:
    x = w.secret()

    @sy.func2plan(args_shape=[(4,)])
    def read(a: Any) -> Any:
        number = a.sum().item()
        return a * number, torch.full((2,), 1.0) * number, number

    @sy.func2plan(args_shape=[(4,)])
    def sliced(a: Any) -> Any:
        return torch.arange(4)[: int(a.abs().sum() * 0 + 2)], torch.ones(2) + a.max().item()

    return w.tried(lambda: read.send(w.eve)(x), lambda: sliced.send(w.eve)(x))


@ATTACKS.enter
def plans_that_count_and_draw(w: World) -> Any:
    """How often a loop runs shows neither in a public counter nor in what is drawn."""
    x, z = w.secret([1.0, 1.0], [5.0, 1.0]), w.public(0, 0)

    @sy.func2plan(args_shape=[(2,), (2,)])
    def loop(a: Any, n: Any) -> Any:
        def body(left: Any, count: Any) -> Any:
            return left - torch.rand(2) * 0 - 1, count + 1

        return sy.while_loop(lambda left, count: left.max() > 0, body, a, n)

    @sy.func2plan(args_shape=[(2,), (2,)])
    def branch(a: Any, n: Any) -> Any:
        return sy.cond(a.max() > 2, lambda it: it.add_(1), lambda it: it * 1, n)

    return w.tried(
        lambda: loop.send(w.eve)(x, z),
        lambda: w.eve.torch.rand(2),
        lambda: branch.send(w.eve)(x, z),
        lambda: w.eve.torch.rand(2),
        lambda: z,
    )


@ATTACKS.enter
def plans_that_write_where_they_are_told(w: World) -> Any:
    x, z, wide = w.secret(), w.public(), w.public(0, 0, 0, 0, 0, 0)
    part = wide[1:5]

    @sy.func2plan(args_shape=[(4,)])
    def plan(a: Any) -> Any:
        return a * 2, a[:2].clone()

    there = plan.send(w.eve)
    short = w.public(0, 0)
    return w.tried(
        lambda: there(x, out=(z, short)),
        lambda: there(x, out=(part, short)),
        lambda: there(x[x > -9], out=(z, short)),
        lambda: there(w.public(1, 1, 1, 1), out=(z, short)),
        lambda: (z, short, wide, part),
    )


@ATTACKS.enter
def plans_that_fail_half_way(w: World) -> Any:
    index, z, u = w.secret(*INDICES), w.public(1, 2, 3, 4), w.public(1, 2, 3, 4)

    @sy.func2plan(args_shape=[(4,), (4,), ((2,), torch.int64)])
    def plan(a: Any, b: Any, i: Any) -> Any:
        a.mul_(2)
        taken = b[i]
        b.add_(1)
        return a.sum(), taken, b.sum(), torch.rand(2)

    there = plan.send(w.eve)
    return w.tried(
        lambda: there(z, u, index),
        lambda: (z, u),
        lambda: there(z, u, torch.tensor([0, 1]).send(w.eve)),
        lambda: w.eve.torch.rand(2),
        lambda: w.bob.objects_count(),
    )


# ------------------------------------------------------------------------- shares and collectives


def _shared(w: World, one: Any, other: Any) -> Any:
    x = w.secret(torch.tensor(one), torch.tensor(other), allow_destinations=["alice"])
    return x.share(w.eve, w.alice.as_user("eve"), crypto_provider=w.mallory.as_user("eve"))


@ATTACKS.enter
def programs_on_shares(w: World) -> Any:
    x = _shared(w, [1, 2, 3], [4, 0, -9])
    y = torch.tensor([1, 2, 3]).share(
        w.eve, w.alice.as_user("eve"), crypto_provider=w.mallory.as_user("eve")
    )
    return w.tried(
        lambda: (x * y).get(),
        lambda: (x > y).get(),
        lambda: (x == y).get(),
        lambda: torch.where(x > 1, x, y).get(),
        lambda: (x @ y).get(),
        lambda: x.max().get(),
        lambda: y.add_(x).get(),
        lambda: (y * 0).get(),
        lambda: x[:1].get(),
        lambda: x.reveal(to=w.alice.as_user("eve")) + 0,
        lambda: sy.verify_shares(),
    )


@ATTACKS.enter
def shares_of_numbers_on_a_grid(w: World) -> Any:
    x = w.secret([1.0, 2.0], [3.0, -4.0], allow_destinations=["alice"]).fix_precision()
    shared = x.share(w.eve, w.alice.as_user("eve"), crypto_provider=w.mallory.as_user("eve"))
    model = torch.nn.Linear(2, 1)
    model.fix_precision().share(
        w.eve, w.alice.as_user("eve"), crypto_provider=w.mallory.as_user("eve")
    )
    return w.tried(
        lambda: model(shared).decrypt().round(decimals=2),  # the last digit is drawn
        lambda: shared.relu().decrypt(),
        lambda: (shared * shared).sum().decrypt().round(decimals=2),
        lambda: model(shared).sum().backward(),
        lambda: model.weight.grad.decrypt().round(decimals=2),
        lambda: torch.optim.SGD(model.parameters(), lr=0.5).step(),
        lambda: model.decrypt().weight.round(decimals=2),
    )


@ATTACKS.enter
def shares_of_what_has_no_place(w: World) -> Any:
    x = w.secret([1e30, 1.0], [1.0, 2.0], allow_destinations=["alice"])
    index = w.secret(*INDICES, allow_destinations=["alice"])
    parties, mallory = (w.eve, w.alice.as_user("eve")), w.mallory.as_user("eve")
    z = w.public(1, 2, 3, 4)
    return w.tried(
        lambda: x.fix_precision().share(*parties, crypto_provider=mallory).decrypt(),
        lambda: z[index].long().share(*parties, crypto_provider=mallory).decrypt(),
        lambda: x[x > 1].long().share(*parties, crypto_provider=mallory).decrypt(),
        lambda: x[x > 1].long().share(*parties, crypto_provider=mallory).shape,
        lambda: x.long().share(*parties, crypto_provider=mallory).reveal(to=mallory),
        lambda: [worker.objects_count() for worker in (w.bob, w.alice)],
    )


@ATTACKS.enter
def averages_of_several(w: World) -> Any:
    x = w.secret(allow_destinations=["alice"])
    alice, mallory = w.alice.as_user("eve"), w.mallory.as_user("eve")
    y, weight = torch.ones(4).send(alice), w.secret(1.0, 2.0)
    layer, other = torch.nn.Linear(4, 1).send(w.eve), torch.nn.Linear(4, 1).send(alice)
    layer.weight.data = (x * 1).view(1, 4)
    return w.tried(
        lambda: sy.federated_average([x, y], secure=True, crypto_provider=mallory),
        lambda: sy.federated_average([x, y], weights=[weight, 1.0]),
        lambda: sy.federated_average([{"a": x}, {"a": y}]),
        lambda: sy.federated_average([layer, other]),
        lambda: sy.federated_average([x * 1, x * 2]),
        lambda: sy.federated_average([x[x > 1], y]),
        lambda: [it.copy().get() for it in sy.sum_private(x.long(), y.long())],
        lambda: (sy.combine_pointers(x, y) + 1).get(sum_results=True),
        lambda: sy.combine_pointers(x, y).sum().get(),
    )


@ATTACKS.enter
def sums_among_several(w: World) -> Any:
    x = w.secret(torch.tensor([1, 2]), torch.tensor([3, 4]), allow_destinations=["alice"])
    alice = w.alice.as_user("eve")
    promise = w.eve.promise()
    waiting = (x * promise)[x > 1]
    return w.tried(
        lambda: sy.sum_private(x[x > 1], torch.tensor([1]).send(alice)),
        lambda: sy.sum_private(x.float(), torch.ones(2).send(alice)),
        lambda: sy.sum_private(waiting, torch.tensor([1, 2]).send(alice)),
        lambda: torch.ones((), dtype=torch.int64).send(w.eve, id=promise.id_at_location),
        lambda: sy.sum_private(x, x * 2),
        lambda: [worker.objects_count() for worker in (w.bob, w.alice)],
    )


# --------------------------------------------------------------------- moves and crossing graphs


@ATTACKS.enter
def graphs_that_cross_twice(w: World) -> Any:
    x = w.secret(allow_destinations=["alice"])
    alice = w.alice.as_user("eve")
    leaf = torch.ones(4, requires_grad=True).send(alice)
    here = (leaf * 2).move(w.eve, requires_grad=True)
    product = here * x
    return w.tried(
        lambda: product.move(alice, requires_grad=True).sum().backward(),
        lambda: leaf,
        lambda: here,
        lambda: product.sum().backward(),
        lambda: torch.autograd.grad((here * x).sum(), here),
        lambda: leaf,
        lambda: w.alice.objects_count(),
    )


@ATTACKS.enter
def pointers_in_a_row(w: World) -> Any:
    """What is at her worker is computed with from bob, with private numbers that go along."""
    x, z = w.secret(), w.public(1, 2, 3, 4)
    there = torch.ones(4).send(w.mallory.as_user("eve"))
    row = w.public(1, 1, 1, 1)
    row.remote_send(w.mallory)
    return w.tried(
        lambda: row * x.sum(),
        lambda: row.add_(x[0]),
        lambda: row.mul_(x),
        lambda: row[: x.argmax()],
        lambda: torch.where(x > 1, row, row),
        lambda: row.copy_(x),
        lambda: there * x,
        lambda: z * there,
        lambda: row.remote_get(),
        lambda: sy.send_all([x.sum(), row], w.mallory),
        lambda: x.send(w.mallory),
    )


@ATTACKS.enter
def modules_that_travel(w: World) -> Any:
    x, layer = w.secret(), torch.nn.Linear(4, 1).send(w.eve)
    (layer(x) ** 2).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    mallory = w.mallory.as_user("eve")
    return w.tried(
        lambda: layer.copy().move(mallory),
        lambda: layer.copy().get().weight,
        lambda: sy.get_all(layer.state_dict(keep_vars=True)),
        lambda: layer.copy().fix_precision(),
        lambda: layer.load_state_dict({"weight": torch.ones(1, 4), "bias": torch.ones(1)}),
        lambda: layer.weight,
        lambda: layer.weight.grad,
        lambda: layer.zero_grad(set_to_none=False),
        lambda: layer.double().weight,
        lambda: layer.requires_grad_(False).bias,
        lambda: layer.move(mallory),
    )


# ------------------------------------------------------------------------------------- gradients


@ATTACKS.enter
def passes_that_are_limited(w: World) -> Any:
    x, z, u = w.secret(grad=True), w.ones(), w.ones()
    loss = (z * x * u).sum() + (u * 2).sum()
    return w.tried(
        lambda: loss.backward(inputs=[z], retain_graph=True),
        lambda: (z, u),
        lambda: loss.backward(inputs=[x], retain_graph=True),
        lambda: x.grad,
        lambda: torch.autograd.grad(loss, [z, u], retain_graph=True, allow_unused=True),
        lambda: torch.autograd.grad(loss, [x], retain_graph=True),
        lambda: torch.autograd.grad(
            [loss, (z * x)], [u, z], [None, torch.ones(4).send(w.eve)], allow_unused=True
        ),
        lambda: torch.autograd.grad(
            z * x, z, torch.eye(4).send(w.eve), is_grads_batched=True, retain_graph=True
        ),
        lambda: (z, u, x),
    )


@ATTACKS.enter
def passes_that_begin_privately(w: World) -> Any:
    x, z = w.secret(), w.ones()
    y, alias = z * 2, z.detach()
    return w.tried(
        lambda: y.backward(x, retain_graph=True),
        lambda: y.backward(gradient=x[x > -9], retain_graph=True),
        lambda: torch.autograd.backward([y, y.sum()], [x, None], retain_graph=True),
        lambda: torch.autograd.grad(y, z, x, retain_graph=True),
        lambda: z.grad.add_(1),
        lambda: z.grad.zero_(),
        lambda: (z, alias, z.grad),
    )


@ATTACKS.enter
def hooks_of_all_kinds(w: World) -> Any:
    x, z, seen = w.secret(), w.ones(), []  # type: ignore[var-annotated]
    y = (z * x)[x > 1]
    return w.tried(
        lambda: y.retain_grad(),
        lambda: y.register_hook(lambda it: seen.append(it)),
        lambda: z.register_hook(lambda it: it * 0),
        lambda: y.grad_fn,
        lambda: y.grad_fn.register_prehook(seen.append),
        lambda: torch.autograd.graph.register_multi_grad_hook([z], seen.append),
        lambda: y.sum().backward(),
        lambda: y.grad,
        lambda: y.retains_grad,
        lambda: (seen, z),
    )


@ATTACKS.enter
def gradients_of_one_memory(w: World) -> Any:
    """Two leaves have one gradient, and a leaf is a view of a public tensor."""
    x, z, u, base = w.secret(), w.ones(), w.ones(), w.public(1, 2, 3, 4, 5, 6)
    z.grad = u.grad = w.public()
    view = base[:4].detach().requires_grad_()
    (z * x).sum().backward()
    (view * x).sum().backward()
    return w.tried(
        lambda: u,
        lambda: u.grad,
        lambda: torch.optim.SGD([u], lr=0.5).step(),
        lambda: (u, z),
        lambda: view.grad,
        lambda: torch.optim.SGD([view], lr=0.5).step(),
        lambda: base,
        lambda: base[4:],
    )


@ATTACKS.enter
def second_derivatives(w: World) -> Any:
    x, z = w.secret([1.0, -1.0], [-1.0, 2.0]), w.public(1, 2, grad=True)
    mask = x > 0
    y = torch.where(mask, z**3, z**2)
    (first,) = torch.autograd.grad(y.sum(), z, create_graph=True)
    chosen = (z**2)[mask]
    return w.tried(
        lambda: torch.autograd.grad(first.sum(), z, retain_graph=True),
        lambda: (first**2).sum().backward(),
        lambda: torch.autograd.grad(chosen.sum(), z, create_graph=True)[0].sum().backward(),
        lambda: torch.autograd.functional.hessian(lambda it: (it * x).pow(3).sum(), z),
        lambda: torch.autograd.functional.hvp(lambda it: (it * x).pow(2).sum(), z, z),
        lambda: torch.autograd.gradcheck(lambda it: it * x, (z,), raise_exception=True),
        lambda: z,
    )


# ------------------------------------------------------------------------------------- optimizers


@ATTACKS.enter
def optimizers_of_many_kinds(w: World) -> Any:
    x = w.secret([0.0, 1.0], [float("nan"), 2.0])
    kinds: tuple[Any, ...] = (
        torch.optim.AdamW,
        torch.optim.Adadelta,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Rprop,
        torch.optim.ASGD,
        torch.optim.Adafactor,
    )

    def trained(kind: Any, **settings: Any) -> Any:
        z = w.public(1, 1, grad=True)
        optimizer = kind([z], lr=0.1, **settings)
        (z * x).sum().backward()
        return w.tried(optimizer.step, lambda: optimizer.state_dict()["state"], lambda: z)

    return (
        [trained(kind) for kind in kinds],
        trained(torch.optim.SGD, foreach=True),
        trained(torch.optim.Adam, fused=True),
    )


@ATTACKS.enter
def schedules_and_limits_of_gradients(w: World) -> Any:
    x, z = w.secret([1.0, 1.0], [90.0, 1.0]), w.public(1, 1, grad=True)
    optimizer = torch.optim.SGD([z], lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 1).send(w.eve))
    loss = (z * x).sum()
    loss.backward()
    return w.tried(
        lambda: plateau.step(loss),
        lambda: plateau.step(loss * 2),
        lambda: optimizer.param_groups[0]["lr"],
        lambda: torch.nn.utils.clip_grad_norm_([z], 1.0, error_if_nonfinite=True),
        lambda: torch.nn.utils.clip_grad_value_([z], 0.5),
        lambda: torch.nn.utils.get_total_norm([z.grad]),
        lambda: optimizer.step(),
        lambda: averaged.update_parameters(torch.nn.Linear(2, 1).send(w.eve)),
        lambda: torch.nn.utils.parameters_to_vector([z]),
        lambda: optimizer.load_state_dict(optimizer.state_dict()),
        lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 1).send(w.eve))(x),
        lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(2, 1).send(w.eve))(x),
        lambda: z,
    )


# ----------------------------------------------------------- data sets, training, several users


@ATTACKS.enter
def training_that_is_reported(w: World) -> Any:
    """What is told of a training while it runs, and of one that fails for some values."""
    x = (torch.arange(8.0).view(4, 2), torch.ones(4, 2) * float("nan"))[w.number]
    y = torch.tensor(([0, 1, 0, 1], [1, 1, 0, 7])[w.number])
    if w.private:
        x, y = x.private_tensor(["ann"]), y.private_tensor(["ann"])
    w.bob.add_dataset(sy.BaseDataset(x, y), "sales")
    told: list[Any] = []
    sent = sy.TrainConfig(
        torch.nn.Linear(2, 2), F.cross_entropy, batch_size=3, epochs=2, shuffle=True
    ).send(w.eve)
    return w.tried(
        lambda: w.eve.fit("sales", on_progress=lambda it: told.append((it.step, it.steps))),
        lambda: told,
        lambda: sent.losses,
        lambda: asyncio.run(w.eve.async_fit("sales")),
        lambda: w.eve.evaluate("sales", return_loss=True),
        lambda: [*sent.model_ptr.parameters()],
        lambda: w.eve.fit("none"),
        lambda: w.eve.search("sales"),
        lambda: w.bob.objects_count(),
    )


@ATTACKS.enter
def searches_over_the_grid(w: World) -> Any:
    x = w.secret()
    found = sy.PrivateGridNetwork(w.eve, w.alice.as_user("eve")).search("#secret1")
    chosen = x[x > 1].tag("#part", "#half").describe("what is above one")
    return w.tried(
        lambda: found,
        lambda: w.eve.search("#half", "#part"),
        lambda: w.eve.search(x.id_at_location),
        lambda: chosen.tags,
        lambda: (chosen.tag("#more"), chosen.tags),
        lambda: x.tag("#mine"),
        lambda: x.describe("mine"),
        lambda: w.dan.search("#mine"),
        lambda: w.eve.search("#secret1")[0].description,
        lambda: (x * 1).tag(f"#{x.shape[0]}").tags,
    )


@ATTACKS.enter
def several_users_and_one_object(w: World) -> Any:
    """What eve and dan make of one another's objects, and of ann's."""
    x, mine = w.secret(), w.public(1, 1, 1, 1).tag("#mine")
    product = (x * mine).tag("#product")
    w.kept.append(torch.ones(4).private_tensor(["dan"]).tag("#dans").send(w.dan))
    (hers,), (his,) = w.dan.search("#product"), w.eve.search("#dans")
    (again,) = w.dan.search("#mine")
    return w.tried(
        lambda: hers.copy().get(),
        lambda: hers.allow("dan"),
        lambda: hers.allow("eve", "dan"),
        lambda: hers.sum().copy().get(),
        lambda: (his * x).allow("dan"),
        lambda: his.allow("eve").copy().get(),
        lambda: again.add_(1),
        lambda: mine.add_(his),
        lambda: again.copy().get(),
        lambda: hers.get(),
        lambda: product.copy().get(),
        lambda: (his + x).tag("#sum"),
        lambda: w.dan.search("#sum")[0].copy().get(),
        lambda: x.send(w.dan),
    )


@ATTACKS.enter
def writers_whom_the_owner_names(w: World) -> Any:
    """Eve may write to what is ann's: what she reads of what was there before, and of copies."""
    made = torch.tensor(([1.0, 2.0], [3.0, 4.0])[w.number])
    made = made.private_tensor(["ann"]) if w.private else made
    w.bob.hold(made.tag("#open"), allow_writes=["eve"])
    (x,) = w.eve.search("#open")
    z = w.public(0, 0)
    return w.tried(
        lambda: x.add_(1),
        lambda: x.copy_(z),
        lambda: x,
        lambda: x.zero_(),
        lambda: x.data.fill_(1),
        lambda: x.set_(z),
        lambda: x.requires_grad_(),
        lambda: (x * 2).sum().backward(),
        lambda: torch.mul(z, 2, out=x),
        lambda: z.copy_(x),
        lambda: (x, z),
        lambda: x.get(),
    )


@ATTACKS.enter
def what_the_owner_branches_on(w: World) -> Any:
    """A branch or a loop of ann's writes to what everybody may read, or does not."""
    w.secret([2.5, 1.0, 1.0, 0.5], [-2.0, -1.0, -1.0, 0.0])
    (x,) = w.ann.search("#secret1")
    names = "#one", "#two", "#three", "#none"
    w.bob.hold(*(torch.zeros(4).tag(name) for name in names), allow_writes=["ann"])
    one, two, three, none = (w.ann.search(name)[0] for name in names)
    board = {name: w.eve.search(name)[0] for name in names}
    parts = {name: it[2:] for name, it in board.items()}

    @sy.func2plan(args_shape=[(4,), (4,), (4,)])
    def branch(a: Any, b: Any, unwritten: Any) -> Any:
        return sy.cond(
            a.sum() > 2, lambda p, q: p[2:].add_(1) + q[:1], lambda p, q: q[:2], b, unwritten
        )

    @sy.func2plan(args_shape=[(4,), (4,), (4,)])
    def loop(a: Any, p: Any, q: Any) -> Any:
        def body(left: Any, this: Any, other: Any) -> Any:
            return left - 1, other, this.add_(1)

        return sy.while_loop(lambda left, this, other: left.max() > 0, body, a, p, q)

    w.kept += [branch.send(w.ann)(x, one, none), loop.send(w.ann)(x, two, three)]
    sy.synchronize()
    return board, parts


@ATTACKS.enter
def what_is_evicted_or_collected(w: World) -> Any:
    x = w.secret()
    product = x * 2
    id = product.id_at_location
    product.garbage_collect_data = False
    count = w.bob.objects_count()
    del product
    gc.collect()
    return count, w.tried(
        lambda: w.eve.search(id),
        lambda: w.dan.search(id),
        lambda: torch.ones(4).send(w.eve, id=id),
        lambda: torch.ones(4).send(w.dan, id=id),
        lambda: sy.send_all([x, x * 1], w.eve),
        lambda: w.bob.objects_count(),
    )


test_nothing_is_learned_of_what_is_private, test_what_is_public_is_learned = tests_of(ATTACKS)
