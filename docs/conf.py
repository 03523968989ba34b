"""How Sphinx makes the site. `make gallery` prepares what it reads (scripts/gallery_source.py)."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from gallery_search import SearchChinese  # noqa: E402  (found by the line above)
from languages import ENGLISH, LANGUAGES, Language  # noqa: E402

project = "tvmlab"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

exclude_patterns = ["originals"]  # notebooks as they are committed, for download

# Notebooks: the outputs that are committed, and JupyterLab's anchors.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # a table that a cell puts out has links to notebooks too
myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 4
myst_heading_slug_func = "gallery_source.heading_anchor"

# The reference: docstrings in NumPy's style, whose single backticks are names.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes are described with their class, not once more each
napoleon_use_rtype = False

# The site is built once for each language: scripts/languages.py has their words.
locale_dirs = ["locale"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = "tvmlab"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["gallery.css"]
html_js_files = [("gallery.js", {"defer": "defer"})]
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_sidebars = {
    "**": [
        *("sidebar/brand.html", "sidebar/search.html", "sidebar/language.html"),
        *("sidebar/scroll-start.html", "sidebar/navigation.html", "sidebar/scroll-end.html"),
    ]
}
html_theme_options = {"top_of_page_buttons": []}
copybutton_selector = "div.highlight pre:not(.cell_output pre)"  # what runs, not what came out
copybutton_exclude = ".linenos, .gp, .go"


def skip_foreign(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool:
    """Leave out what a module passes on from TVM: its own site explains it."""
    module = getattr(member, "__module__", None) or "tvmlab"
    return skip or not module.startswith("tvmlab")


def keep_colons(app: Any, kind: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking what stands before a colon in a property's docstring for a type."""
    if kind == "property":
        lines.insert(0, "")


def one_name_each(
    app: Any, kind: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Give attributes that are described together an entry each.

    Sphinx would take all but the last of their names for its type.
    """
    if kind not in ("class", "exception") or "Attributes" not in lines:
        return
    start = lines.index("Attributes") + 2
    end = next((n - 1 for n in range(start, len(lines)) if re.match("-{3}", lines[n])), len(lines))
    text = "\n".join(lines[start:end])
    several = re.compile(r"^([\w.]+(?:, [\w.]+)+)( : .*)?\n((?:[ ]+.*\n?|\n)*)", re.MULTILINE)
    each = several.sub(
        lambda entry: "".join(
            f"{one}{entry[2] or ''}\n{entry[3].rstrip()}\n" for one in entry[1].split(", ")
        ),
        text,
    )
    lines[start:end] = [*each.split("\n"), ""]


def language_of(app: Any) -> Language:
    """Return the language of the pages that are being made."""
    return next(language for language in LANGUAGES if language.code == app.config.language)


def tell_readers(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Tell screen readers the captions' level, a page's language, and what no header is."""
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    if "body" in context:
        corner = '<th class="head"><p></p></th>'
        context["body"] = context["body"].replace(corner, '<td class="head"></td>')
    language = language_of(app)
    own = ROOT / f"{page.replace('notebooks/', f'notebooks/{language.folder}/', 1)}.ipynb"
    if language is not ENGLISH and page != "index" and not own.is_file() and "body" in context:
        note = f'<p class="untranslated">{language.untranslated}</p>'
        context["body"] = f'{note}\n<div lang="en">{context["body"]}</div>'


def link_pictures(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Let every figure lead to its file: on a phone its words are too small to be read."""
    if "body" in context:
        title = escape(language_of(app).full_size)
        context["body"] = re.sub(
            r'<img [^>]*src="([^"]*_images/[^"]+)"[^>]*>',
            rf'<a class="picture" href="\1" title="{title}">\g<0></a>',
            context["body"],
        )


def setup(app: Any) -> None:
    """Connect what Sphinx calls."""
    app.add_search_language(SearchChinese)
    app.connect("autodoc-skip-member", skip_foreign)
    for mend in (keep_colons, one_name_each):
        app.connect("autodoc-process-docstring", mend, priority=400)  # before napoleon
    app.connect("html-page-context", link_pictures)
    app.connect("html-page-context", tell_readers, priority=900)  # after the theme
