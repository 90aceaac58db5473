"""Fixed precision wherever a tensor is: at another worker, at several, behind another link."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.codes import ConversionCode
from syft.exceptions import (
    EncodingError,
    HookError,
    MalformedMessage,
    ObjectNotReady,
    PermissionDenied,
    UnsupportedOperation,
)
from syft.tensors.conversions import FIX_PRECISION, register_conversion
from syft.workers.execution.private_commands import converted
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.messages import Convert, Done, Fetch
from tests.chain.refusal import refusal
from tests.shells.child import make_worker
from tests.workers.core.peers import ask, error_in, lonely, put, ref, value_in

pytestmark = pytest.mark.every_shell

NUMBERS = [1.5, -2.0]


def test_a_remote_tensor_is_encoded_and_decoded_where_it_is(worker: sy.VirtualWorker) -> None:
    x = torch.tensor(NUMBERS).send(worker)
    encoded = x.fix_precision()
    assert encoded.location is worker
    assert repr(encoded.copy().get()) == repr(torch.tensor(NUMBERS).fix_precision())
    assert repr(x.fix_prec(3).get()).endswith("tensor([ 1500, -2000])")
    assert (encoded * encoded).float_precision().get().tolist() == [2.25, 4.0]
    assert x.get().tolist() == NUMBERS, "the original stays"


def test_in_place_keeps_the_pointer_object(bob: sy.VirtualWorker) -> None:
    x = torch.tensor(NUMBERS).send(bob)
    assert x.fix_precision_() is x
    assert bob.objects_count() == 1, "the floating-point original is gone"
    assert repr(x.copy().get()).startswith("(Wrapper)>FixedPrecisionTensor")
    assert x.float_prec_() is x
    assert x.get().tolist() == NUMBERS


def test_at_several_workers(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor(NUMBERS).send(bob, alice).fix_precision()
    assert [part.tolist() for part in (x + x).float_precision().get()] == [[3.0, -4.0]] * 2


def test_behind_another_link(hook: sy.TorchHook) -> None:
    x = sy.LoggingTensor().on(torch.tensor(NUMBERS))
    encoded = x.fix_precision()
    assert repr(encoded) == (
        "(Wrapper)>LoggingTensor>FixedPrecisionTensor>tensor([  98304, -131072])"
    )
    assert encoded.float_precision().child.child.tolist() == NUMBERS
    assert x.fix_precision_() is x and repr(x) == repr(encoded)
    assert x.float_precision_() is x and x.child.child.tolist() == NUMBERS


def test_a_tensor_that_is_here(hook: sy.TorchHook) -> None:
    x = torch.tensor(NUMBERS)
    assert x.fix_precision_() is x and repr(x).startswith("(Wrapper)>FixedPrecisionTensor")
    assert x.float_precision_() is x and x.tolist() == NUMBERS


def test_a_model_that_was_sent(bob: sy.VirtualWorker) -> None:
    model, duplicate = nn.Linear(2, 1), nn.Linear(2, 1)
    duplicate.load_state_dict(model.state_dict())
    model.send(bob).fix_precision()
    x = torch.tensor([NUMBERS])
    result = model(x.send(bob).fix_precision()).float_precision().get()
    assert torch.allclose(result, duplicate(x), atol=2**-14)
    model.float_precision().get()
    assert torch.allclose(model.weight, duplicate.weight, atol=2**-17)


def test_gradients_flow_through_a_remote_conversion(bob: sy.VirtualWorker) -> None:
    x = torch.tensor(NUMBERS, requires_grad=True).send(bob)
    (x * 1).fix_precision().float_precision().sum().backward()
    assert x.get().grad.tolist() == [1.0, 1.0]


def test_comparisons_are_decoded_where_they_are(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.5, -2.0]).send(worker).fix_precision()
    assert (x > 0).float_prec().get().tolist() == (x > 0).get().float_prec().tolist() == [1.0, 0.0]
    private = torch.tensor([1.5, -2.0]).private_tensor(["ann"]).send(worker, user="ann")
    bits = (private > 0).float_prec()
    with pytest.raises(PermissionDenied):
        bits.get()
    assert bits.get(user="ann").tolist() == [1.0, 0.0]


def test_shared_bits_are_brought_home_first(hook: sy.TorchHook) -> None:
    bob, alice, carol = (make_worker(hook, id) for id in ("bob", "alice", "carol"))
    bits = torch.tensor(NUMBERS).fix_precision().share(bob, alice, crypto_provider=carol) > 0
    with pytest.raises(
        UnsupportedOperation, match=r"AdditiveSharingTensor of torch.bool .*: get\("
    ):
        bits.float_prec()
    assert bits.get().float_prec().tolist() == [1.0, 0.0]


def test_an_error_comes_back_and_leaves_the_store_as_it_was(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1e30]).send(worker)
    with pytest.raises(EncodingError, match="Cannot encode 1.0"):
        x.fix_precision()
    with pytest.raises(UnsupportedOperation, match="it is decoded already"):
        x.float_precision()
    assert worker.objects_count() == 1


def test_a_private_tensor_stays_private(bob: sy.VirtualWorker) -> None:
    x = torch.tensor(NUMBERS).private_tensor(["ann"]).send(bob, user="ann")
    encoded = x.fix_precision()
    with pytest.raises(PermissionDenied):
        encoded.get()
    assert "an operation on a chain" in refusal(lambda: (encoded * 2).shape)
    assert encoded.float_precision().get(user="ann").tolist() == [1.5, -2.0]
    large = torch.tensor([1e30]).private_tensor(["ann"]).send(bob, user="ann")
    sealed = large.fix_precision()
    with pytest.raises(PermissionDenied):
        sealed.get()
    assert "e+30" in refusal(lambda: sealed.get(user="ann")), "who may see the value is told"
    text = refusal(lambda: large.fix_precision(-1))
    assert "-1 fractional digits" in text, "it fails whatever the values are"


@pytest.mark.parametrize("users", [("ann",), None])
def test_no_object_of_the_worker_is_an_argument_of_a_conversion(users: Any) -> None:
    """What a private precision makes of a public number would tell it.

    The control: the same number, sent along, is a precision.
    """
    core = lonely()
    put(core, 5, torch.tensor([0.12345678]))
    put(core, 6, torch.tensor(2), users=users)
    for seq, (precision, code) in enumerate(((ref(6), None), (2, Done)), 1):
        encode = Convert(seq, 5, int(ConversionCode.FIX_PRECISION), (2, precision), 50 + seq)
        reply = ask(core, encode)
        if code is None:
            assert isinstance(error_in(reply), MalformedMessage)
        else:
            decode = Convert(9, 52, int(ConversionCode.FLOAT_PRECISION), (2,), 60)
            assert ask(core, decode) == Done(9)
            assert value_in(core, Fetch(10, 60)).tolist() == pytest.approx([0.12])


def test_a_chain_that_logs_is_not_converted(bob: sy.VirtualWorker) -> None:
    there = sy.LoggingTensor().on(torch.ones(2).send(bob))
    protect(there, Guard(frozenset({"ann"})))
    with pytest.raises(PermissionDenied, match="fix_precision of what is neither dense"):
        converted(FIX_PRECISION, there, (None, None), "bob", None)


def test_what_is_only_promised_is_converted_when_it_has_come(worker: sy.VirtualWorker) -> None:
    promised = worker.promise()
    encoded = promised.fix_precision()
    assert not encoded.child.handle.done()
    with pytest.raises(ObjectNotReady):
        encoded.tolist()
    kept = torch.tensor([0.5, 1.25]).send(worker, id=promised.id_at_location)
    assert (encoded + encoded).float_precision().get().tolist() == [1.0, 2.5]
    assert encoded.child.handle.done()
    del kept


def test_a_part_of_a_remote_chain_is_refused(bob: sy.VirtualWorker) -> None:
    x = sy.LoggingTensor().on(torch.tensor(NUMBERS)).send(bob)
    with pytest.raises(UnsupportedOperation, match="a part of a remote chain has no rule for fix"):
        x.child.child.child.fix_precision()


def test_an_unknown_conversion_is_malformed(bob: sy.VirtualWorker) -> None:
    x = torch.tensor(NUMBERS).send(bob)
    with pytest.raises(MalformedMessage, match="number of a conversion"):
        x.child.connection.ask(Convert, x.id_at_location, 99, None, 7)
    assert bob.objects_count() == 1


def test_a_number_serves_one_conversion(hook: sy.TorchHook) -> None:
    with pytest.raises(HookError, match="registered already"):
        register_conversion(ConversionCode.FLOAT_PRECISION, torch.clone)


def test_private_data_of_this_process_stays_private(bob: sy.VirtualWorker) -> None:
    private = torch.tensor([0.5]).private_tensor(allowed_users=["ann"])
    encoded = private.fix_precision()
    for tensor in (encoded, encoded.float_precision()):
        with pytest.raises(PermissionDenied):
            tensor.send(bob)
        there = tensor.send(bob, user="ann")
        with pytest.raises(PermissionDenied):
            there.get()
        there.get(user="ann")
