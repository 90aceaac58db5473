"""A token for some tags: what carries none of them is as if it were not there, by its id too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.exceptions import ObjectNotFound
from syft.ops.table import BY_NAME
from syft.plans.remote.plan_sending import stored_plan
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.wire import messages
from syft.workers.wire.messages import decode, encode
from tests.workers.core.peers import error_in, ref, value_in

HIDDEN, SHOWN, OWN, PROMISED, OUT = 501, 502, 503, 504, 900
ADD = BY_NAME["torch.Tensor.add"]


@pytest.fixture
def core(hook: sy.TorchHook) -> WorkerCore:
    """A worker that holds something without a tag, and something with one."""
    core = WorkerCore("bob", lambda name: None)
    core.allow_plans = True
    core.store.put(HIDDEN, torch.ones(2, requires_grad=True))
    core.store.put(SHOWN, torch.ones(2).tag("#shown"))
    core.own(HIDDEN)
    core.own(SHOWN)
    eve = Peer("laptop", "eve", users=("eve",))
    say(core, eve, messages.Promise(1, (PROMISED,)))
    return core


def say(core: WorkerCore, peer: Peer, message: Any) -> Any:
    reply = core.respond(Frame(encode(message), []), peer)
    return None if reply is None else decode(reply.header)


def reader(tags: Any = ("#shown",)) -> Peer:
    """A caller whose token is for some tags."""
    peer = Peer("me", "ann", users=("ann",))
    peer.reads = None if tags is None else frozenset(tags)
    return peer


def requests(id: int) -> dict[str, Any]:
    """A request of each kind that names an object."""
    group = (0, [(ADD, [(0, 0), 1])])
    return {
        "command": messages.Command(5, ADD, (ref(id), 1), OUT, 0),
        "command, in a list": messages.Command(5, ADD, ([ref(id)], 1), OUT, 0),
        "command, a list of references": messages.Command(5, ADD, ([69, id], 1), OUT, 0),
        "command, by name": messages.Command(5, ADD, (ref(SHOWN),), OUT, 0, (), {"other": ref(id)}),
        "run": messages.Run(5, 1, [id], OUT, 0, define=group),
        "run, a plan": messages.Run(5, 1, [], OUT, 0, define=[43, id]),
        "fetch": messages.Fetch(5, id),
        "fetch all": messages.FetchAll(5, (id,)),
        "fetch a part": messages.FetchAll(5, ((id, 1),)),
        "move": messages.Move(5, id, "alice"),
        "duplicate": messages.Duplicate(5, id, OUT),
        "annotate": messages.Annotate(5, id, ("#shown",)),
        "allow": messages.Allow(5, id, ("ann",), OUT),
        "describe": messages.Describe(5, id),
        "start": messages.Start(5, int(CollectiveCode.SUM), 77, ("bob",), 0, (ref(id),), (OUT,)),
        "relay": messages.Relay(5, id, "alice"),
        "convert": messages.Convert(5, id, 1, None, OUT),
        "holds": messages.Holds(5, id, b"x" * 16),
        "give up": messages.GiveUp(5, id, "enough"),
        "await": messages.Await(5, id),
        "gradients": messages.Gradients(5, (id,), OUT),
        "clear gradients": messages.ClearGradients(5, (id,)),
    }


def test_every_kind_that_names_an_object_is_here() -> None:
    named = {type(message) for message in requests(HIDDEN).values()}
    naming_nothing = {
        messages.Put,
        messages.PutAll,
        messages.Search,
        messages.Promise,
        messages.Exchange,
        messages.Abort,
        messages.Cancel,
    }
    without_effect = {messages.Drop, messages.Share}
    assert set(WorkerCore.handlers) == named | naming_nothing | without_effect


@pytest.mark.parametrize("kind", requests(HIDDEN))
@pytest.mark.parametrize("id", [HIDDEN, PROMISED])
def test_what_it_may_not_find_is_not_there(core: WorkerCore, kind: str, id: int) -> None:
    before = core.store.objects[HIDDEN].clone()
    error = error_in(say(core, reader(), requests(id)[kind]))
    absent = error_in(say(core, reader(), requests(id + 1000)[kind])) if kind == "fetch" else None
    assert type(error) is ObjectNotFound and error.id == id
    assert absent is None or str(absent) == str(error).replace(str(id), str(id + 1000))
    assert torch.equal(core.store.objects[HIDDEN], before) and PROMISED in core.store.promised
    assert OUT not in core.store.objects and OUT not in core.store.promised


@pytest.mark.parametrize("kind", requests(HIDDEN))
def test_what_it_may_find_it_may_name(core: WorkerCore, kind: str) -> None:
    """It is refused, if at all, for another reason."""
    for peer, id in ((reader(), SHOWN), (reader(None), HIDDEN), (Peer("me", "ann"), HIDDEN)):
        reply = say(core, peer, requests(id)[kind])
        if isinstance(reply, messages.Failure):
            assert not isinstance(error_in(reply), ObjectNotFound), error_in(reply)


def test_it_uses_what_it_made(core: WorkerCore) -> None:
    ann = reader()
    assert say(core, ann, messages.Command(5, ADD, (ref(SHOWN), 1), OUT, 9)) is not None
    assert isinstance(say(core, ann, messages.Fetch(6, OUT)), messages.Value)


def test_what_it_drops_is_nobodys_but_its_own(core: WorkerCore) -> None:
    say(core, reader(), messages.Drop(5, (HIDDEN,)))
    assert say(core, reader(), messages.Share(HIDDEN, ("eve",))) is None
    say(core, reader(), messages.Describe(6, SHOWN, (HIDDEN,)))
    assert HIDDEN in core.store.objects


def test_a_plan_is_found_by_whose_copy_it_is_as_by_a_tag(core: WorkerCore) -> None:
    """Ann's own copies come first, and what she may not find by a tag she does not find at all."""
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    stored = [stored_plan(plan._record, plan._record.built) for _ in range(4)]
    stored[3]._tags = {"#shown"}
    eve = Peer("laptop", "eve", users=("eve",))
    for id, peer, value in zip((601, 602, 603, 604), (reader(), reader(), eve, eve), stored):
        packer = Packer()
        put = messages.Put(5, id, pack(value, packer))
        reply = core.respond(Frame(encode(put), packer.buffers), peer)
        assert reply is not None and isinstance(decode(reply.header), messages.Done)

    def found_by(peer: Peer) -> list[int]:
        return [summary[0] for summary in value_in(core, messages.Search(6, (str(plan.id),)), peer)]

    assert found_by(reader()) == [602, 601], "what eve sends is there for eve"
    assert found_by(eve) == [604, 603]
    assert found_by(Peer("me", "zoe", users=())) == []
    say(core, eve, messages.Share(604, (), ("ann", "zoe")))
    say(core, eve, messages.Share(603, (), ("ann",)))
    assert found_by(reader()) == [602, 601, 604], "and not without a tag for who reads by tags"
    assert found_by(Peer("me", "zoe", users=("zoe",))) == [604]
