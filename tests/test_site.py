"""The site: each public name listed once, every page reached, and links that lead somewhere."""

from __future__ import annotations

import base64
import json
import os
import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import torch

import syft as sy
from docs.extensions.module_pages import without_modules
from docs.extensions.notebook_pages import notebook_page
from docs.extensions.outside_pages import (
    DOCS,
    READERS,
    ROOT,
    page_of_notebook,
    pages,
    pages_for_readers,
    relinked,
)
from docs.extensions.public_names import TITLES, PublicName, public_names
from tools import names_page

WRITTEN = sorted([*DOCS.glob("*.md"), *(DOCS / "design").glob("*.md")])
NOTEBOOKS = [file for file in pages() if file.suffix == ".ipynb"]
READ = [*WRITTEN, ROOT / "README.md", READERS, *(file for file in pages() if file.suffix == ".md")]


# -------------------------------------------------------------------------------------------- names


def code_words(text: str) -> list[str]:
    """What stands as code in the running text of a page."""
    return re.findall(r"`([^`\n]+)`", text)


def test_the_page_of_names_has_every_public_name_once(hook: sy.TorchHook) -> None:
    starts = tuple(f"{start}." for start in TITLES)
    words = code_words((DOCS / "names.md").read_text())
    listed = Counter(word for word in words if word.startswith(starts))
    assert listed == Counter(public.name for public in public_names())


def test_signatures_and_purposes_on_the_page_of_names_are_those_of_the_code(
    hook: sy.TorchHook,
) -> None:
    page = names_page.PAGE.read_text()
    found = list(public_names())
    made = names_page.listing(found)
    assert names_page.with_listing(page, made) == page, "python -m tools.names_page --write"
    assert not [public.name for public in found if not names_page.purpose(public.text)]
    other = PublicName("sy.Cost", "(rounds: int)", "Other.")
    assert names_page.with_listing(page, names_page.listing([other])) != page


def test_each_name_has_a_page_and_a_label_of_its_own(hook: sy.TorchHook) -> None:
    found = list(public_names())
    assert {public.page for public in found} == {f"reference/{start}" for start in TITLES}
    assert len({public.label for public in found}) == len(found)
    assert PublicName("sy.Cost", "", "").label == "name-sy.-cost"


def test_a_signature_is_written_for_readers(hook: sy.TorchHook) -> None:
    shown = {public.name: public.signature for public in public_names()}
    assert shown["tensor.tag"] == "(*tags: str, allow: Iterable[str] = ()) -> torch.Tensor"
    assert shown["sy.stock"] == "() -> StockLevel"
    assert "'" not in shown["worker.hold"]


# -------------------------------------------------------------------------------------------- pages


def test_every_page_is_reached_from_the_first() -> None:
    index = (DOCS / "index.rst").read_text()
    entries = re.findall(r"^ {3}(?:[^\n<:]* <)?([\w/.*-]+)>?$", index, re.MULTILINE)
    readers = pages_for_readers(READERS.read_text())
    for page, text in readers.items():
        below = text.partition("```{toctree}")[2].splitlines()
        named = [(page.parent / name).resolve() for name in below if name.endswith(".md")]
        entries += [name.relative_to(DOCS).as_posix().removesuffix(".md") for name in named]
    files = [*DOCS.glob("*.md"), *pages().values(), *readers]
    named_so = [path.relative_to(DOCS).as_posix().removesuffix(".md") for path in files]
    alone = [name for name in named_so if not name.startswith("project/results_")]
    one_line_each = sorted([*alone, "design/README", "api/modules"])
    assert sorted(entries) == one_line_each, "in examples/tutorials/README.md or docs/index.rst"


def test_each_reader_has_a_place_to_start() -> None:
    index = (DOCS / "index.rst").read_text()
    doors = re.findall(r"\*\*(I [^*]*)\*\*", index)
    readers = pages_for_readers(READERS.read_text())
    assert [f"# {door}\n" for door in doors] == [
        text.splitlines(keepends=True)[0] for text in readers.values()
    ]
    for page, text in readers.items():
        assert text.count("## Start here\n") == 1
        assert f"<{page.relative_to(DOCS).with_suffix('').as_posix()}>`" in index


def test_the_program_of_the_first_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    index = (DOCS / "index.rst").read_text()
    program = re.search(r"code-block:: python\n\n((?: {3}.*\n|\n)+)", index)
    assert program
    names: dict[str, sy.TorchHook] = {}
    torch.manual_seed(0)
    try:
        exec(textwrap.dedent(program[1]), names)
    finally:
        names["hook"].close()
    shown = re.fullmatch(r"tensor\((.*)\)\n", capsys.readouterr().out)
    assert shown and float(shown[1]) < 0.1, "it learns"


def test_the_first_page_ends_with_the_modules_and_names_none_before() -> None:
    index = (DOCS / "index.rst").read_text()
    assert index.rstrip().endswith("<api/modules>")
    assert "syft." not in index and ":download:" not in index
    assert without_modules(index).splitlines() == index.rstrip().splitlines()[:-1]


def test_the_order_of_a_search_replaces_that_of_sphinx() -> None:
    script = (DOCS / "_static" / "search_order.js").read_text()
    assert "\nvar Scorer = {" in script, "Sphinx's own script declares it by var: no const, no let"
    assert 'startsWith("api/")' in script


def test_the_list_of_decisions_has_each_under_its_title() -> None:
    text = (DOCS / "design" / "README.md").read_text()
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", text, re.MULTILINE)
    notes = sorted((DOCS / "design").glob("0*.md"))
    titles = [(note.read_text().partition("\n")[0].removeprefix("# "), note.name) for note in notes]
    assert listed == titles


# -------------------------------------------------------------------------------------------- links


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", READ, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_of_the_repository(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)", page.read_text()):
        if ":" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), f"{target}#{anchor}"


def test_a_link_to_a_page_outside_leads_to_its_copy() -> None:
    text = (
        "[a](../ARCHITECTURE.md#rooms) ![b](pictures/call.svg) [c](plans.md) [d](https://x.org/y)"
    )
    page = DOCS / "page.md"
    assert relinked(text, page, page) == text.replace("../ARCHITECTURE", "project/architecture")


def test_a_copied_page_keeps_its_links() -> None:
    text = "[a](../docs/wire.md#lines) [b](figures.py) [c](#here)"
    moved = relinked(text, ROOT / "benchmarks" / "README.md", DOCS / "project" / "benchmarks.md")
    assert moved == "[a](../wire.md#lines) [b](../../benchmarks/figures.py) [c](#here)"


def text_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_links_of_a_notebook_lead_to_files_and_on_the_site_to_their_pages(notebook: Path) -> None:
    page = pages()[notebook]
    made = page_of_notebook(notebook, page).text
    for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text_of(notebook)):
        file = (notebook.parent / target).resolve()
        assert file.exists(), target
        there = os.path.relpath(pages().get(file, file), page.parent)
        assert f"]({there}" in made, target


def test_links_of_a_notebook_are_led_and_its_code_stays(tmp_path: Path) -> None:
    cells = [
        {
            "cell_type": "markdown",
            "source": ["# One\n", "[next](two.ipynb)\n", "[a](https://x.org)"],
        },
        {"cell_type": "code", "source": "parts[0](x)  # a part", "outputs": []},
    ]
    file = tmp_path / "07b_one.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    made = page_of_notebook(file, tmp_path / "pages" / "one.md").text
    assert made.startswith("# 07b · One\n[next](../two.ipynb)\n[a](https://x.org)\n")
    assert "parts[0](x)  # a part" in made


# ---------------------------------------------------------------------------------------- notebooks


def test_a_notebook_becomes_a_page_with_what_was_stored() -> None:
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "tensor(3)"}},
        {
            "output_type": "display_data",
            "data": {"image/png": base64.b64encode(b"dots").decode(), "text/plain": ["<Figure>"]},
        },
        {"output_type": "error", "traceback": ["\x1b[31mTraceback\x1b[0m", "ValueError: ```"]},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {"cell_type": "code", "source": "f(x)", "outputs": outputs},
        {"cell_type": "code", "source": " \n", "outputs": []},
    ]
    page = notebook_page({"cells": cells}, "story")
    assert page.pictures == {"story_1.png": b"dots"}
    shown = "```{code-block} none\n:class: shown\n\n"
    assert page.text.split("\n\n```") == [
        "# Title\nText.",
        "python\nf(x)\n```",
        *(shown + "one\ntwo\n```").removeprefix("```").split("\n\n```"),
        *(shown + "tensor(3)\n```\n\n![what the code above draws](story_1.png)")
        .removeprefix("```")
        .split("\n\n```"),
        "`{code-block} none\n:class: shown\n\nTraceback\nValueError: ```\n````\n",
    ]


def test_pages_are_wrapped() -> None:
    """All but tables, and errors as they are printed."""
    pages = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(DOCS / "design").glob("*.md")]
    long = {
        page.name
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if len(line) > 120 and not line.lstrip().startswith(("|", "syft.exceptions."))
    }
    assert not long
