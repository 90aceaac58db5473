"""Facts of a connection about the tensors at the other end, so that it need not ask again.

A *fact* is an answer that follows from the kind of a tensor: its dtype, its number of dimensions.
It is kept under a key, and the key of a result is made of the operation and the keys of its inputs,
so that the answer for the fourth step of a training loop is known from the first.  Shapes are kept
only for tensors that were sent or asked about themselves, because the shape of a result may follow
from values.

Over a connection where a question would wait for another process, the kinds of results are worked
out (:mod:`syft.workers.client.kinds_ahead`) as soon as one is asked.

Of what was *sent* everything is known from the start: the answers are those of a tensor of that
kind in this process.  That a tensor was sent is noted at once, and what else is done only after the
first fact was wanted, so a program that asks nothing pays nothing for its operations.

The *gradients* of leaves are asked for together, once after each backward pass.

Whatever may change a fact or a gradient has them forgotten: a request over this connection at once
(``ALTERS`` in the op table), the request of anybody else by the message ``Stale``, which a worker
sends to those that have asked.  Only what the owner of the data does to its tensors by itself, and
not through a worker, stays unseen.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Container, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch

from syft.ops.returns import Returns
from syft.ops.table import (
    ALTERS,
    BY_NAME,
    FLAGS,
    FUNCTIONS,
    GRADIENT,
    METADATA,
    OF_TWO,
    SHAPE_FROM_VALUES,
    asked_by,
    function_of,
    ops_where,
    ops_with,
)
from syft.serde.torch_types import DTYPE_CODES, DTYPES, device_operand
from syft.workers.client.descriptors import (
    CPU,
    LIKE_FIRST,
    SAME_KIND,
    SET_DATA,
    TENSOR,
    descriptor_of,
    dtype_made,
    id_of,
    is_plain,
)
from syft.workers.client.kinds_ahead import examples_made
from syft.workers.wire.references import REF, REFS, ids_in

UNKNOWN: Final = object()
"""The answer to a question that has to be asked."""

_MOST: Final = 1 << 16
"""The most keys, and the most facts, that are kept."""

_MOST_NOTED: Final = 1 << 12
"""The most operations, and drops, that are kept until somebody asks about a result."""

GONE: Final = -1
"""Stands for an operation where ids of objects that are gone are noted."""

Noted = tuple[int, Any, dict[str, Any] | None, int, Returns | None, Hashable]
"""An operation as :meth:`Facts.note` takes it."""

_MOST_SENT: Final = 1 << 14
"""The most tensors whose kinds are kept from when they were sent."""

_MOST_LEAVES: Final = 1 << 12
"""The most gradients that are asked for together."""

_OF_KIND: Final = frozenset(("dtype", "device", "layout", "dim"))
_QUESTIONS: Final = frozenset(op for op in ops_with(METADATA) - OF_TWO if FUNCTIONS[op] is not None)
_OF_SHAPE: Final = frozenset(op for op in _QUESTIONS if "shape" in asked_by(op))
FACTS: Final = _OF_SHAPE.union(op for op in _QUESTIONS if _OF_KIND >= asked_by(op) > set())
"""The operations that ask for a fact, when they are given nothing but a tensor."""

_DTYPE, _SIZES = BY_NAME["torch.Tensor.dtype.__get__"], BY_NAME["torch.Tensor.shape.__get__"]

# How many dimensions these give follows from sizes, and sizes may follow from values.
_BY_SIZE: Final = ops_where("dims", "sizes")
_PLAIN: Final = frozenset((int, float, bool, str, type(None)))

# The operations to note also while nothing is active, and not only with `out=`.
CHANGING: Final = frozenset(op for op, flags in enumerate(FLAGS) if flags & (ALTERS | GRADIENT))


class _Recipe(NamedTuple):
    """The operation that makes something, as which of its results, and the keys of its operands."""

    op: int
    args: Sequence[Any]
    kwargs: dict[str, Any]
    place: int
    keys: dict[int, int]


def _example_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty((), dtype=tensor.dtype, device="cpu").expand(tensor.shape)


class Facts:
    """The facts and gradients that one connection knows.

    ``active`` is false as long as no fact was wanted; operations are not noted until then.  Nothing
    is kept unless the worker tells of changes: it does from a send or an answer on, until it has
    told of one (``Stale``).

    >>> facts, dim = Facts(), BY_NAME["torch.Tensor.dim"]
    >>> facts.learn(dim, 7, 2)
    >>> facts.known(dim, 7), facts.known(dim, 8) is UNKNOWN
    (2, True)
    """

    __slots__ = (
        "active",
        "ahead",
        "noted",
        "losses",
        "alterations",
        "_told_of_kinds",
        "_told_of_gradients",
        "_sent",
        "_keys",
        "_numbers",
        "_examples",
        "_recipes",
        "_known",
        "_last",
        "_leaves",
        "_backward_passes",
    )

    def __init__(self) -> None:
        self.active = False
        self.ahead = False
        """Whether shapes of results are worked out here, where to ask for one would be to wait."""
        self.losses = 0
        """How many times something was forgotten: an answer that comes with such a notice is not
        kept, because nobody knows which was first."""
        self.alterations = 0
        """How many times something was forgotten that may have changed otherwise than by a backward
        pass."""
        self._told_of_kinds = self._told_of_gradients = False
        """Whether the worker would say if somebody else changed kinds, or gradients."""
        self.noted: deque[Noted] = deque(maxlen=_MOST_NOTED)
        """What was done since a fact was last looked up that may follow from it, and the ids of
        what is gone.  It is read only then: nobody asks about most results."""
        self._sent: dict[int, Sequence[Any]] = {}
        """The descriptors of strided tensors that were sent (:mod:`syft.serde.tensors.strided`), or
        made by an operation that always makes a tensor of its own.  No two are one tensor."""
        self._keys: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._last = 0
        self._known: dict[tuple[int, int], Any] = {}
        self._examples: dict[int, torch.Tensor] = {}
        """A tensor here of the kind of a key, for the keys of what was sent."""
        self._recipes: dict[int, _Recipe] = {}
        """How what has a key was made, for keys of no known kind yet, where shapes are worked out
        here."""
        self._leaves: dict[int, weakref.ref[Any]] = {}
        self._backward_passes = 0

    # ------------------------------------------------------------------------------------ facts

    def known(self, op: int, id: int) -> Any:
        """The answer to a question about an object, or ``UNKNOWN``.

        Raises what torch does for a question that has no answer (``len`` of a number).
        """
        self.active = self._told_of_kinds  # as `begin`
        key = self._keys.get(id)
        answer = UNKNOWN if key is None else self._known.get((op, key), UNKNOWN)
        return self._answer(op, id) if answer is UNKNOWN else answer

    def kind_seen(self, id: int) -> tuple[torch.dtype | None, tuple[int, ...] | None]:
        """The dtype and the shape of an object, each of them if it is known already: for a repr,
        which asks for nothing and begins nothing.

        >>> Facts().kind_seen(7)
        (None, None)
        """
        if not (id in self._keys or id in self._sent or self.noted):
            return None, None
        dtype, shape = self._answer(_DTYPE, id), self._answer(_SIZES, id)
        return None if dtype is UNKNOWN else dtype, None if shape is UNKNOWN else tuple(shape)

    def _answer(self, op: int, id: int) -> Any:
        key = self._key(id)
        answer = self._known.get((op, key), UNKNOWN)
        if answer is UNKNOWN and self._example(key) is not None:
            answer = function_of(op)(self._examples[key])
            self._keep(op, key, answer)
        return answer

    def _example(self, key: int) -> torch.Tensor | None:
        """A tensor here of the kind of a key, worked out if need be, with those that it follows
        from; None if its kind is not known."""
        waiting = [key] if key in self._recipes else []
        while waiting:
            current = waiting[-1]
            recipe = self._recipes.get(current)
            if recipe is None:
                waiting.pop()
                continue
            before = [one for one in recipe.keys.values() if one in self._recipes]
            if before:
                waiting += before
                continue
            del self._recipes[current]
            examples = {id: self._examples.get(one) for id, one in recipe.keys.items()}
            made = examples_made(recipe.op, recipe.args, recipe.kwargs, examples.get)
            if made is not None and len(made) > recipe.place:
                self._examples[current] = _example_like(made[recipe.place])
        return self._examples.get(key)

    def pieces(self, op: int, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
        """How many tensors an operation makes of such operands; None if that is not known.

        >>> Facts().pieces(BY_NAME["torch.chunk"], ((REF, 7), 2), {})
        """
        if not self.ahead:
            return None
        self.begin()
        made = examples_made(op, args, kwargs, lambda id: self._example(self._key(id)))
        return None if made is None else len(made)

    def begin(self) -> None:
        """Note operations from now on, if the worker tells of changes."""
        self.active = self._told_of_kinds

    def all_strided(self, ids: Iterable[int]) -> bool:
        """Whether all of these are known to be strided tensors on the CPU.

        >>> Facts().all_strided([7])
        False
        """
        return all(self._key(id) in self._examples for id in ids)

    def all_of_dtypes(self, ids: Iterable[int], dtypes: Container[torch.dtype]) -> bool:
        """Whether all of these are known to be strided tensors on the CPU, of one of these dtypes.

        >>> Facts().all_of_dtypes([7], [torch.float32])
        False
        """
        examples = map(self._examples.get, map(self._key, ids))
        return all(example is not None and example.dtype in dtypes for example in examples)

    def learn(self, op: int, id: int, answer: Any) -> None:
        """Keep an answer, with which the worker has begun to tell of changes."""
        self._told_of_kinds = self._told_of_gradients = True
        self.active = True
        key = self._key(id)
        if key % 2 or op not in _OF_SHAPE:
            self._keep(op, key, answer)

    def _keep(self, op: int, key: int, answer: Any) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[op, key] = answer

    def sent(self, id: int, operand: Any) -> None:
        """Note that a value was sent as this operand, under an id that was drawn for it.

        Objects whose pointers die are not dropped from here as long as nothing is ``active``: no
        other object gets such an id.
        """
        self._told_of_kinds = self._told_of_gradients = True
        if type(operand) is tuple and operand[0] == TENSOR:
            if len(self._sent) >= _MOST_SENT:
                self._sent.clear()
            self._sent[id] = operand

    def sent_all(
        self, ids: Sequence[int], values: Sequence[Any], private: Container[int] = ()
    ) -> None:
        """The same for several values, except those at ``private`` places, and except in a list so
        long that it is data: nobody asks about each of ten thousand tensors."""
        if len(values) <= _MOST_LEAVES:
            for place, value in enumerate(values):
                if place not in private and is_plain(value):
                    device = device_operand(value.device)
                    number = DTYPE_CODES[value.dtype]
                    self.sent(ids[place], (TENSOR, number, value.shape, None, None, device))

    def alike(self, id: int, other: int) -> None:
        """Note that two objects are of the same kind, in all that a fact can tell."""
        self._keys[id] = self._key(other)

    def are_alike(self, id: int, other: int) -> bool:
        """Whether two objects are known to be of the same kind.

        >>> facts = Facts()
        >>> facts.alike(7, 8)
        >>> facts.are_alike(7, 8), facts.are_alike(7, 9)
        (True, False)
        """
        return self._keys.get(id, self) == self._keys.get(other)

    def drop(self, ids: Iterable[int], dead: bool = False) -> None:
        """Note that objects are gone, ``dead`` with their pointers; else an id may come again."""
        if self.noted and self.ahead and not dead:
            self._read_noted()
        elif self.noted:
            self.noted.append((GONE, ids, None, 0, None, None))
            if self.ahead:  # what was noted before may follow from them
                return
        for id in ids:
            self._sent.pop(id, None)
            self._keys.pop(id, None)
            self._numbers.pop(("object", id), None)

    def note(
        self,
        op: int,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        out: int,
        expected: Returns | None,
        autocast: Hashable,
    ) -> None:
        """Note a command: what it may change is forgotten, what it makes gets keys."""
        if op in CHANGING or (kwargs and "out" in kwargs):  # as `changes`
            if FLAGS[op] & GRADIENT:
                self.forget_gradients()
            else:
                self._note_altered(op, args, kwargs)
        elif out and self.active:
            self.noted.append((op, args, kwargs, out, expected, autocast))

    def _read_noted(self) -> None:
        """Give keys to the results of what was noted."""
        noted, self.noted = self.noted, deque(maxlen=_MOST_NOTED)
        for op, args, kwargs, out, expected, autocast in noted:
            if op == GONE:
                self.drop(args)
            elif op in LIKE_FIRST:
                self._note_like(op, args, out)
            else:
                count = 0 if expected is None else expected.count
                self._note_results(op, args, kwargs or {}, range(out, out + count), autocast)

    @staticmethod
    def changes(op: int, kwargs: dict[str, Any] | None) -> bool:
        """Whether a command may change the shape, the dtype or the gradient of a tensor that is
        there: it has to be noted also while nothing is ``active``.

        >>> Facts.changes(BY_NAME["torch.Tensor.t_"], None), Facts.changes(0, {"out": 1})
        (True, True)
        """
        return op in CHANGING or (kwargs is not None and "out" in kwargs)

    def _note_like(self, op: int, args: Sequence[Any], out: int) -> None:
        """Note that a result is of the kind of what it was made of, in all but the dtype."""
        id = id_of(args, 0)
        if id is None:
            return
        dtype = dtype_made(op, args[1:])
        example = self._examples.get(self._key(id))
        if example is None:
            if op in SAME_KIND:
                self.alike(out, id)
            elif dtype is not None:
                self._note_recipe(self._key(out), op, args, {}, 0, None)
        elif op in SAME_KIND or dtype not in (None, example.dtype):
            self.sent(out, descriptor_of(dtype or example.dtype, example.shape))
        elif dtype is not None:  # it may be the same tensor
            self.alike(out, id)

    def _note_altered(self, op: int, args: Sequence[Any], kwargs: dict[str, Any] | None) -> None:
        """Note that a tensor that is there may have another shape or dtype now.

        If it is one of its own, nothing changes of the others.
        """
        self.alterations += 1
        sent, id, source = self._sent, id_of(args, 0), id_of(args, 1)
        if id not in sent or (kwargs and "out" in kwargs):
            self.forget()
            return
        like = None
        if op == SET_DATA and source is not None:
            like = self._examples.get(self._key(source))
        self._sent = {}
        self._forget_kinds()
        self._sent = sent
        del sent[id]
        if like is not None:
            sent[id] = descriptor_of(like.dtype, like.shape)

    def _note_results(
        self, op: int, args: Sequence[Any], kwargs: dict[str, Any], ids: range, autocast: Hashable
    ) -> None:
        if FLAGS[op] & SHAPE_FROM_VALUES or op in _BY_SIZE:
            for place, id in enumerate(ids):  # each is of a kind of its own
                self._note_recipe(self._key(id), op, args, kwargs, place, autocast)
            return
        try:
            given = tuple(map(self._kind, args)), tuple(
                (name, self._kind(value)) for name, value in kwargs.items()
            )
        except TypeError:  # an operand that is no nesting of plain values
            return
        if len(self._keys) > _MOST:
            self.forget()  # most of these objects are gone, and nobody said so
        for index, id in enumerate(ids):
            key = self._keys[id] = self._number((op, index, autocast, given), exact=False)
            self._note_recipe(key, op, args, kwargs, index, autocast)

    def _note_recipe(
        self,
        key: int,
        op: int,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: int,
        autocast: Hashable,
    ) -> None:
        """Note how what has a key was made, if its kind may be worked out."""
        if self.ahead and autocast is None and key not in self._examples:
            keys = {id: self._key(id) for id in ids_in((args, *kwargs.values()))}
            self._recipes.setdefault(key, _Recipe(op, args, kwargs, place, keys))

    def forget(self) -> None:
        """Forget everything: something happened that may have changed it."""
        self.losses += 2
        self.alterations += 1
        self._backward_passes += 1  # as `forget_gradients`
        self.active = False
        if self._keys or self._sent or self.noted:  # not before each call of a plan
            self._forget_kinds()

    def _forget_kinds(self) -> None:
        self.noted.clear()
        self._sent.clear()
        self._keys.clear()
        self._numbers.clear()
        self._examples.clear()
        self._recipes.clear()
        self._known.clear()

    def _kind(self, operand: Any) -> Hashable:
        """An operand's part of the key of a result."""
        kind = type(operand)
        if kind in _PLAIN:
            return kind, operand
        if kind is list or kind is tuple:
            if len(operand) == 2 and operand[0] == REF:
                return (self._key(operand[1]),)
            if operand and operand[0] == REFS:
                return tuple((self._key(id),) for id in operand[1:])
            return tuple(map(self._kind, operand))
        raise TypeError

    def _key(self, id: int) -> int:
        key = self._keys.get(id)
        if key is None and self.noted and id not in self._sent:
            self._read_noted()
            key = self._keys.get(id)
        if key is None:
            key = self._keys[id] = self._first_key(id)
        return key

    def _first_key(self, id: int) -> int:
        """The key of an object that no operation made which is known of here."""
        sent = self._sent.get(id)
        if sent is None:
            return self._number(("object", id), exact=True)
        dtype, shape = DTYPES[sent[1]], sent[2]
        return self._kind_key(dtype, shape, sent[5] if len(sent) > 5 else CPU)

    def _kind_key(self, dtype: torch.dtype, shape: Sequence[int], device: Any) -> int:
        """The key of what has this dtype and shape."""
        key = self._number(("sent", dtype, tuple(shape), device), exact=True)
        if device == CPU and key not in self._examples:  # else it may arrive on another one
            self._examples[key] = torch.empty((), dtype=dtype, device="cpu").expand(shape)
        return key

    def _number(self, key: Hashable, exact: bool) -> int:
        """The number of a key: odd where the key tells the shape too."""
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= _MOST:
                self._keys.clear()
                self._numbers.clear()
                self._examples.clear()
                self._recipes.clear()
                self._known.clear()
            self._last += 2
            number = self._numbers[key] = self._last + exact
        return number

    # -------------------------------------------------------------------------------- gradients

    @property
    def passes(self) -> int:
        """How many times gradients may have changed: what was known before does not hold.

        >>> facts = Facts()
        >>> facts.forget_gradients()
        >>> facts.passes
        1
        """
        return self._backward_passes

    def gradient(self, link: Any) -> Any:
        """The pointer to the gradient of a leaf, None if it has none, or ``UNKNOWN``."""
        self.active = self._told_of_kinds  # as `begin`
        passes, gradient = link.gradient_known or (-1, None)
        if passes != self._backward_passes:
            return UNKNOWN
        if gradient is not None and not gradient.child.garbage_collect_data:
            return UNKNOWN  # it was fetched, or went elsewhere
        return gradient

    def set_gradient(self, link: Any, gradient: Any) -> None:
        """Keep the gradient of a leaf: a pointer, None, or ``UNKNOWN``."""
        known = gradient is not UNKNOWN and self._told_of_gradients
        link.gradient_known = (self._backward_passes, gradient) if known else None

    def leaf_sent(self, link: Any, leaf: torch.Tensor) -> None:
        """Note that a leaf was sent: its gradient is asked for with the others, and it is known if
        it had none."""
        self.add_leaf(link)
        if self._told_of_gradients and leaf.is_leaf and leaf.grad is None:
            link.gradient_known = (self._backward_passes, None)

    def add_leaf(self, link: Any) -> None:
        """Ask for the gradient of this leaf, too, when another one is asked for."""
        self._leaves[link.id_at_location] = weakref.ref(link)

    def leaves_with(self, link: Any) -> list[Any]:
        """The leaves whose gradients to ask for together, this one first."""
        leaves = [link]
        for id, reference in list(self._leaves.items()):
            leaf = reference()
            if leaf is None or not leaf.garbage_collect_data:
                del self._leaves[id]
            elif leaf is not link and len(leaves) < _MOST_LEAVES:
                leaves.append(leaf)
        self.add_leaf(link)
        return leaves

    def forget_leaves(self) -> None:
        """Ask for each gradient by itself: one of the leaves is gone."""
        self._leaves.clear()

    def forget_gradients(self) -> None:
        """Forget all gradients: there was a backward pass, or there may have been one."""
        self.losses += 1
        self._backward_passes += 1

    def changed_by_others(self, gradients: bool) -> None:
        """Forget what somebody else has changed, the gradients alone or everything: the worker has
        said so, and does not say so again until it is asked or sent something."""
        self._told_of_gradients = False
        if gradients:
            self.forget_gradients()
        else:
            self._told_of_kinds = False
            self.forget()

    def answered(self) -> None:
        """Note that the worker was asked for gradients, and tells of changes from now on."""
        self._told_of_kinds = self._told_of_gradients = True
        self.active = True
