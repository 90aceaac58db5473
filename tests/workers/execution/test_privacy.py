"""A stranger tries to read what is private, by every way there is.

Each attack is a function of the network's pieces that returns what the stranger has learned; it
must raise, or learn nothing.  The private value is chosen so that it is recognised wherever it
turns up.
"""

from __future__ import annotations

import copy
import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import DataStaysPut, ObjectNotFound, PermissionDenied, SyftError
from syft.ops.table import BY_NAME, FLAGS, FUNCTIONS, NAMES, OpFlag
from syft.workers.wire.references import REF
from tests.chain.refusal import refusal, shown
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref

pytestmark = pytest.mark.every_shell

SECRET = [1234.5, -8765.25, 3.0]


@dataclass
class Scene:
    """Private data at bob, as a stranger at ``me`` sees it."""

    hook: sy.TorchHook
    bob: sy.VirtualWorker
    alice: sy.VirtualWorker
    secret: torch.Tensor


@pytest.fixture(params=["immediate", "queued"])
def scene(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Scene:
    queued = request.param == "queued"
    bob = make_worker(hook, id="bob", pipelined=queued)
    alice = make_worker(hook, id="alice", pipelined=queued)
    secret = torch.tensor(SECRET).private_tensor(["ann"]).send(bob, user="ann")
    return Scene(hook, bob, alice, secret)


def at(worker: sy.VirtualWorker, *values: float, grad: bool = False) -> torch.Tensor:
    """A public tensor at a worker."""
    return torch.tensor(values or (0.0, 0.0, 0.0), requires_grad=grad).send(worker)


# --------------------------------------------------------------------------------- reading directly

READS: dict[str, Callable[[Scene], Any]] = {
    "get": lambda s: s.secret.get(),
    "get as somebody else": lambda s: s.secret.get(user="bea"),
    "get as nobody": lambda s: s.secret.get(user=""),
    "copy and get": lambda s: s.secret.copy().get(),
    "deepcopy and get": lambda s: copy.deepcopy(s.secret).get(),
    "move": lambda s: s.secret.move(s.alice),
    "move with grad": lambda s: s.secret.move(s.alice, requires_grad=True),
    "move home": lambda s: s.secret.move(s.hook.local_worker),
    "remote_send": lambda s: s.secret.remote_send(s.alice),
    "item": lambda s: s.secret[0].item(),
    "tolist": lambda s: s.secret.tolist(),
    "bool": lambda s: bool(s.secret[0] > 0),
    "float": lambda s: float(s.secret[0]),
    "int": lambda s: int(s.secret[0]),
    "index": lambda s: range(s.secret[2].long())[0],
    "numpy": lambda s: s.secret.numpy(),
    "contains": lambda s: SECRET[0] in s.secret,
    "is_nonzero": lambda s: torch.is_nonzero(s.secret[0]),
    "equal": lambda s: torch.equal(s.secret, at(s.bob, *SECRET)),
    "equal, the other way round": lambda s: torch.equal(at(s.bob, *SECRET), s.secret),
    "allclose": lambda s: torch.allclose(s.secret, at(s.bob, *SECRET)),
    "where": lambda s: torch.where(s.secret > 0, at(s.bob, 1.0), at(s.bob, 0.0)).get(),
    "where with one argument": lambda s: torch.where(s.secret > 0)[0].get(),
    "comparison": lambda s: (s.secret > 0).get(),
    "argmax": lambda s: s.secret.argmax().item(),
    "sum": lambda s: s.secret.sum().get(),
    "two results": lambda s: s.secret.max(0).indices.get(),
    "a list of results": lambda s: s.secret.split(1)[0].get(),
    "rows": lambda s: next(iter(s.secret)).get(),
    "unbind": lambda s: s.secret.unbind()[0].get(),
    "data": lambda s: s.secret.data.get(),
    "detach": lambda s: s.secret.detach().get(),
    "view": lambda s: s.secret.view(3, 1).get(),
    "dtype change": lambda s: s.secret.double().get(),
    "bits": lambda s: s.secret.view(torch.int32).get(),
    "as_strided": lambda s: s.secret.as_strided((1,), (1,), 1).get(),
    "public index": lambda s: s.secret[torch.tensor([0]).send(s.bob)].get(),
    "private index": lambda s: at(s.bob, *range(9))[s.secret.long().abs() % 9].get(),
    "list of private and public": lambda s: torch.cat([at(s.bob), s.secret]).get(),
    "keyword": lambda s: torch.add(at(s.bob), other=s.secret).get(),
    "zeros times": lambda s: (s.secret * 0).get(),
    "found by search": lambda s: s.bob.search([])[0].get(),
    "sparse": lambda s: s.secret.to_sparse().get(),
    "sparse values": lambda s: s.secret.to_sparse().coalesce().values().get(),
    "sparse count": lambda s: s.secret.to_sparse()._nnz(),
    "grad of itself": lambda s: torch.autograd.grad(
        (s.secret.requires_grad_() ** 2).sum(), s.secret
    )[0].get(),
    "out=": lambda s: torch.add(s.secret, 0, out=at(s.bob)).get(),
    "out= in a pair": lambda s: torch.max(
        s.secret, 0, out=(at(s.bob, 0.0)[0], torch.tensor(0).send(s.bob))
    )[0].get(),
    "describe": lambda s: bool(s.secret.description or s.secret.tags),
}


@pytest.mark.parametrize("attack", READS.values(), ids=READS.keys())
def test_a_stranger_reads_nothing(scene: Scene, attack: Callable[[Scene], Any]) -> None:
    try:
        learned = attack(scene)
    except (PermissionDenied, DataStaysPut) as error:
        assert str(SECRET[0]) not in "".join([str(error), *getattr(error, "__notes__", ())])
    except SyftError as error:
        raise AssertionError(f"the wrong refusal: {error!r}") from error
    else:
        assert learned is False, f"the stranger learned {learned!r}"
    assert scene.secret.get(user="ann").tolist() == SECRET


# ----------------------------------------------------------------- laundering through public memory


def launder_copy(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public.copy_(s.secret)
    return public


def launder_setitem(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public[0] = s.secret[0]
    return public


def launder_mask(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public[s.secret > 0] = 1.0
    return public


def launder_add(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public += s.secret
    return public


def launder_view(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    view = public[:1]
    view += s.secret[0]
    return public


def launder_base(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    view = public.view(3, 1)
    public.copy_(s.secret)
    return view


def launder_dropped_view(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public.view(3, 1)[1:].copy_(s.secret.view(3, 1)[1:])
    return public


def launder_data(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public.data.copy_(s.secret)
    return public


def launder_set_data(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public.data = s.secret
    return public


def launder_set(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    number, link = BY_NAME["torch.Tensor.set_"], public.child
    args = ((REF, link.id_at_location), (REF, s.secret.id_at_location))
    link.connection.operations.command(number, args, None, 0, [], None)
    return public


def launder_detach(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public.detach().add_(s.secret)
    return public


def launder_resize_as(s: Scene) -> torch.Tensor:
    public = at(s.bob, 0.0)
    public.resize_as_(s.secret[s.secret > 0])
    return public


def launder_foreach(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    torch._foreach_add_([public], [s.secret])
    return public


def launder_sparse_values(s: Scene) -> torch.Tensor:
    public = torch.eye(3).to_sparse().coalesce().send(s.bob)
    public.values().copy_(s.secret)
    return public


def launder_inside_a_logger(s: Scene) -> torch.Tensor:
    public = sy.LoggingTensor().on(torch.zeros(3)).send(s.bob)
    public.child.child.child.copy_(s.secret)
    return public


def launder_through_a_logger(s: Scene) -> torch.Tensor:
    public = sy.LoggingTensor().on(torch.zeros(3)).send(s.bob)
    public.add_(s.secret)
    return public.child.child.child


def launder_running_statistics(s: Scene) -> torch.Tensor:
    mean, variance = at(s.bob), at(s.bob, 1.0, 1.0, 1.0)
    F.batch_norm(s.secret.expand(2, 3), mean, variance, training=True)
    return mean


def launder_module_buffer(s: Scene) -> torch.Tensor:
    norm = nn.BatchNorm1d(3).send(s.bob)
    norm(s.secret.expand(2, 3))
    return norm.running_mean


def launder_out(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    torch.mul(s.secret, 1, out=public)
    return public


def launder_out_view(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    torch.mul(s.secret, 1, out=public.view(3))
    return public


def launder_inplace_option(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    public.add_(s.secret)
    return F.relu(public, inplace=True)


def launder_scatter(s: Scene) -> torch.Tensor:
    return at(s.bob).scatter_(0, torch.arange(3).send(s.bob), s.secret)


def launder_index(s: Scene) -> torch.Tensor:
    return at(s.bob).scatter_(0, s.secret[2:].long() - 3, 1.0)


# ---------------------------------------------------------------------- laundering through autograd


def gradient(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    (weight * s.secret).sum().backward()
    return weight.grad


def gradient_with_weight(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    (weight * s.secret).sum().backward()
    return weight  # its gradient travels with it


def gradient_of_a_view(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    weight.sum().backward()
    weight.grad.view(3, 1).copy_(s.secret.view(3, 1))
    return weight.grad


def gradient_kept_in_a_graph(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    (weight * s.secret).sum().backward()
    (weight * weight).sum().backward(create_graph=True)
    gradient = weight.grad.detach()
    weight.grad = None  # the graph holds the weight, and the weight its gradient
    return gradient


def gradient_by_gradient(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    (weight * 1).backward(s.secret)
    return weight.grad


def gradient_retained(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    hidden = weight * 1
    hidden.retain_grad()
    (hidden * s.secret).sum().backward()
    weight.grad = None
    return hidden.grad


def gradient_of_inputs(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    hidden = weight * 1
    torch.autograd.backward([(hidden * s.secret).sum()], inputs=[hidden])
    return hidden.grad


def gradient_returned(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    return torch.autograd.grad((weight * s.secret).sum(), weight)[0]


def gradient_assigned(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    weight.grad = s.secret
    return weight


def stepped(optimizer: type[torch.optim.Optimizer]) -> Callable[[Scene], torch.Tensor]:
    def attack(s: Scene) -> torch.Tensor:
        model = nn.Linear(3, 1).send(s.bob)
        steps = optimizer(model.parameters(), lr=0.1)
        model(s.secret).sum().backward()
        steps.step()
        steps.zero_grad()
        weight = model.weight
        del model, steps
        gc.collect()  # the first SGD of a process leaves a reference cycle in torch
        return weight

    return attack


def gradient_across_a_move(s: Scene) -> torch.Tensor:
    weight = at(s.alice, 1.0, 1.0, 1.0, grad=True)
    moved = (weight * 1).move(s.bob, requires_grad=True)
    (moved * for_alice(s)).sum().backward()
    return weight.grad


# --------------------------------------------------------------------------- other ways and workers


def for_alice(s: Scene) -> torch.Tensor:
    """The private data, which its owner lets go to alice."""
    private = torch.tensor(SECRET).private_tensor(["ann"], allow_destinations=["alice"])
    return private.send(s.bob, user="ann")


def moved_where_it_may_go(s: Scene) -> torch.Tensor:
    return (for_alice(s) * 1).move(s.alice)


def moved_and_back(s: Scene) -> torch.Tensor:
    return (for_alice(s) * 1).move(s.alice).move(s.bob)


def relayed_where_it_may_go(s: Scene) -> torch.Tensor:
    return (for_alice(s) * 1).remote_send(s.alice).remote_get()


def moved_by_its_user(s: Scene) -> torch.Tensor:
    return (s.secret * 1).move(s.alice, user="ann")


def copied(s: Scene) -> torch.Tensor:
    return s.secret.copy()


def view_of_what_was_written(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    view = public.view(3)
    public.copy_(s.secret)
    return view


def view_copied(s: Scene) -> torch.Tensor:
    return view_of_what_was_written(s).copy()


def view_moved_by_its_user(s: Scene) -> torch.Tensor:
    return view_of_what_was_written(s).move(s.alice, user="ann")


def view_converted(s: Scene) -> torch.Tensor:
    return view_of_what_was_written(s).fix_precision().float_precision()


def view_relayed(s: Scene) -> torch.Tensor:
    return view_of_what_was_written(s).send(s.alice).remote_get(user="ann")


def view_summed(s: Scene) -> torch.Tensor:
    public = at(s.bob)
    view = public.view(3)
    public.copy_(for_alice(s))
    return sy.sum_private(view, at(s.alice))[1]


def copied_with_gradient(s: Scene) -> torch.Tensor:
    weight = at(s.bob, 1.0, 1.0, 1.0, grad=True)
    (weight * s.secret).sum().backward()
    return weight.copy()


def fixed_precision(s: Scene) -> torch.Tensor:
    return s.secret.fix_precision()


def inside_fixed_precision(s: Scene) -> torch.Tensor:
    secret = torch.tensor(SECRET).fix_precision().private_tensor(["ann"]).send(s.bob, user="ann")
    return secret.child.child.child.add(0)


def inside_a_logger(s: Scene) -> torch.Tensor:
    logger = sy.LoggingTensor().on(torch.tensor(SECRET).private_tensor(["ann"]))
    return logger.send(s.bob, user="ann").child.child.child.add(0)


def compute_on_a_logger(s: Scene) -> torch.Tensor:
    secret = sy.LoggingTensor().on(torch.tensor(SECRET)).private_tensor(["ann"])
    return secret.send(s.bob, user="ann") + 1


def parked(s: Scene) -> torch.Tensor:
    promise = s.bob.promise()
    waits = promise * 2
    secret = torch.tensor(SECRET).private_tensor(["ann"])
    secret.send(s.bob, id=promise.id_at_location, user="ann", garbage_collect_data=False)
    sy.synchronize()
    return waits


def summed(s: Scene) -> torch.Tensor:
    return sy.sum_private(for_alice(s), at(s.alice))[0]


def summed_elsewhere(s: Scene) -> torch.Tensor:
    return sy.sum_private(for_alice(s), at(s.alice))[1]


def relayed_home(s: Scene) -> torch.Tensor:
    pointer = torch.tensor(SECRET).private_tensor(["ann"]).send(s.bob, user="ann").send(s.alice)
    return pointer.remote_get(user="ann")


LAUNDRY: list[Callable[[Scene], torch.Tensor]] = [
    launder_copy,
    launder_setitem,
    launder_mask,
    launder_add,
    launder_view,
    launder_base,
    launder_dropped_view,
    launder_data,
    launder_set_data,
    launder_set,
    launder_detach,
    launder_resize_as,
    launder_foreach,
    launder_running_statistics,
    launder_module_buffer,
    launder_out,
    launder_out_view,
    launder_inplace_option,
    launder_scatter,
    launder_index,
    gradient,
    gradient_with_weight,
    gradient_of_a_view,
    gradient_kept_in_a_graph,
    gradient_by_gradient,
    gradient_retained,
    gradient_of_inputs,
    gradient_returned,
    gradient_assigned,
    stepped(torch.optim.SGD),
    stepped(torch.optim.Adam),
    gradient_across_a_move,
    moved_by_its_user,
    moved_where_it_may_go,
    moved_and_back,
    relayed_where_it_may_go,
    copied,
    copied_with_gradient,
    view_copied,
    view_moved_by_its_user,
    view_converted,
    view_relayed,
    view_summed,
    fixed_precision,
    inside_fixed_precision,
    inside_a_logger,
    parked,
    summed,
    summed_elsewhere,
    relayed_home,
]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("attack", LAUNDRY, ids=lambda attack: attack.__qualname__)
def test_what_touches_a_private_value_is_private(
    scene: Scene, attack: Callable[[Scene], torch.Tensor]
) -> None:
    washed = attack(scene)
    with pytest.raises(PermissionDenied):
        washed.get()
    assert washed.get(user="ann") is not None
    assert scene.secret.get(user="ann").tolist() == SECRET


@pytest.mark.parametrize(
    "attack",
    [
        launder_sparse_values,
        launder_inside_a_logger,
        launder_through_a_logger,
        compute_on_a_logger,
    ],
)
def test_what_cannot_be_predicted_is_refused(
    scene: Scene, attack: Callable[[Scene], torch.Tensor]
) -> None:
    with pytest.raises(PermissionDenied, match=", an? (write|operation)"):
        attack(scene).get()
    assert scene.secret.get(user="ann").tolist() == SECRET


# ----------------------------------------------------------------------- shapes, texts, other doors

SHAPES: dict[str, Callable[[Scene], torch.Tensor]] = {
    "nonzero": lambda s: s.secret.nonzero(),
    "argwhere": lambda s: torch.argwhere(s.secret),
    "masked_select": lambda s: s.secret.masked_select(s.secret > 0),
    "mask": lambda s: s.secret[s.secret > 0],
    "mask on public data": lambda s: at(s.bob)[s.secret > 0],
    "mask among indices": lambda s: at(s.bob).expand(2, 3)[:, s.secret > 0],
    "unique": lambda s: s.secret.unique(),
    "what comes of it": lambda s: s.secret[s.secret > 0] * 2,
    "what it was added to": lambda s: s.secret[s.secret > 5].add_(s.secret[s.secret > 5]),
    "after a move": lambda s: s.secret[s.secret > 0].move(s.alice, user="ann"),
    "a copy": lambda s: s.secret[s.secret > 0].copy(),
}


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES.keys())
def test_a_shape_that_follows_from_private_values_is_hidden(
    scene: Scene, make: Callable[[Scene], torch.Tensor]
) -> None:
    hidden = make(scene)
    with pytest.raises(PermissionDenied):
        hidden.size()
    with pytest.raises(PermissionDenied):
        hidden.__len__()
    with pytest.raises(PermissionDenied):
        hidden.numel()
    for place in (hidden.storage_offset, hidden.stride):
        with pytest.raises(PermissionDenied):
            place()
    assert hidden.dtype in (torch.float32, torch.int64)
    assert [
        tuple(found.child._summary.show()) for found in hidden.location.search("#nothing")
    ] == []
    hidden.tag("#hidden")
    (found,) = hidden.location.search("#hidden")
    assert "Shape" not in repr(found) and "Shape" not in repr(hidden)
    assert isinstance(hidden.get(user="ann"), torch.Tensor)
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_a_public_shape_stays_public_when_a_private_size_is_added(scene: Scene) -> None:
    target = (at(scene.bob, 0.5) * 2).add_(scene.secret[scene.secret > 5])
    assert target.shape == (1,) and target.numel() == 1
    assert "PermissionDenied" in refusal(target.get)
    assert scene.secret.get(user="ann").tolist() == SECRET


OPERANDS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "a number": lambda there, private: there * private.sum(),
    "a number written": lambda there, private: there.add_(private.sum()),
    "the source of a copy": lambda there, private: there.copy_(private),
}


@pytest.mark.parametrize("call", OPERANDS.values(), ids=OPERANDS.keys())
def test_no_private_operand_goes_along_to_where_a_pointer_leads(
    scene: Scene, call: Callable[[torch.Tensor, torch.Tensor], Any]
) -> None:
    """A result of the fast path is private by its memory alone; here by a guard on the tensor."""
    for private in (scene.secret * 2, scene.secret * 2 * 2):
        there = at(scene.bob).remote_send(scene.alice)
        refused = refusal(lambda x=there, y=private: [call(x, y), sy.synchronize()])
        assert "LocationMismatch" in refused or "PermissionDenied" in refused
        assert len(inspect(scene.alice)) == 1
        assert there.remote_get().get().tolist() == [0, 0, 0]
    assert scene.secret.get(user="ann").tolist() == SECRET


NUMBERS_READ: dict[str, Callable[[Scene], Any]] = {
    "bincount": lambda s: s.secret[2:].long().bincount(),
    "repeat_interleave": lambda s: torch.repeat_interleave(s.secret[2:].long()),
    "one_hot": lambda s: F.one_hot(s.secret[2:].long()),
    "arange": lambda s: s.bob.torch.arange(s.secret[2]),
    "slice": lambda s: at(s.bob)[: s.secret[2].long()],
    "slice of a slice": lambda s: at(s.bob).expand(2, 3)[0, s.secret[2].long() - 2 :],
    "zeros": lambda s: s.bob.torch.zeros(s.secret[2].long()),
    "eye": lambda s: s.bob.torch.eye(s.secret[2].long()),
    "a size in a tuple": lambda s: s.bob.torch.empty((2, s.secret[2].long())),
    "one element": lambda s: at(s.bob, *range(9))[s.secret[2].long()].view(1),
    "one row": lambda s: at(s.bob, *range(8)).view(4, 2)[s.secret[2].long(), :],
    "expand": lambda s: at(s.bob, 1.0).expand(s.secret[2].long()),
    "expand by name": lambda s: torch.broadcast_to(at(s.bob, 1.0), size=(s.secret[2].long(),)),
}


@pytest.mark.parametrize("make", NUMBERS_READ.values(), ids=NUMBERS_READ.keys())
def test_a_private_value_cannot_stand_where_torch_reads_a_number(
    scene: Scene, make: Callable[[Scene], Any]
) -> None:
    with pytest.raises(PermissionDenied):
        make(scene)
        sy.synchronize()
    assert scene.secret.get(user="ann").tolist() == SECRET


# What a factory may be handed besides the private integer, which takes the place of None.
FACTORY_ARGUMENTS: list[tuple[Any, ...]] = [
    *((None,), (None, 2), (2, None), (0.0, 1.0, None), ((None, 2),), ((2, None),)),
    *(((None,), 1.0), ((None, 2), (0, 1)), ((2, None), (1, 2)), (5, (None,)), (0, 5, (2, None))),
    *((0.0, 1.0, (None,)), ((2,), None), (2.0, None), (1.0, 2.0, None)),
]
FACTORIES = [name for name in NAMES if FLAGS[BY_NAME[name]] & OpFlag.FACTORY]


def _filled(value: Any, hole: Any, pack_tuple: Callable[[tuple[Any, ...]], Any] = tuple) -> Any:
    if isinstance(value, tuple):
        return pack_tuple(tuple(_filled(item, hole, pack_tuple) for item in value))
    return hole if value is None else value


def _shape_for(name: str, arguments: tuple[Any, ...], size: int) -> torch.Size | None:
    try:
        made = FUNCTIONS[BY_NAME[name]](*_filled(arguments, torch.tensor(size)))  # type: ignore
        return made.shape
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None  # it does not take these


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_does_not_tell_its_private_size(name: str) -> None:
    core = lonely()
    put(core, 5, torch.tensor(3), users=("ann",))
    for out, arguments in enumerate(FACTORY_ARGUMENTS, 100):
        shape = _shape_for(name, arguments, 3)
        if shape is None or shape == _shape_for(name, arguments, 4):
            continue
        operands = (_filled(one, ref(5), lambda items: (2, *items)) for one in arguments)
        told = ask(core, command(name, *operands, out=out))
        assert isinstance(error_in(told), PermissionDenied), arguments
        assert out not in core.store.objects


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_factories_are_tried_with_what_they_take() -> None:
    tried = {
        name
        for name in FACTORIES
        for arguments in FACTORY_ARGUMENTS
        if _shape_for(name, arguments, 3) != _shape_for(name, arguments, 4)
    }
    assert len(tried) >= 30 and {"torch.zeros", "torch.eye", "torch.tril_indices"} <= tried


def test_a_shape_that_follows_from_the_program_is_known_to_all(scene: Scene) -> None:
    secret = scene.secret
    assert secret.shape == (3,)
    assert secret[1:].shape == secret[[0, 1]].shape == (2,)
    assert secret[torch.tensor([0]).send(scene.bob)].shape == (1,)
    assert secret[torch.tensor(0).send(scene.bob)].shape == ()
    assert (secret * secret.long()[0]).shape == (3,)
    assert (secret > 0).sum().shape == ()
    assert secret.requires_grad is False and secret.ndim == 1
    assert secret.get(user="ann").tolist() == SECRET


def test_a_repr_shows_no_value(scene: Scene) -> None:
    secret = scene.secret.tag("#shown").describe("what it is")
    for text in (repr(secret), str(secret), f"{secret}", f"{secret:>9}", repr(scene.bob)):
        assert "1234" not in re.sub(r"\d{11,}", "N", text)  # an id may hold any digits
    (found,) = scene.bob.search("#shown")
    assert "1234" not in shown(found) and "what it is" in shown(found)
    assert found.tags == {"#shown"}
    assert secret.get(user="ann").tolist() == SECRET


SEALED: dict[str, tuple[Callable[[Scene], Any], tuple[int, ...], type[Exception]]] = {
    "an index": (lambda s: at(s.bob)[s.secret.long()], (3,), IndexError),
    "an index by name": (
        lambda s: at(s.bob).index_select(0, index=s.secret.long()),
        (3,),
        IndexError,
    ),
    "a probability": (lambda s: torch.bernoulli(s.secret), (3,), RuntimeError),
    "a class": (
        lambda s: F.nll_loss(at(s.bob).expand(1, 3), s.secret[:1].long()),
        (),
        IndexError,
    ),
    "what comes of it": (lambda s: (at(s.bob)[s.secret.long()] * 2).sum(0), (), IndexError),
    "what it is written to": (
        lambda s: (at(s.bob) * 1).add_(at(s.bob)[s.secret.long()]),
        (3,),
        IndexError,
    ),
    "in fixed precision": (
        lambda s: (s.secret * 1e30).fix_precision(),
        (3,),
        sy.exceptions.EncodingError,
    ),
    "in a plan": (
        lambda s: sy.func2plan(args_shape=[(3,)])(lambda x: x.new_ones(3)[x.long()]).send(s.bob)(
            s.secret
        ),
        (3,),
        IndexError,
    ),
}


@pytest.mark.parametrize("name", SEALED)
def test_a_failure_that_follows_from_private_values_is_seen_by_their_users_only(
    scene: Scene, name: str
) -> None:
    make, shape, error = SEALED[name]
    result = make(scene)
    sy.synchronize()
    assert result.shape == shape, "nobody is told that it failed"
    with pytest.raises(PermissionDenied):
        result.copy().get()
    for _ in range(2):
        with pytest.raises(error):
            result.copy().get(user="ann")
    with pytest.raises(error):
        sy.get_all([result], user="ann", keep=True)
    with pytest.raises(error):
        result.move(scene.alice, user="ann")
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_a_failure_that_follows_from_shapes_is_told_to_all(scene: Scene) -> None:
    with pytest.raises(RuntimeError, match="size") as raised:
        scene.secret.matmul(at(scene.bob, 1.0, 2.0)).shape
    assert "1234" not in str(raised.value)
    del raised
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_what_computes_on_a_chain_is_refused_to_strangers(scene: Scene) -> None:
    with pytest.raises(PermissionDenied, match="on a chain .fixed precision, or a link") as raised:
        scene.secret.fix_precision().mul(1e30).shape
    assert "1234" not in str(raised.value) and "8765" not in str(raised.value)
    del raised
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_a_conversion_that_fails_by_values_is_sealed(scene: Scene) -> None:
    large = (scene.secret * 1e30).fix_precision()
    with pytest.raises(PermissionDenied):
        large.get()
    with pytest.raises(Exception, match="fixed precision|range|fit"):
        large.get(user="ann")
    with pytest.raises(PermissionDenied):
        large.float_precision().get()
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_its_users_read_the_error(scene: Scene) -> None:
    scene.hook.local_worker.user = "ann"
    with pytest.raises(RuntimeError, match="size") as raised:
        scene.secret.matmul(at(scene.bob, 1.0, 2.0)).shape
    assert any("Traceback" in note for note in raised.value.__notes__)
    del raised
    assert scene.secret.tolist() == SECRET
    scene.hook.local_worker.user = None  # who sent it may take it away
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_an_operation_that_failed_leaves_no_result(scene: Scene) -> None:
    scene.hook.local_worker.user = "ann"
    product = None
    with pytest.raises((RuntimeError, ObjectNotFound)):
        product = scene.secret.matmul(at(scene.bob, 1.0, 2.0))
        product.get()
    assert len(inspect(scene.bob)) == 1
    scene.hook.local_worker.user = None
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_only_users_of_all_inputs_may_read(scene: Scene) -> None:
    other = torch.ones(3).private_tensor(["ann", "bea"]).send(scene.bob, user="bea")
    both = scene.secret + other
    with pytest.raises(PermissionDenied, match="user 'bea' may not read it"):
        both.get(user="bea")
    assert both.get(user="ann").tolist() == [value + 1 for value in SECRET]
    assert other.get(user="bea").tolist() == [1, 1, 1]
    nobody = scene.secret * torch.ones(3).private_tensor(["bea"]).send(scene.bob, user="bea")
    for user in (None, "ann", "bea"):
        with pytest.raises(PermissionDenied):
            nobody.get(user=user)
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_private_twice_is_the_meeting_of_both(scene: Scene) -> None:
    tensor = torch.ones(2).private_tensor(["ann", "bea"]).private_tensor(["bea", "eve"])
    with pytest.raises(PermissionDenied, match="send: this value on 'me'"):
        tensor.send(scene.bob, user="ann")
    sent = tensor.send(scene.bob, user="bea")
    with pytest.raises(PermissionDenied):
        sent.get(user="ann")
    assert sent.get(user="bea").tolist() == [1, 1]
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_a_private_gradient_is_private_where_it_was_sent(scene: Scene) -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.tensor(SECRET)
    pointer = weight.private_tensor(["ann"]).send(scene.bob, user="ann")
    with pytest.raises(PermissionDenied):
        pointer.get()
    assert pointer.get(user="ann").requires_grad
    assert scene.secret.get(user="ann").tolist() == SECRET


# ------------------------------------------------------------------------------ a worker in between


def test_nobody_borrows_the_rights_of_a_worker_in_between(scene: Scene) -> None:
    scene.alice.user = "ann"  # alice may read; the stranger who asks her may not
    pointer = scene.secret.send(scene.alice)
    with pytest.raises(PermissionDenied):
        pointer.tolist()
    with pytest.raises(PermissionDenied):
        pointer.remote_get()
    assert pointer.get().get(user="ann").tolist() == SECRET


def test_what_a_worker_fetched_for_its_user_stays_private(scene: Scene) -> None:
    selected = scene.secret[scene.secret > 0].send(scene.alice).remote_get(user="ann")
    for attack in (lambda: selected.get(), lambda: selected.shape, lambda: selected.tolist()):
        with pytest.raises(PermissionDenied):
            attack()
    assert selected.get(user="ann").tolist() == [SECRET[0], SECRET[2]]
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_the_user_of_a_worker_may_change(scene: Scene) -> None:
    me = scene.hook.local_worker
    me.user = "ann"
    assert scene.secret.tolist() == SECRET
    me.user = "bea"
    with pytest.raises(PermissionDenied, match="user 'bea'"):
        scene.secret.tolist()
    with pytest.raises(PermissionDenied, match="user 'bea'"):
        scene.secret.get()
    me.user = None
    with pytest.raises(PermissionDenied, match="no user was named"):
        scene.secret.tolist()
    assert scene.secret.get(user="ann").tolist() == SECRET


def test_data_that_a_worker_holds_from_the_start_is_private(hook: sy.TorchHook) -> None:
    mine = torch.tensor(SECRET).tag("#mine")
    carl = sy.VirtualWorker(hook, id="carl", data=[mine.private_tensor(["ann"])])
    (found,) = carl.search("#mine")
    with pytest.raises(PermissionDenied):
        (found * 2).get()
    with pytest.raises(PermissionDenied):
        found.detach()[:1].get()
    assert mine.send(carl).get().tolist() == SECRET, "the owner's own tensor is not private"
    assert found.get(user="ann").tolist() == SECRET
    carl.clear_objects()


# ------------------------------------------------------------------------------------- freed memory

FRESH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty": lambda x: x.location.torch.empty(1000),
    "empty_like": lambda x: torch.empty_like(x.expand(1000).contiguous()),
    "empty_strided": lambda x: x.location.torch.empty_strided((1000,), (1,)),
    "empty_permuted": lambda x: x.location.torch.empty_permuted((10, 100), (1, 0)),
    "new_empty": lambda x: x.new_empty(1000),
    "new_empty_strided": lambda x: x.new_empty_strided((1000,), (1,)),
    "new": lambda x: x.new(1000),
    "new of a size": lambda x: x.new(torch.Size([1000])),
    "resize_": lambda x: x.resize_(1000)[1:],
    "resize_as_": lambda x: x.resize_as_(torch.zeros(1000).send(x.location))[1:],
}


@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH.keys())
def test_nobody_is_handed_freed_memory(
    worker: sy.VirtualWorker, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    for _ in range(20):
        freed = [torch.full((size,), 1234.5) for size in (1000, 1001, 999, 4)]
        del freed
        one = torch.ones(1).send(worker)
        assert make(one).abs().sum().get() == 0
        del one


def test_memory_that_was_written_is_left_alone(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    assert x.new([1.0, 2.0]).get().tolist() == [1, 2]
    assert x.new((3.0, 4.0)).get().tolist() == [3, 4]
    assert x.resize_(1).get().tolist() == [1]
    y = torch.tensor([1.0, 2.0, 3.0]).send(worker)
    assert y.resize_(4).get().tolist() == [1, 2, 3, 0]
    z = torch.tensor([5.0]).send(worker)
    assert torch.empty(1, out=z).get().tolist() == [5]


# -------------------------------------------------------------------------- running statistics


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("private", [True, False])
def test_statistics_of_private_data_are_private(
    scene: Scene, mode: Callable[[], Any], private: bool
) -> None:
    """In inference mode torch does not decompose ``batch_norm``, whose schema marks no write."""
    mean, var = at(scene.bob, 0.0), at(scene.bob, 1.0)
    data = scene.secret if private else torch.tensor(SECRET).send(scene.bob)
    with mode():
        F.batch_norm(data.reshape(3, 1), mean, var, training=True)
    if private:
        assert "is private" in refusal(mean.get)
    else:
        assert torch.allclose(mean.get(), torch.tensor([sum(SECRET) / 30]))
    assert scene.secret.get(user="ann").tolist() == SECRET
