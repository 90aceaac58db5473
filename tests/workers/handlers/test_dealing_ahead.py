"""Material that is dealt before its program comes: used once, by that program, by its owner."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.crypto.programs.share_dealing import deals_of, letters_of
from syft.crypto.programs.share_program import ShareCode
from syft.exceptions import (
    MalformedMessage,
    MaterialError,
    MaterialUsed,
    PermissionDenied,
    ProgramError,
    SessionEnded,
    SharedOperationFailed,
)
from syft.ids import new_id
from syft.program.program import Slot
from syft.workers.handlers.dealing_parts import material_in
from syft.workers.handlers.party_programs import Letter
from syft.workers.wire.messages import Describe, Fetch
from tests.crypto.program_runs import Recorded
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_sharing import X, Y, product_program, relu_program

pytestmark = pytest.mark.every_shell


@pytest.fixture(params=[(2, False), (3, True)])
def client(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Client:
    """A session of two parties, or of three that are slow."""
    count, slow = request.param
    names = ("alice", "bob", "carl")[:count]
    parties = [make_worker(hook, id=name, pipelined=slow) for name in names]
    client = Client(hook.local_worker, parties, make_worker(hook, id="dealer", pipelined=slow))
    client.open()
    return client


def stock(client: Client, place: Any) -> int:
    summary = client.caller.connection_to(place).ask(Describe, client.session)[3]
    return int(summary[4])


def test_programs_run_later_and_in_any_order_with_what_was_dealt(client: Client) -> None:
    x, y = client.share(X, Y)
    program = product_program((5,))
    first, second = client.deal_ahead(program), client.deal_ahead(program)
    between = client.run(program, [x, y])
    inspect(client.provider)
    for material in (second, first):
        outs = [new_id(), new_id()]
        wait(client.start_with_material(material, program, [x, y], outs))
        assert torch.equal(client.value(outs[0]), X * Y)
    assert torch.equal(client.value(between[0]), X * Y)


def test_the_provider_is_not_needed_any_more(client: Client) -> None:
    (x,) = client.share(X)
    material = client.deal_ahead(relu_program((5,)))
    client.provider.close()
    outs = [new_id(), new_id()]
    wait(client.start_with_material(material, relu_program((5,)), [x], outs))
    assert torch.equal(client.value(outs[0]), X.clamp(min=0))


def test_the_stock_is_counted_at_the_last_party_until_it_is_used(client: Client) -> None:
    x, y = client.share(X, Y)
    program = product_program((5,))
    materials = [client.deal_ahead(program) for _ in range(3)]
    assert [stock(client, place) for place in client.parties] == [
        *([0] * (len(client.parties) - 1)),
        3 * 40,
    ]
    wait(client.start_with_material(materials[1], program, [x, y], [new_id(), new_id()]))
    assert stock(client, client.parties[-1]) == 80


def test_material_is_used_once(client: Client) -> None:
    x, y = client.share(X, Y)
    program = product_program((5,))
    material = client.deal_ahead(program)
    wait(client.start_with_material(material, program, [x, y], [new_id(), new_id()]))
    with pytest.raises(MaterialUsed):
        wait(client.start_with_material(material, program, [x, y], [new_id(), new_id()]))
    with pytest.raises((SessionEnded, SharedOperationFailed)):
        client.deal_ahead(program)


def test_the_counter_of_material_is_used_up(client: Client) -> None:
    x, y = client.share(X, Y)
    program = product_program((5,))
    client.deal_ahead(program)
    outs = [new_id(), new_id()]
    with pytest.raises(MaterialUsed):
        wait(client.start_run(program, [x, y], [outs] * len(client.parties), client.counter))


def test_material_serves_the_program_it_was_dealt_for(client: Client) -> None:
    x, y = client.share(X, Y)
    material = client.deal_ahead(relu_program((5,)))
    with pytest.raises(MaterialError):
        wait(
            client.start_with_material(
                material, product_program((5,)), [x, y], [new_id(), new_id()]
            )
        )


def test_what_cannot_be_dealt_is_refused_and_ends_nothing(client: Client) -> None:
    x, y = client.share(X, Y)
    for deals, counter, error in (
        (((0, 1, ()),), None, ProgramError),
        (deals_of(relu_program((5,))), 0, MalformedMessage),
        (deals_of(relu_program((5,))), 1, MaterialUsed),
    ):
        with pytest.raises(error):
            wait(client.start_dealing_ahead(deals, new_id(), counter))
    client.counter += 5
    assert torch.equal(client.value(client.run(product_program((5,)), [x, y])[0]), X * Y)


def test_a_share_is_no_material(client: Client) -> None:
    x, y = client.share(X, Y)
    with pytest.raises(MalformedMessage):
        wait(client.start_with_material(x, product_program((5,)), [x, y], [new_id(), new_id()]))


def test_nobody_gets_material(client: Client) -> None:
    material = client.deal_ahead(relu_program((5,)))
    for place in client.parties:
        with pytest.raises(PermissionDenied):
            client.caller.connection_to(place).ask(Fetch, material, 0, True, None)
    assert "MaterialAhead" in str(inspect(client.parties[0]).objects[material])


X_, Y_ = torch.tensor([5]), torch.tensor([[6, 7]])


def test_a_letter_holds_what_its_instructions_need_and_nothing_else() -> None:
    found = material_in(Letter((2, X_, Y_, 4, Y_)), [2, 4])
    assert list(found) == [2, 4] and [len(one) for one in found.values()] == [2, 1]


@pytest.mark.parametrize(
    "values",
    [
        (),
        (X_,),
        (X_, 2, X_, 4, Y_),
        (2, X_),
        (4, X_, 2, Y_),
        (2, X_, 4, Y_, 6, X_),
        (2, X_, 2, X_, 4, Y_),
        (2, X_, 4, "text"),
        (2, X_, 4.0, Y_),
        (True, X_, 4, Y_),
    ],
    ids=str,
)
def test_a_letter_for_other_instructions_is_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(MaterialError, match="instruction 2, 4 from the provider, got another"):
        material_in(Letter(values), [2, 4])


def test_large_instructions_have_letters_of_their_own(client: Client) -> None:
    """What is small shares one, across the instructions of a program, until it is full."""
    size = (1 << 13,)
    deals = [(place, int(ShareCode.DIVIDE), (3, (1 << 10,))) for place in range(5)]
    assert letters_of(deals) == [[0, 1, 2], [3, 4]]
    assert letters_of([(0, int(ShareCode.DIVIDE), (3, size)), *deals[1:3]]) == [[0], [1, 2]]
    x = client.share(torch.arange(size[0]))[0]
    made = Recorded(size)
    first = made.divide(0, 3)
    second = made.divide(made.local(torch.ops.aten.sum.default, Slot(first)), 1)
    (got,) = client.run(made.program(second), [x])
    assert abs(int(client.value(got)) - int(torch.arange(size[0]).sum()) // 16) <= size[0] + 1
