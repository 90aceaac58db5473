"""More attacks of a stranger: plans, groups, other workers, data sets, hidden shapes and errors.

See :mod:`test_fresh_attacks`, which says what an attack is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from syft.workers.core.peer_limits import PeerLimits
from tests.privacy.fresh_world import INDICES, ONE, OTHER, SINGULAR, Attacks, World, tests_of

ATTACKS = Attacks()


# --------------------------------------------------------------------------- plans, groups, waits


@ATTACKS.enter
def plans_of_a_function(w: World) -> Any:
    x, z = w.secret(), w.public()

    @sy.func2plan(args_shape=[(4,), (4,)])
    def plan(a: Any, b: Any) -> Any:
        b.add_(a)
        return b.sum(), a[:2], a.max(0)[1]

    there = plan.send(w.eve)
    return w.tried(lambda: there(x, z), lambda: there.get()(torch.ones(4), torch.ones(4))), z


class Weighted(sy.Plan):
    """A plan with a parameter, and a buffer to which it adds what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.total.add_(x)
        return self.weight * x


@ATTACKS.enter
def the_state_of_a_plan(w: World) -> Any:
    x, plan = w.secret(), Weighted()
    plan.build(torch.ones(4))
    there = plan.send(w.eve)
    y = there(x)
    return y, w.tried(
        lambda: y.sum().backward(),
        lambda: [*there.parameters()],
        there.state_dict,
        lambda: there.copy().get(),
        lambda: there.move(w.mallory.as_user("eve")),
        lambda: there.get().state_dict(),
    )


@ATTACKS.enter
def a_parameter_of_a_plan_is_written(w: World) -> Any:
    x, plan = w.secret(), Weighted()
    plan.build(torch.ones(4))
    there = plan.send(w.eve)
    (weight,) = there.parameters()
    with torch.no_grad():
        weight.copy_(x)
    return weight, w.tried(lambda: there(w.public(1, 1, 1, 1)), lambda: there.get().state_dict())


@ATTACKS.enter
def a_constant_of_a_plan_is_written(w: World) -> Any:
    x, constant = w.secret(), torch.zeros(4)

    @sy.func2plan(args_shape=[(4,)])
    def plan(a: Any) -> Any:
        total = constant + 0
        total.add_(a)
        return total, constant.view(2, 2)

    there = plan.send(w.eve)
    return w.tried(lambda: there(x), lambda: there(w.public(1, 1, 1, 1)))


@ATTACKS.enter
def plans_asked_of_a_hidden_shape(w: World) -> Any:
    x = w.secret()
    column = x[x > 1].view(-1, 1)

    def run(size: int) -> Any:
        plan = sy.func2plan(args_shape=[(size,)])(lambda it: (it * 2, it.view(-1, 1).t()))
        there = plan.send(w.eve)
        return w.tried(lambda: there(x[x > 1]), lambda: there(column.t()), lambda: there(column))

    return [run(size) for size in (-1, 2, 3)]


@ATTACKS.enter
def plans_with_branches(w: World) -> Any:
    x = w.secret()

    @sy.func2plan(args_shape=[(4,)])
    def branch(a: Any) -> Any:
        return sy.cond(a.sum() > 2, lambda it: it * 2, lambda it: it + 1, a)

    @sy.func2plan(args_shape=[(4,)])
    def loop(a: Any) -> Any:
        return sy.while_loop(lambda it: it.sum() < 20, lambda it: it.abs() + 1, a)

    return w.tried(lambda: branch.send(w.eve)(x), lambda: loop.send(w.eve)(x))


@ATTACKS.enter
def plans_that_fail(w: World) -> Any:
    index, z = w.secret(*INDICES), w.public(1, 2, 3, 4)

    @sy.func2plan(args_shape=[(4,), (2,)])
    def plan(a: Any, i: Any) -> Any:
        kept, taken, later = a * 2, a[i.long()], a + 1
        a.index_add_(0, i.long(), kept[:2])
        return kept, taken, later, a

    there = plan.send(w.eve)
    return w.tried(lambda: there(z, index)), z, w.bob.objects_count()


@ATTACKS.enter
def groups(w: World) -> Any:
    x, z = w.secret(), w.public()

    def run() -> Any:
        with w.eve.group():
            mine = torch.zeros(4).send(w.eve)
            part = mine[:2]
            mine.add_(x)
            z.add_(x * 2)
            chosen = x[x > 0].sum()
        return mine, part, chosen

    return w.tried(run, run), z


@ATTACKS.enter
def groups_that_fail(w: World) -> Any:
    index, z = w.secret(*INDICES), w.public(1, 2, 3, 4)

    def run() -> Any:
        with w.eve.group():
            taken, more = z[index], z + 1
            filled = z.index_fill_(0, index, 7.0)
        return taken, more, filled

    return w.tried(run), z, w.bob.objects_count()


@ATTACKS.enter
def groups_that_go_on(w: World) -> Any:
    """One operation fails for all to see, and then one, perhaps, by what is private."""
    x, z, made = w.secret(*SINGULAR), w.public(1, 2, 3), []

    def run() -> None:
        with w.eve.group():
            made.append(z + w.public(1, 2))
            made.append(z * 2)
            made.append(torch.linalg.inv(x * 1))
            made.append(made[-1].sum() + 1)
            made.append(z * 3)

    tried = w.tried(run, run)
    return tried, [w.tried(lambda each=each: each.get()) for each in made], w.bob.objects_count()


@ATTACKS.enter
def operations_that_wait(w: World) -> Any:
    x, promise = w.secret(*SINGULAR), w.eve.promise()
    inverse, chosen = torch.linalg.inv(x * promise), x[x > promise]
    kept = w.outcome(lambda: torch.ones(2, 2).send(w.eve, id=promise.id_at_location))
    return kept, inverse, chosen, w.tried(lambda: inverse.sum() + 1), w.bob.objects_count()


@ATTACKS.enter
def promises_that_are_given_up(w: World) -> Any:
    x, promise = w.secret(*SINGULAR), w.eve.promise()
    waiting = torch.linalg.inv(x) + promise
    w.eve.give_up(promise, "no")
    return w.tried(lambda: waiting.copy().get(), lambda: waiting.shape), torch.linalg.inv(x)


# ------------------------------------------------------------------------------ other workers


@ATTACKS.enter
def moves(w: World) -> Any:
    x, mallory = w.secret(), w.mallory.as_user("eve")
    return w.tried(
        lambda: x.move(mallory),
        lambda: (x * 2).move(mallory),
        lambda: (x * 3).move(w.alice.as_user("eve")),
        lambda: (x * 2).remote_send(w.mallory),
        lambda: (x * 2).send(w.mallory).remote_get(),
        lambda: sy.send_all([x * 1, w.public()], w.mallory),
    )


@ATTACKS.enter
def pointers_to_pointers(w: World) -> Any:
    there = w.secret().send(w.alice.as_user("eve"))
    return w.tried(
        lambda: (there * 2).get().get(), lambda: (there * 2).remote_get(), lambda: there.get().get()
    )


@ATTACKS.enter
def what_may_go_to_alice(w: World) -> Any:
    x = w.secret(torch.tensor([1, 2]), torch.tensor([3, 4]), allow_destinations=["alice"])
    alice, mallory = w.alice.as_user("eve"), w.mallory.as_user("eve")
    return w.tried(
        lambda: x.copy().move(alice),
        lambda: (x * 2).move(alice).move(mallory),
        lambda: x[x > 1].move(alice),
        lambda: sy.sum_private(x, torch.tensor([1, 2]).send(alice)),
        lambda: sy.sum_private(x, torch.tensor([1, 2]).send(mallory)),
    )


@ATTACKS.enter
def what_failed_and_may_go_to_alice(w: World) -> Any:
    x = w.secret(*SINGULAR, allow_destinations=["alice"])
    alice, inverse = w.alice.as_user("eve"), torch.linalg.inv(x)
    return w.tried(
        lambda: inverse.copy().move(alice) * 2,
        lambda: inverse.send(alice),
        lambda: sy.sum_private(inverse.long(), torch.ones(2, 2).long().send(alice)),
        lambda: inverse.sum().long().share(w.eve, alice, crypto_provider=w.mallory),
    )


@ATTACKS.enter
def shares(w: World) -> Any:
    x = w.secret(torch.tensor([1, 2]), torch.tensor([3, 4]), allow_destinations=["alice"])
    alice, mallory = w.alice.as_user("eve"), w.mallory.as_user("eve")
    shared = x.share(w.eve, alice, crypto_provider=mallory)
    return w.tried(
        shared.copy().get,
        lambda: (shared * shared).get(),
        lambda: (shared > 1).get(),
        lambda: (shared - shared).get(),
        lambda: shared.reveal(to=alice),
        lambda: shared.reveal(to=mallory),
        lambda: shared.refresh().get(),
        lambda: x.share(w.eve, mallory, crypto_provider=alice).decrypt(),
        lambda: x.share(w.eve, alice),
    )


@ATTACKS.enter
def fixed_precision(w: World) -> Any:
    x = w.secret([1e30, 1.0], [1.0, 2.0], allow_destinations=["alice"])
    alice, mallory = w.alice.as_user("eve"), w.mallory.as_user("eve")
    return w.tried(
        x.fix_precision,
        lambda: x.fix_precision().get(),
        lambda: (x.fix_precision() * x.fix_precision()).float_precision(),
        lambda: (x.fix_precision().move(alice) * 2).float_precision(),
        lambda: x.fix_precision().share(w.eve, alice, crypto_provider=mallory),
        lambda: [worker.objects_count() for worker in (w.bob, w.alice)],
    )


@ATTACKS.enter
def averages(w: World) -> Any:
    x, y = w.secret(), torch.ones(4).send(w.alice.as_user("eve"))
    return w.tried(
        lambda: sy.federated_average([x, y]),
        lambda: sy.combine_pointers(x, y).get(sum_results=True),
        lambda: (sy.combine_pointers(x, y) * 2).get(),
    )


@ATTACKS.enter
def chains(w: World) -> Any:
    x = w.secret()
    return w.tried(
        lambda: sy.LoggingTensor().on(torch.ones(4)).send(w.eve) * x,
        lambda: sy.LoggingTensor().on(torch.zeros(4)).send(w.eve).add_(x),
        lambda: sy.LoggingTensor().on(x) * 2,
        lambda: torch.ones(4).fix_precision().send(w.eve) * x,
        lambda: torch.ones(4).fix_precision().send(w.eve).copy_(x),
    )


# ------------------------------------------------------------------- data sets and what is told


@ATTACKS.enter
def loaders(w: World) -> Any:
    x = w.secret(torch.arange(8.0).view(4, 2), torch.arange(8.0).view(4, 2) / 4)
    y = w.secret([0, 1, 0, 1], [1, 1, 1, 0])

    def batches(shuffle: bool) -> Any:
        data = sy.FederatedDataset([sy.BaseDataset(x, y)])
        return [*sy.FederatedDataLoader(data, batch_size=2, shuffle=shuffle)]

    return w.tried(
        lambda: batches(False),
        lambda: batches(True),
        lambda: sy.FederatedDataset.from_search([w.eve], "#secret1", "#secret2"),
        lambda: [*torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y))],
        lambda: len(sy.BaseDataset(x[x[:, 0] > 1], y[y > 0])),
        lambda: sy.BaseDataset(x[x[:, 0] > 1], torch.zeros(3).send(w.eve)),
        lambda: sy.BaseDataset(x, y)[0],
        lambda: sy.BaseDataset(x, y).get(),
    )


@ATTACKS.enter
def training_at_the_worker(w: World) -> Any:
    x = (torch.arange(8.0).view(4, 2), torch.ones(4, 2))[w.number]
    y = torch.tensor(([0, 1, 0, 1], [1, 1, 0, 0])[w.number])
    if w.private:
        x, y = x.private_tensor(["ann"]), y.private_tensor(["ann"])
    w.bob.add_dataset(sy.BaseDataset(x, y), "sales")
    model = torch.nn.Linear(2, 2)
    sent = sy.TrainConfig(model, F.cross_entropy, batch_size=2).send(w.eve)
    return w.tried(
        lambda: w.eve.evaluate("sales", return_histograms=True, nr_bins=2),
        lambda: w.eve.fit("sales"),
        lambda: sent.model_ptr.get().state_dict(),
        lambda: sent.losses,
        lambda: w.eve.evaluate("sales"),
    )


@ATTACKS.enter
def bundles(w: World) -> Any:
    x, mine = w.secret(), w.public(1, 2, 3, 4)
    return w.tried(
        lambda: sy.get_all([mine, x * 2], keep=True),
        lambda: sy.get_all({"a": mine, "b": [x]}, keep=True),
        lambda: sy.get_all([mine * 1, [x.mean()]]),
    )


@ATTACKS.enter
def searches(w: World) -> Any:
    x = w.secret()
    chosen = x[x > 1].tag("#chosen").describe("some of it")
    return w.tried(
        lambda: w.eve.search("#chosen"),
        lambda: w.dan.search("#chosen"),
        lambda: chosen.description,
        lambda: repr(w.bob),
        w.bob.cells_shown,
    )


@ATTACKS.enter
def ids_that_are_used_again(w: World) -> Any:
    x = w.secret()
    id, product = x.id_at_location, x * 2
    taken = w.tried(lambda: torch.ones(4).send(w.eve, id=id), x.get, x.copy().get)
    del x
    w.kept.clear()
    later = w.tried(lambda: torch.ones(4).send(w.eve, id=id), lambda: w.eve.search("#secret1"))
    return taken, later, product


@ATTACKS.enter
def permissions(w: World) -> Any:
    x = w.secret()
    return w.tried(
        lambda: x.allow("eve"),
        lambda: (x * 1).allow("eve"),
        lambda: (x * 1).private_tensor(["eve"]),
        lambda: (x * 1).tag("#q").describe("a"),
        lambda: (x * 1).detach().requires_grad_(),
    )


@ATTACKS.enter
def two_owners(w: World) -> Any:
    x = w.secret()
    w.kept.append(torch.ones(4).private_tensor(["dan"]).tag("#dans").send(w.dan))
    (dans,), mine = w.eve.search("#dans"), w.ones()
    y = x * dans * mine
    product = (x * dans).tag("#both")
    (found,) = w.dan.search("#both")
    return y, w.tried(lambda: y.sum().backward(), found.copy().get, lambda: product + x), mine


@ATTACKS.enter
def memory_of_two_users(w: World) -> Any:
    x, mine = w.secret(), w.public(0, 0, 0, 0).tag("#shared")
    (dans,) = w.dan.search("#shared")
    view = dans[:2]
    mine.add_(x)
    return mine, w.tried(lambda: dans.copy().get(), lambda: view.copy().get(), lambda: view + 1)


# ---------------------------------------------------------------- hidden shapes, numbers and errors


@ATTACKS.enter
def hidden_shapes(w: World) -> Any:
    x = w.secret()
    chosen, public = x[x > 1], torch.ones(3).send(w.eve)
    return w.tried(
        lambda: chosen + public,
        lambda: chosen.view(2),
        lambda: torch.cat([chosen, public]).sum(),
        lambda: chosen.split(1),
        lambda: [*chosen],
        lambda: torch.zeros_like(chosen),
        lambda: chosen.expand(3, -1),
        lambda: chosen[1],
        lambda: public[: len(chosen)],
        lambda: chosen.view(1, -1).t().is_contiguous(),
        lambda: chosen.squeeze().unsqueeze(0),
        lambda: torch.combinations(chosen),
        lambda: torch.unique(x > 1, return_counts=True),
        lambda: torch.where(x > 1),
        lambda: torch.histc(x, 4, 0, 4),
    )


@ATTACKS.enter
def empty_results(w: World) -> Any:
    x, leaf = w.secret([1.0, 1.0], [100.0, 1.0]), w.ones()
    chosen = x[x > 50]
    return w.tried(
        lambda: chosen.max(),
        lambda: chosen.max(0),
        lambda: chosen[0],
        lambda: torch.cat([chosen, leaf]).mean().backward(),
        lambda: chosen.argmax(),
        lambda: chosen.view(-1, 1).mm(chosen.view(1, -1)),
        lambda: chosen.mean(),
        lambda: leaf,
    )


@ATTACKS.enter
def backward_through_hidden_shapes(w: World) -> Any:
    x, z, u = w.secret(), w.ones(), w.ones()
    chosen, product = z[x > 1], (u * x)[x > 1]
    return chosen, w.tried(
        lambda: chosen.sum().backward(),
        lambda: product.sum().backward(),
        lambda: torch.autograd.grad(product.mean(), u),
        lambda: product.backward(torch.ones(2).send(w.eve)),
        lambda: (z, u),
    )


@ATTACKS.enter
def indices(w: World) -> Any:
    i, z = w.secret([0, 1, 2, 3], [9, 1, 2, 3]), w.public(1, 2, 3, 4)
    logits = z.view(1, 4)
    return w.tried(
        lambda: z[i],
        lambda: z.take(i),
        lambda: z.gather(0, i),
        lambda: F.one_hot(i, 4),
        lambda: F.cross_entropy(logits, i[:1]),
        lambda: z.scatter(0, i, 1.0),
        lambda: (z * 1).index_put_((i,), z),
        lambda: torch.bincount(i, minlength=4),
        lambda: z.narrow(0, i[0], 1),
        lambda: z.view(i[0]),
        lambda: z.repeat(i[0]),
        lambda: z.split(i[0]),
        lambda: torch.tensor_split(z, i[:1]),
        lambda: i // i,
        lambda: torch.nn.Embedding(4, 2, max_norm=1.0).send(w.eve)(i),
        lambda: z.roll(i[0]),
    )


@ATTACKS.enter
def numbers(w: World) -> Any:
    n, z = w.secret(2, 3), w.public(1, 2, 3, 4)
    return w.tried(
        lambda: int(n),
        lambda: n in [2],
        lambda: [1, 2, 3, 4][n],
        lambda: range(n),
        lambda: f"{n}",
        lambda: n.tolist(),
        lambda: z.topk(n),
        lambda: torch.arange(n),
        lambda: torch.eye(n),
        lambda: z.unfold(0, n, 1),
        lambda: z.clamp(min=n),
        lambda: torch.add(z, z, alpha=n),
        lambda: F.max_pool1d(z.view(1, 1, 4), n),
        lambda: z.new_tensor(n),
        lambda: torch.as_tensor([n, n]),
    )


@ATTACKS.enter
def truths(w: World) -> Any:
    b, z = w.secret([True, False, True, False], [False, True, False, False]), w.public(1, 2, 3, 4)
    return w.tried(
        lambda: bool(b.any()),
        lambda: z[b],
        lambda: torch._assert_async(b.any()),
        lambda: torch._assert_async(b[0]),
        lambda: z.masked_scatter(b, z[:1]),
        lambda: (z * 1).masked_fill_(b, 0),
        lambda: torch.equal(b, ~b),
        lambda: b.sum(),
    )


@ATTACKS.enter
def matrices(w: World) -> Any:
    x, z = w.secret(*SINGULAR), w.public(1, 2, 3, 4).view(2, 2)
    return w.tried(
        lambda: torch.linalg.inv(x),
        lambda: torch.linalg.inv_ex(x),
        lambda: torch.linalg.cholesky(x),
        lambda: torch.linalg.solve(x, z),
        lambda: torch.linalg.lstsq(x, z),
        lambda: torch.linalg.eig(x),
        lambda: torch.linalg.matrix_rank(x),
        lambda: torch.lobpcg(x),
        lambda: torch.linalg.cond(x),
    )


@ATTACKS.enter
def complex_numbers(w: World) -> Any:
    x = w.secret(torch.complex(ONE, OTHER), torch.complex(OTHER, ONE))
    z = torch.zeros(4, dtype=torch.complex64).send(w.eve)
    parts = z.real
    return w.tried(
        lambda: x.conj(),
        lambda: x.conj().is_conj(),
        lambda: x.conj().imag.is_neg(),
        lambda: torch.view_as_real(x),
        lambda: parts.copy_(x.imag),
        lambda: (z, parts),
        lambda: torch.isreal(x).all(),
    )


@ATTACKS.enter
def other_layouts(w: World) -> Any:
    few, many = torch.tensor([[1.0, 0], [0, 0]]), torch.tensor([[1.0, 0], [0, 2]])
    s = w.secret(few.to_sparse(), many.to_sparse())
    x, z = w.secret(few, many), w.public(1, 2, 3, 4).view(2, 2)
    return w.tried(
        lambda: s,
        lambda: s._nnz(),
        lambda: s.values(),
        lambda: s.coalesce().indices(),
        lambda: torch.sparse.mm(s, z),
        lambda: z.sparse_mask(s),
        lambda: s.nbytes,
        lambda: s.copy(),
        lambda: s * 2,
        lambda: x.to_sparse(),
        lambda: x.to_sparse_csr(),
    )


QUESTIONS = """_version grad_fn _base storage untyped_storage data_ptr __array__ __dlpack__ names
    is_shared output_nr nbytes __len__ tolist numpy item _is_view storage_offset stride is_pinned
    retains_grad grad T imag data is_inference element_size dim_order is_conj is_neg
    _nnz __repr__""".split()


@ATTACKS.enter
def questions(w: World) -> Any:
    x = w.secret()

    def asked(it: Any, name: str) -> Any:
        found = getattr(it, name)
        return found() if callable(found) and not isinstance(found, torch.Tensor) else found

    def answers(it: Any) -> Any:
        return w.tried(*(partial(asked, it, name) for name in QUESTIONS))

    return answers(x), answers(x * 2), answers(x[x > 1])


@ATTACKS.enter
def modes(w: World) -> Any:
    x, z = w.secret(), w.public()

    def inferred() -> Any:
        with torch.inference_mode():
            return x * 2, z.add_(x), x[x > 1]

    def cast() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x.view(2, 2) @ x.view(2, 2)

    return w.tried(inferred, cast), z


# ------------------------------------------------------------------ holes that were there once


@ATTACKS.enter
def indices_that_a_graph_saved(w: World) -> Any:
    z, index = w.public(1, 2, 3, 4, grad=True), w.secret(1, 2)
    largest, place = (z * 1).max(0)
    place.data.copy_(index)
    largest.backward()
    return place, z


@ATTACKS.enter
def failures_of_two_owners(w: World) -> Any:
    index = w.secret(*INDICES)
    w.kept.append(torch.ones(4).private_tensor(["dan"]).tag("#dans").send(w.dan))
    (dans,) = w.eve.search("#dans")
    taken = dans.take(index).tag("#taken")
    (found,) = w.dan.search("#taken")
    return taken, w.tried(found.copy().get, found.get)


@ATTACKS.enter
def one_object_under_two_ids(w: World) -> Any:
    x, z = w.secret(), w.ones()
    again = z.contiguous()
    z.grad = x * 1
    return z, again, w.tried(lambda: again.grad, lambda: sy.get_all([again, z], keep=True))


@ATTACKS.enter
def gradients_inside_a_chain(w: World) -> Any:
    x, leaf = w.secret(), sy.LoggingTensor().on(torch.ones(4).requires_grad_()).send(w.eve)
    (leaf * x).sum().backward()
    return leaf, w.tried(lambda: leaf.copy().get().child.tensor.grad)


@ATTACKS.enter
def what_goes_along_with_an_operand(w: World) -> Any:
    x, number = w.secret(), w.public(1.0, grad=True).sum().detach().requires_grad_()
    there = torch.ones(2).send(w.eve)
    there.remote_send(w.mallory)
    number.grad = x.sum()
    with torch.no_grad():
        return w.tried(lambda: there * number, lambda: number.send(w.mallory))


@ATTACKS.enter
def leaves_that_have_no_place_on_a_grid(w: World) -> Any:
    x = w.secret([1e30, 1.0], [2.0, 1.0], grad=True)
    grid = w.secret([0.0, 0.0], [1.0, 1.0]).fix_precision()
    chain = x.fix_precision()
    return chain, chain.float_precision(), w.tried(lambda: grid.copy_(x * 1)), grid


@ATTACKS.enter
def plans_asked_whether_rows_are_contiguous(w: World) -> Any:
    x = w.secret([[2.0, 1.0], [0.0, 1.0]], [[2.0, 1.0], [3.0, 1.0]])
    chosen = x[x[:, 0] > 1].t()

    def run(example: torch.Tensor) -> Any:
        plan = sy.func2plan()(lambda it: it * 2 if it.is_contiguous() else it + 1)
        plan.build(example)
        return plan.send(w.eve)(chosen)

    return w.tried(lambda: run(torch.ones(2, 1)), lambda: run(torch.ones(2, 2).t()))


LIMITED = Attacks()
LIMITS = [PeerLimits(elements=16), PeerLimits(elements=40), PeerLimits(bytes=60)]
"""At these the number of what is chosen decides, if it is counted as it is."""


@LIMITED.enter
def elements_of_a_hidden_shape(w: World) -> Any:
    x = w.secret()
    chosen = x[x > 1]
    return w.tried(
        *(partial(lambda n: chosen.view(-1, 1).expand(-1, n).sum(), n) for n in range(3, 16)),
        lambda: torch.outer(chosen, w.public(1, 2, 3, 4, 5, 6)),
        lambda: chosen.repeat(5),
    )


@LIMITED.enter
def bytes_of_a_hidden_shape(w: World) -> Any:
    x, kept = w.secret(), []  # type: ignore[var-annotated]

    def keep() -> None:
        kept.append(x[x > 1])

    return [w.outcome(keep) for _ in range(8)], len(kept)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("name", LIMITED)
def test_no_limit_tells_a_private_size(name: str, limits: PeerLimits) -> None:
    LIMITED.check(name, limits=limits)


@pytest.mark.parametrize("name", LIMITED)
def test_limits_tell_public_sizes(name: str) -> None:
    LIMITED.check_reaches(name, limits=LIMITS[-1])


test_nothing_is_learned_of_what_is_private, test_what_is_public_is_learned = tests_of(ATTACKS)
