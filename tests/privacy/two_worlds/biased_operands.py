"""Actions of random programs whose operands were chosen for what could be told by them.

Random operands are not enough: a leak that needs a copy of a leaf with a private gradient, the
indices that a maximum saved, one object under two ids, or the data of two owners in one command
was found late or never.  Each action here makes such operands, and then asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

import syft as sy
from syft.ops.nested import leaves
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.tensors.fixed.precision import fix_precision
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.observer import Failed
from tests.privacy.two_worlds.sizes_and_streams import allocate
from tests.privacy.two_worlds.vocabulary import VIEWS
from tests.privacy.two_worlds.world import OBSERVER, OWNER, READER

if TYPE_CHECKING:
    from tests.privacy.two_worlds.generator import RandomProgram


def _action(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out)


def _references(values: Any) -> list[Reference]:
    return [leaf for leaf in leaves(values) if isinstance(leaf, Reference)]


def _randn(program: RandomProgram, *shape: int, grad: bool = False) -> torch.Tensor:
    made = torch.randn(shape, generator=program.numbers)
    return made.requires_grad_() if grad else made


def _backward(program: RandomProgram, value: Any, **options: Any) -> None:
    program.call("torch.Tensor.backward", program.call("torch.sum", value), **options)


# ---------------------------------------------------------------- private leaves, and their graphs


def train(program: RandomProgram) -> None:
    """Some steps of a training on private data: leaves, a loss, gradients, and writes by these."""
    rng = program.rng
    weight = program.put(_randn(program, 3, 2, grad=True), rng.random() < 0.5)
    weight = program.own(weight) if rng.random() < 0.2 else weight
    data = program.put(_randn(program, 4, 3), True)
    target = program.put(torch.tensor([0, 1, 1, 0]), rng.random() < 0.7, bad=0.3)
    for _ in range(rng.randint(1, 2)):
        made = program.call("torch.matmul", data, weight)
        for _ in range(rng.randrange(2)):
            name = rng.choice(("torch.tanh", "torch.relu", "torch.exp", "torch.neg"))
            made = program.call(name, made)
        way = rng.randrange(3)
        if way == 0:
            loss = program.call("torch.nn.functional.cross_entropy", made, target)
        else:
            loss = program.call("torch.sum" if way == 1 else "torch.mean", made)
        if rng.random() < 0.3:
            program.call("torch.autograd.grad", loss, weight, retain_graph=True)
        program.call("torch.Tensor.backward", loss, retain_graph=rng.random() < 0.3)
        gradient = program.call("torch.Tensor.grad.__get__", weight)
        if rng.random() < 0.6:
            program.call("torch.Tensor.add_", weight, gradient, alpha=-0.1, grad=False)
        for it in _references((weight, gradient, loss)):
            if rng.random() < 0.3:
                program.observer.gradient(it.id)


def in_a_group(program: RandomProgram) -> None:
    """A product, its backward pass and a gradient in one message, or as a plan."""
    rng, observer = program.rng, program.observer
    leaf = program.put(_randn(program, 3, grad=True), rng.random() < 0.5)
    other = program.put(_randn(program, 3), True)
    if rng.random() < 0.3:
        other = program.call("torch.Tensor.__getitem__", other, program.call("torch.gt", other, 0))
        other = program.call("torch.sum", other)
    if not isinstance(other, Reference):
        return
    actions = (
        _action("torch.mul", Slot(0), Slot(1), out=Slot(2)),
        _action(rng.choice(("torch.sum", "torch.mean", "torch.max")), Slot(2), out=Slot(3)),
        _action("torch.Tensor.backward", Slot(3)),
        _action("torch.Tensor.grad.__get__", Slot(0), out=Slot(4)),
    )
    plan = Program(2, actions, (Slot(2), Slot(3), Slot(4)))
    run = rng.choice((observer.group, observer.plan))
    made = run(plan, [leaf, other], 3)
    program.note("plan", True, made, (leaf, other))
    observer.gradient(leaf.id)
    if not isinstance(made, Failed) and rng.random() < 0.5:
        program.call("torch.Tensor.add_", made[0], other, grad=False)


def overwrite_saved(program: RandomProgram) -> None:
    """What a public graph saved, a result or an operand of it, is overwritten with private values
    before the backward pass."""
    rng = program.rng
    leaf = program.observer.public(_randn(program, 2, 3, grad=True))
    name, args, saved = rng.choice(SAVING)
    operands = [program.observer.public(make()) for make in args]
    results = _references(program.call(name, leaf, *operands, *saved))
    if not results:
        return
    victims = [*results[1:], *results[1:], *operands, results[0]]
    victim = rng.choice(victims)
    if victim is results[0] and rng.random() < 0.5:
        results[0] = program.call("torch.mul", victim, 1)
    _write_privately(program, victim)
    _backward(program, results[0])
    program.observer.gradient(leaf.id)


SAVING: tuple[tuple[str, tuple[Callable[[], torch.Tensor], ...], tuple[Any, ...]], ...] = (
    *((f"torch.{name}", (), (1,)) for name in ("max", "min", "median", "sort", "cummax", "mode")),
    *((f"torch.{name}", (), (2, 1)) for name in ("kthvalue", "topk")),
    ("torch.gather", (), (1, torch.tensor([[0], [1]]))),
    ("torch.Tensor.mul", (lambda: torch.ones(2, 3),), ()),
    *((f"torch.{name}", (), ()) for name in ("exp", "tanh", "sigmoid")),
    ("torch.softmax", (), (1,)),
)
"""Operations whose graph saves results or operands: further tensors, and further arguments."""


def _write_privately(program: RandomProgram, victim: Reference) -> None:
    """Private values of the same kind in the memory of a public tensor, past its version."""
    tensor = program.here(victim.id)
    if tensor is None:
        return
    if tensor.is_floating_point():
        worlds = [_randn(program, *tensor.shape) for _ in range(2)]
    else:
        worlds = [
            torch.randint(0, 2, tensor.shape, generator=program.numbers).to(tensor.dtype)
            for _ in range(2)
        ]
    source = program.observer.secret(*worlds, destinations=program.destinations)
    view = program.call("torch.Tensor.data.__get__", victim)
    name = program.rng.choice(("torch.Tensor.copy_", "torch.Tensor.copy_", "torch.Tensor.set_"))
    program.call(name, view, source, grad=False)


NAMED: tuple[tuple[str, str], ...] = (
    ("torch.addcmul", "input tensor1 tensor2"),
    ("torch.addcdiv", "input tensor1 tensor2"),
    ("torch.lerp", "input end weight"),
    ("torch.clamp", "input min max"),
    ("torch.where", "condition input other"),
)


def one_twice(program: RandomProgram) -> None:
    """Two calls with operands by name, in any order, that differ in what is one tensor: nothing of
    the first tells what the second writes.  A graph has saved what was there."""
    rng, observer = program.rng, program.observer
    name, parameters = rng.choice(NAMED)
    private, *others = rng.sample(parameters.split(), 3)
    order = [
        *others,
        "out",
        private,
    ]  # with one of the first two instead of both, all places change
    if rng.random() < 0.3:
        rng.shuffle(order)
    kind = (lambda x: x > 0) if private == "condition" else (lambda x: x)
    target = observer.public(torch.zeros(3))
    memory = program.call("torch.Tensor.data.__get__", target)
    leaf = observer.public(torch.ones(3, requires_grad=True))
    saved = program.call("torch.mul", target, leaf)
    secret = program.put(kind(_randn(program, 3)), True)
    for twice in (False, True):
        given = {each: observer.public(_randn(program, 3)) for each in others}
        if "condition" in others:
            given["condition"] = observer.public(torch.tensor([True, False, True]))
        elif twice:
            given[others[1]] = given[others[0]]
        out = memory if twice else program.call("torch.Tensor.clone", secret)
        given |= {private: secret, "out": out}
        program.call(name, grad=False, **{each: given[each] for each in order})
    observer.fetch(target.id)
    _backward(program, saved)
    observer.gradient(leaf.id)


def under_two_ids(program: RandomProgram) -> None:
    """One object under two ids, by an operation that returns what it is given; then its gradient,
    or what is written to it."""
    rng, observer = program.rng, program.observer
    one = program.put(_randn(program, 3, grad=True), rng.random() < 0.3)
    name, *args = rng.choice(SAME)
    other = program.call(name, one, *args)
    private = program.put(_randn(program, 3), True)
    if not isinstance(other, Reference):
        return
    if rng.random() < 0.7:
        used = rng.choice((one, other))
        _backward(program, program.call("torch.mul", used, private), retain_graph=True)
    else:
        program.call("torch.Tensor.copy_", rng.choice((one, other)), private, grad=False)
    for it in (one, other):
        observer.gradient(it.id)
        observer.fetch(it.id)


SAME: tuple[tuple[Any, ...], ...] = (
    ("torch.Tensor.contiguous",),
    ("torch.Tensor.float",),
    ("torch.Tensor.to", torch.float32),
    ("torch.Tensor.requires_grad_",),
    ("torch.Tensor.contiguous",),
)
"""Operations that return a tensor of three numbers itself."""


# ------------------------------------------------------------- copies of objects and modules

_TIMES = Program(1, (_action("torch.mul", Slot(0), Slot(1), out=Slot(2)),), (Slot(2),), state=1)
"""A module with one parameter."""


def copy_module(program: RandomProgram) -> None:
    """A module with a private parameter, or with a private gradient; it runs, is copied, and what
    it consists of is asked for."""
    rng, observer = program.rng, program.observer
    private = rng.random() < 0.5
    worlds = [torch.nn.Parameter(_randn(program, 3)) for _ in range(2)]
    if private:
        plan: Any = observer.secret_plan(_TIMES, 1, *([world] for world in worlds))
    else:
        plan = observer.stored_plan(_TIMES, 1, state=worlds[:1])
    if isinstance(plan, Failed):
        return
    parameters = observer.state_of(plan, _TIMES)
    program.note("plan", private, parameters, (plan,))
    data = program.put(_randn(program, 3), True)
    made = observer.run_plan(plan, _TIMES, [data], 1)
    program.note("plan", True, made, (plan, data))
    if isinstance(made, Failed) or isinstance(parameters, Failed):
        return
    _backward(program, made[0], retain_graph=True)
    if rng.random() < 0.4:
        gradient = program.call("torch.mul", data, 1)
        program.call("torch.Tensor.grad.__set__", parameters[0], gradient, grad=False)
    copy = Reference(observer.id())
    answer = observer.request(messages.Duplicate(observer.count(), plan.id, copy.id), op="copy")
    observer.private |= {copy.id} if private else set()
    program.note("plan", True, answer, (plan,))
    copied = observer.state_of(copy, _TIMES)
    program.note("plan", True, copied, (copy,))
    for it in (*_references(copied), *parameters):
        observer.gradient(it.id)
        observer.fetch(it.id)
    if rng.random() < 0.3:
        observer.fetch(rng.choice((plan, copy)).id)
        observer.move(copy, rng.choice(("alice", "eve")), grad=rng.random() < 0.5)


def copy_leaf(program: RandomProgram) -> None:
    """``w.grad = secret * 1``, or a backward pass, and copies of ``w``, with their gradients."""
    rng, observer = program.rng, program.observer
    leaf = program.put(torch.ones(3, requires_grad=True), rng.random() < 0.2)
    private = program.put(_randn(program, 3), True)
    if rng.random() < 0.5:
        gradient = program.call("torch.mul", private, 1)
        program.call("torch.Tensor.grad.__set__", leaf, gradient, grad=False)
    else:
        _backward(program, program.call("torch.mul", leaf, private))
    copies = [leaf]
    for _ in range(rng.randint(1, 2)):
        copy = Reference(observer.id())
        message = messages.Duplicate(observer.count(), rng.choice(copies).id, copy.id)
        program.note("copy", True, observer.request(message, op="copy"), (leaf,))
        observer.private |= {copy.id} if leaf.id in observer.private else set()
        copies.append(copy)
    for it in copies:
        observer.fetch(it.id)
        observer.gradient(it.id)
    if rng.random() < 0.5:
        _backward(program, program.call("torch.mul", copies[-1], copies[0]))


# ---------------------------------------------------------------------------------- two who own


def of_two_owners(program: RandomProgram) -> None:
    """One command on data of ann's and on data that the observer may read as another user; it fails
    for some values of ann's."""
    rng, observer = program.rng, program.observer
    name, hers, his, back = rng.choice(OF_TWO)
    # what fails in one world only
    private = program.put(hers(), True, bad=0.6)
    known = observer.of_reader(his())
    operands: list[Any] = [known, private] if back else [private, known]
    made = program.call(name, *operands, sender=rng.choice((READER, READER, OBSERVER)))
    for it in (*_references(made), known):
        observer.fetch(it.id, sender=READER)
        if rng.random() < 0.3:
            more = program.call("torch.mul", it, 2, sender=READER)
            for result in _references(more):
                observer.fetch(result.id, sender=READER)


def _of(*numbers: float) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(numbers)


OF_TWO: tuple[tuple[str, Any, Any, bool], ...] = (
    ("torch.take", _of(0, 2), _of(1.5, 2.5, 3.5), True),
    ("torch.take", lambda: torch.tensor([0, 2]), _of(1.5, 2.5, 3.5), True),
    ("torch.take", lambda: torch.tensor([1]), lambda: torch.ones(2, 2), True),
    ("torch.linalg.solve", lambda: torch.eye(2), lambda: torch.ones(2, 1), False),
    ("torch.normal", _of(1.0, 2.0), _of(0.5, 0.25), True),
    ("torch.binomial", _of(3.0, 2.0), _of(0.5, 0.25), False),
    ("torch.nn.functional.nll_loss", lambda: torch.tensor([0, 1]), lambda: torch.eye(2), True),
    ("torch.nn.functional.embedding", lambda: torch.tensor([0, 1]), lambda: torch.eye(2), False),
    ("torch.mul", _of(1.0, 2.0), _of(0.5, 0.25), True),
)
"""Operations that fail for some values of hers, his operand, and whether that comes first."""


# ----------------------------------------------------------------------------------------- chains


def on_chains(program: RandomProgram) -> None:
    """Commands on private chains: links that log, and grids."""
    rng, observer = program.rng, program.observer
    grad = rng.random() < 0.4
    known = [_chain(program, rng.random() < 0.5, grad) for _ in range(2)]
    for _ in range(rng.randint(2, 5)):
        it = rng.choice(known)
        way = rng.random()
        if way < 0.35:
            name, args = rng.choice(VIEWS)
            made = program.call(name, it, *((it,) if name.endswith("_as") else args))
        elif way < 0.65:
            made = program.call(rng.choice(_OF_TWO), it, rng.choice((it, 2, *known)))
        elif way < 0.8:
            made = program.call(rng.choice(_OF_ONE), it)
        elif way < 0.9:
            made = program.call(rng.choice(_WRITING), it, rng.choice(known), grad=False)
        else:
            _backward(program, it)
            made = program.call("torch.Tensor.grad.__get__", it)
        known += _references(made)[:1]
    for it in known:
        if rng.random() < 0.2:
            rng.choice((observer.fetch, observer.gradient, observer.describe))(it.id)


_OF_ONE = tuple(f"torch.{name}" for name in ("neg", "sum", "abs", "t", "mean", "clone"))
_OF_TWO = tuple(f"torch.{name}" for name in ("add", "sub", "mul", "matmul", "div"))
_WRITING = tuple(f"torch.Tensor.{name}" for name in ("add_", "mul_", "copy_", "sub_"))


def _chain(program: RandomProgram, grid: bool, grad: bool) -> Reference:
    worlds = [_randn(program, 2, 2) for _ in range(2)]
    if grid:
        chains = [fix_precision(world) for world in worlds]
    else:
        chains = [sy.LoggingTensor().on(world) for world in worlds]
        chains = [chain.requires_grad_() if grad else chain for chain in chains]
    return program.observer.secret(*chains, destinations=program.destinations)


# ------------------------------------------------------------------------------ limits and streams


def near_a_limit(program: RandomProgram) -> None:
    """A command that just fits a limit, or just does not: if a private size is counted by its
    bound, or if it is counted as it is."""
    limits, rng = program.both.limits, program.rng
    size = rng.choice((4, 9, 30))
    true = rng.randint(1, size - 1), rng.randint(1, size - 1)
    worlds = [torch.arange(size) - (size - positive) + 0.5 for positive in true]
    it = program.observer.secret(*worlds, destinations=program.destinations)
    hidden = program.call("torch.Tensor.__getitem__", it, program.observer.call("torch.gt", it, 0))
    if not isinstance(hidden, Reference):
        return
    program.private_sizes.append(hidden)
    if limits is DEFAULT_PEER_LIMITS:
        row = program.call("torch.unsqueeze", hidden, 0)
        program.call_at_limit("torch.Tensor.expand", row, rng.choice((2**27, 2**32, 2**40)), -1)
        return
    counted = rng.choice((size, size, *true))
    way = rng.randrange(5)
    near = rng.choice((-1, 0, 0, 1))
    if way == 0:
        row = program.call("torch.unsqueeze", hidden, 0)
        count = limits.elements // counted + near
        program.call_at_limit("torch.Tensor.expand", row, count, -1)
    elif way == 1:
        count = max(1, limits.bytes // (4 * counted) + near)
        program.call_at_limit("torch.Tensor.repeat", hidden, min(count, 20_000 // counted))
    elif way == 2:
        program.call_at_limit("torch.tensor_split", hidden, min(limits.results, 40) + near)
    elif way == 3:
        account = program.both.worlds[0].peers["bob", OBSERVER].session.account
        count = min(max(1, limits.objects - account.objects + near), 60)
        whole = program.put(torch.arange(float(count)), True)
        program.call_at_limit("torch.Tensor.split", whole, 1)
    else:
        name = rng.choice(("torch.Tensor.clone", "torch.neg", "torch.Tensor.double"))
        program.call_at_limit(name, hidden)
        allocate(program)


def advance(program: RandomProgram) -> None:
    """A stored plan draws for private values from a generator of its own, then for public ones; or
    the stream of the worker is drawn from in turns."""
    rng, observer = program.rng, program.observer
    given = torch.Generator().manual_seed(rng.randrange(2**63))
    rates = rng.sample((0.5, 0.9, 20.0, 90.0), 2)
    private = observer.secret(*(torch.full((9,), rate) for rate in rates))
    name = rng.choice(("torch.poisson", "torch._standard_gamma", "torch.bernoulli"))
    if rng.random() < 0.4:
        program.call(name, private)
        for it in _references(program.call("torch.rand", 3)):
            observer.fetch(it.id)
        return
    how = {"generator": given} if name == "torch.bernoulli" else {}
    draws = _action(name, Slot(0), *(() if how else (given,)), out=Slot(1), **how)
    plan = Program(1, (draws,), (Slot(1),))
    stored = observer.stored_plan(plan, 1)
    if isinstance(stored, Failed):
        return
    public = observer.public(torch.full((9,), 0.5))
    for it in rng.choice(((private, public), (public, private, public))):
        hers = it is private and not how  # she is told what fails, and then it is not there
        sender = OWNER if hers and rng.random() < 0.3 else OBSERVER
        made = observer.run_plan(stored, plan, [it], 1, sender=sender)
        program.note("plan", it is private, made, (stored,))
        if it is public:
            for result in _references(made):
                observer.fetch(result.id)


def with_form(program: RandomProgram) -> None:
    """What is predicted by its form, with operands of which any may be private, or bad."""
    rng = program.rng

    def put(tensor: torch.Tensor, private: bool = False) -> Reference:
        return program.put(tensor, private or rng.random() < 0.7, bad=0.4)

    grad = rng.random() < 0.5
    matrix = put(_randn(program, 4, 2, grad=grad), True)  # lstsq of public ones: see ROUNDED
    right = put(_randn(program, 4, 1, grad=grad))
    labels, weights = put(torch.tensor([0, 2, 1, 1])), put(_randn(program, 4, grad=grad))
    floats, edges = put(_randn(program, 9)), put(torch.linspace(-2, 2, 4))
    name, args, kwargs = rng.choice(
        (
            ("torch.bincount", (labels,), {"minlength": rng.choice((0, 2, 3, 5))}),
            ("torch.Tensor.bincount", (labels, weights, 3), {}),
            (rng.choice(("torch.cov", "torch.Tensor.cov")), (matrix,), {"correction": 3}),
            (rng.choice(("torch.corrcoef", "torch.Tensor.corrcoef")), (matrix,), {}),
            ("torch.histogram", (floats, 3), {}),
            ("torch.Tensor.histogram", (floats, edges), {"weight": put(torch.ones(9))}),
            ("torch.linalg.lstsq", (matrix, right), {"driver": rng.choice((None, "gels"))}),
            ("torch.linalg.lstsq", (matrix, right), {"driver": rng.choice(("gelsy", "gelsd"))}),
        )
    )
    for result in _references(program.call(name, *args, **kwargs))[:2]:
        if grad and rng.random() < 0.5:
            _backward(program, result, retain_graph=True)


def sweep(program: RandomProgram) -> None:
    """Ask for the gradient of every leaf that has one."""
    for worker in ("bob", "alice"):
        for id in dict.fromkeys(program.observer.known.get(worker, ())):
            if program.has_gradient(id, worker):
                program.observer.gradient(id, worker)


BIASED = (
    *((train, 3), (in_a_group, 3), (overwrite_saved, 2), (under_two_ids, 2), (copy_module, 3)),
    *((copy_leaf, 2), (of_two_owners, 2), (on_chains, 5), (near_a_limit, 20)),
    (advance, 2),
    (with_form, 4),
    (one_twice, 2),
)
"""The actions, with how often they are drawn; see ``WEIGHTS`` of the generator."""
