"""Pages of the site whose files are elsewhere in the repository, and links between all pages.

A page is written once, where people look for it: ``ARCHITECTURE.md`` at the root, tutorials in
``examples``.  Before the site is built they are copied below ``docs``, and in every page the links
that lead to one of them are led to its copy.  So a link is written as it has to be when the page is
read in the repository.  What is copied is not kept in git.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

from docs.extensions.notebook_pages import NotebookPage, notebook_page
from docs.extensions.public_names import TITLES, in_a_link

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent

COPIED = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "benchmarks/compare/README.md": "project/comparison.md",
    "examples/clients/README.md": "project/clients.md",
    "examples/deploy/README.md": "project/deploy.md",
}
"""By file, from the root: the page that it is, from ``docs``."""

FOLDERS = {
    "examples/tutorials/*.ipynb": "tutorials/{}.md",
    "benchmarks/results/*.md": "project/results_{}.md",
}
"""Files of which each is a page: the page by the name of the file."""

READERS = ROOT / "examples" / "tutorials" / "README.md"
"""Which pages and notebooks are for whom."""

MADE = ("project", "tutorials")
"""The folders of ``docs`` that are written here, anew each time."""

CHILDREN = {
    "design/README": "0*\nwhere\nopen\nchanges_*",
    "project/benchmarks": "results_*",
    "names": "\n".join(f"reference/{start}" for start in TITLES),
}
"""By page: the pages below it, which a reader of the repository sees in the folder."""

_LINK = re.compile(r"(!?\[[^\]\[]*\])\(([^)\s#]+)(#[^)\s]*)?\)")


def pages() -> dict[Path, Path]:
    """By file: the page that it is, for every file outside ``docs`` that is one."""
    copied = {ROOT / file: DOCS / page for file, page in COPIED.items()}
    for pattern, page in FOLDERS.items():
        copied |= {file: DOCS / page.format(file.stem) for file in sorted(ROOT.glob(pattern))}
    return copied


def relinked(text: str, file: Path, page: Path) -> str:
    """Lead the links of a page to pages of the site, and to files from where the page is now.

    ``file`` is where the text was written, ``page`` where it is read.

    >>> text = "[how](docs/plans.md#costs), [where](ARCHITECTURE.md)"
    >>> relinked(text, ROOT / "README.md", DOCS / "project" / "copy.md")
    '[how](../plans.md#costs), [where](architecture.md)'
    """
    places = pages() | {READERS: DOCS / "index.rst"}

    def led(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        if ":" in target:
            return link[0]
        meant = (file.parent / target).resolve()
        there = os.path.relpath(places.get(meant, meant), page.parent)
        return f"{words}({Path(there).as_posix()}{anchor})"

    return _LINK.sub(led, text)


def pages_for_readers(text: str) -> dict[Path, str]:
    """The parts of ``READERS``, each as a page that is called by its title, with the pages below.

    >>> text = "# All\\n## I have models\\n### Start here\\n- [Plans](../../docs/plans.md): one\\n"
    >>> ((page, part),) = pages_for_readers(text).items()
    >>> page.relative_to(DOCS).as_posix()
    'tutorials/i-have-models.md'
    >>> print(part)
    # I have models
    ## Start here
    - [Plans](../plans.md): one
    <BLANKLINE>
    ```{toctree}
    :hidden:
    <BLANKLINE>
    ../plans.md
    ```
    <BLANKLINE>
    """
    made: dict[Path, str] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = part.partition("\n")[0]
        page = DOCS / "tutorials" / f"{re.sub('[^a-z0-9 ]', '', title.lower())}.md"
        page = page.with_name(page.name.replace(" ", "-"))
        led = "# " + relinked(part, READERS, page).replace("\n### ", "\n## ")
        below = "\n".join(re.findall(r"^- \[[^\]]*\]\(([^)#]+)", led, re.MULTILINE))
        made[page] = led + _toctree(below)
    return made


def _toctree(entries: str, *options: str) -> str:
    """The part of a page that says which pages are below it."""
    lines = ["", "```{toctree}", ":hidden:", *options, "", entries, "```", ""]
    return "\n".join(lines)


def page_of_notebook(file: Path, page: Path) -> NotebookPage:
    """A notebook as a page: its title begins with its number, and the links of its text are led as
    those of other pages are; its code has brackets of its own, and stays."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = relinked("".join(cell["source"]), file, page)
    made = notebook_page(notebook, file.stem)
    number = file.stem.partition("_")[0]
    return NotebookPage(made.text.replace("# ", f"# {number} · ", 1), made.pictures)


def write_pages(app: Sphinx) -> None:
    """Copy the pages, and the notebooks as pages with their pictures."""
    for folder in MADE:
        shutil.rmtree(DOCS / folder, ignore_errors=True)
        (DOCS / folder).mkdir()
    for file, page in pages().items():
        if file.suffix == ".ipynb":
            made = page_of_notebook(file, page)
            for name, picture in made.pictures.items():
                (page.parent / name).write_bytes(picture)
            page.write_text(made.text, encoding="utf-8")
        else:
            text = relinked(file.read_text(encoding="utf-8"), file, page)
            page.write_text(text, encoding="utf-8")
    for page, text in pages_for_readers(READERS.read_text(encoding="utf-8")).items():
        page.write_text(text, encoding="utf-8")


def relink(app: Sphinx, docname: str, source: list[str]) -> None:
    """Lead the links of a page written below ``docs``, and name the pages below it."""
    page = Path(app.env.doc2path(docname))
    if page.suffix == ".md" and docname.partition("/")[0] not in MADE:
        source[0] = relinked(source[0], page, page)
    if docname in CHILDREN:
        source[0] += _toctree(CHILDREN[docname], ":glob:")


@cache
def _named_pages() -> dict[str, str]:
    """By what a page is called in running text (its file from the root, a notebook's name): it."""
    files = {file: file for file in [*DOCS.glob("*.md"), *DOCS.glob("design/*.md")]} | pages()
    named = {}
    for file, page in files.items():
        docname = page.relative_to(DOCS).with_suffix("").as_posix()
        named[file.relative_to(ROOT).as_posix()] = docname
        if file.suffix == ".ipynb":
            named[file.stem] = docname
    return named


def link_files(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make links of the files that stand as code and are pages."""
    for literal in list(doctree.findall(nodes.literal)):
        page = _named_pages().get(literal.astext())
        if page is not None and not in_a_link(literal):
            literal.replace_self(make_refnode(app.builder, docname, page, "", literal.deepcopy()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter both in Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink)
    app.connect("doctree-resolved", link_files)
    return {"parallel_read_safe": True}
