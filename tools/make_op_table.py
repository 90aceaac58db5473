"""Proposes lines for the op table: what the installed torch can override and neither file knows.

Run it after torch was upgraded.  It prints lines in the form of ``syft/ops/ops.txt``, with the
numbers that come next and with flags guessed from the names, or ``complete`` when there is nothing
to decide.  A person reads each line, moves it to ``ops.txt`` (always at the end: the numbers are
append-only) or to ``refused.txt`` (with a reason), and adds the flags that only a look at the
function can tell.  ``tests/ops/test_op_flags.py`` compares the flags with what torch does.

    python tools/make_op_table.py
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import get_overridable_functions, get_testing_overrides

from syft.ops import table as op_table

# Where functions live, the best name first: the first that has a function gives it its name.
NAMESPACES = (
    "torch.Tensor",
    "torch",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch.sparse",
    "torch.foreach",
    "torch.signal.windows",
    "torch.autograd",
    "torch.amp",
    "torch.distributed",
    "torch._C._nn",
)
RANDOM_WORDS = ("rand", "normal", "uniform", "bernoulli", "dropout", "multinomial", "poisson")
INPLACE_NAMES = ("__setitem__", "__set__", "__delete__")


def main() -> None:
    """Print the proposals."""
    proposals = sorted(missing())
    for number, name in enumerate(proposals, len(op_table.NAMES)):
        print(" ".join([str(number), name, *guess_flags(name)]))
    if not proposals:
        print("complete")


def missing() -> Iterator[str]:
    """Yield the name of each function that torch can override and neither file has."""
    names = name_index()
    for function in overridable():
        if function not in op_table.NUMBERS and function not in op_table.REFUSED:
            yield names.get(function, f"? {function!r}")


def overridable() -> set[Any]:
    """Collect all that torch says it hands to ``__torch_function__``, and its public C functions.

    The latter holds the factories and the in-place functions, which torch does not list.
    """
    public = torch._C._VariableFunctions
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # some functions are deprecated, and asking for them says so
        listed = [
            function for functions in get_overridable_functions().values() for function in functions
        ]
        return {
            *listed,
            *get_testing_overrides(),
            *(getattr(public, name) for name in dir(public) if not name.startswith("_")),
        }


def name_index() -> dict[Any, str]:
    """Map each function that a namespace of torch holds to its best name."""
    index: dict[Any, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for namespace in NAMESPACES:
            for name, function in members(namespace):
                index.setdefault(function, name)
    return index


def members(namespace: str) -> Iterator[tuple[str, Any]]:
    """Yield what one namespace holds; for a property, what reads and what sets it."""
    holder: Any = torch
    for part in namespace.split(".")[1:]:
        holder = getattr(holder, part, None)
    for name in dir(holder):
        member = getattr(holder, name, None)
        if isinstance(member, types.GetSetDescriptorType | property):
            for access in ("__get__", "__set__", "__delete__"):
                yield f"{namespace}.{name}.{access}", getattr(member, access)
        elif callable(member):
            yield f"{namespace}.{name}", member


def guess_flags(name: str) -> list[str]:
    """Guess flags from a name. ``one`` is never guessed: it wants proof.

    >>> guess_flags("torch.Tensor.uniform_"), guess_flags("torch.Tensor.is_odd")
    (['inplace', 'random'], ['metadata'])
    """
    leaf = name.rpartition(".")[2]
    flags = []
    if leaf in INPLACE_NAMES or (leaf.endswith("_") and not leaf.endswith("__")):
        flags.append("inplace")
    if leaf in INPLACE_NAMES:
        flags.append("nothing")
    if any(word in leaf for word in RANDOM_WORDS):
        flags.append("random")
    if leaf.startswith("is_") or (leaf == "__get__" and ".is_" in name):
        flags.append("metadata")
    if "empty" in leaf or "resize" in leaf:
        flags.append("uninitialized")
    return flags


if __name__ == "__main__":
    main()
