"""Requests for pages and their answers; and the sampler, which runs while a page is viewed.

Simultaneous viewers share one survey, which is kept for half a second.  An error here costs one answer, or one sample:
no error of a page ends the process.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError, Internal
from gossipkv.http import target
from gossipkv.http.answers import STATUS_BY_CODE, HttpAnswer, document, refusal
from gossipkv.http.media import qualities
from gossipkv.http.page import rendering
from gossipkv.http.page.history import NodeHistory
from gossipkv.http.page.survey import NODE_MS, FoundKey, look_up, status_of, take_survey
from gossipkv.http.page.view import LookupForm, view
from gossipkv.log import Log
from gossipkv.status.codec import decode
from gossipkv.status.reports import InfoReport
from gossipkv.wire.json_form import json_form
from gossipkv.wire.key_text import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.http.answers import Asker, HttpRequest
    from gossipkv.http.page.survey import PageSurvey

SAMPLE_S: Final = 1.0
REPLACED: Final = "\N{REPLACEMENT CHARACTER}"  # It replaces bytes that are no text.
LOOKED_S: Final = 60.0  # Sampling continues for this long after the last view.
FRESH_S: Final = 0.5  # A survey is shared for this long.
MAX_SURVEYS: Final = 8  # The most surveys kept, of different databases.

_HEADERS: Final = [
    (b"Content-Type", b"text/html; charset=utf-8"),
    (b"Cache-Control", b"no-store"),
    (b"Vary", b"Accept"),
    *rendering.GUARDS,
]


_log = Log("gossipkv.http")


@contextlib.contextmanager
def contained(where: str) -> Iterator[None]:
    """Let our own errors pass, and log all other exceptions of the block.

    Raises:
        Internal: in place of a logged exception, with its id in the log.
    """
    try:
        yield
    except GossipKVError:
        raise
    except Exception as error:  # Any exception ends one answer, and not the process.
        incident = uuid.uuid4().hex[:16]
        _log.error("page_failed", page=where, id=incident, exc_info=error)
        message = f"the page failed because of a defect; the node's log has the traceback under {incident}"
        raise Internal(message, {"id": incident}) from error


@final
class StatusPages:
    """The pages in front of one node, which `ask` calls."""

    def __init__(self, ask: Asker, *, now_s: Callable[[], float] = time.time) -> None:
        self._ask = ask
        self._now_s = now_s
        self._history = NodeHistory()
        self._looked_s = 0.0
        self._looked = trio.Event()
        self._asking = trio.Lock()
        self._surveys: dict[str | None, tuple[float, PageSurvey]] = {}  # Each survey has the time when it was taken.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sample the node once a second while pages are viewed, until cancelled."""
        task_status.started()
        while True:
            await self._looked.wait()
            while trio.current_time() - self._looked_s < LOOKED_S:
                await self._sample()
                await trio.sleep(SAMPLE_S)
            self._looked = trio.Event()

    async def overview(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request for `/`."""
        return await self._answer(request, None)

    async def database(self, name: str, request: HttpRequest) -> HttpAnswer:
        """Answer a request for `/<name>/`."""
        return await self._answer(request, name)

    def asset(self, name: str, request: HttpRequest) -> HttpAnswer | None:
        """Answer a request for `/static/<name>`; None if there is no such asset."""
        return rendering.asset(name, request)

    async def _sample(self) -> None:
        with contextlib.suppress(GossipKVError), contained("sampler"):
            # A missing answer leaves a gap; the page itself reports that the node does not answer.
            info = await self._ask.call("info", timeout_ms=NODE_MS)
            self._history.add(trio.current_time(), decode(InfoReport, info))

    async def _answer(self, request: HttpRequest, database: str | None) -> HttpAnswer:
        is_json = wants_json(request.headers.get(b"accept", b""))
        if not is_json:
            self._looked_s = trio.current_time()
            self._looked.set()
        try:
            with contained("document" if is_json else "page"):
                return await (self._document(database) if is_json else self._page(database, request.target))
        except GossipKVError as error:
            return refusal(error) if is_json else failure(error)

    async def _document(self, database: str | None) -> HttpAnswer:
        answer = document(200, json_form(await status_of(self._ask, database, bitmaps=False)))
        answer.headers.extend([(b"Cache-Control", b"no-store"), (b"Vary", b"Accept")])
        return answer

    async def _page(self, database: str | None, asked_for: bytes) -> HttpAnswer:
        survey, intervals = await self._survey(database), self._history.intervals()
        asked, found = await self._look_up(database, asked_for)
        # For a hundred nodes this takes tens of milliseconds, which must not delay other requests.
        shown = partial(view, survey, intervals, database, asked, found)
        body = await trio.to_thread.run_sync(lambda: rendering.page(shown()))
        return HttpAnswer(200, [*_HEADERS], body)

    async def _look_up(self, database: str | None, asked_for: bytes) -> tuple[LookupForm, FoundKey | None]:
        """Return the request of the page's form and its result; None without a request."""
        options = target.parse(asked_for).options
        asked = LookupForm(database or options.get("database", ""), options.get("key", ""), options.get("as") == "hex")
        if "key" not in options or not asked.database:
            return asked, None
        try:
            key = typed(asked.key) if asked.is_hex else asked.key.encode()
        except ValueError:
            return asked, FoundKey(
                asked.database, b"", None, "", "", f"{asked.key!r} does not consist of pairs of hexadecimal digits"
            )
        if REPLACED in asked.key and not asked.is_hex:
            return asked, FoundKey(asked.database, b"", None, "", "", "the key is not UTF-8; give the key as hex")
        return asked, await look_up(self._ask, asked.database, key)

    async def _survey(self, database: str | None) -> PageSurvey:
        async with self._asking:
            now_s = trio.current_time()
            fresh = {name: kept for name, kept in self._surveys.items() if now_s - kept[0] < FRESH_S}
            if database not in fresh:
                taken = await take_survey(self._ask, self._now_s(), database)
                fresh = dict(list(fresh.items())[1 - MAX_SURVEYS :])
                fresh[database] = (trio.current_time(), taken)
            self._surveys = fresh
            return fresh[database][1]


def wants_json(accept: bytes) -> bool:
    """True if a client with this `Accept` prefers JSON to HTML."""
    wanted = qualities(accept)
    return wanted.get(b"application/json", 0.0) > wanted.get(b"text/html", 0.0)


def failure(error: GossipKVError) -> HttpAnswer:
    """Return a page that reports an error."""
    status = STATUS_BY_CODE.get(error.code, 500)
    title = "No such database" if error.code == "UNKNOWN_DATABASE" else "The node does not answer"
    if status == STATUS_BY_CODE["INTERNAL"]:
        title = "The page has a defect"
    headers = [*_HEADERS, (b"X-GossipKV-Error", error.code.encode())]
    return HttpAnswer(status, headers, rendering.failure(status, title, error.message))
