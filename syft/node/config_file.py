"""``syft worker --config FILE``: the options of the command in a TOML file.

A key is an option without its dashes.  The file and what was typed are read and checked each by
itself, in one way: so no option that is typed is about a file of data that the file names.  Then
what the file says is put before what was typed, and what was typed wins, but for files of data:
those are added.  The options of a file of data are a table of their own::

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
from typing import Any, Final, NoReturn

from syft.exceptions import FileRefused

_CONFIG: Final = "config"
_BY_NAME: Final = ("limit", "destination")
"""Options whose values are NAME=VALUE, and in a file a table."""
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class OptionsParser(argparse.ArgumentParser):
    """Reads options that are typed, or those of a file: ``path``, which errors name.

    >>> parser = OptionsParser(); parser.path = "worker.toml"
    >>> parser.parse_args(["--port"])
    Traceback (most recent call last):
    ...
    syft.exceptions.FileRefused: Cannot use 'worker.toml': unrecognized arguments: --port. ...
    """

    path: str | None = None

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end; of a file, raise it."""
        if self.path is not None:
            raise FileRefused(self.path, message, "see syft worker --help")
        super().error(message)


class WorkerOptions:
    """The options of a command that a file may have, as its parser knows them.

    >>> parser = OptionsParser()
    >>> _ = parser.add_argument("--port", type=int), parser.add_argument("--config")
    >>> WorkerOptions(parser).from_table({"port": 8777}, "worker.toml")
    ['--port=8777']
    >>> WorkerOptions(parser).from_table({"prot": 8777}, "worker.toml")
    Traceback (most recent call last):
    ...
    syft.exceptions.FileRefused: Cannot use 'worker.toml': it has a key 'prot', and no option is \
called so. Instead: the nearest is 'port'.
    """

    def __init__(self, parser: OptionsParser) -> None:
        self._parser = parser
        actions = parser._option_string_actions  # argparse has no other list of them
        self._known = {name[2:]: one for name, one in actions.items() if name.startswith("--")}
        for name in ("help", _CONFIG, "print-config"):
            self._known.pop(name, None)
        kinds = {name: type(one).__name__ for name, one in self._known.items()}
        self._about_files = {name for name, kind in kinds.items() if kind == "_AboutFile"}

    # -------------------------------------------------------------------------- from a file

    def with_file(self, arguments: Sequence[str]) -> list[str]:
        """The arguments, after those of the file that ``--config`` names among them.

        Raises :class:`~syft.exceptions.FileRefused`, and :class:`OSError` if it cannot be read;
        ends as a parser does if what is typed is wrong by itself.
        """
        path: str | None = self._parser.parse_args(arguments).config
        if path is None:
            return list(arguments)
        with open(path, "rb") as file:
            try:
                table = tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise FileRefused(path, f"it is no TOML ({error})", "mend it") from None
        self._check(self.from_table(table, path), path)
        for key, values in self._said(arguments):
            table = self._without(table, key, values)
        return [*self.from_table(table, path), *arguments]

    def _check(self, arguments: list[str], path: str) -> None:
        """Raise :class:`~syft.exceptions.FileRefused` for a file that says nothing of its own."""
        self._parser.path = path
        try:
            self._parser.parse_args(arguments)
        finally:
            self._parser.path = None

    def _without(self, table: dict[str, Any], key: str, values: list[str]) -> dict[str, Any]:
        """A table without what a typed option that may be repeated stands for instead."""
        if key not in table or key == "data" or not self._is_repeated(key):
            return table
        if key not in _BY_NAME:
            return {name: one for name, one in table.items() if name != key}
        names = {value.partition("=")[0] for value in values}
        given = _by_name(table[key])
        return {**table, key: [one for one in given if one.partition("=")[0] not in names]}

    def _is_repeated(self, key: str) -> bool:
        return type(self._known[key]).__name__ == "_AppendAction"

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
        values = self._values(key, value, path)
        if isinstance(action.nargs, str):
            return [option, *values]
        if len(values) != 1 and not self._is_repeated(key):
            raise FileRefused(path, f"{key!r} has {len(values)} values", "give it one")
        return [f"{option}={one}" for one in values]

    def _values(self, key: str, value: Any, path: str) -> list[str]:
        """The values of an option, as they are typed."""
        if key in _BY_NAME:
            value = _by_name(value)
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list | bool) for one in values):
            raise FileRefused(path, f"{key!r} is no text or number", f"see --{key} in the help")
        texts = list(map(str, values))
        if isinstance(self._known[key].nargs, str) and any(one.startswith("--") for one in texts):
            raise FileRefused(path, f"{key!r} has a value that begins with --", "name it otherwise")
        return texts

    # ---------------------------------------------------------------------------- to a file

    def shown(self, arguments: Sequence[str]) -> str:
        """The file that says the same as arguments, which were read without an error; options that
        were not given are comments.

        >>> parser = OptionsParser()
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
            elif self._is_repeated(key):
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
            if name in self._known:  # --config itself is not
                yield name, values

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


def _by_name(value: Any) -> Any:
    """What a table of names says, as it is typed; anything else as it is."""
    return [f"{name}={one}" for name, one in value.items()] if isinstance(value, dict) else value


def _toml(value: Any, numbers: bool) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one, numbers) for one in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if numbers and _NUMBER.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False)  # TOML escapes the same way
