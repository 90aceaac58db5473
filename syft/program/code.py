"""A program as Python source, for a person: what it computes, line by line, with its ops' numbers.

The source is valid Python.  Executed where ``torch``, ``math``, ``sy`` and the constants are names,
it does what the program does; syft itself never executes it.  Values of tensors are never shown.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import torch

from syft.program.literals import Name, index_literal, keywords, literal, term
from syft.program.program import Action, Mode, Program, Slot

_LONG: Final = 88
_TAKEN: Final = frozenset(keyword.kwlist).union(
    "torch math sy state abs round int float complex bool slice range".split()
)
_GIVEN_OUT: Final = re.compile(r"_|(then|otherwise|test|body)?_\d+")  # names that are made here

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

    ``arguments`` and ``state`` name the inputs and the state; names that Python would not take, or
    that are taken, are changed.  Constants are free variables of the function.

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
        lines.append(f"    # {constant}: {_shape(tensor)}, a constant")
    body = _Body(program, names, "")
    return "\n".join([*lines, *_indented(body.lines())])


def _shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _targets(names: list[str], value: str) -> list[str]:
    """An assignment to several names, over several lines if it is long."""
    line = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {value}"
    if len(line) <= _LONG:
        return [line]
    return ["(", *(f"    {name}," for name in names), f") = {value}"]


def _identifiers(wanted: Iterable[str]) -> list[str]:
    """Names that are Python's to take, and each another."""
    names: list[str] = []
    for text in wanted:
        name = re.sub(r"\W", "_", text, flags=re.ASCII)
        if not name.isidentifier() or _GIVEN_OUT.fullmatch(name) or name in _TAKEN:
            name = f"x_{name.lstrip('_')}"
        stem, number = name, 2
        while name in names:
            name, number = f"{stem}_{number}", number + 1
        names.append(name)
    return names


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Body:
    """Writes the lines of one program: of the whole, or of a branch inside it."""

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
    """The context managers that make a mode."""
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
    """A name in the place of an operand."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _call(function: str, args: Iterable[Any], kwargs: dict[str, Any], name: Name) -> str:
    texts = [literal(arg, name) for arg in args]
    return f"{function}({', '.join([*texts, *keywords(kwargs, name)])})"


def _render(action: Action) -> Render:
    """Find out how an action is written: its operator or attribute if it fits, or else a call."""
    op, leaf = action.name, action.name.rpartition(".")[2]
    known = _RENDER.get(op)
    if known is not None and _fits(action, *known[:2]):
        return known[2]
    if leaf in _ACCESS and _fits(action, *_ACCESS[leaf][:2]):
        return _ACCESS[leaf][2](op.split(".")[-2])
    if op.startswith(_TENSOR) and leaf not in _ACCESS:
        return _method(leaf)
    return _function(op)


def _fits(action: Action, operands: int | None, is_statement: bool) -> bool:
    """Whether an action has the operands of its short form, and no result if that has none."""
    if is_statement and action.out is not None:
        return False
    return operands is None or (len(action.args) == operands and not action.kwargs)


def _method(leaf: str) -> Render:
    def render(action: Action, name: Name) -> str:
        if not action.args or type(action.args[0]) is not Slot:
            return _call(f"torch.Tensor.{leaf}", action.args, action.kwargs, name)
        first, *others = action.args
        return _call(f"{name(first)}.{leaf}", others, action.kwargs, name)

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


def _item(action: Action, name: Name) -> str:
    return f"{term(action.args[0], name)}[{index_literal(action.args[1], name)}]"


def _set_item(action: Action, name: Name) -> str:
    return f"{_item(action, name)} = {literal(action.args[2], name)}"


def _binary(sign: str, swapped: bool = False) -> Render:
    def render(action: Action, name: Name) -> str:
        left, right = (term(arg, name) for arg in action.args)
        return f"{right} {sign} {left}" if swapped else f"{left} {sign} {right}"

    return render


def _unary(sign: str) -> Render:
    return lambda action, name: f"{sign}{term(action.args[0], name)}"


def _function(function: str) -> Render:
    return lambda action, name: _call(function, action.args, action.kwargs, name)


def _branching(function: str) -> Render:
    """``sy.cond`` and ``sy.while_loop`` take their operands one by one."""

    def render(action: Action, name: Name) -> str:
        *head, operands = action.args
        return _call(function, [*head, *operands], {}, name)

    return render


def _gradient(action: Action, name: Name) -> str:
    tensor = literal(action.args[0], name)
    return f"{tensor}.grad = torch.zeros_like({tensor}) if {tensor}.grad is None else {tensor}.grad"


_SIGNS: Final = dict(
    add="+", sub="-", mul="*", truediv="/", floordiv="//", mod="%", pow="**", matmul="@"
) | {"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
_COMPARISONS: Final = dict(eq="==", ne="!=", lt="<", le="<=", gt=">", ge=">=")
_NUMBERS: Final = "syft.ops.numbers."
_CONTROL: Final = "syft.ops.control."
_TENSOR: Final = "torch.Tensor."

_ROLES: Final = {
    f"{_CONTROL}cond": ("pred", "then", "otherwise"),
    f"{_CONTROL}while_loop": ("test", "body"),
}
# Operands it takes (None: any), whether it is a statement, and how it is written.
_RENDER: Final[dict[str, tuple[int | None, bool, Render]]] = {
    f"{_TENSOR}__getitem__": (2, False, _item),
    f"{_TENSOR}__setitem__": (3, True, _set_item),
    f"{_TENSOR}__invert__": (1, False, _unary("~")),
    f"{_TENSOR}__rdiv__": (2, False, _binary("/", swapped=True)),
    f"{_CONTROL}cond": (4, False, _branching("sy.cond")),
    f"{_CONTROL}while_loop": (3, False, _branching("sy.while_loop")),
    f"{_CONTROL}ensure_grad": (1, True, _gradient),
    f"{_NUMBERS}neg": (1, False, _unary("-")),
    f"{_NUMBERS}pos": (1, False, _unary("+")),
    f"{_NUMBERS}abs": (None, False, _function("abs")),
    f"{_NUMBERS}floor": (None, False, _function("math.floor")),
    f"{_NUMBERS}ceil": (None, False, _function("math.ceil")),
    f"{_NUMBERS}trunc": (None, False, _function("math.trunc")),
    f"{_NUMBERS}round": (None, False, _function("round")),
}
for _word, _sign in (_SIGNS | _COMPARISONS).items():
    _RENDER[f"{_TENSOR}__{_word}__"] = (2, False, _binary(_sign))
for _word, _sign in _SIGNS.items():
    _RENDER[f"{_TENSOR}__r{_word}__"] = (2, False, _binary(_sign, swapped=True))
    _RENDER[f"{_NUMBERS}{_word}"] = (2, False, _binary(_sign))
