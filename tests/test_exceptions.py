"""Every error of syft: its text, its parts, its place in the tree, its journey over the wire."""

from __future__ import annotations

import inspect
import re

import pytest

from syft import exceptions as e
from syft.serde.errors import pack_error, unpack_error
from syft.serde.packer import Packer, Unpacker
from tests.test_project import ROOT

TEXTS = [
    (
        e.UnknownDevice("syft:9", ("syft:0 is bob",)),
        "No worker is the device syft:9 (syft:0 is bob): sy.device(worker) makes a worker one.",
    ),
    (
        e.UnknownDevice("bob", (), "torch numbers 128 of them"),
        "No worker is the device bob (there is none): torch numbers 128 of them.",
    ),
    (
        e.UnknownWorker("nobody", "me", ("alice", "bob")),
        "'me' knows no worker 'nobody' (it knows alice, bob). Create it, or introduce it with "
        "add_worker().",
    ),
    (
        e.UnknownWorker("nobody", "me", ()),
        "'me' knows no worker 'nobody' (it knows nobody else). Create it, or introduce it with "
        "add_worker().",
    ),
    (
        e.WorkerIdTaken("bob"),
        "There is a worker 'bob' already. Use it (hook.local_worker.get_worker('bob')), close it "
        "first (.close()), or choose another id.",
    ),
    (
        e.WorkerIdTaken("bob", ("address", "token")),
        "There is a worker 'bob' already, with another address and another token. Use it "
        "(hook.local_worker.get_worker('bob')), close it first (.close()), or choose another id.",
    ),
    (
        e.WorkerClosed("bob"),
        "Worker 'bob' is closed: what this program had there is gone. Create a new "
        "one, or connect again.",
    ),
    (
        e.TokenMissing("bob", "ann"),
        "Nothing proves to worker 'bob' that this program speaks for user 'ann'. Connect with that "
        "user's token: tokens={'ann': ...}, or token= if it speaks for nobody else.",
    ),
    (
        e.ProviderDenied("bob", "eve", ("carol", "dan")),
        "share: this value on 'bob' is private, and 'eve' is not among its allow_providers=: share "
        "it with crypto_provider= one of carol, dan.",
    ),
    (
        e.ProviderDenied("bob", "eve", ()),
        "share: this value on 'bob' is private, and 'eve' is not among its allow_providers=: no "
        "worker may deal for all that it comes from; ask the owners to allow() one.",
    ),
    (
        e.RequestWithdrawn("bob"),
        "Worker 'bob' did not begin this request, because cancel() withdrew it. Make it again if "
        "you need it.",
    ),
    (
        e.NotShareable("a tensor of torch.float32", "call .fix_precision() first"),
        "Cannot share a tensor of torch.float32: call .fix_precision() first.",
    ),
    (
        e.WrongParties(("bob",), "name two workers or more"),
        "Cannot share among bob: name two workers or more.",
    ),
    (
        e.SessionEnded(("alice", "bob"), "bob: no object 5"),
        "The tensors shared among alice, bob cannot be used any more (bob: no object 5). Share "
        "them again.",
    ),
    (
        e.StockFull(100, 2000, 1000),
        "Dealing ahead for 100 runs takes 2,000 bytes, and most_bytes is 1,000: prepare fewer "
        "runs, or allow more.",
    ),
    (
        e.WrongResult("aten.exp.default", "a.py:3", 4.85e8, 97.1, "keep arguments below 13.17"),
        "aten.exp.default at a.py:3 is off by 4.85e+08 (97.1 is allowed): keep arguments below "
        "13.17.",
    ),
    (
        e.MaterialError("a correction of shape (2,)", "none"),
        "Expected a correction of shape (2,) from the provider, got none.",
    ),
    (
        e.MaterialUsed(3, 5),
        "Expected randomness after number 5 from the provider, got number 3, which is used up.",
    ),
    (e.RemoteFailure("zipfile.BadZipFile", "truncated"), "zipfile.BadZipFile: truncated"),
    (
        e.ObjectNotFound(7, "bob", "me fetched it with get()"),
        "Worker 'bob' holds no object 7: me fetched it with get().",
    ),
    (
        e.ObjectNotFound(7, "bob"),
        "Worker 'bob' holds no object 7: it was never there, or was removed long ago.",
    ),
    (
        e.ObjectIdTaken(7, "bob"),
        "Worker 'bob' holds an object 7 already; nothing was overwritten. Choose a fresh id.",
    ),
    (
        e.ObjectNotReady("bob"),
        "Worker 'bob' still waits for a promised input, or for the end of an execution that uses "
        "the same object, and nothing under way can bring it. Keep the promise, or give the "
        "execution its inputs, before asking for the result.",
    ),
    (
        e.SharedOperationFailed(("alice", "bob"), "ValueError: bob is full"),
        "What was computed on tensors shared among alice, bob has failed (ValueError: bob is "
        "full). What was shared or computed before is as it was.",
    ),
    (
        e.ProviderLost(("alice", "bob"), "carol"),
        "What was computed on tensors shared among alice, bob has failed (the provider carol is "
        "lost: get() what is there, and share it again with another one). What was shared or "
        "computed before is as it was.",
    ),
    (
        e.ObjectNotReady("bob", (7, 9), True),
        "Worker 'bob' still waits for a promised input (id 7, 9 and others), and nothing under way "
        "can bring it. Keep the promise (send the tensor to the promised id) before asking for the "
        "result.",
    ),
    (
        e.ObjectNotReady("bob", (), True),
        "Worker 'bob' still waits for a promised input (promised by others), and nothing under way "
        "can bring it. Keep the promise (send the tensor to the promised id) before asking for the "
        "result.",
    ),
    (
        e.WorkerLost("bob", "its process has ended"),
        "The connection to worker 'bob' was lost: its process has ended.",
    ),
    (
        e.WorkerRefused("ws://localhost:8777", "token", "no token was given"),
        "The worker at ws://localhost:8777 refused the connection: no token was given.",
    ),
    (
        e.WorkerTimeout("bob", 5.0, "it has not said why"),
        "Worker 'bob' did not answer within 5.0 s: it has not said why.",
    ),
    (
        e.WrongAddress("bob:8777"),
        "'bob:8777' is no address of a worker. Write ws://host:port on this machine, "
        "wss://host:port elsewhere, or unix:///path.",
    ),
    (
        e.InsecureAddress("ws://10.0.0.7:8777"),
        "ws://10.0.0.7:8777 is not on this machine, so the connection must be encrypted: use "
        "wss:// with the fingerprint that the worker printed when it started.",
    ),
    (
        e.BrokenFraming(1002, "a reserved bit is set"),
        "The connection broke a rule of WebSockets: a reserved bit is set.",
    ),
    (
        e.PromiseGivenUp(7, "bob", "the sensor broke"),
        "The promise of object 7 at worker 'bob' was given up: the sensor broke. Nothing can keep "
        "it any more; make another promise.",
    ),
    (
        e.UnknownOperation("my_function"),
        "'my_function' is not in the op table, so it cannot run on another worker. Write it in "
        "terms of torch operations.",
    ),
    (
        e.OperationRefused("torch.save", "it writes files"),
        "'torch.save' cannot run on another worker: it writes files.",
    ),
    (
        e.UnsupportedOperation("aten.sort", "FixedPrecisionTensor", "call .float_prec() first"),
        "FixedPrecisionTensor has no rule for aten.sort: call .float_prec() first.",
    ),
    (
        e.LocationMismatch("torch.Tensor.add", ("bob", "me")),
        "torch.Tensor.add: the operands lie at bob and me. Bring them together first: .send(), "
        ".move() or .get().",
    ),
    (
        e.DeviceMismatch("torch.Tensor.add", ("bob", "me")),
        "torch.Tensor.add: Expected all tensors to be on the same device, but the operands lie at "
        "bob and me. Bring them together first: x.to(device), or x.cpu().",
    ),
    (
        e.StaleOperand("aten.mul.Tensor", "train.py:7"),
        "aten.mul.Tensor was recorded at train.py:7, and before it ran a tensor that it reads was "
        "changed in place by an operation that is not lazy. Ask for its value before the change "
        "(to_eager()), or make a copy for one of the two: x.clone().",
    ),
    (
        e.NoSuchDevice("bob", "No CUDA GPUs are available"),
        "Worker 'bob' has no such device (No CUDA GPUs are available): leave out .cuda(), "
        '.to("cuda") and device=. Tensors and modules compute where they are.',
    ),
    (
        e.DataStaysPut("numpy()", "(Wrapper)>[PointerTensor | me:1 -> bob:2]"),
        "numpy() would read data that is not here: (Wrapper)>[PointerTensor | me:1 -> bob:2]. "
        "Bring it here first with .get() (or .float_prec()), if you may.",
    ),
    (
        e.DataStaysPut("pickling", "(Wrapper)>[PointerTensor | me:1 -> bob:2]"),
        "pickling would read data that is not here: (Wrapper)>[PointerTensor | me:1 -> bob:2]. "
        "Bring it here first with .get() (or .float_prec()), if you may; a whole state_dict with "
        "sy.get_all(state, keep=True).",
    ),
    (
        e.ResultMismatch("torch.sort", "bob", "2 tensors", "3 tensors"),
        "torch.sort gives 3 tensors at worker 'bob' where its caller expected 2 tensors; none was "
        "stored. The two ends run different versions of torch or syft.",
    ),
    (
        e.NotSendable("a function", "send tensors"),
        "Cannot send a function: send tensors.",
    ),
    (
        e.NotALeaf("MulBackward0"),
        "Cannot send a tensor that is the result of a recorded computation (MulBackward0): its "
        "graph cannot travel. Send x.detach(), or send the inputs and compute there.",
    ),
    (
        e.NothingToGet("get"),
        "get(): this tensor is here already (it was never sent, or has been fetched). Use it as "
        "it is.",
    ),
    (
        e.NothingToGet("decrypt", shared=False),
        "decrypt(): this tensor is not shared. Use it as it is, or get() it if it is at a worker.",
    ),
    (
        e.MalformedMessage("$.args[2]", "a type code", "'x'"),
        "Malformed message at $.args[2]: expected a type code, got 'x'.",
    ),
    (
        e.LimitExceeded("$.args[0]", "max_dims", 64, 1000),
        "Message over a limit at $.args[0]: max_dims is 64, got 1000. Send less at once, or raise "
        "the limit on both sides.",
    ),
    (
        e.NotBuilt("sent to a worker"),
        "A plan needs to be built before being sent to a worker.",
    ),
    (
        e.CannotRecord("torch.manual_seed", "train.py:12", "seed before you call the plan"),
        "A plan cannot keep torch.manual_seed (train.py:12): seed before you call the plan.",
    ),
    (
        e.WrongArguments("double", "1 tensor", "2 tensors"),
        "Plan 'double' takes 1 tensor, and got 2 tensors.",
    ),
    (
        e.ProtocolError("no worker for the role 'alice'", "name one: deploy(alice=bob)"),
        "no worker for the role 'alice': name one: deploy(alice=bob).",
    ),
    (
        e.OtherPath("is", 4, 3, True),
        "This plan was recorded where a size or number is 3, and now it is 4: build it with "
        "arguments like these, and send it again where it was sent.",
    ),
    (
        e.StateMismatch("net", "fc1.weight", "float32 (3, 2)", "float32 (5, 2)"),
        "Plan 'net': state 'fc1.weight' was recorded as float32 (3, 2) and is now float32 (5, 2). "
        "Put a tensor of the same shape and dtype there, or build the plan again.",
    ),
    (
        e.PlansNotAllowed("bob"),
        "Worker 'bob' runs no plans for you. Its owner can allow them: allow_plans=True, and a "
        "token with --plans.",
    ),
    (
        e.InputRefused("alice", "input 0", "it has come already"),
        "Worker 'alice' refuses input 0 of an execution: it has come already.",
    ),
    (
        e.ExecutionCancelled("alice", "the sensor broke"),
        "The execution at worker 'alice' was cancelled: the sensor broke. Start another one.",
    ),
    (
        e.PermissionDenied("get", "bob", "mallory"),
        "get: this value on 'bob' is private, and user 'mallory' may not read it.",
    ),
    (
        e.PermissionDenied("get", "bob", None),
        "get: this value on 'bob' is private, and no user was named. Pass user=...",
    ),
    (
        e.PermissionDenied("torch.Tensor.add_", "bob", "me", 7, "ann"),
        "torch.Tensor.add_: object 7 on 'bob' holds what belongs to 'ann', and 'me' may not change "
        "it. Change a copy (x.copy()), or be named in allow_writes=.",
    ),
    (
        e.PermissionDenied("allow", "bob", "me", 7, "ann"),
        "allow: object 7 on 'bob' holds what belongs to 'ann', and 'me' may not change it. Ask the "
        "owner to.",
    ),
    (
        e.PermissionDenied("tag", "bob", "me", 7),
        "tag: object 7 on 'bob' holds what belongs to the owner of the worker, and 'me' may not "
        "change it. Change a copy (x.copy()), or be named in allow_writes=.",
    ),
    (
        e.PermissionDenied("move", "bob", "mallory", 7, to="eve"),
        "move: object 7 on 'bob' may not go to 'eve': user 'mallory' may not read it, and 'eve' is "
        "not among its allow_destinations=.",
    ),
    (
        e.PermissionDenied("backward", "bob", None, to="eve"),
        "backward: this value on 'bob' may not go to 'eve': no user was named, and 'eve' is not "
        "among its allow_destinations=. Pass user=...",
    ),
    (
        e.PermissionDenied("send() to a promise", "bob", "mallory", 7, sender="ann"),
        "send() to a promise: object 7 on 'bob' is promised to come from 'ann', not from 'mallory'."
        " Choose a fresh id.",
    ),
    (
        e.EncodingError("1e+30", "-1.4e+14 to 1.4e+14", "use fewer fractional digits"),
        "Cannot encode 1e+30 in fixed precision: the range is -1.4e+14 to 1.4e+14. Instead, use "
        "fewer fractional digits.",
    ),
    (
        e.TicketRefused("it has expired"),
        "The ticket was refused: it has expired. The client that introduced the two workers can "
        "make another.",
    ),
    (
        e.FingerprintMismatch("sha256:aa", "sha256:bb"),
        "The worker's certificate is not the pinned one: expected sha256:aa, got sha256:bb. "
        "Nothing was sent. Ask the worker's owner for its fingerprint; if it has not changed, "
        "somebody is in between.",
    ),
    (
        e.UnknownToken("1f00"),
        "There is no token with the id '1f00'. `syft token list` shows the ids of all.",
    ),
    (
        e.FileRefused("a.json", "others may read it (mode 0644)", "chmod 600 a.json"),
        "Cannot use 'a.json': others may read it (mode 0644). Instead: chmod 600 a.json.",
    ),
    (
        e.TooFewClients("Round 3", 1, 2, ("bob (late)",)),
        "Round 3 has 1 of the 2 clients that it needs. Missing: bob (late). Connect them again, "
        "wait longer (deadline=), or ask for fewer (minimum=).",
    ),
    (
        e.AuditFailed("No space left on device"),
        "The worker cannot write its audit log (No space left on device), and does nothing until "
        "it can.",
    ),
    (
        e.AuditBroken("audit.log", 7),
        "The chain of 'audit.log' is broken at line 7: it, or what stood before it, was changed.",
    ),
    (
        e.UnusableSetting("days", "a number over 0", "-1"),
        "days must be a number over 0, got -1.",
    ),
    (
        e.HookError("torch is not hooked", "call sy.TorchHook(torch) first"),
        "torch is not hooked: call sy.TorchHook(torch) first.",
    ),
    (
        e.NotThere("sy.Protocol", "move a pointer from plan to plan", planned=True),
        "sy.Protocol is not there yet: move a pointer from plan to plan.",
    ),
]


def _has_parts(kind: type[e.SyftError]) -> bool:
    """Whether a class, or one of ours above it, says of which parts an error consists."""
    return any("__init__" in vars(base) for base in kind.__mro__ if issubclass(base, e.SyftError))


CLASSES = [
    value
    for value in vars(e).values()
    if inspect.isclass(value) and issubclass(value, e.SyftError) and _has_parts(value)
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=lambda value: type(value).__name__)
def test_the_text_says_what_happened_and_what_to_do(error: e.SyftError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize("error", [error for error, _ in TEXTS], ids=lambda error: str(error)[:30])
def test_an_error_crosses_the_wire_as_its_class_and_its_parts(error: e.SyftError) -> None:
    back, trace = unpack_error(pack_error(error, Packer()), Unpacker([]))
    assert type(back) is type(error)
    assert back.args == error.args
    assert str(back) == str(error)


def test_every_class_has_a_text_here() -> None:
    assert {type(error) for error, _ in TEXTS} == set(CLASSES)


def test_the_parts_are_attributes() -> None:
    error = e.LocationMismatch("torch.add", ["bob", "me"])
    assert (error.op, error.places) == ("torch.add", ("bob", "me"))
    missing = e.ObjectNotFound(7, "bob", "why")
    assert (missing.id, missing.worker, missing.reason) == (7, "bob", "why")


def test_the_parts_of_what_goes_wrong_with_programs() -> None:
    kept = e.CannotRecord("numpy()", "a.py:1", "use torch")
    assert (kept.what, kept.line, kept.instead) == ("numpy()", "a.py:1", "use torch")
    wrong = e.WrongArguments("double", "1 tensor", "nothing")
    assert (wrong.plan, wrong.expected, wrong.got) == ("double", "1 tensor", "nothing")
    state = e.StateMismatch("net", "bias", "float32 (3,)", "float32 (5,)")
    assert (state.plan, state.name) == ("net", "bias")
    assert (state.expected, state.got) == ("float32 (3,)", "float32 (5,)")
    assert (e.NotBuilt("sent").action, e.PlansNotAllowed("bob").worker) == ("sent", "bob")
    assert issubclass(e.NotBuilt, RuntimeError) and issubclass(e.FrozenPath, UserWarning)
    assert issubclass(e.GraphLeftBehind, UserWarning) and issubclass(e.NotThere, AttributeError)
    assert str(e.ProgramError("it gave 3 results")) == "it gave 3 results"


def test_the_parts_of_what_goes_wrong_with_trust() -> None:
    assert e.TicketRefused("late").reason == "late"
    mismatch = e.FingerprintMismatch("sha256:aa", "sha256:bb")
    assert (mismatch.expected, mismatch.got) == ("sha256:aa", "sha256:bb")
    assert e.UnknownToken("1f00").id == "1f00"
    refused = e.FileRefused("a", "gone", "put it back")
    assert (refused.path, refused.problem, refused.instead) == ("a", "gone", "put it back")
    assert e.AuditFailed("full").reason == "full"
    broken = e.AuditBroken("a", 7)
    assert (broken.path, broken.line) == ("a", 7)
    setting = e.UnusableSetting("days", "over 0", "-1")
    assert (setting.setting, setting.expected, setting.got) == ("days", "over 0", "-1")


def test_every_class_says_that_it_is_from_the_package() -> None:
    """Where a class stands inside the package would otherwise show in tracebacks."""
    ours = [value for value in vars(e).values() if inspect.isclass(value)]
    assert {value.__module__ for value in ours} == {"syft.exceptions"}


def test_none_is_a_type_error_and_all_are_exceptions() -> None:
    """``a + b`` swallows a TypeError; ``except Exception`` must catch every one of them."""
    for kind in CLASSES:
        assert issubclass(kind, Exception)
        assert issubclass(kind, TypeError) == (kind is e.NotShareable), "no operator raises that"


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = [
        line.split("─ ")[1].split()[0] for line in (e.__doc__ or "").splitlines() if "─" in line
    ]
    assert sorted(drawn) == sorted(
        name
        for name, value in vars(e).items()
        if inspect.isclass(value) and issubclass(value, e.SyftError) and value is not e.SyftError
    )


def test_each_error_that_is_raised_is_on_the_page_of_troubles() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    rows = set(re.findall(r"`(\w+)`", " ".join(cells)))
    errors = [kind for kind in vars(e).values() if isinstance(kind, type)]
    leaves = {kind.__name__ for kind in errors if not kind.__subclasses__()}
    assert len(leaves) > 40 and leaves - rows == set()
