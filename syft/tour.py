"""``python -m syft.tour`` runs a few lines of a user and prints which functions of syft they reach.

A page that lists calls is out of date after the next change.  Here the lines run, a profiler of
Python (``sys.setprofile``) sees every call, and those that matter are printed where they stand now:
the function, its file and line, and one sentence.  The rest is counted.

    python -m syft.tour            # all stops
    python -m syft.tour get plan   # these alone
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from syft import c_extension
from syft.exceptions import PermissionDenied
from syft.hooks.torch_hook import TorchHook
from syft.plans.function_plan import func2plan
from syft.workers.shells.virtual import VirtualWorker

WIDTH = 100

_PACKAGE = Path(__file__).parent

SENTENCES = {
    # ------------------------------------------------------------------ at the calling end
    "chain/wrapper.py:_near_method.<locals>.method": (
        "A pointer is a Wrapper, a subclass of torch.Tensor, whose operators ask its first link."
    ),
    "chain/wrapper.py:Wrapper.__torch_dispatch__": (
        "Torch's autograd has noted the operation and hands it on, one level below."
    ),
    "hooks/sending.py:send": "The hook gave torch.Tensor this method; it asks where the copy goes.",
    "hooks/tensor_methods.py:get": "The hook gave torch.Tensor this method; it asks for the value.",
    "tensors/pointer.py:PointerTensor.call": (
        "The link draws an id for the result, and puts ids in the place of its operands."
    ),
    "tensors/pointer.py:make_pointer": "The answer is a new pointer; the data is not here.",
    "tensors/remote_link.py:RemoteLink.get": (
        "The value is fetched, and dropped at the worker unless it is needed there."
    ),
    "workers/client/connection.py:Connection.put_usual": (
        "The connection makes a message: an id, a description of the tensor, and its bytes."
    ),
    "workers/client/connection.py:Connection.ask": (
        "This is a question: the caller waits, and an earlier failure is raised first."
    ),
    "workers/client/operations.py:Operations.make": (
        "The operation becomes a message: its number in the op table, ids, and modes."
    ),
    "workers/client/operations.py:Operations.run": (
        "The call of a plan becomes one message, however many operations are in it."
    ),
    "workers/wire/numbering.py:NumberedCall.differences": (
        "What has not changed since the last call of this plan is left out of the message."
    ),
    "plans/remote/pointer_plan.py:PointerPlan.__call__": (
        "A pointer to a plan is called like the function that was recorded."
    ),
    "serde/tensors/strided.py:pack_usual": "The tensor becomes a description and its raw bytes.",
    "serde/tensors/strided.py:unpack_usual": (
        "The bytes become a tensor; nothing that arrives is unpickled."
    ),
    # ------------------------------------------------------------------------ between the two
    "workers/shells/virtual_transport.py:VirtualTransport._exchange": (
        "The message goes to the worker: here by a call, for a worker elsewhere over a socket."
    ),
    # ---------------------------------------------------------------------- at the serving end
    "workers/core/state_machine.py:WorkerCore.respond": (
        "The worker reads the message, checks its form, and finds the handler of its kind."
    ),
    "workers/core/findable.py:check_named": (
        "A request that names what its caller may not find is answered as if it were not there."
    ),
    "workers/core/store.py:ObjectStore.put": "The object is stored under the id the caller drew.",
    "workers/core/charges.py:Charges.charge_one": "Its bytes are charged to the caller's limits.",
    "workers/core/pipeline.py:_perform": (
        "A request that needs a closer look passes the common steps: owners, order, limits, labels."
    ),
    "workers/core/pipeline.py:Call.hand_over": (
        "Every tensor that leaves in a reply passes here, where its label is asked."
    ),
    "workers/handlers/objects.py:put_usual": "The handler for a tensor that arrives.",
    "workers/handlers/objects.py:fetch_usual": (
        "The handler for a tensor that is fetched; anything unusual takes the steps."
    ),
    "workers/handlers/commands.py:handle": (
        "The handler for one operation; a plain one runs at once, another takes the steps."
    ),
    "workers/handlers/commands.py:_make": (
        "The ids become tensors of the store, and torch computes with them."
    ),
    "workers/handlers/running.py:handle": "The handler for the call of a plan.",
    "workers/handlers/programs.py:run_program": (
        "Limits are asked once for the whole program, and private data action by action."
    ),
    "program/lowered.py:Lowered.run": "The recorded operations run one after another, in a loop.",
    # ------------------------------------------------------------------------------- private data
    "workers/core/store.py:ObjectStore.read": (
        "The store gives a handler the object, or a sealed cell if something in it is private."
    ),
    "workers/labels/cell.py:SealedCell.__init__": (
        "This object is private, so the handler gets a cell and not the values."
    ),
    "workers/labels/guards.py:Guard.check_admits": (
        "The label says who may read: this is the line that refuses or lets through."
    ),
    "ops/evaluate.py:evaluate": (
        "What the operation will do is worked out on tensors without values, before it runs."
    ),
    "workers/execution/private_results.py:private_result": (
        "An operand is private: the result gets its label, and must look as was worked out before."
    ),
    # ------------------------------------------------------------------------------ shared tensors
    "tensors/fixed/fixed_link.py:FixedPrecisionTensor.call": (
        "Numbers are whole multiples of 2^-16 here; a rule says how to multiply such numbers."
    ),
    "tensors/shared/shares_ring.py:SharesRing.product": (
        "The product is noted in a list; nothing is sent yet."
    ),
    "tensors/shared/shares_ring.py:SharesRing.scaled": (
        "So is the division by 2^16 that brings the product back to the grid."
    ),
    "tensors/shared/session_client.py:SessionClient.values": (
        "Somebody asks for the values, so what was noted has to be computed now."
    ),
    "tensors/shared/session_client.py:SessionClient.flush": (
        "The list becomes one program, which each party and the provider get."
    ),
    "crypto/programs/share_dealing.py:deal_program": (
        "The provider draws random masks and products of masks; it sees no data."
    ),
    "workers/handlers/share_runs.py:run_shares": (
        "Each party runs the program on its own share, in rounds."
    ),
    "workers/handlers/share_runs.py:_PartyRun._opening": (
        "The parties tell each other numbers that are hidden by masks, and nothing else."
    ),
}
"""By file and function: what it does, in one sentence.  Other functions are counted only."""


class Seen(NamedTuple):
    """A function that ran, at its first call in a stop of the tour."""

    place: str
    depth: int
    line: int


class LiveCalls:
    """The functions of syft that run inside ``with``, in the order of their first calls.

    >>> from syft.ids import new_id
    >>> with LiveCalls({"ids.py:new_id": "An id is drawn."}) as calls:
    ...     _ = new_id(), new_id()
    >>> [(seen.place, calls.times[seen.place]) for seen in calls.seen], calls.functions
    ([('ids.py:new_id', 2)], 1)
    """

    def __init__(self, sentences: dict[str, str]) -> None:
        self.seen: list[Seen] = []
        self.times: dict[str, int] = {}
        self._sentences = sentences
        self._codes: dict[CodeType, str] = {}
        self._open: list[bool] = []
        self._outer: Any = None

    @property
    def functions(self) -> int:
        """How many different functions of syft ran."""
        return sum(bool(place) for place in self._codes.values())

    def _place(self, code: CodeType) -> str:
        """A function as the table of sentences names it; empty for one that is not of syft."""
        place = self._codes.get(code)
        if place is None:
            file = Path(code.co_filename)
            inside = file.is_relative_to(_PACKAGE) and file != Path(__file__)
            place = f"{file.relative_to(_PACKAGE).as_posix()}:{code.co_qualname}" if inside else ""
            self._codes[code] = place
        return place

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "return" and self._open:
            self._open.pop()
        if event != "call":
            return
        place = self._place(frame.f_code)
        known = place in self._sentences
        if known and place not in self.times:
            self.seen.append(Seen(place, sum(self._open), frame.f_code.co_firstlineno))
        if known:
            self.times[place] = self.times.get(place, 0) + 1
        self._open.append(known)

    def __enter__(self) -> LiveCalls:
        self._outer = sys.getprofile()
        self._native = c_extension.use(False)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._outer)
        c_extension.use(self._native)


def _shown(seen: Seen, times: int) -> list[str]:
    """A call as it is printed: its name and place in a line, and the sentence below."""
    file, _, name = seen.place.partition(":")
    margin = " " * (4 + 2 * min(seen.depth, 12))
    called = name.replace("<locals>.", "") + (f"  ({times} times)" if times > 1 else "")
    place = f"syft/{file}:{seen.line}"
    lines = [f"{margin}{called}{place:>{max(WIDTH - len(margin) - len(called), 0)}}"]
    if len(lines[0]) > WIDTH:
        lines = [margin + called, f"{place:>{WIDTH}}"]
    inner = margin + "    "
    text = SENTENCES[seen.place]
    return lines + textwrap.wrap(text, WIDTH, initial_indent=inner, subsequent_indent=inner)


class Stop(NamedTuple):
    """A part of the tour: a line of a user, and what is said before it."""

    name: str
    about: str
    code: str
    run: Callable[[], object]


def _error_of(call: Callable[[], object]) -> str:
    """What somebody is told whom a worker refuses something."""
    try:
        return str(call())
    except PermissionDenied as error:
        return f"{type(error).__name__}: {error}"


def _stops(hook: TorchHook) -> list[Stop]:
    """The tour.  What every program does once, as connecting to a worker, is done before it."""
    bob, dan = VirtualWorker(hook, id="bob"), VirtualWorker(hook, id="dan")
    alice, ben, carol = (VirtualWorker(hook, id=name) for name in ("alice", "ben", "carol"))
    x: Any = torch.tensor([1.0, 2.0])
    p = x.send(bob)
    total = p + p
    plan = func2plan(args_shape=[(-1,)])(lambda t: torch.relu(t * 2 - 3)).send(bob)
    for _ in range(2):
        plan(p)
    secret: Any = torch.tensor([3.0, 4.0])
    dan.hold(secret.tag("#salaries").private_tensor(allowed_users=["ann"]))
    (q,) = dan.search("#salaries")
    tripled = q * 3
    s = x.fix_precision().share(alice, ben, crypto_provider=carol)
    (s * s).get()
    return [
        Stop(
            "plain",
            "a plain tensor. The hook replaced nothing in torch, so nothing of syft runs.",
            "x + x",
            lambda: x + x,
        ),
        Stop("send", "a copy goes to another worker.", "p = x.send(bob)", lambda: x.send(bob)),
        Stop("add", "a message goes to bob, who computes.", "p + p", lambda: p + p),
        Stop("get", "the value comes here.", "(p + p).get()", total.get),
        Stop(
            "plan",
            "a function was recorded and sent to bob. A call of it is one message.",
            "plan(p)",
            lambda: plan(p),
        ),
        Stop("private", "dan holds data that only ann may read.", "r = q * 2", lambda: q * 2),
        Stop(
            "refused",
            'ann asks for the result with user="ann". Somebody else does not get it.',
            "r.get()",
            lambda: _error_of(tripled.get),
        ),
        Stop(
            "shares",
            "alice and ben hold the numbers in random parts, and carol deals randomness.",
            "(s * s).get()",
            lambda: (s * s).get(),
        ),
    ]


def tour(hook: TorchHook, names: Sequence[str] = ()) -> None:
    """Print the stops of these names, or all of them.

    >>> tour(hook, ["plain"])
    <BLANKLINE>
    plain: a plain tensor. The hook replaced nothing in torch, so nothing of syft runs...
      tensor([2., 4.])
      0 functions of syft ran.
    """
    stops = {stop.name: stop for stop in _stops(hook)}
    for name in names or stops:
        if name not in stops:
            raise SystemExit(f"no stop {name!r}; there are {', '.join(stops)}")
        stop = stops[name]
        print(f"\n{stop.name}: {stop.about}\n  >>> {stop.code}")
        with LiveCalls(SENTENCES) as calls:
            result = stop.run()
        for seen in calls.seen:
            print("\n".join(_shown(seen, calls.times[seen.place])))
        print(textwrap.fill(str(result), WIDTH, initial_indent="  ", subsequent_indent="  "))
        of_them = f", {len(calls.seen)} of them are shown" if calls.seen else ""
        print(f"  {calls.functions} functions of syft ran{of_them}.")


def main(names: Sequence[str]) -> None:
    """Hook torch, take the tour, and give torch back as it was."""
    hook = TorchHook(torch)
    try:
        tour(hook, names)
    finally:
        hook.close()


if __name__ == "__main__":
    main(sys.argv[1:])
