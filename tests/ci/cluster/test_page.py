"""The page of a real cluster in Chromium: a page that was opened once follows an upgrade and two kills."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from gossipkv.keyspace.partitioner import partition
from gossipkv.launcher import Cluster
from gossipkv.wire.json_form import json_form
from tests.chromium import PATIENCE_S, chromium_is_there, start, until, visit

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = chromium_is_there

PARTITIONS = 8
VALUE_BYTES = 500
SETTINGS = {
    "cluster": f"page-{os.getpid()}", "time_to_converge": "500ms", "refresh_period": "200ms",
    "build_priority": "normal", "throttle_loads": "64KiB/s", "reassign_after": "1h",
}  # fmt: skip

# The script records the page's text at each change, and violations of its policy.
KEEP = """
window.said = []; window.violations = [];
document.addEventListener('securitypolicyviolation', event => violations.push(event.violatedDirective));
const keep = () => said.push(document.body.innerText);
new MutationObserver(keep).observe(document.getElementById('main'), {childList: true});
keep();
"""


@pytest.fixture
def browser(tmp_path):
    browser = start(tmp_path / "chromium")
    yield browser
    browser.quit()


def publish(source: Path, version: str, keys: int) -> None:
    place = source / "geo" / f"_{version}"
    place.mkdir(parents=True)
    lines: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for key in (b"key%05d" % number for number in range(keys)):
        lines[partition("sequins", key, PARTITIONS)].append(b"%b\t%b\n" % (key, b"v" * VALUE_BYTES))
    for number, part in enumerate(lines):
        (place / f"part-{number:05}.tsv").write_bytes(b"".join(part))
    place.rename(source / "geo" / version)


class Shown:
    """The texts that an open page has shown since the last wait."""

    def __init__(self, browser) -> None:
        self._browser = browser
        self._from = 0

    def until(self, *patterns: str) -> str:
        """Wait until a text matches all patterns, return the text and forget the texts up to it."""

        def found() -> str | None:
            for place, text in enumerate(self._said()):
                if all(re.search(pattern, text) for pattern in patterns):
                    self._from += place
                    return text
            return None

        return until(found, lambda: (patterns, self._said()[-1:]))

    def _said(self) -> list[str]:
        return self._browser.execute_script("return window.said.slice(arguments[0])", self._from)


def asked(address: str, path: str) -> object:
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"].startswith("application/json")
        return json.load(answer)


def assert_programs_are_told_the_same(node) -> None:
    """The JSON form of the page equals `status`."""
    with blocking.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
        until(lambda: asked(node.http, "/") == json_form(client.status()))
        until(lambda: asked(node.http, "/geo/") == json_form(client.status("geo")))


def test_the_page_goes_along_with_an_upgrade_and_kills(tmp_path, browser):
    """The page shows the reason of a waiting switch, suspected and dead nodes, under-replication and recovery."""
    source = tmp_path / "source"
    publish(source, "v1", 20)
    with Cluster(tmp_path / "cluster", nodes=3, source=source, replication=2, settings=SETTINGS, http=True) as cluster:
        node = cluster.node(1)
        visit(browser, f"http://{node.http}/")
        browser.execute_script(KEEP)
        shown = Shown(browser)
        shown.until("All is well. 1 database, 3 members, all alive", "v1\t●.ACTIVE")

        publish(source, "v2", 600)
        shown.until(r"v2\s+◐.BUILDING", r"waits for (what|\d+ partitions? that) n[123] builds, \d+ % done, \d+ s left")
        shown.until(r"v2\t●.ACTIVE", "All is well")
        assert_programs_are_told_the_same(node)

        cluster.kill(3)
        shown.until("n3 is suspect", r"n3 .*suspect")
        shown.until(
            "Everything can be read; .* 1 dead", r"on fewer than 2 live nodes", r"Start n3 again", "under-replicated"
        )
        cluster.kill(2)
        shown.until("wrong.* 2 dead", "partitions without a live owner", r"Start n2 and n3 again", "missing")
        cluster.start(2)
        cluster.start(3)
        shown.until("All is well. 1 database, 3 members, all alive")

        assert browser.execute_script("return window.violations") == []
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


STORED = (
    b"<title>stored</title><style>h1 { color: red }</style><h1>x</h1><img src=/ onerror=\"document.title = 'ran'\">"
)
STORED += b"<script>document.title = 'ran'</script>"


def test_a_stored_page_has_its_style_and_runs_nothing(tmp_path, browser):
    """So the stored page cannot act on behalf of its viewer."""
    settings = {**SETTINGS, "content_type": "text/html"}
    with Cluster(tmp_path / "cluster", nodes=1, settings=settings, http=True) as cluster:
        node = cluster.node(1)
        with blocking.connect(node.address, timeout_ms=PATIENCE_S * 1000) as client:
            client.call("create_table", "pages", {"kind": "hash", "partitions": 1})
            client.call("put", "pages", b"k", STORED)
        browser.get(f"http://{node.http}/pages/k")
        log = []

        def is_refused() -> bool:
            log.extend(entry["message"] for entry in browser.get_log("browser"))
            return any("Blocked script execution" in message for message in log)

        until(is_refused, lambda: log)
        assert browser.title == "stored"
        assert not any("inline style" in message for message in log)
