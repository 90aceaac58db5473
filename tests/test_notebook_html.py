"""Whatever a text is, a notebook shows it as text."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from syft.notebook_html import block, escaped, line, names, table

TEXTS = st.text(max_size=100) | st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=y>', "'onload='x", "&lt;b&gt;", "a</td>"]
)


class Seen(HTMLParser):
    """What a browser finds: tags with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def cut(text: str, most: int = 80) -> str:
    """A text as long as it is shown."""
    return text if len(text) <= most else text[:most] + "…"


@given(TEXTS, TEXTS, TEXTS)
def test_a_line(name: str, fact: str, title: str) -> None:
    seen = Seen(line(name, fact, title=title, before="→ "))
    assert seen.tags == [("span", [("title", title)] if title else []), ("b", [])]
    shown = f"→ {cut(name)}" + (f" · {cut(fact)}" if fact else "")
    assert "".join(seen.texts) == shown


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=3), st.booleans())
def test_a_table(rows: list[list[str]], named: bool) -> None:
    seen = Seen(table(["one", "two"], rows, named))
    row = ["tr", "td", "b", "td"] if named else ["tr", "td", "td"]
    assert [tag for tag, _ in seen.tags] == ["table", "tr", "th", "th", *row * len(rows)]
    assert all(not attributes for _, attributes in seen.tags)
    assert "".join(seen.texts) == "onetwo" + "".join(cell for row in rows for cell in row)


@given(TEXTS, TEXTS)
def test_a_block(text: str, summary: str) -> None:
    seen = Seen(block(text, summary))
    tags = ["details", "summary", "pre"] if summary else ["pre"]
    assert [tag for tag, _ in seen.tags] == tags
    assert "".join(seen.texts) == cut(summary) + text


def test_long_texts_are_cut_before_they_are_escaped() -> None:
    assert escaped("<" * 1000) == "&lt;" * 80 + "…"
    assert len(names(str(number) * 1000 for number in range(10_000))) < 12 * 82 + 30
