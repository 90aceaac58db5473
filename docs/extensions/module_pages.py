"""The pages of the modules, which a build may leave out: they take four fifths of its time.

They are for those who change syft, and nothing links to them but the last line of the first page.
``make test`` builds the site without them (``-D module_pages=0``), so it is told soon whether the
pages for users and the links between them hold; ``make docs`` and ``make test-all`` build all.
"""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.config import Config

FOLDER = "api"
"""Where ``sphinx.ext.apidoc`` writes them."""


def without_modules(text: str) -> str:
    """The first page without the line that leads to the pages of the modules.

    >>> without_modules("   project/deploy\\n   Pages of the modules <api/modules>\\n")
    '   project/deploy\\n'
    """
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if f"<{FOLDER}/" not in line)


def leave_out(app: Sphinx, config: Config) -> None:
    """Write and read none of them, if that was asked for."""
    if not config.module_pages:
        config.apidoc_modules = []
        config.exclude_patterns.append(FOLDER)


def lead_to_none(app: Sphinx, docname: str, source: list[str]) -> None:
    """Take the line that leads to them from the first page."""
    if docname == app.config.root_doc and not app.config.module_pages:
        source[0] = without_modules(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter both in Sphinx."""
    app.add_config_value("module_pages", True, "env", bool)
    app.connect("config-inited", leave_out)
    app.connect("source-read", lead_to_none)
    return {"parallel_read_safe": True}
