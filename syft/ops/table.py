"""The op table: which torch functions may run on another worker, each with a number for the wire.

A command names its op by number, and a number is looked up here and nowhere else: nothing that
arrives is ever imported, evaluated or fetched by a name that came with it.  The table is the data
file ``ops.txt`` (one line an op: number, name, flags, values).  It is append-only, so workers of
different versions understand each other; an op that was removed keeps its number and is marked
``retired``.  The file ``refused.txt`` lists the torch functions that no worker runs for others,
each with the reason that the caller is told.

The names are resolved once, on import, by walking attributes from the ``torch`` module.  An op that
the installed torch does not have keeps its number and has no function.

The last ops of the table are syft's own: arithmetic on a program's numbers, branches and loops.
They run only inside a program, never as a command, so they have a table of their own,
PROGRAM_FUNCTIONS.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from syft.exceptions import MalformedMessage, OperationRefused, UnknownOperation
from syft.ops import control
from syft.ops import numbers
from syft.ops import secret_integers

Function = Callable[..., Any]


class OpFlag(enum.IntFlag):
    """What is known about an op before it runs.

    The flags hold for calls without ``out=``.  With it, an op returns the tensor it was given.
    ONE, TENSOR and BINARY say that one tensor comes back; for other ops see
    :mod:`syft.ops.returns`.

    >>> OpFlag.ONE in OpFlag(FLAGS[BY_NAME["torch.add"]])
    True
    >>> OpFlag.REVEALS in OpFlag(FLAGS[BY_NAME["torch.Tensor.item"]])
    True
    """

    INPLACE = 1
    """Mutates its first argument and returns it; with NOTHING it returns None instead.

    The first argument of ``torch._foreach_add_`` and similar functions is a list of tensors.  The
    functions of ``torch.nn.init`` receive theirs as the keyword ``tensor``.
    """
    RANDOM = 2
    """Can draw random numbers; some draw only on request (dropout while training)."""
    REVEALS = 4
    """Returns values of a tensor, or what follows from them, as Python values (or by raising)."""
    METADATA = 8
    """Returns Python values that follow from shape, dtype, device, strides or grad-ness alone."""
    SHAPE_FROM_VALUES = 16
    """The shape of the result, or the number of elements it stores, can depend on values."""
    ONE = 32
    """Always returns one fresh tensor object: no argument, no container, no number, not None."""
    FACTORY = 64
    """Creates tensors and needs no tensor for it."""
    GRADIENT = 128
    """Runs autograd backward."""
    NOTHING = 256
    """Always returns None."""
    UNINITIALIZED = 512
    """Can return uninitialized memory, which may still hold freed values of somebody else."""
    INPLACE_OPTION = 1024
    """Has a keyword ``inplace``; when it is true, mutates its first argument and returns it."""
    ONE_UNLESS_INPLACE = 2048
    """As ONE, unless the keyword ``inplace`` is true."""
    MUTATES_OTHERS = 4096
    """Can mutate more than its first argument: running statistics, optimizer state, gradients."""
    PROGRAM_ONLY = 8192
    """Takes Python numbers or programs; runs only inside a program, never as a command."""
    TENSOR = 16384
    """Always returns one tensor object, which may be an argument (``x.contiguous()``)."""
    ALTERS = 65536
    """Can change what METADATA tells of a tensor that is there: its shape, its dtype, its layout.

    So can every op that is called with ``out=``."""
    BINARY = 32768
    """A binary special method (``__rsub__``, ``__eq__`` ...): for a tensor or a number it returns
    one fresh tensor, for anything else it may return ``NotImplemented``."""
    READS_GRADIENT = 1 << 17
    """Returns the gradient of its argument."""
    SETS_GRADIENT = 1 << 18
    """Replaces the gradient of a leaf."""
    JOINS = 1 << 19
    """Afterwards its arguments may share memory."""
    ONLY_OBJECT = 1 << 20
    """Changes a tensor object, and leaves its memory as it is."""
    SPLITS = 1 << 21
    """Cuts a tensor into pieces, of which there may be as many as a dimension is long."""
    FRESH = 1 << 22
    """Its results lie in new memory.  Torch decides at run time whether ``reshape`` copies, so only
    those that always allocate have the flag: one that lacks it costs some parallelism, a wrong one
    would cost correctness."""
    BOUNDED = 1 << 23
    """Takes at most two tensors and is no larger than the product of their sizes, whatever numbers
    it is given: arithmetic, products, reductions, other shapes.  It never draws."""
    ELEMENTWISE = 1 << 24
    """Its result has the shape of its tensors, if these have one shape, and no number among its
    arguments is a size."""
    SUMMED = 1 << 25
    """Its results are together no larger than all that it is given: a write to the first operand, a
    loss, a normalization, a function of each element of one tensor."""
    MATRIX_PRODUCT = 1 << 26
    """A product of two matrices over the last dimension of the first."""
    CROSSING = 1 << 27
    """Combines every element of one tensor of a list with those of the others."""
    SQUARING = 1 << 28
    """Its result can have the square of the elements of the operand."""
    FLOATS_COMPUTE = 1 << 29
    """A float among its arguments multiplies, adds or bounds values, and decides nothing else.
    Optimizers call these with other floats at each step."""
    FAKE_FIRST = 1 << 30
    """On tensors without memory its strides, dtypes or failures are not those of the CPU."""


# The flags as plain integers: `flags & INPLACE` takes 0.012 µs on these and 0.6 µs on the enum.
# All but FAKE_FIRST, which few ops have, lie below 2**30: Python holds such integers in one digit.
INPLACE: Final = int(OpFlag.INPLACE)
RANDOM: Final = int(OpFlag.RANDOM)
REVEALS: Final = int(OpFlag.REVEALS)
METADATA: Final = int(OpFlag.METADATA)
SHAPE_FROM_VALUES: Final = int(OpFlag.SHAPE_FROM_VALUES)
ONE: Final = int(OpFlag.ONE)
FACTORY: Final = int(OpFlag.FACTORY)
GRADIENT: Final = int(OpFlag.GRADIENT)
NOTHING: Final = int(OpFlag.NOTHING)
UNINITIALIZED: Final = int(OpFlag.UNINITIALIZED)
INPLACE_OPTION: Final = int(OpFlag.INPLACE_OPTION)
ONE_UNLESS_INPLACE: Final = int(OpFlag.ONE_UNLESS_INPLACE)
MUTATES_OTHERS: Final = int(OpFlag.MUTATES_OTHERS)
PROGRAM_ONLY: Final = int(OpFlag.PROGRAM_ONLY)
TENSOR: Final = int(OpFlag.TENSOR)
BINARY: Final = int(OpFlag.BINARY)
ALTERS: Final = int(OpFlag.ALTERS)
READS_GRADIENT: Final = int(OpFlag.READS_GRADIENT)
SETS_GRADIENT: Final = int(OpFlag.SETS_GRADIENT)
JOINS: Final = int(OpFlag.JOINS)
ONLY_OBJECT: Final = int(OpFlag.ONLY_OBJECT)
SPLITS: Final = int(OpFlag.SPLITS)
FRESH: Final = int(OpFlag.FRESH)
BOUNDED: Final = int(OpFlag.BOUNDED)
ELEMENTWISE: Final = int(OpFlag.ELEMENTWISE)
SUMMED: Final = int(OpFlag.SUMMED)
MATRIX_PRODUCT: Final = int(OpFlag.MATRIX_PRODUCT)
CROSSING: Final = int(OpFlag.CROSSING)
SQUARING: Final = int(OpFlag.SQUARING)
FLOATS_COMPUTE: Final = int(OpFlag.FLOATS_COMPUTE)
FAKE_FIRST: Final = int(OpFlag.FAKE_FIRST)


_OVERLOADS: Final = (type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))
_RETIRED: Final = "retired"
_HERE: Final = os.path.dirname(__file__)
_OWN: Final = {
    "syft.ops.numbers": numbers,
    "syft.ops.control": control,
    "syft.ops.secret_integers": secret_integers,
}


def _lines(file: str) -> Iterator[str]:
    """Yield the lines of a data file without comments and empty lines."""
    with open(os.path.join(_HERE, file), encoding="utf-8") as text:
        for line in text:
            if line[0] not in "#\n":
                yield line.rstrip("\n")


def _resolve(name: str, known: dict[str, Any]) -> Function | None:
    """Look up a name of our data files; None if this torch does not have it."""
    parent, _, leaf = name.rpartition(".")
    if parent not in known:
        known[parent] = _resolve(parent, known)
    if known[parent] is None:
        return None
    found: Function | None = getattr(known[parent], leaf, None)
    return found


def _read_ops() -> tuple[list[str], list[int], list[Function | None], dict[int, Function]]:
    """Read ``ops.txt``: names, flags and functions by number, and the program-only functions.

    The words ``column=value`` go to COLUMNS.
    """
    bits = {str(flag.name).lower(): int(flag) for flag in OpFlag}
    known: dict[str, Any] = {"torch": torch, **_OWN}
    names: list[str] = []
    flags: list[int] = []
    functions: list[Function | None] = []
    inside: dict[int, Function] = {}
    for line in _lines("ops.txt"):
        _, name, *words = line.split()
        function = None if _RETIRED in words else _resolve(name, known)
        if function is not None and "program_only" in words:
            inside[len(names)], function = function, None
        known_flags = 0
        for word in words:
            column, equals, value = word.partition("=")
            if equals:
                COLUMNS[column][len(names)] = value
            elif word != _RETIRED:
                known_flags |= bits[word]
        names.append(name)
        flags.append(known_flags)
        functions.append(function)
    return names, flags, functions, inside


def _read_refused() -> tuple[dict[str, str], dict[Function, str]]:
    """Read ``refused.txt`` into the reasons by name, and the names by function."""
    known: dict[str, Any] = {"torch": torch}
    reasons = dict(line.split(" | ") for line in _lines("refused.txt"))
    # Reversed, so that the first of two names for one function is kept.
    functions = {_resolve(name, known): name for name in reversed(reasons)}
    return reasons, {function: name for function, name in functions.items() if function is not None}


_COLUMNS: Final = """asks copies dims fails index integers like makes of operand pieces returns
        sets"""
COLUMNS: Final[dict[str, dict[int, str]]] = {name: {} for name in _COLUMNS.split()}
"""What is known of some ops that is no flag, by column and number.

- ``asks``: the properties of tensors that the answer of a METADATA op follows from.
- ``copies``: the result is the argument itself, or a copy of what is conjugated or negated lazily
  (``lazy``), or is to be on another device (``elsewhere``).
- ``of``: how many tensors it is about, if it is not about its first argument alone.
- ``sets``: the property that it sets of its first argument.
- ``like``: the result is of the kind of the first argument (``first``), or of that with this dtype.
- ``dims=sizes``: how many dimensions the result has follows from sizes.
- ``fails=first``: it writes one tensor; where values make it fail, it has written nothing.
- ``index``: place and name of the argument that says where in a tensor.
- ``integers=values``: an integer among its operands is a value, and never a size.
- ``makes``: what decides how many elements it makes, where these follow from values.
- ``pieces``: how it is told into how many pieces to cut, and where: the place of the dimension, or
  the letter in its name.
- ``returns``: which tensors come back, as far as the arguments tell: a rule of
  :mod:`syft.ops.returns`, and what it is to be told.
- ``operand=local``: torch's own code makes an operand on the spot: the hidden state or the lengths
  of a recurrent layer, the mask of an attention layer, the source of a copy.
"""

NAMES: list[str]
"""The name of each op, by number."""
FLAGS: list[int]
"""The flags of each op, by number: plain integers, to be tested with ``&``."""
FUNCTIONS: list[Function | None]
"""The function of each op, by number; None when the op is retired or not in this torch."""
PROGRAM_FUNCTIONS: dict[int, Function]
"""The functions of the ops that run inside programs only, by number; FUNCTIONS lacks them."""
NAMES, FLAGS, FUNCTIONS, PROGRAM_FUNCTIONS = _read_ops()

BY_NAME: dict[str, int] = {name: number for number, name in enumerate(NAMES)}
"""The number of each op, by name."""
NUMBERS: dict[Function, int] = {
    function: number for number, function in enumerate(FUNCTIONS) if function is not None
}
"""The number of each op, by function."""

COND: Final = BY_NAME["syft.ops.control.cond"]
WHILE_LOOP: Final = BY_NAME["syft.ops.control.while_loop"]
"""The ops that run programs which are among their arguments."""

REFUSED_NAMES: dict[str, str]
"""Why a torch function never runs for another worker, by name."""
REFUSED_NAMES, _refused = _read_refused()
REFUSED: dict[Function, str] = {
    function: REFUSED_NAMES[name] for function, name in _refused.items()
}
"""Why a torch function never runs for another worker, by function."""

_NAMES_OF: Final = _refused | {function: NAMES[number] for function, number in NUMBERS.items()}


def ops_with(flags: int) -> frozenset[int]:
    """The numbers of the ops that have one of these flags.

    >>> sorted(NAMES[number] for number in ops_with(SETS_GRADIENT))
    ['torch.Tensor.grad.__delete__', 'torch.Tensor.grad.__set__']
    """
    return frozenset(number for number, known in enumerate(FLAGS) if known & flags)


def ops_where(column: str, value: str | None = None) -> frozenset[int]:
    """The numbers of the ops that have this value in a column, or any.

    >>> sorted(NAMES[number] for number in ops_where("of", "2"))
    ['torch.Tensor.is_same_size', 'torch.is_same_size', 'torch.result_type']
    """
    return frozenset(op for op, found in COLUMNS[column].items() if value in (None, found))


def functions_with(flags: int) -> frozenset[Function]:
    """The functions of the ops that have one of these flags.

    >>> torch.Tensor.set_ in functions_with(JOINS), torch.add in functions_with(JOINS)
    (True, False)
    """
    return frozenset(function for function, number in NUMBERS.items() if FLAGS[number] & flags)


OF_TWO: Final = ops_where("of", "2")
"""The questions about two tensors."""
ADDING_GRADIENTS: Final = ops_with(GRADIENT) & ops_with(MUTATES_OTHERS)
"""The ops that run a backward pass and leave the gradients in the leaves."""


def asked_by(op: int) -> frozenset[str]:
    """The properties of tensors that the answer to a question follows from; none for other ops.

    >>> sorted(asked_by(BY_NAME["torch.Tensor.nbytes.__get__"])), asked_by(BY_NAME["torch.add"])
    (['dtype', 'shape'], frozenset())
    """
    return frozenset(filter(None, COLUMNS["asks"].get(op, "").split(",")))


def number_of(function: Function) -> int:
    """Look up the number by which a torch function is called on another worker.

    Raises :class:`~syft.exceptions.OperationRefused` or
    :class:`~syft.exceptions.UnknownOperation` for a function without one; NUMBERS does not raise.

    >>> NAMES[number_of(torch.Tensor.add)]
    'torch.Tensor.add'
    >>> number_of(torch.save)
    Traceback (most recent call last):
    ...
    syft.exceptions.OperationRefused: 'torch.save' cannot run on another worker: it writes files.
    """
    try:
        return NUMBERS[function]
    except (KeyError, TypeError):  # TypeError: it has no hash, so no table holds it
        name = name_of(function)
    if name in REFUSED_NAMES:
        raise OperationRefused(name, REFUSED_NAMES[name])
    raise UnknownOperation(name)


def function_of(number: int, path: str = "$.op") -> Function:
    """Look up the function of a number that came with a message; ``path`` is where it was found.

    >>> function_of(number_of(torch.Tensor.add)) is torch.Tensor.add
    True
    >>> function_of("torch.save")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.op: expected the number of an op, \
got 'torch.save'.
    """
    if type(number) is not int or number < 0:
        raise MalformedMessage(path, "the number of an op", repr(number))
    if number >= len(FUNCTIONS):
        raise UnknownOperation(f"op {number}")
    function = FUNCTIONS[number]
    if function is None:
        raise UnknownOperation(NAMES[number])
    return function


def flags_of(function: Function) -> int:
    """Look up the flags of a torch function; none for one that is not in the table.

    >>> bool(flags_of(torch.Tensor.add_) & INPLACE), flags_of(print)
    (True, 0)
    """
    number = NUMBERS.get(function)
    return 0 if number is None else FLAGS[number]


def may_alter(number: int, kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a call can change the shape, the dtype or the layout of a tensor that is there.

    >>> may_alter(BY_NAME["torch.Tensor.resize_"], {}), may_alter(BY_NAME["torch.add"], {})
    (True, False)
    >>> may_alter(BY_NAME["torch.add"], {"out": torch.ones(2)})
    True
    """
    return bool(FLAGS[number] & ALTERS) or (kwargs is not None and "out" in kwargs)


def name_of(function: Function) -> str:
    """The name of a function for error texts: that of the tables, or else its own.

    >>> name_of(torch.Tensor.shape.__get__), name_of(torch.save), name_of(print)
    ('torch.Tensor.shape.__get__', 'torch.save', 'builtins.print')
    """
    try:
        return _NAMES_OF[function]
    except (KeyError, TypeError):
        if isinstance(function, _OVERLOADS):  # these carry the name of a C++ helper
            return f"torch.ops.{function}"
        module = getattr(function, "__module__", None)
        name = getattr(function, "__qualname__", None)
        return f"{module}.{name}" if module and name else repr(function)
