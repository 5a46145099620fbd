"""The site of the documentation can be built, has no dead links, and fits screens of 390 and 1,280 pixels.

The screenshots of some pages are kept in build/screenshots, to be looked at.
"""

from __future__ import annotations

import base64
import http.server
import re
import shutil
import subprocess
import threading
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import gossipkv
from gossipkv import errors
from tests import chromium
from tests.nightly import environments

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SCREENSHOTS = ROOT / "build" / "screenshots"
WIDTHS = (390, 1280)
SHOWN = (
    *("index", "users/start", "users/read", "users/wire", "operators/placement"),
    *(f"reference/{page}" for page in ("commands", "methods", "metrics", "python", "settings")),
)
EXPLAINED = {"ttl": "users/tables", "backup": "operators/backups", "asyncio": "users/asyncio-service"}
TALL = 1600  # Pixels of a page that a screenshot shows.


class Page(HTMLParser):
    """The anchors of a page, and the targets that it links or loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in {"href", "src"} and value and not value.startswith("data:"):
                (self.links if tag == "a" else self.loaded).append(value)


def dead_links(site: Path) -> list[str]:
    """Return the links to no page or anchor of the site, and what a page loads from elsewhere."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            if re.match(r"https?:", link) and link in page.links:
                continue
            name, _, place = link.partition("?")[0].partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (place and target in pages and unquote(place) not in pages[target].places):
                dead.append(f"{path.relative_to(site)}: {link}")
    return dead


@pytest.fixture(scope="module", name="site")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the versions, with the page of one, built as by `make docs`."""
    python = environments.make(tmp_path_factory.mktemp("sphinx"), extras=("docs",))
    site = tmp_path_factory.mktemp("site").resolve()
    command = [python, "-m", "sphinx", "-q", "-W", "--keep-going", DOCS, site / gossipkv.__version__]
    subprocess.run(command, check=True, cwd=ROOT, env=environments.variables())
    return site


@pytest.mark.timeout(1800)
def test_every_link_leads_somewhere(site: Path) -> None:
    """Links stay within the site or lead to the web, and pages load nothing from other machines."""
    assert dead_links(site / gossipkv.__version__) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x"><a href="b.html#y"><a href="#z"><img src="https://o/i">')
    (tmp_path / "b.html").write_text('<p id="y"><a href="https://o"><a href="c.html">')
    assert sorted(dead_links(tmp_path)) == ["a.html: #z", "a.html: https://o/i", "b.html: c.html"]


def test_the_folder_of_versions_leads_to_the_newest(site: Path) -> None:
    assert (site / "versions.json").read_text(encoding="utf-8") == f'["{gossipkv.__version__}"]\n'
    assert f"url={gossipkv.__version__}/index.html" in (site / "index.html").read_text(encoding="utf-8")


def test_the_reference_has_what_the_pages_name(site: Path) -> None:
    """Each method in docs/users/client.md has an anchor for each client that has it; internal methods have none."""
    places = Page(site / gossipkv.__version__ / "reference" / "python.html").places
    page = (DOCS / "users" / "client.md").read_text(encoding="utf-8")
    table = page.split("| method | gives |")[1].split("\n\n")[0]
    methods = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)", row.split("|")[1])}
    alone = {row.split("`")[1].partition("(")[0] for row in table.splitlines() if "blocking only" in row}
    client = "gossipkv.client.{}.Client.{}".format
    assert {client("blocking", name) for name in methods} - places == set()
    assert {client("trio_client", name) for name in methods - alone} - places == set()
    assert {client("blocking", name) for name in ("ask", "deadline", "__init__")} & places == set()
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    told = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    assert {name for name in kinds if f"`{name}`" not in told and f"## {name}" not in told} == {"GossipKVError"}


@pytest.fixture(name="address")
def served_address(site: Path):
    """Return the address of a server of the site."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def save(browser, name: str, width: int) -> None:
    clip = {"x": 0, "y": 0, "width": width, "height": TALL, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / name).write_bytes(base64.b64decode(shot["data"]))


@chromium.chromium_is_there
@pytest.mark.timeout(1800)
def test_pages_fit_their_screens(site: Path, address: str, tmp_path: Path) -> None:
    """No page is wider than its screen, in either width, and none reports an error; a second version is offered."""
    version, versions = site / gossipkv.__version__, site / "versions.json"
    before = versions.read_bytes()
    shutil.copytree(version, site / "0.0.9")
    versions.write_text(f'["{gossipkv.__version__}", "0.0.9"]', encoding="utf-8")
    browser = chromium.start(tmp_path)
    wide = []
    try:
        for page in sorted(path.relative_to(version).with_suffix("").as_posix() for path in version.rglob("*.html")):
            chromium.visit(browser, f"{address}/{version.name}/{page}.html")
            for width in WIDTHS:
                chromium.look(browser, width)
                found = browser.execute_script("return document.documentElement.scrollWidth")
                wide += [f"{page}: {found} pixels of {width}"] if found > width else []
                for scheme in ("light", "dark") if page in SHOWN else ():
                    chromium.look(browser, width, scheme)
                    save(browser, f"{page.replace('/', '-')}-{width}-{scheme}.png", width)
        offered = browser.execute_script("return [...document.querySelector('#versions').options].map(o => o.value)")
        said = browser.get_log("browser")
    finally:
        browser.quit()
        shutil.rmtree(site / "0.0.9")
        versions.write_bytes(before)
    assert (wide, said, offered) == ([], [], [gossipkv.__version__, "0.0.9"])


@chromium.chromium_is_there
@pytest.mark.timeout(1800)
def test_a_word_is_found_where_it_is_explained(site: Path, address: str, tmp_path: Path) -> None:
    """The first result of a search explains the word; blocks have buttons that copy them, and pages link the code."""
    browser = chromium.start(tmp_path)
    found = {}
    summary = "return document.querySelector('#search-results .search-summary')?.innerText"
    first = "return document.querySelector('#search-results li > a').getAttribute('href')"
    try:
        for word in EXPLAINED:
            chromium.visit(browser, f"{address}/{gossipkv.__version__}/search.html?q={word}")
            chromium.until(lambda: "found" in (browser.execute_script(summary) or ""))
            found[word] = browser.execute_script(first).partition(".html")[0]
        chromium.visit(browser, f"{address}/{gossipkv.__version__}/install.html")
        buttons, blocks = (
            browser.execute_script(f"return document.querySelectorAll({css!r}).length")
            for css in ("button.copybtn", "div.highlight pre")
        )
        leads = browser.execute_script("return [...document.querySelectorAll('footer a')].map(a => a.href)")
    finally:
        browser.quit()
    assert found == EXPLAINED
    assert buttons == blocks > 5
    assert errors.DOCS.removesuffix("/blob/main/docs") in leads
