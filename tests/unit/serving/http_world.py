"""The content for the HTTP tests: datasets, a table and refusals, and a gateway in front of them."""

from __future__ import annotations

from gossipkv.errors import from_wire
from gossipkv.http.answers import HttpRequest, text
from gossipkv.http.exchange import Dates, HttpExchange, HttpRefusal, RequestLimits
from gossipkv.http.reads import ReadContext
from gossipkv.http.site import Site
from tests.oracle.http import Failed, Found, Written

NODE, OTHER_NODE = "here", "n2"
DATE_S, DATE = 784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"
PLAIN, TEXT = "application/octet-stream", "text/x-value; charset=utf-8"
RECORDS = {
    "db": {
        b"k": b"v", b"long": bytes(range(256)) * 12, b"empty": b"", b"ten": b"0123456789", b"a/../b": b"dots",
        b"\0\xff": b"\xff\0\r\n\r\n", b"a?b%": b"escaped", b"#": b"a number", b"_scan": b"a key as any other",
    },
    "other": {b"k": b"w", b"ten": b"9876543210"},
    "away": {b"k": b"of another node", b"ten": b"0000000000"},
}  # fmt: skip
VERSIONS = {"db": "v1", "other": "2024-01_B", "away": "3"}
TIMES_S = {"db": 1_470_052_587}  # The other datasets have no known time.
AWAY = "away"  # The dataset on another node.
TABLE = "carts"
FAILED = {
    "coming": Failed("NOT_READY", "coming has no version ready yet", names_database=True),
    "opening": Failed("NOT_READY", "opening is not ready"),
    "spoilt": Failed("CORRUPT", "v1/0.gkv: damaged at byte 4096: a checksum"),
    "busy": Failed("OVERLOADED", " too\tmuch\r\nis  in flight"),
    "later": Failed("TOMORROW", "what a node of a later release may say"),
    "slow": Failed("TIMEOUT", "nobody has answered in time"),
    "cut-off": Failed("UNAVAILABLE", "no owner of this partition can be reached: Zürich"),
}


WRITES_FAIL = {
    b"k": Failed("WRITE_LOST", "the session has seen a write that is gone"),
    b"#": Failed("NOT_READY", "no replica is ready for the session"),
    b"gone": Failed("UNKNOWN", "too few replicas have it in time"),
}


def result_of(database: str, key: bytes) -> Found | Failed:
    if database == TABLE:
        return Found(None if key == b"gone" else key * 2, None, token=key[:5])
    if database in RECORDS:
        value, version, time_s = RECORDS[database].get(key), VERSIONS[database], TIMES_S.get(database)
        other = OTHER_NODE if database == AWAY else None
        return Found(value, version, b"", time_s, content_type_of(database), other)
    return FAILED.get(database, Failed("UNKNOWN_DATABASE", f"there is no database {database}"))


def write_result_of(database: str, key: bytes, value: bytes | None, token: bytes) -> Written | Failed:
    """Return the result of a put, or of a delete without a value, by a session that showed this token."""
    if database != TABLE:
        return Failed("BAD_REQUEST", f"{database} is a dataset", names_database=True)
    if key in WRITES_FAIL:
        return WRITES_FAIL[key]
    return Written(None if key == b"ten" and not token else key[:5] + (b"-" if value is None else value[:9]) + token)


def details_of(database: str, failed: Failed) -> dict[str, str | int]:
    """Return the details of an error on the wire."""
    if failed.code == "CORRUPT":
        return {"file": "v1/0.gkv", "offset": 4096, "reason": "a checksum"}
    return {"database": database} if failed.names_database else {}


def content_type_of(database: str) -> str:
    return TEXT if database == "other" else PLAIN


class Asker:
    """The node, as a gateway asks it."""

    async def call(self, method, *params, timeout_ms=None):
        """Answer a read, or return the times of versions."""
        if method == "databases":
            return [{"name": name, "times": {VERSIONS[name]: time_s * 1000 + 999}} for name, time_s in TIMES_S.items()]
        if method == "get_many":
            database, keys = params
            return [[result_of(database, key).value for key in keys], VERSIONS[database]]
        if method in {"put", "delete"}:
            database, key, *value, options = params if isinstance(params[-1], dict) else [*params, {}]
            written = write_result_of(database, key, *(value or [None]), options.get("token", b""))
            if isinstance(written, Failed):
                raise from_wire(written.code, written.message, details_of(database, written))
            return {"accepted": True} if written.token is None else written.token
        assert method == "get", method
        database, key, _ = params
        result = result_of(database, key)
        if isinstance(result, Failed):
            raise from_wire(result.code, result.message, details_of(database, result))
        origin = result.token if result.version is None else result.version
        return [result.value, origin, {"node": result.other_node or NODE}]


async def looking(_request, found):
    return text(200, f"the gateway's own {found.path.decode()}")


class Pages:
    """Pages, which are no reads."""

    async def overview(self, request):
        return text(200, "a page")

    async def database(self, name, request):
        return text(200, "a page")

    def asset(self, name, request):
        """Return None: there are no assets."""


class Gateway:
    """One connection to a gateway."""

    def __init__(self, ask: Asker | None = None, *, hosts: str = "") -> None:
        content_type = lambda name: content_type_of(name).encode()  # noqa: E731  # It is said once.
        context = ReadContext(ask or Asker(), NODE, content_type, hosts=hosts, now_s=lambda: DATE_S)
        self.site = Site(context, dict.fromkeys((b"/healthz", b"/metrics"), looking), Pages())
        self.exchange = HttpExchange(RequestLimits(), dates=Dates(lambda: DATE_S))

    async def answers(self, data: bytes) -> list[bytes]:
        """Return the answers to a stream up to the first request that is incomplete or refused."""
        if data:
            self.exchange.receive(data)
        said = []
        while isinstance(found := self.exchange.next_request(), HttpRequest | HttpRefusal):
            if isinstance(found, HttpRefusal):
                said.append(self.exchange.whole(None, found.answer))
            else:
                said.append(self.exchange.whole(found, await self.site.answer(found)))
        return said
