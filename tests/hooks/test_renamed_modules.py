"""Imports of earlier versions: each works, or says what to write instead."""

from __future__ import annotations

import importlib
import pydoc
import subprocess
import sys
import warnings

import pytest

import syft as sy
from syft.hooks import renamed
from syft.hooks.renamed import (
    _ABOVE,
    _MODULES,
    _MOVED,
    RenamedModules,
    explain_renamed_modules,
)


@pytest.mark.parametrize("name", sorted(_MOVED))
def test_a_module_whose_names_have_moved_has_them(name: str) -> None:
    for above, module in [*sys.modules.items()]:
        spec = getattr(module, "__spec__", None)
        if name.startswith(above) and isinstance(getattr(spec, "loader", None), RenamedModules):
            del sys.modules[above]
    for times in (1, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(f"from {name} import {', '.join(_MOVED[name])}", names := {})
        assert all(names[one] is getattr(sy, one) for one in _MOVED[name])
        found = [one for one in caught if f"{name} is a module" in str(one.message)]
        assert len(found) == times and all(one.filename == "<string>" for one in found)


def test_what_such_a_module_had_besides_is_told() -> None:
    with warnings.catch_warnings(action="ignore"):
        fl = importlib.import_module("syft.frameworks.torch.fl")
        sandbox = importlib.import_module("syft.sandbox")
    with pytest.raises(
        sy.exceptions.NotThere, match="syft.frameworks.torch.fl.encode is not there"
    ):
        fl.encode  # noqa: B018
    assert not hasattr(sandbox, "nothing")
    assert not hasattr(fl, "__nothing__")


@pytest.mark.parametrize("name", sorted(_MODULES.keys() - _ABOVE))
def test_a_module_of_earlier_versions_says_what_to_write(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    assert str(caught.value) == f"{name} is not there: {_MODULES[name]}."
    assert caught.value.name == name


def test_a_name_inside_one_says_so_too() -> None:
    said = r"^syft\.frameworks\.torch\.dp is not there: sy\.federated"
    with pytest.raises(ModuleNotFoundError, match=said):
        importlib.import_module("syft.frameworks.torch.dp")


@pytest.mark.parametrize("name", sorted({**renamed._PLANNED, **renamed._GONE}))
def test_a_name_of_the_package_says_so_too(name: str) -> None:
    """As :func:`syft.__getattr__` does; that one cannot be heard in a ``from`` statement."""
    with pytest.raises(sy.exceptions.NotThere) as read:
        getattr(sy, name)
    with pytest.raises(ImportError) as caught:
        exec(f"from syft import func2plan, {name}", {})
    assert str(caught.value) == str(read.value) and type(caught.value) is ImportError
    assert caught.value.name == f"syft.{name}"


def test_who_looks_whether_a_name_is_there_learns_that_it_is_not() -> None:
    assert not hasattr(sy, "PaillierTensor") and getattr(sy, "PaillierTensor", None) is None
    assert pydoc.locate("syft.PaillierTensor") is None
    assert pydoc.locate("syft.Plan") is sy.Plan


def test_other_names_of_the_package_are_missing_as_ever() -> None:
    with pytest.raises(ImportError, match="^cannot import name 'nonsense' from 'syft'"):
        exec("from syft import nonsense", {})
    with pytest.raises(ModuleNotFoundError, match="^No module named 'syft.hooks.PaillierTensor'$"):
        importlib.import_module("syft.hooks.PaillierTensor")


def test_other_modules_are_not_found_as_ever() -> None:
    for name in ("syft.nonsense", "frameworks", "syft.workers.virtually"):
        with pytest.raises(ModuleNotFoundError, match=f"^No module named '{name}'$"):
            importlib.import_module(name)


def test_python_asks_once_and_last_and_after_import_of_the_package() -> None:
    text = (
        "import sys, syft; from syft.hooks.renamed import RenamedModules as R\n"
        "print(sys.meta_path.count(R), sys.meta_path[-1] is R)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "1 True\n"
    explain_renamed_modules(RenamedModules.public)
    assert sys.meta_path.count(RenamedModules) == 1


def test_it_comes_back_if_it_was_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if one != RenamedModules])
    with pytest.raises(ModuleNotFoundError, match="^No module named 'syft.workers.base'$"):
        importlib.import_module("syft.workers.base")
    explain_renamed_modules(RenamedModules.public)
    with pytest.raises(ModuleNotFoundError, match=r"sy\.VirtualWorker"):
        importlib.import_module("syft.workers.base")
