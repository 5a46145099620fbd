"""The site of the documentation, for Sphinx: `make docs` writes it to build/docs/VERSION.

The pages are the Markdown files, which a forge shows as well, so what a site needs besides stands here and in
index.rst.  `versions.json`, above the versions, lists those that were built; site/versions.js offers them.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pygments.lexers.special import TextLexer

import gossipkv
from gossipkv.client import blocking

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT: Final = Path(__file__).parents[1]
FORGE: Final = gossipkv.errors.DOCS.removesuffix("/docs")
REPOSITORY: Final = FORGE.removesuffix("/blob/main")
NESTED: Final = tomllib.loads((ROOT / "docs" / "site" / "nested.toml").read_text(encoding="utf-8"))

project = "GossipKV"
author = "The GossipKV authors"
copyright = author  # noqa: A001  # Sphinx's name for it.
version = release = gossipkv.__version__
root_doc = "index"
default_role = "code"  # Docstrings are Markdown in this.
smartquotes = False  # Options begin with two hyphens.
highlight_language = "text"
suppress_warnings = ["ref.python"]  # Three clients are called `Client`.
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["README.md"]  # The forge's list of the pages; the site has its navigation.
copybutton_prompt_text = "$ "  # A button copies the commands without their output.

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

html_theme = "furo"
html_title = f"GossipKV {release}"
html_favicon = "site/icon.svg"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_show_sphinx = False
html_copy_source = False
html_search_scorer = str(ROOT / "docs" / "site" / "search.js")
html_theme_options: dict[str, object] = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
    "footer_icons": [{"name": "GitHub", "url": REPOSITORY, "html": "Source code", "class": ""}],
}

autodoc_member_order = "bysource"
autodoc_type_aliases = {"Value": "Value", "Detail": "Detail", "Key": "Key"}
autodoc_class_signature = "separated"
add_module_names = False
# Methods by which our own modules talk to each other.
INTERNAL: Final = {
    "BUSY", "abandon", "abandon_soon", "allowed_ms", "answer", "ask", "ask_all", "ask_steps", "begin_within",
    "checkpoint", "connect", "deadline", "end", "now", "saw", "saw_version", "scanned", "set_alarm", "submit", "tokens",
    "version", "wake", "want_link",
}  # fmt: skip


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to files that are no pages of the site lead to the forge, and nest other pages below this one."""
    if page == root_doc:  # It includes the README, whose links begin at the root.
        front = Path(app.doctreedir) / "front.md"
        text = linked((ROOT / "README.md").read_text(encoding="utf-8"), ROOT)
        front.write_text(text.replace("](docs/", "](").replace('src="docs/', 'src="'), encoding="utf-8")
        source[0] = source[0].replace("../README.md", os.path.relpath(front, ROOT / "docs"))
        return
    source[0] = linked(source[0], (ROOT / "docs" / page).parent)
    if below := NESTED.get(page):
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "".join(f"/{each}\n" for each in below) + "```\n"


def linked(text: str, folder: Path) -> str:
    """Return a text of Markdown whose links to files that are no pages of the site lead to the forge."""

    def changed(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        is_page = path.is_relative_to(ROOT / "docs") and path.suffix in {".md", ".svg", ".png"}
        is_page = is_page and path.name != "README.md"
        return link[0] if is_page or not path.exists() else f"]({FORGE}/{path.relative_to(ROOT)}{link[2] or ''})"

    return re.sub(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)", changed, text)


def skip_internal(_app: Sphinx, _what: str, name: str, member: object, *_: object) -> bool | None:
    """Leave out the methods that are not for users, and constructors of what `connect` makes."""
    is_made = name == "__init__" and ".launcher." not in member.__module__
    return True if is_made or name in INTERNAL else None


def show_awaited(  # Sphinx's form.
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Show the answer of a method instead of the type by which both kinds of client share it."""
    return signature, None if result is None else re.sub(r"^Asked\[(.*)\]$", r"\1", result)


def list_versions(app: Sphinx, failure: Exception | None) -> None:
    """Write the list of the versions that were built, newest first, and let their folder lead to this one."""
    if failure is None and app.builder.name == "html":
        site = Path(app.outdir).parent
        built = sorted(
            (page.parent.name for page in site.glob("*/index.html")),
            key=lambda name: [int(part) for part in re.findall(r"\d+", name)],
            reverse=True,
        )
        (site / "versions.json").write_text(json.dumps(built) + "\n", encoding="utf-8")
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={built[0]}/index.html">\n'
        (site / "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    blocking.__name__ = "gossipkv.blocking"  # Its name for users.
    for language in ("cron", "http", "mermaid"):  # Pygments does not know them, and `http` has elided lines.
        app.add_lexer(language, TextLexer)
    app.connect("source-read", prepare)
    app.connect("autodoc-skip-member", skip_internal)
    app.connect("autodoc-process-signature", show_awaited)
    app.connect("build-finished", list_versions)
