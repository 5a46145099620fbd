"""`get`, `get_many` and `scan` in Python: what the serving loop hands off.

The loop answers plain reads of local records itself; what comes here is a read about which something is to be said:
an error, a damaged page, an option that only Python knows.  So this decides from the beginning, by the same rules,
and is the one place that has the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gossipkv.errors import BadRequest, Corrupt, NotReady, TooLarge, UnknownDatabase
from gossipkv.node.published import Published, PublishedDatabase, PublishedVersion
from gossipkv.node.scan import PAGE_BYTES, Bounds, decode_cursor, page

if TYPE_CHECKING:
    from gossipkv.errors import Detail
    from gossipkv.node.arguments import Arguments, Options
    from gossipkv.settings.serving import ServingSettings
    from gossipkv.wire.rpc import Value

READ_OPTIONS = ("version", "min_version", "timeout_ms")
SCAN_OPTIONS = (*READ_OPTIONS, "start", "end", "prefix", "reverse", "limit", "cursor")

# What an answer has beside the values: envelope, heads, the name of the version.
_ENVELOPE_BYTES = 1024
_HEAD_BYTES = 5


class Holdings(Protocol):
    """What reads need to know of the library beyond what is served."""

    def known(self, database: str) -> bool:
        """Whether there is such a database, here or at the source."""
        ...

    def status(self, database: str | None = None) -> dict[str, Detail]:
        """Return by database: versions, their states and their progress."""
        ...

    def unready(self, database: str) -> str:
        """Why a known database serves nothing, in words."""
        ...

    def coming(self, database: str) -> bool:
        """Whether a known database that serves nothing will soon, if all goes well."""
        ...

    def damaged(self, database: str, version: str, error: Corrupt) -> None:
        """A read met damage."""
        ...


class Count(Protocol):
    """Where a request that was answered here is counted."""

    def __call__(self, database: str, version: str, *, by_name: bool) -> None:
        """One more for that version; `by_name`: the request named it."""
        ...


@final
class Reads:
    """The three read methods, on whatever is served now."""

    def __init__(self, holdings: Holdings, count: Count, settings: ServingSettings) -> None:
        self.published = Published()
        self._holdings = holdings
        self._count = count
        self._max_key = settings.max_key
        self._max_value = settings.max_value
        self._max_frame = settings.max_frame
        self._scan_limit = settings.scan_limit

    def get(self, arguments: Arguments) -> Value:
        """`[value or nil, version]`."""
        database = arguments.text("database")
        key = arguments.key("key", self._max_key)
        version = self._choose(database, arguments.options(*READ_OPTIONS))
        try:
            return [self._value(version, key), version.name]
        except Corrupt as error:
            self._holdings.damaged(database, version.name, error)
            raise

    def get_many(self, arguments: Arguments) -> Value:
        """`[[value or nil, ...], version]`."""
        database = arguments.text("database")
        keys = arguments.keys("keys", self._max_key)
        version = self._choose(database, arguments.options(*READ_OPTIONS))
        values: list[Value] = []
        room = self._max_frame - _ENVELOPE_BYTES
        try:
            for key in keys:
                value = self._value(version, key)
                values.append(value)
                room -= _HEAD_BYTES + len(value or b"")
                if room < 0:
                    raise TooLarge("the values do not fit into one answer: ask for fewer", {"limit": self._max_frame})
        except Corrupt as error:
            self._holdings.damaged(database, version.name, error)
            raise
        return [values, version.name]

    def scan(self, arguments: Arguments) -> Value:
        """`[[[key, value], ...], cursor or nil, version]`."""
        database = arguments.text("database")
        options = arguments.options(*SCAN_OPTIONS)
        start, end, prefix = (options.key(name, self._max_key) for name in ("start", "end", "prefix"))
        bounds = Bounds(start, end, prefix, options.flag("reverse"))
        limit = options.number("limit", least=1)
        cursor = options.blob("cursor")
        if cursor is None:
            version = self._choose(database, options)
        else:
            pinned, last = decode_cursor(cursor)
            options.text("min_version"), options.timeout_ms()  # Not needed, but they must be right.
            if options.text("version") not in {None, pinned}:
                raise BadRequest(f"scan: the cursor belongs to version {pinned}")
            version = self._count_choice(self._database(database).choose(pinned, None), by_name=True)
            bounds = bounds.after(last)
        limit = self._scan_limit if limit is None else min(limit, self._scan_limit)
        page_bytes = min(PAGE_BYTES, (self._max_frame - _ENVELOPE_BYTES) // 2)
        try:
            records, following = page(version, bounds, limit, page_bytes, self._max_value)
        except Corrupt as error:
            self._holdings.damaged(database, version.name, error)
            raise
        return [records, following, version.name]

    def _value(self, version: PublishedVersion, key: bytes) -> bytes | None:
        file = version.file_of(key)
        value = None if file is None else file.get(key)
        if value is not None and len(value) > self._max_value:
            raise TooLarge("the value is longer than the node sends", {"limit": self._max_value, "size": len(value)})
        return value

    def _choose(self, database: str, options: Options) -> PublishedVersion:
        version, min_version = options.text("version"), options.text("min_version")
        options.timeout_ms()  # A local read takes no time worth the name, so any timeout is kept.
        published = self._database(database)
        if published.active is None and version is None and min_version is None:
            raise self._not_ready(database)
        chosen = published.choose(version, min_version)
        return self._count_choice(chosen, by_name=version is not None)

    def _count_choice(self, version: PublishedVersion, *, by_name: bool) -> PublishedVersion:
        self._count(version.database, version.name, by_name=by_name)
        return version

    def _database(self, name: str) -> PublishedDatabase:
        found = self.published.databases.get(name)
        if found is not None and found.versions:
            return found
        if not self._holdings.known(name):
            raise UnknownDatabase(f"no database {name} here", {"database": name})
        raise self._not_ready(name)

    def _not_ready(self, name: str) -> NotReady:
        return NotReady(
            f"{name} has no version ready yet: {self._holdings.unready(name)}",
            {"database": name, "coming": self._holdings.coming(name), "status": self._holdings.status(name)},
        )
