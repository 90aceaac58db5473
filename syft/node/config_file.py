"""``syft worker --config FILE``: the options of the command in a TOML file.

A key is an option without its dashes.  What the file says is put before what was typed, as if it
had been typed, so each is read and checked in one way, and what was typed wins.  The options of a
file of data are a table of their own::

    id = "bob"
    token-file = "/etc/syft/tokens.json"

    [limit]
    objects = 10_000

    [[data]]
    file = "/srv/salaries.csv"
    tag = ["salaries"]
    private = ["ann"]
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from syft.exceptions import FileRefused

_CONFIG: Final = "config"
_BY_NAME: Final = ("limit", "destination")
"""Options whose values are NAME=VALUE, and in a file a table."""
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class WorkerOptions:
    """The options of a command that a file may have, as its parser knows them.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--port", type=int), parser.add_argument("--config")
    >>> WorkerOptions(parser).from_table({"port": 8777}, "worker.toml")
    ['--port=8777']
    >>> WorkerOptions(parser).from_table({"prot": 8777}, "worker.toml")
    Traceback (most recent call last):
    ...
    syft.exceptions.FileRefused: Cannot use 'worker.toml': it has a key 'prot', and no option is \
called so. Instead: the nearest is 'port'.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        actions = parser._option_string_actions  # argparse has no other list of them
        self._known = {name[2:]: one for name, one in actions.items() if name.startswith("--")}
        for name in ("help", _CONFIG, "print-config"):
            self._known.pop(name, None)
        kinds = {name: type(one).__name__ for name, one in self._known.items()}
        self._about_files = {name for name, kind in kinds.items() if kind == "_AboutFile"}

    # -------------------------------------------------------------------------- from a file

    def with_file(self, arguments: Sequence[str]) -> list[str]:
        """The arguments, after those of the file that ``--config`` names among them.

        Raises :class:`~syft.exceptions.FileRefused`, and :class:`OSError` if it cannot be read.
        """
        typed, path = list(arguments), None
        for at, one in enumerate(typed):
            if one == f"--{_CONFIG}" and at + 1 < len(typed):
                path = typed[at + 1]
            elif one.startswith(f"--{_CONFIG}="):
                path = one.partition("=")[2]
        if path is None:
            return typed
        with open(path, "rb") as file:
            try:
                table = tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise FileRefused(path, f"it is no TOML ({error})", "mend it") from None
        return [*self.from_table(table, path), *typed]

    def from_table(self, table: dict[str, Any], path: str) -> list[str]:
        """The arguments that say the same as a table of the file at ``path``."""
        found: list[str] = []
        for key, value in table.items():
            if key == "data":
                for one in value if isinstance(value, list) else [value]:
                    found += self._data(one, path)
            else:
                known = self._known.keys() - self._about_files
                found += self._option(self._checked(key, known, path), value, path)
        return found

    def _data(self, value: Any, path: str) -> Iterator[str]:
        """One file, and what is said of it."""
        said = dict(value) if isinstance(value, dict) else {"file": value}
        file = said.pop("file", None)
        if not isinstance(file, str):
            problem = "a table [[data]] has no text under the key 'file'"
            raise FileRefused(path, problem, "name the file of data there")
        yield f"--data={file}"
        for key, one in said.items():
            yield from self._option(self._checked(key, self._about_files, path), one, path)

    def _checked(self, key: str, known: Any, path: str) -> str:
        if key in known:
            return key
        near = difflib.get_close_matches(key, known, 1, 0.0)
        problem = f"it has a key {key!r}, and no option is called so"
        raise FileRefused(path, problem, f"the nearest is {near[0]!r}" if near else "leave it out")

    def _option(self, key: str, value: Any, path: str) -> list[str]:
        """One option with its value, or several times with several ones."""
        option, action = f"--{key}", self._known[key]
        if action.nargs == 0:
            if not isinstance(value, bool):
                raise FileRefused(path, f"{key!r} is neither true nor false", "write one of them")
            return [option] if value else []
        if isinstance(value, dict) and key in _BY_NAME:
            value = [f"{name}={one}" for name, one in value.items()]
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list | bool) for one in values):
            raise FileRefused(path, f"{key!r} is no text or number", f"see {option} in the help")
        if isinstance(action.nargs, str):
            return [option, *map(str, values)]
        if len(values) != 1 and type(action).__name__ != "_AppendAction":
            raise FileRefused(path, f"{key!r} has {len(values)} values", "give it one")
        return [f"{option}={one}" for one in values]

    # ---------------------------------------------------------------------------- to a file

    def shown(self, arguments: Sequence[str]) -> str:
        """The file that says the same as arguments, which were read without an error; options that
        were not given are comments.

        >>> parser = argparse.ArgumentParser()
        >>> _ = parser.add_argument("--port", type=int, default=8777), parser.add_argument("--id")
        >>> print(WorkerOptions(parser).shown(["--id", "bob"]))
        # port = 8777
        id = "bob"
        """
        given: dict[str, Any] = {}
        files: list[dict[str, Any]] = []
        for key, values in self._said(arguments):
            if key == "data":
                files.append({"file": values[0]})
            elif key in self._about_files:
                files[-1][key] = self._about_file(key, values, files[-1].get(key, []))
            elif self._known[key].nargs == 0:
                given[key] = True
            elif type(self._known[key]).__name__ == "_AppendAction":
                given.setdefault(key, []).extend(values)
            else:
                given[key] = values[0]
        lines = [self._line(key, given.get(key)) for key in self._known if self._is_plain(key)]
        for file in files:
            lines += ["", "[[data]]", *(self._line(key, value) for key, value in file.items())]
        return "\n".join(lines)

    def _about_file(self, key: str, values: list[str], before: Any) -> Any:
        """The value of an option about a file, which may have been given before."""
        nargs = self._known[key].nargs
        if nargs == 0:
            return True
        return values[0] if nargs is None else [*before, *values]

    def _is_plain(self, key: str) -> bool:
        return key != "data" and key not in self._about_files

    def _said(self, arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """The options in their order, each with its values."""
        waiting = list(arguments)
        while waiting:
            name, joined, first = waiting.pop(0).removeprefix("--").partition("=")
            values = [first] if joined else []
            while waiting and not waiting[0].startswith("--"):
                values.append(waiting.pop(0))
            known = [key for key in self._known if key == name] or [
                key for key in self._known if key.startswith(name)
            ]
            if len(known) == 1:  # none: --config itself
                yield known[0], values

    def _line(self, key: str, value: Any) -> str:
        action = self._known.get(key)
        if value is None:
            default = None if action is None else action.default
            if action is not None and action.nargs == 0:
                default = False
            if default is None or default == argparse.SUPPRESS:
                return f"# {key} ="
            return f"# {key} = {_toml(default, True)}"
        return f"{key} = {_toml(value, action is not None and action.type is not None)}"


def _toml(value: Any, numbers: bool) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one, numbers) for one in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if numbers and _NUMBER.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False)  # TOML escapes the same way
