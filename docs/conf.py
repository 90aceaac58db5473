"""Sphinx settings: the hand-written pages, tutorials, and a page for every public name and module.

What is written by hand is Markdown and is read in the repository as well; ``docs/extensions``
brings in what lies outside this folder.  The pages under ``api``, ``reference``, ``project`` and
``tutorials`` are made at each build and are not kept in git.
"""

import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]

project = "syft"
author = "the syft contributors"
release = _PROJECT["version"]
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "docs.extensions.module_pages",
    "docs.extensions.navigation",
    "docs.extensions.outside_pages",
    "docs.extensions.public_names",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"syft {release}"
# Pictures are drawn on white, which is much in the dark. The theme writes one line for each.
html_theme_options = {
    "light_css_variables": {"picture-light": "none"},
    "dark_css_variables": {"picture-light": "brightness(0.88)"},
}
# The theme's own style for the dark underlines every imported name.
pygments_dark_style = "a11y-high-contrast-dark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(_ROOT / "docs" / "_static" / "search_order.js")
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

# What is copied can be pasted: lines of code without prompts, and no output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
copybutton_selector = "div:not(.shown) > div.highlight > pre"

# Links to headings, also from other pages, as they are written for a reader of the repository.
myst_heading_anchors = 4
# Notebooks go from a title to a third level; the page is none the worse.
suppress_warnings = ["myst.header"]

apidoc_modules = [
    {
        "path": "../syft",
        "destination": "api",
        "separate_modules": False,
        "module_first": True,
        "max_depth": 3,
        "automodule_options": {"members", "show-inheritance"},
    }
]
autodoc_member_order = "bysource"
# A name that a package passes on from one of its modules is described once, in that module.
autodoc_default_options = {"ignore-module-all": True}
