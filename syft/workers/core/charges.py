"""What each caller has at a worker, counted in one place.

To count every object of every caller costs more than a tenth of the time of a small operation.  So
objects are counted *lazily*.  While a store holds few objects, those of up to ``SMALL`` elements
are not looked at: all of them together are a small share of what one caller may have.  Counting
starts when the store holds more, or when a large object comes, or a small one that keeps large
memory (a view).  What was not counted is taken off the limit of every caller.  So a limit is never
exceeded, and may be reached three sixteenths early.

Memory is counted by storage: views of one tensor count once, for whoever had it counted first.
What their graphs keep besides counts as well, and a gradient for each leaf
(:mod:`~syft.workers.core.graphs`).

Whoever meets a limit learns what was counted.  So that is what everybody may know: of a tensor
whose shape is private, its bound (:mod:`~syft.workers.execution.public_sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, Final

import torch

from syft.exceptions import LimitExceeded, PermissionDenied
from syft.ops.nested import leaves
from syft.workers.core.counted_memory import CountedMemory, Storages
from syft.workers.core.graphs import Graphs
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, Account, PeerLimits
from syft.workers.execution.allowance import FREE, used_by
from syft.workers.execution.public_sizes import forms_of, hides_shape, public_size
from syft.workers.execution.size_bounds import is_harmless
from syft.workers.labels.memory_labels import full_guard_of, label_of
from syft.workers.labels.walk import elements_of, tensors_of

SMALL: Final = 1 << 12
"""Elements of an object that is not counted while the store holds few objects."""
_MOST_BYTES: Final = 16 * SMALL
_numel = torch.Tensor.numel
_MOST_UNCOUNTED: Final = 1 << 14
_GRAPH: Final = 4
"""The objects of the size that is not counted that the graph of an operation on such may keep."""
_UNBOUNDED: Final = "to keep a value whose private size has no public bound"

LOOK: Final = 1
"""Flag: operations may meet large objects, so their sizes are to be looked at."""
COUNT: Final = 2
"""Flag: every object is counted."""
GIVEN_UP: Final = 4
"""Flag: there are ids under which nothing may come any more."""


class _Charge:
    """Who is charged for one object, the addresses of its storages, and its tags."""

    __slots__ = ("account", "storages", "tags")

    def __init__(self, account: Account, storages: tuple[int, ...]) -> None:
        self.account = account
        self.storages = storages
        self.tags: dict[Account, int] | None = None


class Charges:
    """The accounts of the callers of one worker, and who is charged for which object.

    ``payer`` returns the account of the caller that is served, or None for the owner's program, and
    ``reader`` the user for whom it asks and who it is.

    >>> ann, objects = Account(), {}
    >>> charges = Charges("bob", objects, PeerLimits(objects=1), lambda: ann)
    >>> charges.charge({5: torch.ones(2)}); objects[5] = "present"; ann.objects, ann.bytes
    (1, 8)
    >>> charges.charge({6: torch.ones(2)})
    Traceback (most recent call last):
    ...
    syft.exceptions.LimitExceeded: Over a limit of worker 'bob': peer_limits.objects is 1, got 2. \
Drop what is not needed any more, ask for less at once, or ask the worker's owner for more.
    >>> charges.release([5]); ann.objects, ann.bytes
    (0, 0)
    """

    __slots__ = (
        "limits",
        "flags",
        "charged",
        "graphs",
        "guarded",
        "payer",
        "_worker",
        "_objects",
        "_reader",
        "_owner",
        "_uncounted",
        "_always",
        "_most_bytes",
        "_free",
        "_large",
        "_memory",
    )

    def __init__(
        self,
        worker: str,
        objects: Mapping[int, Any],
        limits: PeerLimits = DEFAULT_PEER_LIMITS,
        payer: Callable[[], Account | None] = lambda: None,
        reader: Callable[[], tuple[str | None, str | None]] = lambda: (None, None),
    ) -> None:
        self.limits = limits
        self.guarded = False
        """Whether something at the worker is private."""
        self.charged: dict[int, _Charge] = {}
        """The objects that are counted, by id."""
        self._worker = worker
        self._objects = objects
        self.payer = payer
        self._reader = reader
        self._owner = Account()
        self._uncounted = min(
            _MOST_UNCOUNTED, limits.objects // 16, limits.bytes // 16 // _MOST_BYTES
        )
        self._most_bytes = limits.bytes - 3 * self._uncounted * _MOST_BYTES
        strict = limits.elements < SMALL**2 or limits.bytes < 256 * SMALL**2
        self._always = LOOK if strict else 0
        self._free = 0 if strict else FREE
        self.flags = self._always
        """``LOOK``, ``COUNT`` and ``GIVEN_UP``: 0 in the usual case."""
        self._large: set[int] = set()
        self._memory = CountedMemory()
        self.graphs = Graphs(self._memory, objects, self._uncounted // _GRAPH, self._pay)
        """What the graphs of the objects keep."""

    # ------------------------------------------------------------------------------------ objects

    def charge(self, values: Mapping[int, Any]) -> None:
        """Charge the caller for objects that are about to be stored.

        Raises :class:`~syft.exceptions.LimitExceeded`, and charges for none, if that is too much.
        """
        many = len(self._objects) + len(values) > self._uncounted
        if many:
            self.flags |= COUNT
        if self.guarded:
            self.check_bounds(values)
        large = [id for id, value in values.items() if is_large(value, self.guarded)]
        if not (many or large):
            return
        self._charge({id: self.memory_of(values[id]) for id in (values if many else large)})
        for id in large:
            self._note_large(id, values[id])

    def _note_large(self, id: int, value: Any) -> None:
        """Have operations look at sizes while this object is there, if it may be an operand."""
        if isinstance(value, torch.Tensor):
            self._large.add(id)
            self.flags |= LOOK

    @property
    def account(self) -> Account:
        """The account that pays for what the present request makes."""
        return self.payer() or self._owner

    def check_bounds(self, values: Mapping[int, Any]) -> None:
        """Raise if the caller would see by what it is charged how large something private is."""
        if self.payer() is None:
            return
        user, identity = self._reader()
        for value in values.values():
            guard = None if public_size(value).bounded else full_guard_of(value)
            if guard is None or guard.admits(user) or identity in (guard.owners or ()):
                continue
            raise PermissionDenied(_UNBOUNDED, self._worker, user)

    def _charge(self, storages: Mapping[int, Storages]) -> None:
        """Charge the caller for objects, all of them or none."""
        account = self.account
        self._check("objects", account, len(storages), self._uncounted)
        new = {place: size for sizes in storages.values() for place, size in sizes.items()}
        self._check_bytes(account, self._memory.new(new))
        account.objects += len(storages)
        for id, sizes in storages.items():
            self._enter(id, _Charge(account, tuple(sizes)), sizes)

    def charge_one(self, id: int, value: Any) -> None:
        """The same for one object; a fast path, for tensors where objects are few.

        >>> ann = Account(); charges = Charges("bob", {}, payer=lambda: ann)
        >>> charges.charge_one(5, torch.ones(5000)); ann.objects, ann.bytes
        (1, 20000)
        """
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            return self.charge({id: value})
        if len(self._objects) >= self._uncounted:
            return self.charge({id: value})
        if self.guarded and hides_shape(value):
            return self._charge_hidden(id, value)
        storage = value.untyped_storage()
        if _numel(value) <= SMALL and storage.nbytes() <= _MOST_BYTES:
            return
        account = self.account  # has few objects: there are few
        place: int = storage._cdata
        size = storage.nbytes()
        if account.bytes + size > self._most_bytes and place not in self._memory:
            return self.charge({id: value})
        self._memory.use(place, storage, size, account)
        account.objects += 1
        self.charged[id] = _Charge(account, (place,))
        self._large.add(id)
        self.flags |= LOOK

    def _charge_hidden(self, id: int, value: torch.Tensor) -> None:
        if not _is_small(value):
            self.charge({id: value})

    def memory_of(self, value: Any) -> Storages:
        """Each storage of an object with its bytes, by the address of the storage itself."""
        if type(value) is torch.Tensor and not self.guarded and value.layout is torch.strided:
            storage = value.untyped_storage()
            return {storage._cdata: (storage, storage.nbytes())}
        return public_size(value, self.guarded).memory

    def _check_bytes(self, account: Account, more: int) -> None:
        """Raise if a caller would have too many bytes, of which some are not counted."""
        self._check("bytes", account, more, self.limits.bytes - self._most_bytes)

    def _pay(self, more: int = 0) -> Account:
        """The account that pays for what the present request makes, if it may have ``more`` bytes;
        raises :class:`~syft.exceptions.LimitExceeded` if not."""
        account = self.account
        if more:
            self._check_bytes(account, more)
        return account

    def _enter(self, id: int, charge: _Charge, sizes: Storages) -> None:
        self.charged[id] = charge
        for place, (storage, size) in sizes.items():
            self._memory.use(place, storage, size, charge.account).has(size)

    def release(self, ids: Iterable[int]) -> None:
        """Stop charging for objects that were removed."""
        for id in ids:
            charge = self.charged.pop(id, None)
            if charge is None:
                continue
            charge.account.objects -= 1
            if charge.tags:
                for account, tags in charge.tags.items():
                    account.tags -= tags
            self._memory.leave(charge.storages)
            self._large.discard(id)
        if not self._large:
            self.flags &= ~LOOK | self._always
        if self.flags & COUNT and len(self._objects) <= self._uncounted // 2:
            self.flags &= ~COUNT

    def altered(self, ids: Iterable[int]) -> None:
        """Count objects anew to which an operation may have given other memory, or more of it."""
        waiting = list(ids)
        while waiting:
            id = waiting.pop()
            value, charge = self._objects.get(id), self.charged.get(id)
            if value is None:
                continue
            if charge is None and not is_large(value, self.guarded):
                self._count_memory(value)
                waiting += self._moved_holders()
                continue
            charge = self._counted(charge)
            before, sizes = charge.storages, self.memory_of(value)
            if tuple(sizes) != before or self._becomes_large(sizes):
                waiting += self._sharing(id, sizes)
            charge.storages = tuple(sizes)
            self._enter(id, charge, sizes)
            self._memory.leave(before)
            if is_large(value, self.guarded):
                self._note_large(id, value)

    def _count_memory(self, value: Any) -> None:
        """Count anew the memory of a small object, as far as another one is charged for it."""
        for place, (_, size) in self.memory_of(value).items():
            if place in self._memory:
                self._memory[place].has(size)

    def _moved_holders(self) -> list[int]:
        """The plans and the like that are counted, and whose tensors lie elsewhere by now."""
        return [
            id
            for id, charge in self.charged.items()
            if type(value := self._objects[id]) is not torch.Tensor
            and charge.storages
            and charge.storages != tuple(self.memory_of(value))
        ]

    def _counted(self, charge: _Charge | None) -> _Charge:
        """A charge for the caller, unless the object was counted: it may have one for tags."""
        if charge is None:
            charge = _Charge(self.account, ())
        elif charge.storages or charge.account is not self._owner:
            return charge
        else:
            self._owner.objects -= 1
            charge.account = self.account
        charge.account.objects += 1
        return charge

    def _becomes_large(self, sizes: Storages) -> bool:
        """Whether memory that was counted as small is large by now."""
        known = [(self._memory[place].bytes, size) for place, (_, size) in sizes.items()]
        return any(before <= _MOST_BYTES < size for before, size in known)

    def _sharing(self, altered: int, sizes: Storages) -> list[int]:
        """The other objects in this memory that are not counted, or as if they lay elsewhere: views
        that were small, and the same tensor under another id or in a plan."""
        found = []
        for id, value in self._objects.items():
            places = self.memory_of(value).keys()
            charge = self.charged.get(id)
            counted = set(charge.storages if charge else ())
            if id != altered and counted != places and not places.isdisjoint(sizes):
                found.append(id)
        return found

    def bytes_of(self, values: Any) -> int:
        """The bytes of the memory of values, as far as these are public."""
        found: dict[int, tuple[torch.UntypedStorage, int]] = {}
        for leaf in (values,) if isinstance(values, torch.Tensor) else leaves(values):
            found.update(self.memory_of(leaf))
        return sum(size for _, size in found.values())

    def clear(self) -> None:
        """Stop charging for every object, and for their graphs."""
        self.release(list(self.charged))
        self.graphs.clear()

    def _check(self, limit: str, account: Account, more: int, uncounted: int = 0) -> None:
        """Raise if the caller would have more than a limit, of which ``uncounted`` may be there."""
        got = getattr(account, limit) + more
        allowed = getattr(self.limits, limit)
        if more and account is not self._owner and got > allowed - uncounted:
            raise self.exceeded(limit, got)

    def exceeded(self, limit: str, got: int) -> LimitExceeded:
        """The error of a caller that exceeds a limit."""
        allowed = getattr(self.limits, limit)
        return LimitExceeded(f"worker {self._worker!r}", f"peer_limits.{limit}", allowed, got)

    def check(self, op: int, function: Any, args: Any, kwargs: dict[str, Any]) -> int:
        """Raise :class:`~syft.exceptions.LimitExceeded` if an operation would use too much; returns
        the bytes that it will use, or 0 if these are few."""
        if not self.guarded:
            return self.check_known(op, function, args, kwargs)
        forms = forms_of(args, kwargs, self._reader()[0])
        return max(self.check_known(op, function, form, named) for form, named in forms)

    def check_known(self, op: int, function: Any, args: Any, kwargs: dict[str, Any]) -> int:
        """The same for operands of which every shape is public."""
        if self._free and is_harmless(op, args, kwargs, self._free):
            return 0
        left = self.bytes_left
        if left is None:
            return 0
        limits, use = self.limits, used_by(op, function, args, kwargs)
        if use.results > limits.results:
            raise self.exceeded("results", use.results)
        if use.elements is not None and use.elements > limits.elements:
            raise self.exceeded("elements", use.elements)
        if use.peak > left:
            raise self.exceeded("bytes", use.peak)
        return use.peak

    def check_repeated(self, value: Any, sent: bool = False) -> None:
        """Raise if a request that goes through all elements of an object would use too much since
        it repeats some, as what ``expand`` returns does; others are as large as what is charged.

        Of what is ``sent`` the elements that ``expand`` repeats travel once, those of windows that
        overlap each time.

        >>> charges = Charges("bob", {}, PeerLimits(elements=10**9), Account)
        >>> charges.check_repeated(torch.ones(1).expand(10**9))
        >>> charges.check_repeated(torch.ones(1).expand(10**9 + 1))
        Traceback (most recent call last):
        ...
        syft.exceptions.LimitExceeded: Over a limit of worker 'bob': peer_limits.elements is \
1000000000, got 1000000001. Drop what is not needed any more, ask for less at once, or ask the \
worker's owner for more.
        """
        left = self.bytes_left
        if left is None:
            return
        size = public_size(value, self.guarded, once=sent)
        if size.elements <= max(FREE, sum(size.bytes)):
            return
        if not size.bounded:
            self.check_bounds({0: value})
            return
        bytes = size.elements * _bytes_each(value)
        if bytes and size.elements > self.limits.elements:
            raise self.exceeded("elements", size.elements)
        if bytes > left:
            raise self.exceeded("bytes", bytes)

    def check_bytes(self) -> None:
        """Raise if the caller has more bytes than it may have."""
        left = self.bytes_left
        if left is not None and left < 0:
            raise self.exceeded("bytes", self.limits.bytes - left)

    @property
    def bytes_left(self) -> int | None:
        """How many bytes the caller may have besides those that it has; None for the owner.

        >>> Charges("bob", {}, PeerLimits(bytes=10), Account).bytes_left
        10
        """
        account = self.payer()
        return None if account is None else self.limits.bytes - account.bytes

    @property
    def most_elements(self) -> int:
        """How many elements of 8 bytes the caller may have an operation make at once.

        >>> Charges("bob", {}, PeerLimits(elements=10), Account).most_elements
        10
        """
        left = self.bytes_left
        return self.limits.elements if left is None else min(self.limits.elements, left // 8)

    # --------------------------------------------------------------------------------------- tags

    def tag(self, id: int, present: int, tags: Iterable[str], more: int) -> None:
        """Charge the caller for ``more`` tags of an object that has ``present``; ``tags`` are all
        texts that it sent.

        Raises :class:`~syft.exceptions.LimitExceeded`, and charges for none, if that is too much.
        """
        account = self.account
        longest = max(map(len, tags), default=0)
        if account is not self._owner:
            if longest > self.limits.text:
                raise self.exceeded("text", longest)
            if more and present + more > self.limits.tags_per_object:
                raise self.exceeded("tags_per_object", present + more)
        self._check("tags", account, more)
        if not more:
            return
        account.tags += more
        charge = self.charged.get(id)
        if charge is None:
            self._owner.objects += 1
            charge = self.charged[id] = _Charge(self._owner, ())
        if charge.tags is None:
            charge.tags = {}
        charge.tags[account] = charge.tags.get(account, 0) + more

    # --------------------------------------------------------------------------------- what waits

    def enter(self, account: Account, **more: int) -> None:
        """Charge a caller for ``promises``, ``parked`` operations, ``executions`` or bytes of
        ``letters``: for all of these, or for none of them if it raises
        :class:`~syft.exceptions.LimitExceeded`.

        >>> ann = Account()
        >>> Charges("bob", {}, PeerLimits(promises=2)).enter(ann, parked=1, promises=2)
        >>> ann.parked, ann.promises
        (1, 2)
        """
        for limit, count in more.items():
            self._check(limit, account, count)
        for limit, count in more.items():
            setattr(account, limit, getattr(account, limit) + count)

    def leave(self, account: Account, **less: int) -> None:
        """Stop charging a caller for what has ended."""
        for limit, count in less.items():
            setattr(account, limit, getattr(account, limit) - count)


def _bytes_each(value: Any) -> int:
    """The bytes of an element of an object here, if that repeats elements; 0 for other layouts."""
    tensors = [one for one in map(elements_of, tensors_of(value)) if one is not None]
    return max((one.itemsize for one in tensors if one.layout is torch.strided), default=0)


def _is_small(value: torch.Tensor) -> bool:
    """Whether a strided tensor of private shape has a bound, and is small whatever its shape is."""
    extent, bytes = label_of(value).most, label_of(value.untyped_storage()).most
    if extent is None or bytes is None:
        return False
    return prod(extent.most) <= SMALL and bool(bytes <= _MOST_BYTES)


def is_large(value: Any, guarded: bool = True) -> bool:
    """Whether an object has more than ``SMALL`` elements, or more memory than so many of the
    largest kind, or is more than one tensor; nothing is private where nothing is ``guarded``.

    >>> is_large(torch.ones(2)), is_large(torch.ones(1).expand(10**6)), is_large("no tensor")
    (False, True, True)
    >>> is_large(torch.ones(10**6)[:1])
    True
    """
    if type(value) is torch.Tensor and not guarded and value.layout is torch.strided:
        return _numel(value) > SMALL or value.untyped_storage().nbytes() > _MOST_BYTES
    if not isinstance(value, torch.Tensor):
        return True
    size = public_size(value, guarded)
    return size.elements > SMALL or max(size.bytes, default=0) > _MOST_BYTES
