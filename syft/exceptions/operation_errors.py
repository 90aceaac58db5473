"""What goes wrong with a torch call: the op, its operands, its numbers, or the hook.

What goes wrong while a computation is recorded, and while the recording is run.

The root of the tree of errors is here too, below every file that adds branches to it.
"""

from __future__ import annotations

from typing import Final


class SyftError(Exception):
    """The base class of every error that syft raises.

    >>> issubclass(ObjectNotFound, SyftError)
    True
    """


class OperationError(SyftError):
    """A torch call that the chain cannot carry.

    >>> issubclass(UnknownOperation, OperationError)
    True
    """


class UnknownOperation(OperationError):
    """The op is not in the op table, so no worker would know it.

    >>> print(UnknownOperation("my_function"))
    'my_function' is not in the op table, so it cannot run on another worker. \
Write it in terms of torch operations.
    """

    def __init__(self, op: str) -> None:
        super().__init__(op)
        self.op = op

    def __str__(self) -> str:
        text = f"{self.op!r} is not in the op table, so it cannot run on another worker."
        script = self.op.endswith(".forward")
        how = "Call the module itself, or a plan of the script" if script else None
        return f"{text} {how or 'Write it in terms of torch operations'}."


class OperationRefused(OperationError):
    """The op is known, and may not run on behalf of another worker.

    >>> print(OperationRefused("torch.save", "it writes files"))
    'torch.save' cannot run on another worker: it writes files.
    """

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(op, reason)
        self.op, self.reason = op, reason

    def __str__(self) -> str:
        return f"{self.op!r} cannot run on another worker: {self.reason}."


class UnsupportedOperation(OperationError):
    """This kind of tensor has no rule for the op.

    >>> print(UnsupportedOperation("aten.sort", "FixedPrecisionTensor", "call .float_prec() first"))
    FixedPrecisionTensor has no rule for aten.sort: call .float_prec() first.
    """

    def __init__(self, op: str, link: str, instead: str) -> None:
        super().__init__(op, link, instead)
        self.op, self.link, self.instead = op, link, instead

    def __str__(self) -> str:
        return f"{self.link} has no rule for {self.op}: {self.instead}."


class LocationMismatch(OperationError):
    """The operands of one op lie at different places, and nothing was moved.

    >>> print(LocationMismatch("torch.Tensor.add", ("bob", "me")))
    torch.Tensor.add: the operands lie at bob and me. Bring them together first: \
.send(), .move() or .get().
    """

    def __init__(self, op: str, places: tuple[str, ...], instead: str = "") -> None:
        super().__init__(op, places, *([instead] if instead else ()))
        self.op, self.places = op, tuple(places)
        self.instead = instead

    def __str__(self) -> str:
        text = f"{self.op}: the operands lie at {' and '.join(self.places)}."
        return f"{text} Bring them together first: {self.instead or '.send(), .move() or .get()'}."


class DeviceMismatch(LocationMismatch, RuntimeError):
    """The operands of one op are on different devices of torch, one of them a worker.

    >>> print(DeviceMismatch("torch.Tensor.add", ("bob", "me")))
    torch.Tensor.add: Expected all tensors to be on the same device, but the operands lie at bob \
and me. Bring them together first: x.to(device), or x.cpu().
    """

    def __str__(self) -> str:
        found = f"the operands lie at {' and '.join(self.places)}"
        text = f"{self.op}: Expected all tensors to be on the same device, but {found}."
        return f"{text} Bring them together first: {self.instead or 'x.to(device), or x.cpu()'}."


class StaleOperand(OperationError):
    """A tensor was changed in place after a lazy operation was recorded on it, and before that ran.

    >>> print(StaleOperand("aten.mul.Tensor", "train.py:7"))
    aten.mul.Tensor was recorded at train.py:7, and before it ran a tensor that it reads was \
changed in place by an operation that is not lazy. Ask for its value before the change \
(to_eager()), or make a copy for one of the two: x.clone().
    """

    def __init__(self, op: str, line: str) -> None:
        super().__init__(op, line)
        self.op, self.line = op, line

    def __str__(self) -> str:
        return (
            f"{self.op} was recorded at {self.line}, and before it ran a tensor that it reads was "
            "changed in place by an operation that is not lazy. Ask for its value before the "
            "change (to_eager()), or make a copy for one of the two: x.clone()."
        )


class NoSuchDevice(OperationError):
    """An operation asks for a device that the worker's machine has not.

    >>> print(NoSuchDevice("bob", "Torch not compiled with CUDA enabled"))
    Worker 'bob' has no such device (Torch not compiled with CUDA enabled): leave out .cuda(), \
.to("cuda") and device=. Tensors and modules compute where they are.
    """

    def __init__(self, worker: str, found: str) -> None:
        super().__init__(worker, found)
        self.worker, self.found = worker, found

    def __str__(self) -> str:
        text = f"Worker {self.worker!r} has no such device ({self.found}): leave out .cuda(),"
        return f'{text} .to("cuda") and device=. Tensors and modules compute where they are.'


class DataStaysPut(OperationError):
    """Local code tried to read, copy or pickle data that is not in this tensor.

    >>> print(DataStaysPut("numpy()", "(Wrapper)>[PointerTensor | me:1 -> bob:2]"))
    numpy() would read data that is not here: (Wrapper)>[PointerTensor | me:1 -> bob:2]. \
Bring it here first with .get() (or .float_prec()), if you may.
    """

    def __init__(self, action: str, tensor: str) -> None:
        super().__init__(action, tensor)
        self.action, self.tensor = action, tensor

    def __str__(self) -> str:
        text = f"{self.action} would read data that is not here: {self.tensor}."
        how = _BESIDES.get(self.action, "")
        return f"{text} Bring it here first with .get() (or .float_prec()), if you may{how}."


_BESIDES: Final = {
    "pickling": "; a whole state_dict with sy.get_all(state, keep=True)",
    "numpy conversion": "; to compute with an array, send torch.from_numpy(array)",
}
"""What else one can do, by what was tried."""


class ResultMismatch(OperationError):
    """An operation has another number of results than its caller expected; none was stored.

    >>> print(ResultMismatch("torch.sort", "bob", "2 tensors", "3 tensors"))
    torch.sort gives 3 tensors at worker 'bob' where its caller expected 2 tensors; none was \
stored. The two ends run different versions of torch or syft.
    """

    def __init__(self, op: str, worker: str, expected: str, got: str) -> None:
        super().__init__(op, worker, expected, got)
        self.op, self.worker, self.expected, self.got = op, worker, expected, got

    def __str__(self) -> str:
        text = f"{self.op} gives {self.got} at worker {self.worker!r} where its caller expected"
        other = "none was stored. The two ends run different versions of torch or syft."
        return f"{text} {self.expected}; {other}"


class EncodingError(SyftError):
    """A number that the fixed-point grid cannot hold: out of range, infinite or not a number.

    >>> print(EncodingError("1e+30", "-1.4e+14 to 1.4e+14", "use fewer fractional digits"))
    Cannot encode 1e+30 in fixed precision: the range is -1.4e+14 to 1.4e+14. Instead, use fewer \
fractional digits.
    """

    def __init__(self, value: str, range: str, instead: str) -> None:
        super().__init__(value, range, instead)
        self.value, self.range, self.instead = value, range, instead

    def __str__(self) -> str:
        text = f"Cannot encode {self.value} in fixed precision: the range is {self.range}."
        return f"{text} Instead, {self.instead}."


class NotThere(SyftError, AttributeError):
    """A name of earlier versions that this one has not, or not yet; says what to use.

    >>> print(NotThere("sy.NumpyTensor", "send torch.from_numpy(array)"))
    sy.NumpyTensor is not there: send torch.from_numpy(array).
    >>> print(NotThere("sy.Protocol", "move a pointer from plan to plan", planned=True))
    sy.Protocol is not there yet: move a pointer from plan to plan.
    """

    def __init__(self, what: str, instead: str, planned: bool = False) -> None:
        super().__init__(what, instead, planned)
        self.what, self.instead, self.planned = what, instead, planned

    def __str__(self) -> str:
        return f"{self.what} is not there{' yet' * self.planned}: {self.instead}."


class HookError(SyftError):
    """Torch is not hooked, or is hooked already in a way that does not fit.

    >>> print(HookError("torch is not hooked", "call sy.TorchHook(torch) first"))
    torch is not hooked: call sy.TorchHook(torch) first.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what, instead)
        self.what, self.instead = what, instead

    def __str__(self) -> str:
        return f"{self.what}: {self.instead}."


class ProgramError(SyftError):
    """A recorded computation is malformed, or did not go as it was recorded.

    >>> print(ProgramError("it gave 3 results where 2 were recorded"))
    it gave 3 results where 2 were recorded
    """

    recorded = "plan"
    """What was recorded, as the text calls it: a plan, or a protocol."""


class NotBuilt(ProgramError, RuntimeError):
    """The plan is not recorded, or what it was recorded with has changed since.

    >>> print(NotBuilt("sent to a worker"))
    A plan needs to be built before being sent to a worker.
    >>> print(NotBuilt("sent to a worker", "lr of SGD was 0.1 and is 0.01 now"))
    A plan needs to be built again before being sent to a worker: lr of SGD was 0.1 and is 0.01 \
now. A call of it builds it, and so does plan.build(...).
    """

    def __init__(self, action: str, change: str = "") -> None:
        super().__init__(action, change)
        self.action, self.change = action, change

    def __str__(self) -> str:
        if not self.change:
            return f"A plan needs to be built before being {self.action}."
        return (
            f"A plan needs to be built again before being {self.action}: {self.change}. "
            "A call of it builds it, and so does plan.build(...)."
        )


class CannotRecord(ProgramError):
    """A step that a recording cannot keep, so that a replay would silently do something else.

    >>> print(CannotRecord("torch.manual_seed", "train.py:12", "seed before you call the plan"))
    A plan cannot keep torch.manual_seed (train.py:12): seed before you call the plan.
    """

    def __init__(self, what: str, line: str, instead: str) -> None:
        super().__init__(what, line, instead)
        self.what, self.line, self.instead = what, line, instead

    def __str__(self) -> str:
        return f"A {self.recorded} cannot keep {self.what} ({self.line}): {self.instead}."


class WrongArguments(ProgramError):
    """A plan was called with arguments of another number or kind than it takes.

    >>> print(WrongArguments("double", "1 tensor", "2 tensors"))
    Plan 'double' takes 1 tensor, and got 2 tensors.
    """

    def __init__(self, plan: str, expected: str, got: str) -> None:
        super().__init__(plan, expected, got)
        self.plan, self.expected, self.got = plan, expected, got

    def __str__(self) -> str:
        return (
            f"{self.recorded.capitalize()} {self.plan!r} takes {self.expected}, and got {self.got}."
        )


class OtherPath(ProgramError):
    """A size or number by which the function of a plan decides is not as it was when recorded.

    ``first`` and ``second`` are the numbers, ``sign`` is how they were compared (``is`` for one
    number and what it was), and ``holds`` is the answer that was recorded.

    >>> print(OtherPath(">", 5, 3, False))
    This plan was recorded for another answer to `5 > 3`: build it with arguments like these, and \
send it again where it was sent.
    """

    action = -1
    """The number of the action that found it."""

    def __init__(self, sign: str, first: float, second: float, holds: bool) -> None:
        super().__init__(sign, first, second, holds)
        self.sign, self.first, self.second, self.holds = sign, first, second, holds

    def __str__(self) -> str:
        how = f"for another answer to `{self.first} {self.sign} {self.second}`"
        if self.sign == "is":
            how = f"where a size or number is {self.second}, and now it is {self.first}"
        again = "send it again where it was sent" if self.recorded == "plan" else "deploy it again"
        return (
            f"This {self.recorded} was recorded {how}: build it with arguments like these, and "
            f"{again}."
        )


class ProtocolError(ProgramError):
    """A protocol that does not say who does something, or is not given what it says.

    >>> print(ProtocolError("no worker for the role 'alice'", "name one: deploy(alice=bob)"))
    no worker for the role 'alice': name one: deploy(alice=bob).
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what, instead)
        self.what, self.instead = what, instead

    def __str__(self) -> str:
        return f"{self.what}: {self.instead}."


class StateMismatch(ProgramError):
    """A state tensor of a plan was replaced by one that does not fit what was recorded.

    >>> print(StateMismatch("net", "fc1.weight", "float32 (3, 2)", "float32 (5, 2)"))
    Plan 'net': state 'fc1.weight' was recorded as float32 (3, 2) and is now float32 (5, 2). Put a \
tensor of the same shape and dtype there, or build the plan again.
    """

    def __init__(self, plan: str, name: str, expected: str, got: str) -> None:
        super().__init__(plan, name, expected, got)
        self.plan, self.name, self.expected, self.got = plan, name, expected, got

    def __str__(self) -> str:
        return (
            f"{self.recorded.capitalize()} {self.plan!r}: state {self.name!r} was recorded as "
            f"{self.expected} and is now {self.got}. Put a tensor of the same shape and dtype "
            f"there, or build the {self.recorded} again."
        )


class InputRefused(ProgramError):
    """An execution of a protocol takes no such value, from there, or now.

    >>> print(InputRefused("alice", "input 0", "it has come already"))
    Worker 'alice' refuses input 0 of an execution: it has come already.
    """

    def __init__(self, worker: str, what: str, why: str) -> None:
        super().__init__(worker, what, why)
        self.worker, self.what, self.why = worker, what, why

    def __str__(self) -> str:
        return f"Worker {self.worker!r} refuses {self.what} of an execution: {self.why}."


class ExecutionCancelled(ProgramError):
    """Whoever started the execution of a protocol has cancelled it.

    >>> print(ExecutionCancelled("alice", "the sensor broke"))
    The execution at worker 'alice' was cancelled: the sensor broke. Start another one.
    """

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker, self.reason = worker, reason

    def __str__(self) -> str:
        text = f"The execution at worker {self.worker!r} was cancelled: {self.reason}"
        return f"{text}. Start another one."


class PlansNotAllowed(ProgramError):
    """The owner of the worker does not allow plans there.

    >>> print(PlansNotAllowed("bob"))
    Worker 'bob' runs no plans for you. Its owner can allow them: allow_plans=True, and a token \
with --plans.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker

    def __str__(self) -> str:
        allowed = "allow_plans=True, and a token with --plans"
        return f"Worker {self.worker!r} runs no plans for you. Its owner can allow them: {allowed}."


class FrozenPath(UserWarning):
    """While a plan was recorded, Python took a branch by a value that may differ in a later call.

    The plan keeps only the path that was taken.  ``sy.cond`` and ``sy.while_loop`` keep both.

    >>> issubclass(FrozenPath, UserWarning)
    True
    """
