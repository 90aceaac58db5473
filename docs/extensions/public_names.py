"""Every public name: a page that describes it, and links to it from all pages.

``docs/names.md`` lists the names by what one wants to do; it is written by hand and read in the
repository too, so a name on it is code and no link.  Here each name is described on a page made
from its docstring, and where a page has the name as code and nothing else, it becomes a link.  The
pages of the modules are for those who change syft: what they describe lies where it is defined,
which is not where users find it.
"""

from __future__ import annotations

import builtins
import inspect
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

import syft as sy
from tests.test_surface import surface

DOCS = Path(__file__).resolve().parents[1]

OWNERS = {
    "TorchHook": "hook",
    "VirtualWorker": "worker",
    "WebsocketClientWorker": "worker",
    "WebsocketServerWorker": "worker",
    "Plan": "plan",
    "PointerPlan": "plan",
    "State": "state",
    "Link": "link",
    "LocalLink": "link",
    "LoggingTensor": "link",
    "MultiPointerTensor": "link",
    "FixedPrecisionTensor": "link",
    "BaseDataset": "dataset",
    "FederatedDataset": "dataset",
    "Partition": "partition",
    "PrivateGridNetwork": "grid",
    "SimulatedClients": "clients",
    "FederatedRound": "round",
}
"""By class: how an object of it is called where its members are listed.

Members that several classes have are listed once.  Of ``PointerTensor`` and ``Wrapper`` none is:
they are those of torch, and of ``link``.
"""

TITLES = {
    "sy": "sy: functions and classes",
    "tensor": "tensor: methods of every tensor",
    "module": "module: methods of every module",
    "worker": "worker: methods of workers",
    "plan": "plan: methods of plans",
    "dataset": "dataset: methods of data sets",
    "partition": "partition: who gets which samples",
    "grid": "grid: methods of several workers",
    "clients": "clients: methods of simulated clients",
    "round": "round: one of sy.rounds",
    "hook": "hook: methods of the hook",
    "state": "state: the state of a plan",
    "link": "link: methods of links",
    "sy.exceptions": "sy.exceptions: what can go wrong",
    "sy.serde": "sy.serde: values as bytes",
    "sy.ids": "sy.ids: numbers of objects",
}
"""By what a name begins with: the title of the page that describes it."""


@dataclass(frozen=True, slots=True)
class PublicName:
    """A name as users write it, its signature, and what its docstring says."""

    name: str
    signature: str
    text: str

    @property
    def page(self) -> str:
        """The page that describes the name."""
        return f"reference/{self.name.rpartition('.')[0]}"

    @property
    def label(self) -> str:
        """What links to the name; labels know no capital letters, so these are marked."""
        return "name-" + re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", self.name)


def _as_written(path: str) -> str | None:
    """How users write a name of the surface; None for what is torch's."""
    first, *rest = path.split(".")
    if first == "torch":
        return f"{rest[-2].lower()}.{rest[-1]}"
    if len(rest) == 1 or not rest[0][0].isupper():
        return ".".join(["sy", *rest])
    return f"{OWNERS[rest[0]]}.{rest[1]}" if rest[0] in OWNERS else None


def public_names() -> Iterator[PublicName]:
    """Every public name once; torch must be hooked."""
    seen: set[str] = set()
    for path, value, signature in surface():
        name = _as_written(path)
        if name is not None and name not in seen:
            seen.add(name)
            yield PublicName(name, _readable(signature), inspect.getdoc(value) or "")


def _readable(signature: str) -> str:
    """Take the quotation marks from annotations, and what a method is called on."""
    bare = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)
    return re.sub(r"^\((?:self|cls|tensor|module)\b[^,)]*(?:, )?", "(", bare)


def _entry(public: PublicName) -> str:
    """The description of a name, as reStructuredText."""
    kind = "function" if public.signature else "data"
    body = "".join(f"   {line}".rstrip() + "\n" for line in public.text.splitlines())
    head = f".. py:{kind}:: {public.name}{public.signature}\n"
    return f".. _{public.label}:\n\n{head}\n{body}\n"


def write_reference(app: Sphinx) -> None:
    """Write the pages that describe the names, and remember what links to each."""
    hook = sy.TorchHook(torch)
    found = list(public_names())
    hook.close()
    shutil.rmtree(DOCS / "reference", ignore_errors=True)
    (DOCS / "reference").mkdir()
    for start, title in TITLES.items():
        entries = [_entry(one) for one in found if one.page == f"reference/{start}"]
        text = f"{title}\n{'=' * len(title)}\n\n" + "\n".join(entries)
        (DOCS / "reference" / f"{start}.rst").write_text(text, encoding="utf-8")
    app.config.public_labels = {one.name: one.label for one in found}


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make links of the names that stand as code; the pages that describe them are left alone."""
    labels: dict[str, str] = app.config.public_labels
    if docname.startswith(("reference/", "api/")):
        return
    known = app.env.domains.standard_domain.anonlabels
    for literal in list(doctree.findall(nodes.literal)):
        label = labels.get(literal.astext().removesuffix("()"))
        if label is not None and not in_a_link(literal):
            page, anchor = known[label]
            link = make_refnode(app.builder, docname, page, anchor, literal.deepcopy())
            literal.replace_self(link)


def in_a_link(node: nodes.Node) -> bool:
    """Whether a node is in a link, or in a heading, which tables of contents link."""
    taken = (nodes.reference, nodes.title)
    return node.parent is not None and (isinstance(node.parent, taken) or in_a_link(node.parent))


def colour_examples(app: Sphinx, doctree: nodes.document) -> None:
    """Have examples coloured as Python: a block that is only indented says no language.

    The empty line goes that ends an example in a fence, for the sake of doctest.
    """
    for block in doctree.findall(nodes.literal_block):
        if block.astext().startswith(">>> "):
            block["language"] = "pycon"
            block.rawsource = block.astext().rstrip()
            block[:] = [nodes.Text(block.rawsource)]


def leave_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Make no links of Python's own names: Sphinx would take ``bytes`` for any member called so."""
    for wanted in list(doctree.findall(addnodes.pending_xref)):
        if wanted.get("refdomain") == "py" and hasattr(builtins, wanted["reftarget"]):
            wanted.replace_self(wanted.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter all of it in Sphinx."""
    app.add_config_value("public_labels", {}, "")
    app.connect("builder-inited", write_reference)
    app.connect("doctree-read", colour_examples)
    app.connect("doctree-read", leave_builtins)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True}
