"""Configuration of Sphinx. `make gallery` prepares Sphinx's input (scripts/gallery.py)."""

from __future__ import annotations

import re
from typing import Any

project = "tvmlab"
extensions = [
    *("myst_nb", "sphinx_design", "sphinx_copybutton"),
    *("sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"),
]

exclude_patterns = ["committed", "tvmlab", "tested.md"]

# Notebooks: use the committed outputs and JupyterLab's anchors.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables in outputs can link to notebooks
myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 4
myst_heading_slug_func = "gallery.heading_anchor"

# The reference: docstrings in NumPy's style, whose single backticks are names.
default_role = "py:obj"
templates_path = ["_templates"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # describe attributes with their class only
napoleon_use_rtype = False

html_theme = "furo"
html_title = "tvmlab"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["gallery.css"]
html_js_files = [("gallery.js", {"defer": "defer"})]
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}
copybutton_selector = "div.highlight pre:not(.cell_output pre)"  # only code that can be run
copybutton_exclude = ".linenos, .gp, .go"


def skip_foreign(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool:
    """Leave out names that a module re-exports from TVM, because TVM's site documents them."""
    module = getattr(member, "__module__", None) or "tvmlab"
    return skip or not module.startswith("tvmlab")


def help_napoleon(
    app: Any, kind: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Rewrite two docstring forms that napoleon and Sphinx mistake for a name with a type."""
    if kind == "property":  # text before a colon in the first line would become a type
        lines.insert(0, "")
    elif kind in ("class", "exception"):  # several attributes share a description
        several = re.compile(r"^[\w.]+(?:, [\w.]+)+(?= : |$)")
        lines[:] = [several.sub(lambda names: names[0].replace(", ", ","), line) for line in lines]


def inform_screen_readers(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Set the heading level of navigation captions, and the language of Chinese pages."""
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    if page.startswith(("zh/", "notebooks/zh/")):
        context["language"] = "zh-CN"


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx's events."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", help_napoleon, priority=400)  # before napoleon
    app.connect("html-page-context", inform_screen_readers, priority=900)  # after the theme
