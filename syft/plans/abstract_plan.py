"""The common part of all kinds of plans: they are built, called, read, sent and found.

A class whose instances are plans (:class:`~syft.plans.plan.Plan`) and a single method of it
(:func:`~syft.plans.function_plan.method2plan`) differ in what they are recorded from and in where
they keep the recording; everything else is here.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from syft.exceptions import (
    FrozenPath,
    HookError,
    NotBuilt,
    NotSendable,
    ProgramError,
    UnsupportedOperation,
    WrongArguments,
)
from syft.notebook_html import block, counted, line
from syft.ops.control import RECORDING
from syft.plans.building.build import STATE, BuiltPlan, Recipe, build
from syft.plans.building.interface import check_fits, check_writable, write_results
from syft.plans.exportable import Exportable
from syft.plans.plan_record import PlanRecord, PlanSender
from syft.plans.shared_state import HeldState, stand_ins
from syft.program.code import code_of
from syft.program.program import Action, Program
from syft.tensors.shared.ahead import MOST_BYTES_AHEAD, StockLevel, prepare_runs
from syft.workers.labels.origin import names_in
from syft.workers.shells.virtual import VirtualWorker

MOST_RECORDINGS = 16
"""Recordings that a plan keeps of calls with sizes by which its function decided otherwise."""
_BUILD_BEFORE = "build it before; a call of it needs no build: its operations are recorded here"
_BUILD_FIRST = "build it first, or write y.copy_(plan(x))"


class AbstractPlan(Exportable):
    """Something that is recorded once, and replayed from then on. Abstract.

    A subclass says what it is recorded from (:meth:`_recipe`) and keeps a :class:`PlanRecord`.
    """

    __slots__ = ()

    sender: ClassVar[PlanSender | None] = None
    """Sends plans on behalf of the local worker; the hook sets it while torch is hooked."""

    _record: PlanRecord

    @abstractmethod
    def _recipe(self) -> Recipe | None:
        """The function that the plan is recorded from; None for one that only replays."""

    @abstractmethod
    def _kind(self) -> str:
        """The class that the repr shows."""

    # ---------------------------------------------------------------------------------- building

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Record the plan on these arguments; returns what the function returned.

        ``trace_autograd``, unless it is an argument of the function, is taken for programs written
        for earlier versions: backward passes are recorded in any case.

        Building runs the function to record its operations, and then restores state and random
        numbers.  Later calls may have arguments of other sizes.  Bools, strings and None among the
        arguments decide what is recorded, so later calls must have the same.

        Raises :class:`~syft.exceptions.CannotRecord` for what a recording cannot keep and
        :class:`~syft.exceptions.WrongArguments`.  Warns with
        :class:`~syft.exceptions.FrozenPath` where the function decides by a value.

        >>> @sy.func2plan()
        ... def double(x):
        ...     return x + x
        >>> double.build(torch.ones(2)), double.is_built
        (tensor([2., 2.]), True)
        """
        recipe = self._recipe()
        if recipe is None:
            raise ProgramError(f"Plan {self.name!r} came without its function: it only replays.")
        recording = RECORDING.get()
        if recording is not None:
            recording.refuse(f"the building of plan {self.name!r}", _BUILD_BEFORE)
        if not recipe.takes("trace_autograd"):
            kwargs.pop("trace_autograd", None)
        record = self._record
        record.built, result = build(recipe, args, kwargs)
        record.earlier.clear()
        if record.tags:
            self._offer()
        return result

    @property
    def is_built(self) -> bool:
        """Whether the plan is recorded for its present mode (training or not) and options.

        >>> sy.func2plan()(lambda x: x + x).is_built
        False
        """
        built = self._record.built
        return built is not None and built.holds()

    def _built(self, action: str) -> BuiltPlan:
        """The recording, if it still holds; raises NotBuilt."""
        built = self._last_built(action)
        change = built.change()
        if change is not None:
            raise NotBuilt(action, change)
        return built

    def _last_built(self, action: str) -> BuiltPlan:
        """The last recording, even if it no longer holds; raises NotBuilt."""
        built = self._record.built
        if built is None:
            raise NotBuilt(action)
        return built

    # ------------------------------------------------------------------------------------ calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs and "out" in kwargs and not self._takes_out():
            out = kwargs.pop("out")
            if out is not None:
                return self._write_to(out, args, kwargs)
        built = self._record.built
        if built is not None and built.is_stateless:  # the fast path: nothing can have changed
            if not kwargs and tuple(map(type, args)) in built.accepted:
                return (built.run or built.lower())(args)
        return self._replay(args, kwargs)

    def _replay(self, args: Any, kwargs: Any) -> Any:
        found = self._recording_for(args, kwargs)
        if found is None:  # the plan around this one records its operations
            return self._call_function(args, kwargs)
        built, values = found
        return (built.run or built.lower())(values)

    def _recording_for(self, args: Any, kwargs: Any) -> tuple[BuiltPlan, Sequence[Any]] | None:
        """The recording that a call replays, and what it runs on; a new one where none fits.

        None if another plan is being recorded, and this one has no recording that fits.
        """
        record = self._record
        built, is_recording = record.built, RECORDING.get() is not None
        if built is None or (is_recording and self._reads_options(built)) or not built.holds():
            if is_recording:
                return None
            built = self._build_for(args, kwargs)
        values = built.values(args, kwargs)
        if built.meets(values):
            return built, values
        for other in record.earlier:
            if other.holds():
                values = other.values(args, kwargs)
                if other.meets(values):
                    record.replay(other)
                    return other, values
        if is_recording:
            return None
        built = self._record_otherwise(built, args, kwargs)
        return built, built.values(args, kwargs)

    def _reads_options(self, built: BuiltPlan) -> bool:
        """Whether the plan around this one has to see its function, which reads options."""
        return bool(built.assumptions.options.all) and self._recipe() is not None

    def _record_otherwise(self, built: BuiltPlan, args: Any, kwargs: Any) -> BuiltPlan:
        """Record the function for a call of which something else is true than was recorded.

        Without the function, or with tensors that are not here, the program itself finds out where
        a call goes another way, and raises.  Whether it does, only a run of the function tells: an
        earlier recording may be the same.
        """
        recipe = self._recipe()
        recorded = stand_ins(*built.blueprint.interface.like_recorded(args, kwargs))
        if recipe is None or not built.can_be_recorded(recorded):
            built.refuse(built.values(args, kwargs))
            return built
        record, (args, kwargs) = self._record, recorded
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FrozenPath)  # the user was warned, or is below
            again, _ = build(recipe, args, kwargs, check=built.makes_optimizers)
        for known in (built, *record.earlier):
            if known.blueprint == again.blueprint and known.holds():
                known.expected.learn(known.expected.key(known.values(args, kwargs)))
                record.replay(known)
                return known
        recordings = [each for each in (built, *record.earlier) if each.holds()]
        if len(recordings) >= MOST_RECORDINGS:
            expected = f"sizes and numbers of one of its {MOST_RECORDINGS} recordings"
            got = "others, by which its function decides too (plan.build(...) begins anew)"
            raise WrongArguments(self.name, expected, got)
        record.built, _ = build(recipe, args, kwargs)
        record.earlier = recordings
        return record.built

    def _takes_out(self) -> bool:
        """Whether ``out`` is an argument of the plan's function, and not where results go."""
        built = self._record.built
        if built is not None:
            return built.blueprint.interface.takes("out")
        recipe = self._recipe()
        return recipe is not None and recipe.takes("out")

    def _write_to(self, out: Any, args: Any, kwargs: Any) -> Any:
        """Call the plan, write its results into the tensors in ``out``, and return ``out``.

        Raises :class:`~syft.exceptions.WrongArguments` unless ``out`` is nested as the results are
        and fits them, and :class:`~syft.exceptions.ProgramError` if a graph would be lost.
        """
        found, recording = self._recording_for(args, kwargs), RECORDING.get()
        if found is None and recording is not None:
            recording.refuse("out= of a plan that is not built", _BUILD_FIRST)
        assert found is not None
        built, values = found
        interface = built.blueprint.interface
        targets = interface.targets(out)
        returned = (built.run or built.lower())(values)
        results = interface.targets(returned)  # nested alike
        check_writable(interface.name, results, targets)
        for index, (result, target) in enumerate(zip(results, targets, strict=True)):
            check_fits(interface.name, index, result, target)
        write_results(results, targets)
        return out

    def _build_for(self, args: Any, kwargs: Any) -> BuiltPlan:
        """Build the plan for a call, as modules and options are now."""
        built = self._record.built
        if built is not None and self._recipe() is None:
            raise ProgramError(
                f"Plan {self.name!r}: {built.change()}. It came without its function and only "
                "replays: put that back, or build it where its function is."
            )
        args, kwargs = stand_ins(args, kwargs)
        self.build(*args, **kwargs)
        return self._built("called")

    def _call_function(self, args: Any, kwargs: Any) -> Any:
        recipe = self._recipe()
        if recipe is None:
            built = self._record.built
            raise NotBuilt("called", built.change() or "" if built is not None else "")
        if recipe.state is not None:
            kwargs = {**kwargs, STATE: recipe.state}
        return recipe.function(*args, **kwargs)

    # ------------------------------------------------------------------------------------ reading

    @property
    def program(self) -> Program:
        """The program that was recorded last; raises :class:`~syft.exceptions.NotBuilt`."""
        return self._last_built("read").program

    @property
    def actions(self) -> tuple[Action, ...]:
        """The recorded actions, in order; none before the plan is built.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> [action.name for action in plan.actions]
        ['torch.Tensor.add']
        """
        return self.program.actions if self.is_built else ()

    @property
    def code(self) -> str:
        """The program that was recorded last, as Python source.

        >>> @sy.func2plan(args_shape=[(2,)])
        ... def double(x):
        ...     return x + x
        >>> print(double.code)
        def double(x):
            _1 = x.add(x)  # 0: torch.Tensor.add
            return _1
        """
        interface = self._last_built("read").blueprint.interface
        options = [name for name, _ in interface.options]
        names = [*interface.input_names(), *options]
        return code_of(self.program, self.name, names, interface.state)

    def __repr__(self) -> str:
        built = " built" if self.is_built else ""
        code = f"\n{self.code}" if built else ""
        owner = "nobody" if AbstractPlan.sender is None else AbstractPlan.sender.worker.id
        return f"<{self._kind()} {self.name} id:{self.id} owner:{owner}{built}>{code}"

    def _repr_html_(self) -> str:
        """A notebook shows this: the operations, the state, and where the plan is."""
        owner = "nobody" if AbstractPlan.sender is None else AbstractPlan.sender.worker.id
        facts, code = ["not built"], ""
        if self.is_built:
            state = self._last_built("shown").blueprint.interface.state_shown()
            facts = [counted(len(self.actions), "operation"), state]
            code = block(self.code, summary="code")
        shown = line(self.name, self._kind(), *facts, f"at {owner}", title=f"id {self.id}")
        return shown + code

    # ------------------------------------------------------------------------------------ sending

    def send(
        self,
        *locations: VirtualWorker | str,
        garbage_collect_data: bool = True,
        user: str | None = None,
        allow: Iterable[str] = (),
    ) -> Any:
        """Put a copy of the plan at a worker and return a pointer to it; this plan stays usable.

        With several ``locations``, a copy goes to each and one pointer stands for all.  A copy has
        the state as it is now.  ``user`` is checked against the guards of private state.  ``allow``
        names the users who may find and use it too, as for tensors.

        Raises :class:`~syft.exceptions.NotBuilt`, :class:`~syft.exceptions.PlansNotAllowed` if
        the owner of the worker allows none, :class:`~syft.exceptions.UnknownWorker`,
        :class:`~syft.exceptions.NotSendable`, :class:`~syft.exceptions.PermissionDenied`.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.send(alice), plan.send(bob)
        ([PointerPlan | me:... -> alice:...], [PointerPlan | me:... -> bob:...])
        """
        built = self._built("sent to a worker")
        about = locations, garbage_collect_data, user, names_in("allow", allow)
        return self._sender().send(self._record, built, *about)

    def get(self) -> Any:
        """The plan itself: it is here, and stays here when a copy of it is sent.

        State that workers share is put together again, in place.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.get() is plan
        True
        """
        if self._record.built is not None:
            state = HeldState(self._record.built, self._recipe())
            if state.has_shares:
                state.convert("get")
        return self

    def move(self, *locations: Any) -> Any:
        """Refused: a plan in this process is sent, and stays.

        Raises :class:`~syft.exceptions.UnsupportedOperation`.

        >>> sy.func2plan()(lambda x: x).move("bob")
        Traceback (most recent call last):
        ...
        syft.exceptions.UnsupportedOperation: ...
        """
        raise UnsupportedOperation("move", "Plan", "plan.send(worker) puts a copy of it there")

    # --------------------------------------------------------------------------------- conversions

    def fix_precision(self, *args: Any, **kwargs: Any) -> Any:
        """Encode the state of the plan in fixed precision, in place; returns the plan.

        The arguments are those of ``tensor.fix_precision()``.  The state stays in the modules and
        tensors where it is.  Raises :class:`~syft.exceptions.NotBuilt`: the state of a plan is
        known when it is built.

        >>> hook = sy.TorchHook(torch)
        >>> plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(lambda x, state: x)
        >>> plan.fix_precision().float_precision() is plan
        True
        """
        return self._converted("fix_precision", *args, **kwargs)

    def float_precision(self, *args: Any, **kwargs: Any) -> Any:
        """Decode the state of the plan, in place; returns the plan."""
        return self._converted("float_precision", *args, **kwargs)

    def share(self, *workers: Any, **kwargs: Any) -> Any:
        """Share the state of the plan among workers, in place; returns the plan.

        The arguments are those of ``model.share()``.  The plan is then called with shared tensors,
        and :meth:`get` brings the state back.  What an optimizer keeps is not shared.  Raises
        :class:`~syft.exceptions.NotBuilt` and what ``model.share()`` does.

        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> plan = sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x))
        >>> x = torch.zeros(1, 2).encrypt(workers=[alice, bob], crypto_provider=carol)
        >>> plan.fix_precision().share(alice, bob, crypto_provider=carol)(x).decrypt()
        tensor([[0.]], grad_fn=...)
        """
        return self._converted("share", *workers, **kwargs)

    def encrypt(self, protocol: str | None = None, **kwargs: Any) -> Any:
        """Encode and share the state, in place, as ``model.encrypt()``; returns the plan."""
        return self._converted("encrypt", protocol, **kwargs)

    def decrypt(self, user: str | None = None) -> Any:
        """Bring shared state back and decode it, in place; returns the plan."""
        return self._converted("decrypt", user)

    fix_prec = fix_precision_ = fix_prec_ = fix_precision
    float_prec = float_precision_ = float_prec_ = float_precision
    share_ = share

    def _converted(self, method: str, *args: Any, **kwargs: Any) -> Any:
        HeldState(self._last_built("converted"), self._recipe()).convert(method, *args, **kwargs)
        return self

    def prepare(self, n: int, *args: Any, most_bytes: int = MOST_BYTES_AHEAD) -> StockLevel:
        """Have the provider deal now for the next ``n`` calls on shared arguments like these.

        As ``sy.prepare(plan, *args, n=n)``, which says what it raises.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x * x)
        >>> x = torch.ones(2).fix_precision().share(alice, bob, crypto_provider=carol)
        >>> plan.prepare(5, x).runs
        5
        """
        return prepare_runs(self._sender().worker, self, args, n, most_bytes)

    # ------------------------------------------------------------------------------------- owner

    def _sender(self) -> PlanSender:
        """The sender of plans; raises :class:`~syft.exceptions.HookError` if torch is not
        hooked."""
        sender = AbstractPlan.sender
        if sender is None:
            raise HookError("torch is not hooked", "call sy.TorchHook(torch) first")
        return sender

    @property
    def id(self) -> int | str:
        """The plan's id at its owner."""
        return self._record.id

    @property
    def owner(self) -> VirtualWorker:
        """The worker that holds the plan: the local one."""
        return self._sender().worker

    @property
    def location(self) -> None:
        """None: the plan is in this process."""
        return None

    # -------------------------------------------------------------------------------- annotations

    @property
    def tags(self) -> set[str]:
        """The plan's tags."""
        return set(self._record.tags)

    @property
    def description(self) -> str | None:
        """A description of the plan in words."""
        return self._record.description

    def tag(self, *tags: str) -> Any:
        """Add tags, by which ``search`` finds the plan; returns the plan.

        A copy that is sent has the same tags.  If the local worker is not a mere client
        (``sy.local_worker.is_client_worker = False``), a built plan with tags is also put into its
        store, where other workers find it.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).tag("#double")
        >>> pointer = plan.send(bob)
        >>> bob.search("#double")
        [[PointerPlan | me:... -> bob:...]]
        """
        _check_text("tag", *tags)
        self._record.tags.update(tags)
        self._offer()
        return self

    def describe(self, description: str) -> Any:
        """Set the description of the plan; returns the plan.

        >>> sy.func2plan()(lambda x: x + x).describe("twice as much").description
        'twice as much'
        """
        _check_text("description", description)
        self._record.description = description
        return self

    def _offer(self) -> None:
        """Let other workers find the plan, if it is built."""
        sender, built = AbstractPlan.sender, self._record.built
        if sender is not None and built is not None:
            sender.offer(self._record, built)


def _check_text(what: str, *texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise NotSendable(f"a {what} of type {type(text).__name__}", f"a {what} is a string")
