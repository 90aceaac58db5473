"""Sphinx settings: one page per module of syft, written from the docstrings at each build.

The pages under api/ are made by sphinx.ext.apidoc and are not kept in git.  The hand-written
pages are Markdown, read where the code is read; the site links them as they are.  A Markdown
parser for Sphinx would be one more dependency, for pages that are already readable.
"""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = _PROJECT["name"]
author = "the syft contributors"
release = _PROJECT["version"]
version = release

extensions = ["sphinx.ext.apidoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": _PROJECT["description"], "page_width": "1100px"}

apidoc_modules = [
    {
        "path": "../syft",
        "destination": "api",
        "separate_modules": True,
        "module_first": True,
        "automodule_options": {"members", "show-inheritance"},
    }
]
autodoc_member_order = "bysource"
# A name that a package passes on from one of its modules is described once, in that module.
autodoc_default_options = {"ignore-module-all": True}
