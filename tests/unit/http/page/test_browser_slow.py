"""The page in Chromium, from nodes that repeat recorded answers of a real cluster."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.errors import TimedOut
from tests.chromium import PATIENCE_S, chromium_is_there, look, start, until, visit
from tests.unit.http.page.nodes import Server, ToldNode, large, pages_of, told, with_table

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = chromium_is_there


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """One browser serves all tests: its start takes a second."""
    browser = start(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium):
    """Return the browser with its initial settings."""
    look(chromium)
    chromium.get_log("browser")  # Drop log entries of the test before.
    yield chromium
    visit(chromium, "about:blank")


@contextlib.contextmanager
def serving(said, values=None) -> Iterator[tuple[str, ToldNode, Server]]:
    """Serve pages of a node in a thread; a test may change the node's answers meanwhile."""
    node, started, found = ToldNode(said, values), threading.Event(), []

    async def serve() -> None:
        async with pages_of(node) as pages, trio.open_nursery() as nursery:
            server = Server(pages)
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(functools.partial(trio.serve_listeners, server.serve, listeners))
            port = listeners[0].socket.getsockname()[1]
            found.extend([server, port, nursery.cancel_scope, trio.lowlevel.current_trio_token()])
            started.set()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert started.wait(PATIENCE_S)
    server, port, scope, token = found
    try:
        yield f"http://127.0.0.1:{port}", node, server
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(PATIENCE_S)


def text(browser, selector):
    return browser.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def refreshed(browser, server):
    """Wait for two more refreshes of the page; the content of the first is then in place."""
    before = server.pages_told
    until(lambda: server.pages_told >= before + 2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/geo/", "/carts/", "/?database=geo&key=KEY"])
def test_the_page_fits_every_width(browser, path, scheme):
    """At widths from a telephone to a wall nothing scrolls sideways, and no readable text is cut off."""
    path, said = path.replace("KEY", "k" * 400), with_table(told("two_killed"))
    for name, like in (("d" * 100, "words"), ("t" * 90, "carts")):
        said["status"][name] = said["status"][like]
        said["databases"].append({"name": name})
    for report in said["reports"].values():
        report["acceptors"][1] = "a" * 200
    error = {"message": "x" * 300, "file": "/" + "y" * 300}
    said["status"]["geo"]["versions"]["w" * 120] = {"state": "ERROR", "error": error}
    said["status"]["geo"]["error"] = "z" * 200
    with serving(said, {"geo": {b"k" * 400: b"v" * 900}}) as (address, _, server):
        for width in (360, 480, 761, 901, 1280, 2560):
            look(browser, width, scheme)
            visit(browser, address + path)
            too_wide = browser.execute_script(
                "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
            )
            assert too_wide == 0, (width, browser.get_log("browser"), server.requests)
            wide = browser.execute_script(
                "return Array.from(document.querySelectorAll('p, h2, li, td:not(.counts), figcaption, form *, pre'))"
                ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 90))"
            )
            assert wide == []


def contrast(browser, selector):
    """Return the contrast of an element's text with the background, by WCAG."""
    colours = browser.execute_script(
        "return [getComputedStyle(document.querySelector(arguments[0])).color,"
        "getComputedStyle(document.body).backgroundColor]",
        selector,
    )

    def luminance(colour):
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_both_schemes(browser, scheme):
    """All text has the contrast of WCAG AA, and the background follows the preferred scheme."""
    look(browser, 1280, scheme)
    with serving(told("two_killed")) as (address, _, _):
        visit(browser, address)
        signs = ".is-error", ".is-dead", ".is-alive .sign", ".verdict .sign"
        for selector in ("main", ".quiet", "th a", "footer", *signs):
            assert contrast(browser, selector) >= 4.5, selector
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(20, 24, 27)") == (scheme == "dark")


@pytest.fixture
def without_scripts(tmp_path):
    browser = start(tmp_path, "blink-settings=scriptEnabled=false")
    yield browser
    browser.quit()


def test_it_is_whole_without_javascript(without_scripts):
    """Tables, words, pictures and links are present, and a note says that the page does not refresh."""
    browser = without_scripts
    with serving(told("upgrade")) as (address, _, server):
        visit(browser, address)
        shown = browser.find_element("tag name", "body").text
        assert "waits for what n1 builds, 20 % done" in shown
        # Selenium does not see this text.
        assert "reload it" in browser.execute_script("return document.body.innerText")
        assert browser.find_element("css selector", ".map svg path").is_displayed()
        browser.find_element("link text", "geo").click()
        until(lambda: browser.current_url.endswith("/geo/"))
        time.sleep(2.5)
        assert [path for path, _ in server.requests].count("/geo/") == 1


def test_nothing_breaks_the_policy(browser):
    """The browser reports no violation and no error, though names contain markup."""
    said = told("upgrade")
    said["info"]["source_error"] = "<img src=//evil.invalid/x onerror=alert(1)><style>*{display:none}</style>"
    with serving(said) as (address, _, server):
        for path in ("/", "/geo/"):
            visit(browser, address + path)
            refreshed(browser, server)
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
        assert loaded
        assert all(name.startswith(address) for name in loaded)
        assets = {"/static/page.css", "/static/page.js", "/static/icon.svg"}
        assert {path for path, _ in server.requests} <= {"/", "/geo/", *assets}
        assert {status for _, status in server.requests} == {200}


def test_the_keyboard_reaches_everything_in_order(browser):
    """A key skips the head; every link and every detail gets a visible focus, from top to bottom."""
    with serving(told("two_killed")) as (address, _, _):
        visit(browser, address)
        order = []
        for _ in range(40):
            press(browser, "Tab", 9)
            at = browser.execute_script(
                "const e = document.activeElement; if (e === document.body) return null;"
                "return [e.className === 'skip' ? 'skip' : e.tagName + ' ' + e.textContent.trim().split('\\n')[0],"
                "getComputedStyle(e).outlineStyle, e.getBoundingClientRect().top + scrollY]"
            )
            if at is None:
                break
            order.append(at)
        names = [name for name, _, _ in order]
        kinds = [name.split()[0] for name in names]
        assert names[0] == "skip"
        assert kinds[2:6] == ["SELECT", "INPUT", "SELECT", "BUTTON"]
        assert names[6:9] == ["A carts-by-day", "A geo", "A words"]
        assert names[9:] == ["SUMMARY The same in words"] * 3
        assert all(style != "none" for _, style, _ in order)
        tops = [top for _, _, top in order[1:]]
        assert all(after > before - 5 for before, after in pairwise(tops))  # A select is one pixel off its line.
        visit(browser, address)
        press(browser, "Tab", 9)
        press(browser, "Enter", 13)
        until(
            lambda: browser.execute_script("return document.activeElement.id") == "main"
        )  # Chromium moves the focus with a delay.


def press(browser, key, code):
    for kind in ("keyDown", "keyUp"):
        event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
        if key == "Enter" and kind == "keyDown":
            event["text"] = "\r"
        browser.execute_cdp_cmd("Input.dispatchKeyEvent", event)


def test_it_is_refreshed_in_place(browser):
    """New content appears by itself; focus, open details and the scroll position stay."""
    with serving(told("upgrade")) as (address, node, server):
        visit(browser, address)
        browser.execute_script(
            "document.querySelector('.placement details summary').click();"
            "Array.from(document.querySelectorAll('th a')).find(a => a.textContent === 'words').focus();"
            "window.scrollTo(0, 300); window.kept = document.getElementById('summary').firstChild;"
        )
        node.said = told("two_killed")
        until(lambda: "2 dead" in text(browser, "#summary"))
        refreshed(browser, server)
        state = browser.execute_script(
            "return [document.activeElement.textContent, scrollY, document.querySelectorAll('details[open]').length]"
        )
        assert state == ["words", 300, 1]
        assert "Start n2 and n3 again" in text(browser, ".next")
        assert browser.execute_script("return document.querySelectorAll('main, #summary').length") == 2


def test_what_is_read_aloud_changes_only_when_it_says_something_else(browser):
    """The summary is a live region, whose nodes stay while its text does."""
    with serving(told("calm")) as (address, _, server):
        visit(browser, address)
        browser.execute_script(
            "window.changes = 0; new MutationObserver(all => { window.changes += all.length; })"
            ".observe(document.getElementById('summary'), {childList: true, characterData: true, subtree: true});"
        )
        refreshed(browser, server)
        assert browser.execute_script("return window.changes") == 0
        assert browser.execute_script(
            "return Array.from(document.querySelectorAll('[aria-live], [role=alert], [role=status]'), e => e.id)"
        ) == ["stale", "summary", "found"]


def test_who_types_is_not_disturbed(browser):
    """Typed text, the cursor and the found value stay while the page refreshes."""
    with serving(told("calm"), {"geo": {b"CH": b"Bern"}}) as (address, node, server):
        visit(browser, address)
        field = browser.find_element("name", "key")
        field.send_keys("CH")
        browser.execute_script("document.querySelector('[name=database]').value = 'geo'")
        node.said = told("two_killed")
        until(lambda: "2 dead" in text(browser, "#summary"))
        refreshed(browser, server)
        kept = "return [document.activeElement.name, document.activeElement.value, document.forms[0].database.value]"
        assert browser.execute_script(kept) == ["key", "CH", "geo"]
        field.send_keys("\n")
        until(lambda: "Bern" in text(browser, "#found"))
        assert "answered by n2" in text(browser, "#found")
        field = browser.find_element("name", "key")
        field.clear()
        field.send_keys("next")
        refreshed(browser, server)
        assert browser.execute_script(kept) == ["key", "next", "geo"]
        assert "Bern" in text(browser, "#found")
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_selected_text_stays_selected(browser):
    """A refresh does not interrupt copying."""
    with serving(told("upgrade")) as (address, _, server):
        visit(browser, address)
        browser.execute_script("getSelection().selectAllChildren(document.querySelector('.wrong li'))")
        selected = browser.execute_script("return getSelection().toString()")
        assert "contains no TAB" in selected
        refreshed(browser, server)
        assert browser.execute_script("return getSelection().toString()") == selected


def test_a_node_that_does_not_answer_is_told(browser):
    """The last known content stays with a note until the node answers again."""
    with serving(told("calm")) as (address, node, server):
        visit(browser, address)
        node.failure = TimedOut("gone")
        stale = until(lambda: text(browser, "#stale"))
        assert "No answer since" in stale
        assert "HTTP 504, TIMEOUT" in stale
        assert "carts-by-day" in text(browser, "main")
        node.failure = None
        until(lambda: browser.execute_script("return document.getElementById('stale').hidden"))
        node.failure = TimedOut("gone")
        until(lambda: text(browser, "#stale"))
        visit(browser, address)
        assert "The node does not answer" in text(browser, "main")
        node.failure = None
        until(lambda: "All is well" in text(browser, "#summary"))
        assert "carts-by-day" in text(browser, "main")
        assert "gossipkv" in text(browser, "nav")
        assert {status for path, status in server.requests if path == "/"} == {200, 504}


def test_a_server_that_is_gone_is_told(browser):
    """The browser's connection is refused."""
    with serving(told("calm")) as (address, _, _):
        visit(browser, address)
        assert "All is well" in text(browser, "#summary")
    assert "cannot be reached" in until(lambda: text(browser, "#stale"))


def test_nobody_is_asked_while_nobody_looks(browser):
    """A hidden page sends no requests, and catches up when it is shown."""
    with serving(told("calm")) as (address, _, server):
        visit(browser, address)
        refreshed(browser, server)
        hide = (
            "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments_});"
            "document.dispatchEvent(new Event('visibilitychange'));"
        )
        browser.execute_script(hide.replace("arguments_", "true"))
        before = len(server.requests)
        time.sleep(5)
        assert len(server.requests) <= before + 1  # One request was under way.
        before = len(server.requests)
        browser.execute_script(hide.replace("arguments_", "false"))
        until(lambda: len(server.requests) > before)


def test_a_large_cluster_is_painted_and_refreshed(browser):
    """A hundred nodes with 4,096 partitions give a row for each node and one for all together."""
    with serving(large(100, 4096)) as (address, _, server):
        visit(browser, address)
        painted = until(
            lambda: browser.execute_script(
                "return performance.getEntriesByName('first-contentful-paint').map(each => each.startTime)"
            )
        )
        assert painted
        refreshed(browser, server)
        assert browser.execute_script("return document.querySelectorAll('.map tbody tr').length") == 101
