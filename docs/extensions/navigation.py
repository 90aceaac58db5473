"""The list of pages at the left of each page, made once for all of them.

The theme has Sphinx make it anew for every page, of the contents of all pages: with the pages of
the modules this took three quarters of a build.  From page to page only two things differ: where
the links start from, and which entries lead to the page and are marked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.environment.adapters.toctree import global_toctree_for_doc
from sphinx.util.osutil import relative_uri

_ENTRY = re.compile(r'<li class="(toctree-l\d+)"><a class="(reference internal)" href="([^"#]+)">')


def seen_from(tree: str, page: str, way: Collection[str]) -> str:
    """The list as the theme expects it on one page; ``way`` has the page and those above it.

    >>> tree = '<li class="toctree-l1"><a class="reference internal" href="plans.html">Plans</a>'
    >>> seen_from(tree, "tutorials/01.html", ["tutorials/01.html"])
    '<li class="toctree-l1"><a class="reference internal" href="../plans.html">Plans</a>'
    >>> seen_from(tree, "plans.html", ["plans.html"])
    '<li class="toctree-l1 current"><a class="current reference internal" href="#">Plans</a>'
    """

    def entry(found: re.Match[str]) -> str:
        level, kind, target = found.groups()
        if target == page:
            return f'<li class="{level} current"><a class="current {kind}" href="#">'
        mark = " current" if target in way else ""
        return f'<li class="{level}{mark}"><a class="{kind}" href="{relative_uri(page, target)}">'

    return _ENTRY.sub(entry, tree)


class Navigation:
    """Hands each page its list, of one that is made when the first page is written."""

    def __init__(self) -> None:
        self._tree = ""

    def give(
        self, app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
    ) -> None:
        """Put the list where the theme asks Sphinx for it."""
        builder = app.builder
        if not isinstance(builder, StandaloneHTMLBuilder):
            return
        self._tree = self._tree or _made(app, builder)
        above, way = page, []
        while above in builder.relations and above != app.config.root_doc:
            way.append(builder.get_target_uri(above))
            above = builder.relations[above][0] or app.config.root_doc
        list_of_pages = seen_from(self._tree, builder.get_target_uri(page), way)
        context["toctree"] = lambda **options: list_of_pages


def _made(app: Sphinx, builder: StandaloneHTMLBuilder) -> str:
    """The whole list, with links as the first page has them."""
    choices: dict[str, Any] = {"collapse": False, "titles_only": True, "maxdepth": -1}
    root, tags = app.config.root_doc, builder.tags
    tree = global_toctree_for_doc(app.env, root, builder, tags=tags, includehidden=True, **choices)
    return builder.render_partial(tree)["fragment"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter it in Sphinx, before the theme looks."""
    app.connect("html-page-context", Navigation().give, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
