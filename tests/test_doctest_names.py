"""Examples in docstrings share names, made only where an example reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.doctest_names import names_read
from tests.outside import outside

ROOT = Path(__file__).parent.parent

MODULE = '''
def given():
    """
    >>> x = torch.ones(2).send(bob)
    >>> (x + x).get(), bob.id, hook is sy.TorchHook.current()
    (tensor([2., 2.]), 'bob', True)
    >>> [worker.id for worker in hook.local_worker.network.workers.values()]
    ['me', 'bob']
    """


def both():
    """
    >>> len(torch.ones(2).send(bob, alice).get())
    2
    """


def nothing_is_made():
    """
    >>> sy.TorchHook._current is None, "bob" in globals()
    (True, False)
    """


def their_own():
    """
    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> torch.ones(2).send(bob).get()
    tensor([1., 1.])
    """


def no_such_name():
    """
    >>> charlie
    """


def wrong():
    """
    >>> torch.ones(1).send(bob).get()
    tensor([2.])
    """
'''

PAGE = """
>>> import torch
>>> sy
"""


def test_examples_are_given_what_they_read(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "page.md").write_text(PAGE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest"]
        + ["-p", "no:cacheprovider", "-rA", "-n0", str(tmp_path)],
        cwd=ROOT,
        env=outside(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    ends = {words[1].rpartition(".")[2]: words[0] for words in lines if words and "::" in words[-1]}
    assert ends == {
        "given": "PASSED",
        "both": "PASSED",
        "nothing_is_made": "PASSED",
        "their_own": "PASSED",
        "no_such_name": "FAILED",
        "wrong": "FAILED",
        "md": "FAILED",
    }, (
        done.stdout + done.stderr
    )
    assert "name 'charlie' is not defined" in done.stdout
    assert "name 'sy' is not defined" in done.stdout, "a page imports what it uses"


@pytest.mark.parametrize(
    ("sources", "read"),
    [
        (["bob.id"], {"bob"}),
        (["bob = 1", "bob"], set()),
        (["bob", "bob = 1"], {"bob"}),
        (["bob = make(bob)"], {"bob", "make"}),
        (["import torch, syft as sy", "torch.ones(sy)"], set()),
        (["import torch.nn", "torch, nn"], {"nn"}),
        (["from torch import nn as n", "n, nn"], {"nn"}),
        (["def bob(): pass", "bob()"], set()),
        (["class bob: pass", "bob()"], set()),
        (["for bob in alice: bob", "bob"], {"alice", "bob"}),
        (["x.bob = 'alice'"], {"x"}),
        (["def f(bob): return bob", "f"], set()),
        (["lambda alice: alice + bob"], {"bob"}),
        (["1 +", "bob"], {"bob"}),
    ],
)
def test_names_are_read_before_they_are_bound(sources: list[str], read: set[str]) -> None:
    assert names_read(sources) == read
