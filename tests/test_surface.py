"""The public surface is a checked file: ``surface.txt`` lists every public name and signature.

A change of the surface is a change of that file, to be seen in review.  Run this file as a program
to write it anew: ``python tests/test_surface.py``.
"""

from __future__ import annotations

import ast
import doctest
import enum
import inspect
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.hooks import renamed
from tests.doctest_names import names_for
from tests.outside import outside

LISTING = pathlib.Path(__file__).with_name("surface.txt")

WITHOUT_DOCTEST: frozenset[str] = frozenset()
"""Public classes and functions without an example yet.  This list may only become shorter."""


def _public_names() -> list[str]:
    """The names ``syft/__init__.py`` passes on, as ``from x import name as name``."""
    tree = ast.parse(pathlib.Path(sy.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sorted(
        alias.name for node in imports for alias in node.names if alias.asname == alias.name
    )


def _unwrapped(value: Any) -> Any:
    """The function of a method or computed attribute that torch learned."""
    for name in ("_function", "_compute", "fget", "__func__"):
        value = getattr(value, name, value)
    return value


def _signature(value: Any) -> str:
    """As written; nothing for classes that are made as their parent in C is."""
    if isinstance(value, enum.EnumType):
        return ""
    if isinstance(value, type):
        ours = [vars(base) for base in value.__mro__ if base.__module__.startswith("syft")]
        if not any("__init__" in own or "__new__" in own for own in ours):
            return ""
    return str(inspect.signature(value)) if callable(value) else ""


def _members(path: str, owner: type) -> Iterator[tuple[str, Any, str]]:
    """What a class of ours defines, and what it inherits from classes of ours."""
    for name in sorted(dir(owner)):
        home = next((base for base in owner.__mro__ if name in vars(base)), object)
        if name.startswith("_") or not home.__module__.startswith("syft"):
            continue
        value = vars(home)[name]
        if inspect.isroutine(value) or isinstance(value, (classmethod, staticmethod)):
            value = _unwrapped(value)
            yield f"{path}.{name}", value, _signature(value)
        elif isinstance(value, property):
            yield f"{path}.{name}", value.fget, ""


_PATHS: dict[type, str] = {
    torch.Tensor: "torch.Tensor",
    nn.Module: "torch.nn.Module",
    torch.utils.data.Dataset: "torch.utils.data.Dataset",
}
"""The classes of torch that learn something."""


def _learned(target: type) -> Iterator[tuple[str, Any, str]]:
    """What the hook in force has added to a class of torch."""
    for name, value in sorted(vars(target).items()):
        function = _unwrapped(value)
        if (getattr(function, "__module__", None) or "").startswith("syft"):
            attribute = not inspect.isroutine(value) and not getattr(value, "_is_method", False)
            signature = "" if attribute else _signature(function)
            yield f"{_PATHS[target]}.{name}", function, signature


def surface() -> Iterator[tuple[str, Any, str]]:
    """(name, object, signature) of everything public; torch must be hooked."""
    for name in _public_names():
        value = getattr(sy, name)
        if inspect.ismodule(value):
            yield f"syft.{name}", value, ""
            for inner in sorted(vars(value)):
                found = vars(value)[inner]
                public = inspect.isclass(found) or inspect.isfunction(found)
                ours = getattr(found, "__module__", "").startswith("syft")
                if public and ours and not inner.startswith("_"):
                    yield f"syft.{name}.{inner}", found, _signature(found)
        else:
            yield f"syft.{name}", value, _signature(value)
            if inspect.isclass(value):
                yield from _members(f"syft.{name}", value)
    for target in _PATHS:
        yield from _learned(target)


def _lines() -> list[str]:
    return [name + signature for name, _, signature in surface()]


def test_the_listing_is_the_surface(hook: sy.TorchHook) -> None:
    assert _lines() == LISTING.read_text(encoding="utf-8").splitlines()


def test_dir_is_the_surface() -> None:
    assert dir(sy) == sorted([*_public_names(), "__version__"])
    hook = sy.TorchHook(torch)
    assert dir(sy) == sorted([*_public_names(), "__version__", "hook", "local_worker"])
    assert {name for name in dir(sy) if getattr(sy, name, None) is None} == set()
    hook.close()


IMPORTS = """
import sys, torch, syft
print([name for name in ("websockets", "cryptography") if name in sys.modules])
bob = syft.VirtualWorker(syft.TorchHook(torch), id="bob")
print((torch.ones(2).send(bob) + 1).get().tolist(), "cryptography" in sys.modules)
from syft import *
print(connect is syft.connect, WebsocketServerWorker.__module__)
"""


def test_sockets_are_imported_when_they_are_asked_for() -> None:
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=outside())
    assert done.stdout.splitlines() == [
        "[]",
        "[2.0, 2.0] False",
        "True syft.workers.sockets.server",
    ]


def test_a_star_imports_the_surface() -> None:
    given: dict[str, Any] = {}
    exec("from syft import *", given)  # noqa: S102
    assert sorted(given.keys() - {"__builtins__"}) == _public_names()


def test_names_of_earlier_versions_say_what_to_use() -> None:
    """None of them is there, and each that stands in a text is."""
    for name in {**renamed._PLANNED, **renamed._GONE}:
        assert not hasattr(sy, name)
        with pytest.raises(sy.exceptions.NotThere) as caught:
            getattr(sy, name)
        yet = " yet" if name in renamed._PLANNED else ""
        assert str(caught.value).startswith(f"sy.{name} is not there{yet}: ")
        assert caught.value.planned is bool(yet)
        for said in re.findall(r"sy\.(\w+)", caught.value.instead):
            assert hasattr(sy, said), said
    with pytest.raises(AttributeError, match="module 'syft' has no attribute 'nonsense'") as plain:
        sy.nonsense  # noqa: B018
    assert type(plain.value) is AttributeError


def test_every_public_name_has_a_docstring(hook: sy.TorchHook) -> None:
    silent = [name for name, value, _ in surface() if not inspect.getdoc(value)]
    assert silent == []


def _example_of(name: str, value: Any, found: dict[str, Any]) -> str:
    """The docstrings in which an example of ``name`` may stand: its own and its class's."""
    parent = found.get(name.rpartition(".")[0])
    owner = parent if isinstance(parent, type) else None
    return f"{value.__doc__}\n{owner.__doc__ if owner else None}"


def test_every_public_name_has_a_doctest(hook: sy.TorchHook) -> None:
    found = {name: value for name, value, _ in surface() if not inspect.ismodule(value)}
    silent = {n for n, value in found.items() if ">>>" not in _example_of(n, value, found)}
    assert silent == WITHOUT_DOCTEST


def test_what_torch_learns_has_examples_that_run() -> None:
    """Some of it is defined inside the hook, where a collector of doctests does not look."""
    teaching = sy.TorchHook(torch)
    learned = [found for target in _PATHS for found in _learned(target)]
    texts = {name: inspect.getdoc(value) or "" for name, value, _ in learned}
    teaching.close()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for name, text in texts.items():
        examples = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
        assert examples.examples, name
        examples.globs.update(names_for(examples))
        runner.run(examples)
        sy.TorchHook.current().close()
    assert runner.summarize(verbose=False).failed == 0


def test_every_listed_name_resolves(hook: sy.TorchHook) -> None:
    for line in LISTING.read_text(encoding="utf-8").splitlines():
        first, *path = line.partition("(")[0].split(".")
        value: Any = {"syft": sy, "torch": torch}[first]
        for step in path:
            value = getattr(value, step)


def test_the_version_is_told() -> None:
    assert sy.__version__.count(".") == 2


if __name__ == "__main__":
    sy.TorchHook(torch)
    LISTING.write_text("".join(line + "\n" for line in _lines()), encoding="utf-8")
