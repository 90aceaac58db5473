"""The dynamic form of a protocol: promises of tensors at workers, and what is done with them.

``worker.Promise.FloatTensor(shape=(2, 3))`` stands for a tensor that the worker will have.  What is
done with promises is noted.  ``sy.Protocol(worker1, worker2)`` makes a protocol of all outputs that
were declared at these workers: it replays the notes under the recorder, so it is a protocol as the
function form gives it.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import nn

from syft.exceptions import LocationMismatch, ProtocolError, UnsupportedOperation, WrongParties
from syft.hooks.ledger import EXTENSIONS
from syft.ops.nested import leaves, replace
from syft.ops.secret_integers import MOST_BITS, on_grid, secret_like
from syft.ops.table import (
    FLAGS,
    GRADIENT,
    INPLACE,
    NAMES,
    NOTHING,
    NUMBERS,
    ONLY_OBJECT,
    SETS_GRADIENT,
)
from syft.program.program import Action
from syft.workers.handlers.accesses import written_by
from syft.workers.shells.worker import Worker

_DECLARED: WeakKeyDictionary[Worker, list[PromisedTensor]] = WeakKeyDictionary()
"""The outputs that were declared at each worker, and are part of no protocol yet."""
_GRID_BITS: Final = 16
"""Shares are whole multiples of 2^-16, as those of fixed precision."""
_FOR_ITS_EFFECT: Final = INPLACE | NOTHING | GRADIENT | SETS_GRADIENT | ONLY_OBJECT
"""Flags of the operations that are called for what they do to their operands."""
_serial = itertools.count()


class PromisedTensor:
    """A tensor that ``worker`` will have: an input, or what is made of other promises there.

    >>> x = bob.Promise.FloatTensor(shape=(2,))
    >>> x + 1, (x + 1).move(alice).worker.id
    (<PromisedTensor at bob>, 'alice')
    """

    def __init__(
        self,
        worker: Any,
        make: Callable[..., Any] | None = None,
        args: Any = (),
        example: torch.Tensor | None = None,
        is_model: bool = False,
    ) -> None:
        self.worker, self.make, self.args, self.example = worker, make, args, example
        self.is_model = is_model
        self.serial = next(_serial)
        self._kept: deque[Any] = deque()
        self._runner: Any = None

    def __repr__(self) -> str:
        return f"<PromisedTensor at {self.worker.id}>"

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> PromisedTensor:
        """The promise of what a function of torch gives; all promises lie at one worker.

        Raises :class:`~syft.exceptions.LocationMismatch`, and
        :class:`~syft.exceptions.UnsupportedOperation` for what would write to a promise.
        """
        given = args, kwargs or {}
        _check_only_makes(function, *given)
        workers = {each.worker.id: each.worker for each in _promises_in(given)}
        if len(workers) != 1:
            name = getattr(function, "__name__", str(function))
            raise LocationMismatch(name, tuple(workers), ".move() one of them")
        (worker,) = workers.values()
        return cls(worker, lambda values: function(*values[0], **values[1]), given)

    def __getattr__(self, name: str) -> Any:
        method = getattr(torch.Tensor, name, None)
        if name.startswith("_") or _number_of(method) is None:
            raise AttributeError(
                f"a promise has no {name}: only methods that make tensors of tensors are noted"
            )
        return lambda *args, **kwargs: self.__torch_function__(method, (), (self, *args), kwargs)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Refused: there is no value yet."""
        raise ProtocolError("a decision by a promise, which has no value yet", "use torch.where")

    def __iter__(self) -> Iterator[PromisedTensor]:
        """Refused: other sizes may come than that of the example."""
        raise ProtocolError("a loop over a promise, whose size may be another", "index it: x[0]")

    def __copy__(self) -> PromisedTensor:
        return self  # a promise is kept once

    def __deepcopy__(self, memo: Any) -> PromisedTensor:
        return self

    def __getitem__(self, index: Any) -> PromisedTensor:
        """A part of a tensor, or of the tuple that an operation gives."""
        return self.__torch_function__(operator.getitem, (), (self, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Refused: promises are not written to."""
        _check_only_makes(torch.Tensor.__setitem__, (self, index, value), {})

    # ------------------------------------------------------------------------------------ places

    def move(self, worker: Any) -> PromisedTensor:
        """The promise of a copy at another worker."""
        return PromisedTensor(worker, lambda values: values.move(worker.id), self)

    send = move

    def declare_output(self) -> PromisedTensor:
        """Have the next ``sy.Protocol(workers)`` keep it at its worker; returns the promise."""
        _DECLARED.setdefault(self.worker, []).append(self)
        return self

    def undeclare_output(self) -> PromisedTensor:
        """Take back that it is an output, while it is part of no protocol; returns the promise.

        >>> x = bob.Promise.FloatTensor(shape=(2,))
        >>> _ = (x @ x).declare_output().undeclare_output()
        >>> sy.Protocol(bob)
        Traceback (most recent call last):
        ...
        syft.exceptions.ProtocolError: a protocol of bob, where no output was declared: ...
        """
        declared = _DECLARED.get(self.worker, [])
        declared[:] = [one for one in declared if one is not self]
        return self

    def share(self, *workers: Any) -> PromisedShares:
        """The promise of a share at each of these workers, as ``x.fix_precision().share()`` makes
        them: whole multiples of 2^-16, as a sum of random 64-bit integers.

        The worker that has the tensor draws the integers, from the generator of its operating
        system, and sends each worker one share.  Shares are added, and multiplied or divided by
        public numbers.  Numbers beyond 2^36, infinity and NaN are refused when it runs.  Raises
        :class:`~syft.exceptions.WrongParties` for fewer than two workers, or one twice.

        >>> x = bob.Promise.FloatTensor(shape=(2,)).share(alice, bob)
        >>> x["alice"], ((x + x) / 3).scale
        (<PromisedTensor at alice>, 196608.0)
        """
        names = tuple(str(worker.id) for worker in workers)
        if len(names) < 2 or len({*names}) < len(names):
            raise WrongParties(names, "name two workers or more, each once")
        whole = PromisedTensor(self.worker, lambda x: on_grid(x, _GRID_BITS), self)
        masks = [PromisedTensor(self.worker, secret_like, whole) for _ in workers[1:]]
        rest = PromisedTensor(self.worker, lambda given: given[0] - sum(given[1:]), [whole, *masks])
        parts = zip(workers, [rest, *masks], strict=True)
        return PromisedShares(
            {
                str(worker.id): part if worker is self.worker else part.move(worker)
                for worker, part in parts
            },
            2.0**_GRID_BITS,
        )

    # ------------------------------------------------------------------------------------- values

    def keep(self, value: Any) -> PromisedTensor:
        """Give the promise a value; several wait in a queue.  Returns the promise.

        Raises :class:`~syft.exceptions.ProtocolError` for what is made of other promises, and for
        what is no tensor; :class:`~syft.exceptions.LocationMismatch` for a pointer elsewhere.
        """
        if self.make is not None:
            instead = "keep the promises that it is made of"
            raise ProtocolError("a value for a promise that is computed", instead)
        value = as_vector(value) if self.is_model else value
        if not isinstance(value, torch.Tensor):
            what = f"a promise of a tensor that is kept by a {type(value).__name__}"
            raise ProtocolError(what, "keep it by a tensor")
        found: Any = getattr(value, "location", None)
        places = found if isinstance(found, list) else [found]
        if any(place not in (None, self.worker) for place in places):
            raise LocationMismatch("keep", (self.worker.id, *[str(each.id) for each in places]))
        self._kept.append(value)
        return self

    def is_kept(self) -> bool:
        """Whether all values are there that it is made of."""
        return all(each._kept for each in inputs_of([self]))

    def value(self) -> Any:
        """What it is, once the values are there: a pointer to its worker.

        Each call takes the oldest value of each promise that it is made of.
        Raises :class:`~syft.exceptions.ProtocolError` unless :meth:`is_kept`.

        >>> x = bob.Promise.FloatTensor(shape=(2,))
        >>> y = (x + 1) * x
        >>> _ = x.keep(torch.tensor([1.0, 2.0]))
        >>> y.is_kept(), y.value().get()
        (True, tensor([2., 6.]))
        """
        inputs = inputs_of([self])
        if not all(each._kept for each in inputs):
            raise ProtocolError("the value of a promise that is not kept", "keep() its inputs")
        if self._runner is None:
            self._runner = PROTOCOL_OF[0]([self]).deploy()
        return self._runner.run(*[each._kept.popleft() for each in inputs])


def _number_of(function: Any) -> int | None:
    """The number of an operation, if it is one."""
    hashed = isinstance(function, Hashable)
    return NUMBERS.get(function) if hashed else None


def _check_only_makes(function: Any, args: Any, kwargs: Any) -> None:
    """Raise for an operation that does something to promises besides making others of them.

    What is replayed is what outputs are made of: nothing would be left of what it does.
    """
    number = _number_of(function)
    if number is not None and has_effect(number, args, kwargs):
        instead = "promises are not written to: go on with the result of one that makes another"
        raise UnsupportedOperation(NAMES[number], "PromisedTensor", instead)


def has_effect(number: int, args: Any, kwargs: Any) -> bool:
    """Whether an operation does something to promises besides making others of them.

    >>> from syft.ops.table import BY_NAME
    >>> x = bob.Promise.FloatTensor()
    >>> [has_effect(BY_NAME[f"torch.Tensor.{name}"], (x, x), {}) for name in ("add", "add_")]
    [False, True]
    """
    written = written_by(Action(number, args, kwargs, None))
    return bool(FLAGS[number] & _FOR_ITS_EFFECT or _promises_in(written))


def _noted(name: str) -> Callable[..., PromisedTensor]:
    """An operator of promises, which notes that of tensors."""
    function = getattr(torch.Tensor, name)

    def operator(self: PromisedTensor, *args: Any) -> PromisedTensor:
        return PromisedTensor.__torch_function__(function, (), (self, *args))

    return operator


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg mod floordiv "
    "lt le gt ge eq ne and rand or ror xor rxor invert abs pos lshift rlshift rshift rrshift rmod "
    "rfloordiv"
).split():
    setattr(PromisedTensor, f"__{_name}__", _noted(f"__{_name}__"))


_TIMES: Final = _noted("__mul__")
PROTOCOL_OF: Final[list[Callable[[Sequence[PromisedTensor]], Any]]] = []
"""What makes a protocol of outputs: filled in by the module that knows protocols."""


class PromisedShares(dict[str, PromisedTensor]):
    """Promised shares of a tensor, by the names of their workers.

    Their sum is the tensor times ``scale``, and below ``bound``: what might be 2^63 or more is
    refused, since it would wrap.
    """

    def __init__(
        self, parts: Mapping[str, PromisedTensor], scale: float, bound: int = 1 << MOST_BITS
    ) -> None:
        super().__init__(parts)
        if bound > 1 << 63:
            beyond = "sums and products that may exceed 63 bits"
            raise UnsupportedOperation(beyond, "PromisedShares", "add fewer, or scale them before")
        self.scale, self.bound = scale, bound

    def __add__(self, other: Any) -> PromisedShares:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> PromisedShares:
        return self._with(other, operator.sub)

    def __radd__(self, other: Any) -> PromisedShares:
        """As ``sum([first, second])`` asks for, which begins with 0."""
        return self if type(other) is int and not other else self.__add__(other)

    def __neg__(self) -> PromisedShares:
        return self * -1

    def _with(self, other: Any, combine: Callable[[Any, Any], Any]) -> PromisedShares:
        """Both, combined at each worker; raises
        :class:`~syft.exceptions.UnsupportedOperation`."""
        fits = isinstance(other, PromisedShares)
        if not fits or other.keys() != self.keys() or other.scale != self.scale:
            instead = "both must be shares at the same workers, divided by the same numbers"
            raise UnsupportedOperation(combine.__name__, "PromisedShares", instead)
        parts = {key: combine(self[key], other[key]) for key in self}
        return PromisedShares(parts, self.scale, self.bound + other.bound)

    def __truediv__(self, number: Any) -> PromisedShares:
        """Divided by a public number, which is exact: it goes into the scale."""
        if not _is_public(number) or not number:
            raise UnsupportedOperation("truediv", "PromisedShares", "divide by a public number")
        return PromisedShares(self, self.scale * number, self.bound)

    def __mul__(self, number: Any) -> PromisedShares:
        """Multiplied by a public number; one that is not whole goes into the scale.

        Raises :class:`~syft.exceptions.UnsupportedOperation` for shares, whose product needs a
        provider: share the tensors themselves, ``x.fix_precision().share(...)``.
        """
        if not _is_public(number):
            instead = "multiply shared tensors: x.fix_precision().share(...), at the workers"
            raise UnsupportedOperation("mul", "PromisedShares", instead)
        whole = int(number)
        if whole != number:
            return self.__truediv__(1 / number)
        parts = {key: _TIMES(part, whole) for key, part in self.items()}
        return PromisedShares(parts, self.scale, self.bound * abs(whole))

    __rmul__ = __mul__

    def opened(self, shares: Iterable[torch.Tensor]) -> torch.Tensor:
        """The tensor, given the shares of all workers as an execution gives them.

        >>> x = bob.Promise.FloatTensor(shape=(2,)).share(alice, bob)
        >>> x.opened([torch.tensor([65536, 5]), torch.tensor([65536, -5])])
        tensor([2., 0.])
        """
        return (sum(shares).double() / self.scale).float()  # type: ignore[union-attr]


def _is_public(number: Any) -> bool:
    """Whether shares may be multiplied or divided by a number."""
    return isinstance(number, (int, float)) and math.isfinite(number)


class Promises:
    """What a worker may promise: ``worker.Promise``.

    >>> bob.Promise.FloatTensor(shape=(2, 3))
    <PromisedTensor at bob>
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def FloatTensor(self, shape: Iterable[int] = (2,)) -> PromisedTensor:  # noqa: N802
        """The promise of a tensor of floats; other sizes may come than these."""
        return PromisedTensor(self._worker, example=torch.ones(tuple(shape)))

    def IntTensor(self, shape: Iterable[int] = (2,)) -> PromisedTensor:  # noqa: N802
        """The promise of a tensor of 64-bit integers."""
        example = torch.ones(tuple(shape), dtype=torch.int64)
        return PromisedTensor(self._worker, example=example)

    def Model(self) -> PromisedTensor:  # noqa: N802
        """The promise of a model: of the vector of all its parameters, whatever their number.

        It is kept by such a vector (``torch.nn.utils.parameters_to_vector``), or by an
        ``nn.Module``, of which that is made.  The structure of the module is not part of it.
        """
        return PromisedTensor(self._worker, example=torch.ones(4), is_model=True)


EXTENSIONS.append((Worker, "Promise", property(Promises)))


def _promises_in(value: Any) -> list[PromisedTensor]:
    return [leaf for leaf in leaves(value) if isinstance(leaf, PromisedTensor)]


def _behind(outputs: Sequence[PromisedTensor]) -> list[PromisedTensor]:
    """All promises of which outputs are made, and these, in the order in which they were made."""
    found: dict[int, PromisedTensor] = {}
    waiting = list(outputs)
    while waiting:
        one = waiting.pop()
        if one.serial not in found:
            found[one.serial] = one
            waiting += _promises_in(one.args)
    return [found[serial] for serial in sorted(found)]


def inputs_of(outputs: Sequence[PromisedTensor]) -> list[PromisedTensor]:
    """The promises that users keep, of which outputs are made."""
    return [one for one in _behind(outputs) if one.make is None]


def declared_at(workers: Sequence[Any]) -> list[PromisedTensor]:
    """The outputs that were declared at workers.

    Raises :class:`~syft.exceptions.ProtocolError` if there is none.
    """
    found = [one for worker in workers for one in _DECLARED.get(worker, [])]
    if not found:
        names = ", ".join(str(worker.id) for worker in workers)
        raise ProtocolError(
            f"a protocol of {names}, where no output was declared", "call promise.declare_output()"
        )
    return found


def undeclare(workers: Sequence[Any]) -> None:
    """Have no outputs declared at workers: they are part of a protocol."""
    for worker in workers:
        _DECLARED.pop(worker, None)


def replayed(
    inputs: Sequence[PromisedTensor],
    outputs: Sequence[PromisedTensor],
    checks: Sequence[PromisedTensor] = (),
) -> Callable[..., Any]:
    """A function of values of the inputs that does what was noted, and returns the outputs.

    ``checks`` are what it does too, of which nothing is returned.
    """
    order = [one for one in _behind([*checks, *outputs]) if one.make is not None]

    def function(*values: Any) -> Any:
        known: dict[int, Any] = {
            one.serial: value for one, value in zip(inputs, values, strict=True)
        }

        def value_of(leaf: Any) -> Any:
            return known[leaf.serial] if isinstance(leaf, PromisedTensor) else leaf

        for one in order:
            assert one.make is not None
            known[one.serial] = one.make(replace(one.args, value_of))
        results = tuple(known[one.serial] for one in outputs)
        return results[0] if len(results) == 1 else results

    return function


def input_names(inputs: Sequence[PromisedTensor]) -> dict[str, str]:
    """A name for each input, with the worker that has it: that of the worker, as far as it may be
    the name of a parameter, and a number.

    >>> input_names([alice.Promise.FloatTensor(), alice.Promise.FloatTensor()])
    {'alice_1': 'alice', 'alice_2': 'alice'}
    """
    names: dict[str, str] = {}
    count: Counter[str] = Counter()
    for one in inputs:
        worker = str(one.worker.id)
        name = re.sub(r"\W", "_", worker)
        name = name if name.isidentifier() else f"_{name}"
        count[name] += 1
        names[f"{name}_{count[name]}"] = worker
    return names


def as_vector(value: Any) -> Any:
    """The vector of the parameters of a module; anything else as it is."""
    if isinstance(value, nn.Module):
        return nn.utils.parameters_to_vector(value.parameters()).detach()
    return value


def workers_of(outputs: Sequence[PromisedTensor]) -> Mapping[str, Any]:
    """The workers of all promises behind outputs, by their names."""
    return {str(one.worker.id): one.worker for one in _behind(outputs)}
