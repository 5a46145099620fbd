"""Routing of paths to handlers.

    /healthz /livez /readyz /metrics /debug/vars   exactly these: the gateway's own (`site_of`)
    /login                                         a form for a token, and its target, if nodes have users
    /TABLE/ as text/event-stream                   changes of a table
    /static/ASSET, /, /DATABASE/                   the page
    POST /DATABASE/_mget, _scan or _mput           many keys, many records
    /DATABASE/KEY                                  one key

Earlier rows win: a database called `debug` is read like any other, except for its key `vars` (`order.HIDING`; the
node's log warns of it).  Paths are compared as sent, so `/%6detrics` is not the gateway's.  `/DATABASE` without its
final slash is 400, as in Sequins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, final

from gossipkv.access.rights import LOGIN, Right, of_path
from gossipkv.errors import GossipKVError, Unauthorized
from gossipkv.http import target
from gossipkv.http.answers import HttpAnswer, HttpRequest, RefusedRequest, refusal, text
from gossipkv.http.batches import read_many
from gossipkv.http.changes import changes, wants_changes
from gossipkv.http.health import healthz, livez, readyz
from gossipkv.http.metrics import debug_vars, metrics
from gossipkv.http.page.pages import StatusPages
from gossipkv.http.permissions import check_host, refused
from gossipkv.http.read_options import read_options, write_options
from gossipkv.http.reads import ALLOW, DataRequest, check_name, is_table, read_one, unanswered
from gossipkv.http.reads import refused as refused_data
from gossipkv.http.scans import scan
from gossipkv.http.writes import delete, put, put_many

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.http.answers import Asker
    from gossipkv.http.reads import ReadContext
    from gossipkv.http.target import RequestTarget

Looking = Callable[[HttpRequest, "RequestTarget"], Awaitable[HttpAnswer]]
DataMethod = Callable[[DataRequest], Awaitable[HttpAnswer]]

LOOKS: Final = frozenset({b"GET", b"HEAD"})
STATIC: Final = "static"
READINESS: Final = b"/readyz"
POSTED: Final[dict[bytes, DataMethod]] = {b"_mget": read_many, b"_scan": scan, b"_mput": put_many}
OF_KEYS: Final[dict[bytes, DataMethod]] = {b"GET": read_one, b"HEAD": read_one, b"PUT": put, b"DELETE": delete}
WRITING: Final = frozenset({put, delete, put_many})
NO_WRITES: Final = (
    "this gateway only reads, since all its clients would write with its own rights; write at a node, or start the "
    "gateway with --allow-writes"
)


def data_method(method: bytes, found: RequestTarget) -> DataMethod | None:
    """Return what answers such a request; None: nothing does."""
    return POSTED.get(found.key or b"") if method == b"POST" else OF_KEYS.get(method)


async def answer_data(context: ReadContext, request: HttpRequest, found: RequestTarget) -> HttpAnswer:
    """Answer with records of a database, or to a write.  Raises RefusedRequest."""
    method = data_method(request.method, found)
    if method is None or found.database is None or found.key is None:
        has_key = found.database is not None and bool(found.key)
        of_table = has_key and await is_table(context.ask, str(found.database))
        return unanswered(request, found, of_table=of_table)
    options = None
    try:
        check_name(found.database)
        if method in WRITING:
            if not context.may_write:
                raise RefusedRequest(text(403, NO_WRITES, Unauthorized.code))
            options = write_options(request.headers, found)
        else:
            options = read_options(request.headers, found, alone=context.alone, session=context.session)
        return await method(DataRequest(context, request, found.database, found.key, options))
    except GossipKVError as error:
        return refused_data(error, options)


@final
class Site:
    """Answers all requests."""

    def __init__(self, context: ReadContext, paths: Mapping[bytes, Looking], pages: StatusPages) -> None:
        self.is_draining = False
        self._permissions = context.permissions
        self._context = context
        self._paths = paths
        self._pages = pages

    def drain(self) -> None:
        """Say that the node is about to end, and end all event streams."""
        self.is_draining = True
        self._context.streams.end()

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request; the input of clients and nodes raises no error."""
        try:
            found = target.parse(request.target)
            check_host(request, found.path, self._context.hosts)
            if self._permissions is not None:
                if found.path == LOGIN:
                    return await self._permissions.log_in(request)
                await self._permissions.check(request, *self._needed(request, found))
            if (looking := self._paths.get(found.path)) is not None:
                return await self._look(request, found, looking)
            if found.key:
                return await self._read(request, found)
            return await self._show(request, found)
        except RefusedRequest as not_done:
            return not_done.answer
        except GossipKVError as error:
            return refusal(error) if self._permissions is None else refused(request, error)

    def _needed(self, request: HttpRequest, found: RequestTarget) -> list[tuple[Right, str | None]]:
        """Return the needed rights by database: looking up a key on the page is a read."""
        if wants_changes(request, found):
            return [(Right.READ, found.database)]
        is_asset = found.database == STATIC and bool(found.key) and self._asset(request, found) is not None
        writes = data_method(request.method, found) in WRITING
        needed = [(of_path(found.path, found.key, is_asset=is_asset, writes=writes), found.database)]
        if not found.key and "key" in found.options:
            needed.append((Right.READ, found.database or found.options.get("database")))
        return needed

    def _asset(self, request: HttpRequest, found: RequestTarget) -> HttpAnswer | None:
        assert found.key, found
        return self._pages.asset(found.key.decode("utf-8", "replace"), request)

    async def _look(self, request: HttpRequest, found: RequestTarget, looking: Looking) -> HttpAnswer:
        if request.method == b"OPTIONS":
            return HttpAnswer(204, [ALLOW])
        if request.method not in LOOKS:
            return text(405, f"{found.path.decode('ascii', 'replace')} supports only GET and HEAD", headers=[ALLOW])
        if self.is_draining and found.path == READINESS:
            return text(503, "not ready: the node is draining, and about to end", "NOT_READY")
        return await looking(request, found)

    async def _read(self, request: HttpRequest, found: RequestTarget) -> HttpAnswer:
        """Answer with records of a database, unless an asset of the page has that path."""
        assert found.key, found
        if found.database == STATIC and request.method in LOOKS:
            asset = self._asset(request, found)
            if asset is not None:
                return asset
        return await answer_data(self._context, request, found)

    async def _show(self, request: HttpRequest, found: RequestTarget) -> HttpAnswer:
        if request.method not in LOOKS:
            return unanswered(request, found)
        if wants_changes(request, found):
            return await changes(self._context, request, found)
        if found.database is not None and found.key is not None:
            return await self._pages.database(found.database, request)
        if found.path == b"/":
            return await self._pages.overview(request)
        return unanswered(request, found)


def site_of(context: ReadContext, ask: Asker) -> tuple[Site, StatusPages]:
    """Return the site of a gateway, and its pages, which run beside it."""
    pages, permissions = StatusPages(ask), context.permissions

    async def may_see(request: HttpRequest) -> bool:
        return permissions is None or await permissions.allows(request, (Right.SEE, None))

    own: dict[bytes, Looking] = {
        b"/healthz": lambda _request, _target: healthz(ask),
        b"/livez": lambda _request, _target: livez(ask),
        b"/readyz": lambda request, target: readyz(
            ask, verbose="verbose" in target.options, may_see=lambda: may_see(request)
        ),
        b"/metrics": lambda request, _target: metrics(ask, request.headers.get(b"accept", b"")),
        b"/debug/vars": lambda _request, _target: debug_vars(ask),
    }
    return Site(context, own, pages), pages
