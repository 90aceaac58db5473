"""What optimizers keep has digits of its own: unmodified optimizers go where they go in float."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import optim

from syft.exceptions import EncodingError, UnsupportedOperation
from syft.tensors.fixed.fixed_link import refined
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.fixed.rings.plain_ring import PLAIN
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.fixed.blind_ring import BlindRing, blind, reveal
from tests.tensors.shared.clear_parties import clear_session
from tests.tensors.shared.local_parties import local_session

GRADIENTS = torch.tensor([1e-4, 3e-4, 1e-3, 1e-2, 0.1, 1.0, -10.0, 100.0, 0.0])

# How much of the way each optimizer may be off for the smallest gradient, which is 7 steps of the
# grid, and for those from 0.001 on; besides 20 steps of the grid.
OPTIMIZERS = {
    "Adam": (lambda ps: optim.Adam(ps, lr=0.01), 4e-3, 1e-3),
    "Adam, amsgrad": (lambda ps: optim.Adam(ps, lr=0.01, amsgrad=True), 4e-3, 1e-3),
    "Adam, foreach": (lambda ps: optim.Adam(ps, lr=0.01, foreach=True), 4e-3, 1e-3),
    "AdamW": (lambda ps: optim.AdamW(ps, lr=0.01), 4e-3, 1e-3),
    "NAdam": (lambda ps: optim.NAdam(ps, lr=0.01), 4e-3, 1e-3),
    "RAdam": (lambda ps: optim.RAdam(ps, lr=0.01), 4e-3, 1e-3),
    "RMSprop": (lambda ps: optim.RMSprop(ps, lr=0.01), 4e-3, 1e-3),
    "RMSprop, momentum": (lambda ps: optim.RMSprop(ps, lr=0.01, momentum=0.9), 6e-3, 1e-3),
    "RMSprop, centered": (lambda ps: optim.RMSprop(ps, lr=0.01, centered=True), 6e-2, 3e-3),
    "Adagrad": (lambda ps: optim.Adagrad(ps, lr=0.01), 4e-3, 2e-3),
    "Adagrad from 0.1": (
        lambda ps: optim.Adagrad(ps, lr=0.01, initial_accumulator_value=0.1),
        4e-3,
        1e-3,
    ),
    "Adadelta": (lambda ps: optim.Adadelta(ps), 4e-3, 1e-3),
    "Adamax": (lambda ps: optim.Adamax(ps, lr=0.01, eps=1e-4), 8e-2, 8e-3),
}


def clear(x, session=None):
    return share_values(fix_precision(x), session)


SESSIONS = {"plain": None, "clear": clear_session, "two": local_session}


def sharer(kind):
    if kind == "plain":
        return fix_precision
    session = local_session(3) if kind == "three" else SESSIONS[kind]()
    return lambda x: share_values(fix_precision(x), session)


def opened(x):
    x = x.detach()
    return float_precision(x if type(x.child.child) is torch.Tensor else get_shared([x])[0])


def paths(make, share, steps, after=lambda optimizer, weight, step: None):
    """Where an optimizer goes on fixed tensors, and in float with the same gradients."""
    torch.manual_seed(1)
    noise = 1 + 0.5 * torch.randn(steps, len(GRADIENTS))
    plain, mine = torch.zeros(len(GRADIENTS)).requires_grad_(), share(torch.zeros(len(GRADIENTS)))
    mine.requires_grad_()
    optimizer, duplicate = make([mine]), make([plain])
    for step in range(steps):
        gradient = float_precision(fix_precision(GRADIENTS * noise[step]))
        plain.grad, mine.grad = gradient, share(gradient)
        optimizer.step()
        duplicate.step()
        optimizer = after(optimizer, mine, step) or optimizer
    return opened(mine), plain.detach()


def check(found, want, small, large):
    part = torch.where(GRADIENTS.abs() < 9e-4, small, large)
    assert bool(((found - want).abs() <= part * want.abs() + 20 * 2.0**-16).all()), found - want


@pytest.mark.parametrize("kind", ["plain", "clear"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_where_it_goes_in_float(name, kind):
    make, small, large = OPTIMIZERS[name]
    check(*paths(make, sharer(kind), 12), small, large)


@pytest.mark.parametrize("kind", ["two", "three"])
def test_adam_goes_where_it_goes_in_float_on_real_shares(kind):
    make, small, large = OPTIMIZERS["Adam"]
    check(*paths(make, sharer(kind), 12), small, large)


@pytest.mark.parametrize("kind", ["plain", "clear"])
@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adadelta"])
def test_a_hundred_steps_are_as_good(name, kind):
    make, small, large = OPTIMIZERS[name]
    check(*paths(make, sharer(kind), 100), small, large)


def test_a_copy_of_an_optimizer_keeps_the_digits():
    def copied(optimizer, weight, step):
        if step % 4 == 3:
            duplicate = optim.Adam([weight], lr=0.01)
            state = copy.deepcopy(optimizer.state[weight])
            duplicate.state[weight] = state
            return duplicate

    for kind in ("plain", "clear"):
        check(*paths(OPTIMIZERS["Adam"][0], sharer(kind), 12, copied), 4e-3, 1e-3)


def test_what_is_written_by_another_operation_counts():
    for share in (sharer("plain"), sharer("clear")):
        g = share(torch.tensor([0.01, 0.02]))
        v = torch.zeros_like(g).addcmul_(g, g, value=0.001)
        assert refined(v).begun and bool((opened(v.sqrt()) > 2e-4).all())
        v[0] = 4.0
        assert torch.allclose(opened(v.sqrt())[:1], torch.tensor([2.0]), atol=1e-4)
        v.zero_()
        assert not opened(v.sqrt()).any() and refined(v.addcmul_(g, g)) is None


def test_a_view_is_written_to_and_seen():
    for share in (sharer("plain"), sharer("clear")):
        g = share(torch.tensor([0.5, 1.0]))
        v = torch.zeros_like(g)
        alias = v.detach()
        v.addcmul_(g, g, value=0.5)
        assert torch.allclose(opened(alias), torch.tensor([0.125, 0.5]), atol=1e-4)
        alias.addcmul_(g, g, value=0.5)
        v.mul_(2.0)
        assert torch.allclose(opened(v), torch.tensor([0.5, 2.0]), atol=2e-4)


def test_a_result_does_not_change_with_what_it_was_computed_from():
    for share in (sharer("plain"), sharer("clear")):
        g = share(torch.tensor([0.5, 1.0]))
        v = torch.zeros_like(g).addcmul_(g, g, value=0.5)
        double, duplicate = v * 2.0, v.clone()
        v.addcmul_(g, g, value=0.5)
        assert torch.allclose(opened(double * 1.0), torch.tensor([0.25, 1.0]), atol=1e-4)
        assert torch.allclose(
            opened(duplicate.sqrt()), torch.tensor([0.125, 0.5]).sqrt(), atol=1e-4
        )


def test_zeros_in_ordinary_programs_have_the_range_of_all_tensors():
    share = sharer("clear")
    x = share(torch.tensor([30000.0, -2.0]))
    zeros, some = torch.zeros_like(x), torch.full_like(x, 3.0)
    assert opened((zeros + x) * x).tolist() == [9e8, 4.0]
    assert torch.allclose(opened(some * x), torch.tensor([90000.0, -6.0]))
    assert torch.allclose(opened((some - x) / 2), torch.tensor([-14998.5, 2.5]))
    assert refined(zeros.add_(x)) is None


def test_sums_that_leave_the_ring_are_an_error_where_they_can_be_seen():
    g = fix_precision(torch.tensor([30000.0]))
    v = torch.zeros_like(g)
    with pytest.raises(EncodingError, match="the result"):
        for _ in range(3):
            v.mul_(0.999).addcmul_(g, g, value=0.0001)
    with pytest.raises(EncodingError, match="Cannot encode 1e.20"):
        torch.zeros_like(g).addcmul_(g, g, value=1e-9).sqrt().add_(1e20)


def test_where_memory_keeps_no_notes_the_digits_are_those_of_the_grid():
    g = blind(torch.tensor([0.5, 1.0]), BlindRing())
    v = torch.zeros_like(g).addcmul_(g, g, value=0.5)
    assert refined(v) is None and torch.allclose(reveal(v), torch.tensor([0.125, 0.5]), atol=1e-4)


def test_private_integers_of_any_size_are_scaled():
    share = clear_session()
    x = torch.tensor([1 << 61, -(1 << 61), 12345, -3, 0])
    for factor in (0.75, 1e-3, 3.0, 2.0**-40, 1 / 3, -0.3, 2.0**-70, 0.0):
        if factor == 3.0:
            x = x // 4
        private = share_values(x, share)
        made = private.child.ring.times(private, factor, 1)
        found = get_shared([made])[0].double()
        assert bool(((found - x.double() * factor).abs() <= 3 + 2e-7 * found.abs()).all())
        assert bool(((PLAIN.times(x, factor, 1) - x.double() * factor).abs() <= 1).all())


def test_what_is_no_sum_of_squares_is_left_to_the_ordinary_rules():
    for share in (sharer("plain"), sharer("clear")):
        g = share(torch.tensor([0.5, 1.0]))
        v = torch.zeros_like(g).addcmul_(g, g, value=1.0)
        third = v / 3
        for found, want in (
            (v * g, [0.125, 1.0]),
            (third * g, [0.25 / 6, 1 / 3]),
            (g * third, [0.25 / 6, 1 / 3]),
            (v + g, [0.75, 2.0]),
            (g - v, [0.25, 0.0]),
            (g / v.sqrt(), [1.0, 1.0]),
            (g / v, [2.0, 1.0]),
            (v / g, [0.5, 1.0]),
            (v.reciprocal(), [4.0, 1.0]),
            (v * 0, [0.0, 0.0]),
            (v * torch.tensor([1, 2]), [0.25, 2.0]),
            (torch.maximum(v, g), [0.5, 1.0]),
            (torch.maximum(torch.zeros_like(v), v), [0.25, 1.0]),
            (g.addcdiv(g, v), [2.5, 2.0]),
            (g.addcdiv(third, g), [0.5 + 1 / 6, 4 / 3]),
            (torch.zeros_like(g) + 1e-5, [1e-5, 1e-5]),
            (torch.zeros_like(g).add(0.0), [0.0, 0.0]),
            (v.lerp(g, 0.5), [0.375, 1.0]),
            (v.addcmul(g, g, value=0), [0.25, 1.0]),
            (torch.tensor([1.0, 2.0]) + v, [1.25, 3.0]),
            (v * 0.0, [0.0, 0.0]),
            (torch.tensor([1.0, 2.0]) * v, [0.25, 2.0]),
            (torch.tensor(3.0) * v, [0.75, 3.0]),
        ):
            assert torch.allclose(opened(found), torch.tensor(want), atol=2e-4), want


def test_the_root_of_a_negative_number_is_an_error_where_it_can_be_seen():
    g = fix_precision(torch.tensor([0.5]))
    v = torch.zeros_like(g).addcmul_(g, g, value=1.0)
    for negative in (v / -1.0, v.sub(g, alpha=2.0)):
        with pytest.raises(EncodingError, match="nan"):
            negative.sqrt()


def test_a_step_divided_by_zero_is_an_error_where_it_can_be_seen():
    p = fix_precision(torch.ones(2)).requires_grad_()
    p.grad = fix_precision(torch.tensor([0.0, 1.0]))
    with pytest.raises(EncodingError, match="division by zero"):
        optim.Adam([p], lr=0.01, eps=0).step()


def test_finer_numbers_are_not_written_into_a_plain_tensor():
    g, plain = fix_precision(torch.tensor([0.5, 1.0])), torch.ones(2)
    v = torch.zeros_like(g).addcmul_(g, g, value=1.0)
    for write in (plain.mul_, plain.add_, plain.div_):
        with pytest.raises(UnsupportedOperation):
            write(v)
    assert plain.tolist() == [1, 1]
