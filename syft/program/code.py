"""A program as Python source, for people to read: one line for each action, with its number.

The source is valid Python.  Executed where ``torch``, ``math``, ``sy`` and the constants are
defined, it computes what the program computes; syft itself never executes it.  Values of tensors
are never shown.

Operands as Python source: the expressions that evaluate to them.

Text that arrived with a program is written only as the ``repr`` of a string, so its sender cannot
put code into the source.
"""

from __future__ import annotations

import enum
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch

from syft.codes import TORCH_ENUMS, TORCH_OPTIONS
from syft.program.program import Action, Mode, Program, Slot
from syft.serde.torch_types import NUMBERED_KINDS

_LINE_LENGTH: Final = 88
_RESERVED: Final = frozenset(keyword.kwlist).union(
    "torch math sy state abs round int float complex bool slice range".split()
)
_GENERATED: Final = re.compile(r"_|(then|otherwise|test|body)?_\d+")  # names this module makes

Name = Callable[[Slot], str]
Render = Callable[[Action, Name], str]
"""Writes what one action computes as an expression, or as a statement if it has no result."""


def code_of(
    program: Program,
    name: str,
    arguments: Sequence[str],
    state: Sequence[str] = (),
    constants: Sequence[str] | None = None,
) -> str:
    """Write a program as the Python function it could have been recorded from.

    ``arguments`` and ``state`` name the inputs and the state.  Names that are no identifiers, or
    that are used already, are changed.  Constants are free variables of the function.

    >>> from syft.ops.table import BY_NAME
    >>> double = Action(BY_NAME["torch.Tensor.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> print(code_of(Program(1, (double,), Slot(1)), "double", ["x"]))
    def double(x):
        _1 = x.add(x)  # 0: torch.Tensor.add
        return _1
    """
    if constants is None:
        constants = [f"constant_{index}" for index in range(len(program.constants))]
    names = _identifiers([*arguments, *state, *constants])
    count = len(arguments)
    own, shared = names[:count], names[count : count + len(state)]
    function = _identifiers([name])[0]
    head = [*own, "state"] if state else own
    lines = [f"def {function}({', '.join(head)}):"]
    if state:
        lines += _indented(_targets(shared, "state.read()"))
    for constant, tensor in zip(names[count + len(state) :], program.constants, strict=True):
        lines.append(f"    # {constant}: {_dtype_and_shape(tensor)}, a constant")
    body = _Body(program, names, "")
    return "\n".join([*lines, *_indented(body.lines())])


def _dtype_and_shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _targets(names: list[str], value: str) -> list[str]:
    """An assignment to several names, over several lines if it is long."""
    line = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {value}"
    if len(line) <= _LINE_LENGTH:
        return [line]
    return ["(", *(f"    {name}," for name in names), f") = {value}"]


def _identifiers(wanted: Iterable[str]) -> list[str]:
    """Make distinct identifiers out of the names that are wanted."""
    names: list[str] = []
    for text in wanted:
        name = re.sub(r"\W", "_", text, flags=re.ASCII)
        if not name.isidentifier() or _GENERATED.fullmatch(name) or name in _RESERVED:
            name = f"x_{name.lstrip('_')}"
        stem, number = name, 2
        while name in names:
            name, number = f"{stem}_{number}", number + 1
        names.append(name)
    return names


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Body:
    """Writes the lines of one program: the outermost, or a branch inside it."""

    def __init__(self, program: Program, names: Sequence[str], inside: str) -> None:
        self.program, self.names, self.inside = program, names, inside

    def name(self, slot: Slot) -> str:
        """The variable of a slot."""
        known = slot.index < len(self.names)
        return self.names[slot.index] if known else f"_{slot.index}"

    def lines(self) -> list[str]:
        """All lines, with one block for each run of actions in the same mode."""
        lines: list[str] = []
        numbered = enumerate(self.program.actions)
        for mode, actions in groupby(numbered, key=lambda pair: pair[1].mode):
            block = [line for index, action in actions for line in self.action(index, action)]
            if mode is not None:
                block = [f"with {', '.join(_contexts(mode))}:", *_indented(block)]
            lines += block
        return [*lines, f"return {literal(self.program.outputs, self.name)}"]

    def action(self, index: int, action: Action) -> list[str]:
        """The lines of one action: the programs it takes as functions, and the call."""
        lines: list[str] = []
        args = list(action.args)
        for place, (arg, role) in enumerate(zip(args, _ROLES.get(action.name, ()), strict=False)):
            if isinstance(arg, Program):
                args[place] = function = _Named(f"{role}_{index}")
                lines += self.nested(arg, function.name)
        call = Action(action.op, tuple(args), action.kwargs, action.out, action.mode)
        text = _render(call)(call, self.name)
        if action.out is not None:
            text = f"{self.pattern(action.out)} = {text}"
        return [*lines, f"{text}  # {self.inside}{index}: {action.name}"]

    def nested(self, program: Program, function: str) -> list[str]:
        """A branch or body as a function inside the function."""
        names = [f"x{index}" for index in range(program.inputs)]
        body = _Body(program, names, f"{self.inside}{function}, ")
        return [f"def {function}({', '.join(names)}):", *_indented(body.lines())]

    def pattern(self, out: Any) -> str:
        """The variables that a result is assigned to."""
        if type(out) is Slot:
            return self.name(out)
        parts = [
            "_" if part is None else self.pattern(part) if type(part) is Slot else self.group(part)
            for part in out
        ]
        return ", ".join(parts) + ("," if len(parts) == 1 else "") if parts else "()"

    def group(self, out: Any) -> str:
        """A pattern inside a pattern."""
        text = self.pattern(out)
        return text if text == "()" else f"({text})"


# ------------------------------------------------------------------------------------------ modes


def _contexts(mode: Mode) -> list[str]:
    """The context managers that set a mode."""
    contexts = ["torch.inference_mode()"] if mode.inference else []
    if mode.grad:
        contexts.append("torch.enable_grad()")
    elif not mode.inference:
        contexts.append("torch.no_grad()")
    for device, dtype in mode.autocast:
        how = "enabled=False" if dtype is None else f"dtype={dtype}"
        contexts.append(f"torch.autocast({device!r}, {how})")
    return contexts


# ------------------------------------------------------------------------------------- operations


class _Named:
    """The name of a function in the place of an operand."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _call_source(function: str, args: Iterable[Any], kwargs: dict[str, Any], name: Name) -> str:
    texts = [literal(arg, name) for arg in args]
    return f"{function}({', '.join([*texts, *keyword_literals(kwargs, name)])})"


def _render(action: Action) -> Render:
    """How an action is written: as an operator or an attribute if that is valid, or as a call."""
    op, leaf = action.name, action.name.rpartition(".")[2]
    known = _RENDER.get(op)
    if known is not None and _has_short_form(action, *known[:2]):
        return known[2]
    if leaf in _ACCESS and _has_short_form(action, *_ACCESS[leaf][:2]):
        return _ACCESS[leaf][2](op.split(".")[-2])
    if op.startswith(_TENSOR_METHODS) and leaf not in _ACCESS:
        return _method_call(leaf)
    return _function_call(op)


def _has_short_form(action: Action, operands: int | None, is_statement: bool) -> bool:
    """Whether an action can be written in a short form: that many operands, or as a statement."""
    if is_statement and action.out is not None:
        return False
    return operands is None or (len(action.args) == operands and not action.kwargs)


def _method_call(leaf: str) -> Render:
    def render(action: Action, name: Name) -> str:
        if not action.args or type(action.args[0]) is not Slot:
            return _call_source(f"torch.Tensor.{leaf}", action.args, action.kwargs, name)
        first, *others = action.args
        return _call_source(f"{name(first)}.{leaf}", others, action.kwargs, name)

    return render


def _attribute(attribute: str) -> Render:
    return lambda action, name: f"{term(action.args[0], name)}.{attribute}"


def _assignment(attribute: str) -> Render:
    return lambda action, name: (
        f"{term(action.args[0], name)}.{attribute} = {literal(action.args[1], name)}"
    )


def _deletion(attribute: str) -> Render:
    return lambda action, name: f"del {term(action.args[0], name)}.{attribute}"


_ACCESS: Final = {
    "__get__": (1, False, _attribute),
    "__set__": (2, True, _assignment),
    "__delete__": (1, True, _deletion),
}


def _getitem(action: Action, name: Name) -> str:
    return f"{term(action.args[0], name)}[{index_literal(action.args[1], name)}]"


def _setitem(action: Action, name: Name) -> str:
    return f"{_getitem(action, name)} = {literal(action.args[2], name)}"


def _infix_operator(sign: str, swapped: bool = False) -> Render:
    def render(action: Action, name: Name) -> str:
        left, right = (term(arg, name) for arg in action.args)
        return f"{right} {sign} {left}" if swapped else f"{left} {sign} {right}"

    return render


def _prefix_operator(sign: str) -> Render:
    return lambda action, name: f"{sign}{term(action.args[0], name)}"


def _function_call(function: str) -> Render:
    return lambda action, name: _call_source(function, action.args, action.kwargs, name)


def _control_flow_call(function: str) -> Render:
    """Calls of ``sy.cond`` and ``sy.while_loop``, which take their operands one by one."""

    def render(action: Action, name: Name) -> str:
        *head, operands = action.args
        return _call_source(function, [*head, *operands], {}, name)

    return render


def _ensure_grad_source(action: Action, name: Name) -> str:
    tensor = literal(action.args[0], name)
    return f"{tensor}.grad = torch.zeros_like({tensor}) if {tensor}.grad is None else {tensor}.grad"


_SIGNS: Final = dict(
    add="+", sub="-", mul="*", truediv="/", floordiv="//", mod="%", pow="**", matmul="@"
) | {"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
_COMPARISONS: Final = dict(eq="==", ne="!=", lt="<", le="<=", gt=">", ge=">=")
_NUMBER_OPS: Final = "syft.ops.numbers."
_CONTROL_OPS: Final = "syft.ops.control."
_TENSOR_METHODS: Final = "torch.Tensor."

_ROLES: Final = {
    f"{_CONTROL_OPS}cond": ("pred", "then", "otherwise"),
    f"{_CONTROL_OPS}while_loop": ("test", "body"),
}
# The number of operands (None: any), whether it is a statement, and how it is written.
_RENDER: Final[dict[str, tuple[int | None, bool, Render]]] = {
    f"{_TENSOR_METHODS}__getitem__": (2, False, _getitem),
    f"{_TENSOR_METHODS}__setitem__": (3, True, _setitem),
    f"{_TENSOR_METHODS}__invert__": (1, False, _prefix_operator("~")),
    f"{_TENSOR_METHODS}__rdiv__": (2, False, _infix_operator("/", swapped=True)),
    f"{_CONTROL_OPS}cond": (4, False, _control_flow_call("sy.cond")),
    f"{_CONTROL_OPS}while_loop": (3, False, _control_flow_call("sy.while_loop")),
    f"{_CONTROL_OPS}ensure_grad": (1, True, _ensure_grad_source),
    f"{_NUMBER_OPS}neg": (1, False, _prefix_operator("-")),
    f"{_NUMBER_OPS}pos": (1, False, _prefix_operator("+")),
    f"{_NUMBER_OPS}abs": (None, False, _function_call("abs")),
    f"{_NUMBER_OPS}floor": (None, False, _function_call("math.floor")),
    f"{_NUMBER_OPS}ceil": (None, False, _function_call("math.ceil")),
    f"{_NUMBER_OPS}trunc": (None, False, _function_call("math.trunc")),
    f"{_NUMBER_OPS}round": (None, False, _function_call("round")),
}
for _word, _sign in (_SIGNS | _COMPARISONS).items():
    _RENDER[f"{_TENSOR_METHODS}__{_word}__"] = (2, False, _infix_operator(_sign))
for _word, _sign in _SIGNS.items():
    _RENDER[f"{_TENSOR_METHODS}__r{_word}__"] = (2, False, _infix_operator(_sign, swapped=True))
    _RENDER[f"{_NUMBER_OPS}{_word}"] = (2, False, _infix_operator(_sign))


def literal(value: Any, name: Name) -> str:
    """The source of an operand; ``name`` gives the variable of a slot.

    >>> literal([Slot(0), {"dim": -1}, slice(2, None)], lambda slot: f"_{slot.index}")
    "[_0, {'dim': -1}, slice(2, None, None)]"
    """
    write = _WRITE.get(type(value))
    if write is not None:
        return write(value, name)
    for kind, write_any in _WRITE_LIKE:
        if isinstance(value, kind):
            return write_any(value, name)
    return repr(value)


def index_literal(value: Any, name: Name) -> str:
    """The source of an index, as it is written between the brackets of ``x[...]``.

    >>> index_literal((slice(None), slice(1, None, 2), None), str)
    ':, 1::2, None'
    """
    if type(value) is slice:
        return _index_slice(value, name)
    if type(value) is tuple and value:
        items = [
            _index_slice(item, name) if type(item) is slice else literal(item, name)
            for item in value
        ]
        return ", ".join(items) + ("," if len(items) == 1 else "")
    return literal(value, name)


def term(value: Any, name: Name) -> str:
    """The source of an operand next to an operator, in parentheses where they are needed.

    >>> term(-1, str), term(2.5, str)
    ('(-1)', '2.5')
    """
    text = literal(value, name)
    return f"({text})" if text[0] == "-" or isinstance(value, complex) else text


def keyword_literals(kwargs: dict[str, Any], name: Name) -> list[str]:
    """The source of keyword arguments, including those whose names are reserved words of Python.

    >>> keyword_literals({"dim": 0, "from": 1}, str)
    ['dim=0', "**{'from': 1}"]
    """
    words = {key: value for key, value in kwargs.items() if _is_word(key)}
    texts = [f"{key}={literal(value, name)}" for key, value in words.items()]
    others = {key: value for key, value in kwargs.items() if key not in words}
    if others:
        texts.append(f"**{literal(others, name)}")
    return texts


def _is_word(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def _index_slice(value: slice, name: Name) -> str:
    start, stop, step = (
        "" if part is None else literal(part, name)
        for part in (value.start, value.stop, value.step)
    )
    return f"{start}:{stop}" + (f":{step}" if step else "")


def _float(value: float, name: Name) -> str:
    finite = value == value and abs(value) != float("inf")
    return repr(float(value)) if finite else f"float({str(float(value))!r})"


def _complex(value: complex, name: Name) -> str:
    return f"complex({_float(value.real, name)}, {_float(value.imag, name)})"


def _tuple(value: tuple[Any, ...], name: Name) -> str:
    items = ", ".join(literal(item, name) for item in value)
    return f"({items},)" if len(value) == 1 else f"({items})"


def _list(value: list[Any], name: Name) -> str:
    return f"[{', '.join(literal(item, name) for item in value)}]"


def _dict(value: dict[Any, Any], name: Name) -> str:
    items = (f"{literal(key, name)}: {literal(item, name)}" for key, item in value.items())
    return f"{{{', '.join(items)}}}"


def _slice(value: slice, name: Name) -> str:
    parts = (value.start, value.stop, value.step)
    return f"slice({', '.join(literal(part, name) for part in parts)})"


def _torch_writer(full: str) -> Callable[[Any, Name], str]:
    """A function that writes values of the class of torch that has this name."""
    module = full.rpartition(".")[0]
    if full in TORCH_OPTIONS:
        return lambda value, name: f"{module}.{value!r}"
    return lambda value, name: f"{full}.{value.name}"


_WRITE: dict[type, Callable[[Any, Name], str]] = {
    Slot: lambda value, name: name(value),
    float: _float,
    complex: _complex,
    list: _list,
    dict: _dict,
    slice: _slice,
    type(Ellipsis): lambda value, name: "...",
    type: lambda value, name: str(value.__name__),
    torch.Size: lambda value, name: repr(value),
    torch.device: lambda value, name: f"torch.device({str(value)!r})",
    torch.Generator: lambda value, name: f"torch.Generator({str(value.device)!r})",
}
_WRITE.update(
    (kind, _torch_writer(full))
    for full in (*TORCH_ENUMS, *TORCH_OPTIONS)
    for kind in NUMBERED_KINDS
    if kind.__name__.lstrip("_") == full.rpartition(".")[2]
)
_WRITE_LIKE: tuple[tuple[type, Callable[[Any, Name], str]], ...] = (
    (tuple, _tuple),
    (np.generic, lambda value, name: literal(value.item(), name)),
    (enum.IntEnum, lambda value, name: repr(int(value))),
    (float, _float),
)
