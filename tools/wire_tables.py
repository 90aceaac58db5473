"""The tables of docs/wire.md, made from syft/codes.py, syft/workers/sockets/line_messages.py and
from what each kind of request declares (syft/workers/core/pipeline.py); and those of
docs/fixed_precision.md and docs/sharing.md, made from syft/tensors/fixed/domains.py.

``python tools/wire_tables.py`` prints them; ``--write`` puts them into the documents, between
marker lines.  A test compares the documents with what this prints.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from syft import codes
from syft.tensors.fixed import domains
from syft.workers.core.pipeline import DECLARATIONS, Declaration
from syft.workers.sockets import line_messages
from syft.workers.wire import messages

DOCUMENT = Path(__file__).parent.parent / "docs" / "wire.md"
FUNCTIONS = DOCUMENT.with_name("fixed_precision.md")
FUNCTIONS_BEGIN = "<!-- functions: written by tools/wire_tables.py -->"
FUNCTIONS_END = "<!-- end of functions -->"
SHARING = DOCUMENT.with_name("sharing.md")
ERRORS_BEGIN = "<!-- errors: written by tools/wire_tables.py -->"
ERRORS_END = "<!-- end of errors -->"
TEXTS_BEGIN = "<!-- texts: written by tools/wire_tables.py -->"
TEXTS_END = "<!-- end of texts -->"
EFFECTS_BEGIN = "<!-- effects: written by tools/wire_tables.py -->"
EFFECTS_END = "<!-- end of effects -->"
BEGIN = "<!-- tables: written by tools/wire_tables.py -->"
END = "<!-- end of tables -->"


def table(heading: str, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a Markdown table under a heading."""
    lines = [f"### {heading}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code_table(cls: type[codes.WireCode]) -> str:
    """Return the table of one enumeration; a third column only where something is in it."""
    if any(member.meaning for member in cls):
        last = "fields after the code" if cls is codes.TypeCode else "meaning"
        rows = [(int(member), f"`{member.name}`", member.meaning) for member in cls]
        return table(cls.__name__, ("number", "name", last), rows)
    return table(cls.__name__, ("number", "name"), [(int(m), f"`{m.name}`") for m in cls])


def enumerations() -> list[type[codes.WireCode]]:
    """Return the enumerations of wire numbers, in the order of the file."""
    found = [value for value in vars(codes).values() if isinstance(value, type)]
    return [cls for cls in found if issubclass(cls, codes.WireCode) and cls is not codes.WireCode]


def tables() -> str:
    """Return all tables, as they stand in the document."""
    flags = [(flag.value, f"`{flag.name}`") for flag in codes.TensorFlag]
    named = [(number, f"`{name}`") for number, name in enumerate(codes.NAMED_TUPLES)]
    enums = [(number, f"`{name}`") for number, name in enumerate(codes.TORCH_ENUMS)]
    options = [(number, f"`{name}`") for number, name in enumerate(codes.TORCH_OPTIONS)]
    types = [(number, f"`{cls.__name__}`") for number, cls in enumerate(codes.PYTHON_TYPES)]
    parts = [
        *map(code_table, enumerations()),
        table("TensorFlag", ("bit", "name"), flags),
        table("PYTHON_TYPES", ("number", "name"), types),
        table("TORCH_ENUMS", ("number", "name"), enums),
        table("TORCH_OPTIONS", ("number", "name"), options),
        table("NAMED_TUPLES", ("number", "name"), named),
    ]
    return "\n\n".join(parts)


# ------------------------------------------------------------------------------ texts about a line

_JSON_NAMES: dict[Any, str] = {
    **{int: "integer", float: "number", str: "string", bool: "boolean"},
    **{type(None): "null", Any: "any value"},
}


def json_type(kind: Any) -> str:
    """Return what JSON calls a type of a field."""
    if typing.get_origin(kind) is types.UnionType:
        return " or ".join(map(json_type, typing.get_args(kind)))
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        return f"array of {json_type(item)}s"
    known = _JSON_NAMES.get(kind)
    return f"*{kind.__name__.lower()}*" if known is None else known


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """Return the value of a field that is left out; nothing for one that must be there."""
    if field.required:
        return ""
    factory: Any = field.default_factory
    value = field.default if factory is msgspec.NODEFAULT else factory()
    return f" = `{json.dumps(value)}`"


def text_row(cls: type[msgspec.Struct]) -> tuple[str, str]:
    """Return the name of a record and its fields."""
    fields = [
        f"`{field.encode_name}` {json_type(field.type)}{default_of(field)}"
        for field in msgspec.structs.fields(cls)
    ]
    tag = cls.__struct_config__.tag
    name = codes.LineCode(tag).name if isinstance(tag, int) else tag
    return f"`{name}`" if name else f"*{cls.__name__.lower()}*", "; ".join(fields)


def text_tables() -> str:
    """Return the tables of what is said of a line, as they stand in the document."""
    greetings = (line_messages.Hello, line_messages.Welcome, line_messages.Refused)
    texts = [text_row(cls) for cls in greetings]
    objects = [text_row(cls) for cls in (line_messages.Resume, line_messages.Sizes)]
    kinds: tuple[type[line_messages.Control], ...] = typing.get_args(line_messages.Kind)
    rows = [
        (code_of(cls), name, "yes" if cls.counted else "", fields.replace("null", "nil"))
        for cls in kinds
        for name, fields in [text_row(cls)]
    ]
    fields = "fields; `=` what one stands for that is left out"
    parts = (
        table("Texts", ("kind", fields), texts),
        table("Objects in texts", ("object", "fields"), objects),
        table("Messages about the line", ("number", "kind", "counted", fields), rows),
    )
    return "\n\n".join(parts)


# ------------------------------------------------------------------------- what requests do


def code_of(kind: type[msgspec.Struct]) -> int:
    """Return the number of a kind of message."""
    tag = kind.__struct_config__.tag
    assert isinstance(tag, int)  # all kinds of messages have one
    return tag


def effect_row(kind: type[messages.Message]) -> tuple[str, ...]:
    """Return what a kind of request does, by the fields of its message, and what answers it."""
    declared = DECLARATIONS[kind]
    replies = [f"`{codes.MessageCode(code_of(one)).name}`" for one in declared.answers]
    fields = (declared.reads, declared.sets, declared.takes, declared.makes or declared.returns)
    names = [" ".join(f"*{name}*" for name in field.split(", ") if name) for field in fields]
    waits = "yes" if declared.waits else ""
    return (
        f"`{codes.MessageCode(code_of(kind)).name}`",
        *names,
        waits,
        declared.leaves.replace("`to`", "*to*"),
        " ".join(replies) or "none",
    )


def effect_table() -> str:
    """Return the table of what requests do, as it stands in the document."""
    head = ("request", "reads", "sets", "takes", "makes", "waits", "values go to", "answered by")
    rows = [effect_row(kind) for kind in sorted(DECLARATIONS, key=code_of)]
    return table("What requests do", head, rows)


# ------------------------------------------------------------------------- in which state of an id

IF_MADE: Final = {
    "there": "`ObjectIdTaken`",
    "another's": "`ObjectIdTaken`",
    "promised": "runs",
    "another's promise": "`PermissionDenied`",
    "unknown": "runs",
    "gone": "runs",
    "given up": "`PromiseGivenUp`",
}
"""What becomes of most requests that make an object, by the state of the object's id."""


IF_NAMED: Final = {
    "promised": "waits",
    "another's promise": "waits",
    "unknown": "`ObjectNotFound`",
    "gone": "`ObjectNotFound`",
    "given up": "`PromiseGivenUp`",
}
"""What becomes of most requests that name an object, where they do not run."""


def if_made(declared: Declaration, state: str) -> str:
    """Return what becomes of a request that makes an object whose id is in this state.

    One that may be parked promises its results itself.
    """
    promises = messages.Parked in declared.answers and state in ("promised", "another's promise")
    return "`ObjectIdTaken`" if promises else IF_MADE[state]


def if_named(declared: Declaration, state: str) -> str:
    """Return what becomes of a request that names an object whose id is in this state."""
    changes = bool(declared.action and (declared.sets or declared.takes))
    if state.startswith("another's") and changes:
        return "`PermissionDenied`"
    found = IF_NAMED.get(state, "runs")
    if declared.waits or (found == "waits" and messages.Parked in declared.answers):
        return found
    return "runs"  # it looks at what is there now


def state_table() -> str:
    """Return the table of what becomes of requests, by the state of an id that they name or make;
    requests that are alike share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind in sorted(DECLARATIONS, key=code_of):
        declared = DECLARATIONS[kind]
        name = f"`{codes.MessageCode(code_of(kind)).name}`"
        if declared.reads or declared.sets or declared.takes:
            cells = [if_named(declared, state) for state in IF_MADE]
            alike.setdefault(("names", *cells), []).append(name)
        if declared.makes or declared.returns:
            cells = [if_made(declared, state) for state in IF_MADE]
            alike.setdefault(("makes", *cells), []).append(name)
    rows = [(" ".join(names), *cells) for cells, names in sorted(alike.items(), reverse=True)]
    return table("What becomes of requests", ("requests", "an id that it", *IF_MADE), rows)


# ------------------------------------------------------------------------------------ the document


def between(text: str, begin: str, end: str, content: str) -> str:
    """Return a text with what stands between two lines replaced."""
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def with_tables(text: str) -> str:
    """Return the document with its tables replaced by those of today."""
    text = between(text, TEXTS_BEGIN, TEXTS_END, text_tables())
    text = between(text, EFFECTS_BEGIN, EFFECTS_END, f"{effect_table()}\n\n{state_table()}")
    return between(text, BEGIN, END, tables())


def with_functions(text: str) -> str:
    """Return the page on fixed precision with the table of functions of today."""
    return between(text, FUNCTIONS_BEGIN, FUNCTIONS_END, "\n".join(domains.table(16)))


def with_errors(text: str) -> str:
    """Return the page on shared tensors with the table of errors of today."""
    return between(text, ERRORS_BEGIN, ERRORS_END, "\n".join(domains.errors(16)))


def main(arguments: list[str]) -> None:
    """Print the tables, or with ``--write`` bring the document up to date."""
    if arguments == ["--write"]:
        for document, renewed in WRITTEN:
            document.write_text(renewed(document.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(
            "\n\n".join(
                (
                    tables(),
                    text_tables(),
                    effect_table(),
                    state_table(),
                    "\n".join(domains.table(16)),
                )
            )
        )


WRITTEN = ((DOCUMENT, with_tables), (FUNCTIONS, with_functions), (SHARING, with_errors))
"""The documents, and what brings each up to date."""


if __name__ == "__main__":
    main(sys.argv[1:])
