"""A fake node without a wire, with versions, options, pages and errors, that records the gateway's calls."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import msgpack

from gossipkv.errors import WRITES_ARE, BadRequest, GossipKVError, NotReady, NotServed, UnknownDatabase, UnknownVersion

OWN = "n1"
READ = {"version", "min_version", "timeout_ms", "local"}
SCAN = READ | {"start", "end", "prefix", "reverse", "limit", "cursor"}


@dataclass
class FakeDatabase:
    """Versions with their records; `elsewhere` names the node that holds a key."""

    versions: dict[str, dict[bytes, bytes]]
    active: str | None
    times: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[bytes, str] = field(default_factory=dict)


@dataclass
class FakeNode:
    """A fake node; calls of the method `fails`, or all calls, raise `failure` from call number `after` on."""

    databases: dict[str, FakeDatabase]
    page: int = 1000
    failure: GossipKVError | None = None
    fails: str | None = None
    after: int = 0
    calls: list[tuple] = field(default_factory=list)

    async def call(self, method, *params, timeout_ms=None):
        """Answer as a node does; parameters and results pass through MessagePack."""
        params = msgpack.unpackb(msgpack.packb(params), strict_map_key=True)
        self.calls.append((method, *copy.deepcopy(params)))
        asked = sum(call[0] == method for call in self.calls)
        if self.failure is not None and self.fails in {None, method} and asked > self.after:
            raise self.failure
        return msgpack.unpackb(msgpack.packb(getattr(self, f"_{method}")(*params)))

    def asked(self, method):
        return [call[1:] for call in self.calls if call[0] == method]

    def _databases(self):
        return [
            {
                "name": name,
                "kind": "dataset",
                "version": database.active,
                "partitions": 4,
                "times": database.times,
            }
            for name, database in self.databases.items()
        ]

    def _put(self, name, *_):
        raise BadRequest(f"{name} is a dataset: {WRITES_ARE}", {"database": name})

    _delete = _put_many = _put

    def _get(self, name, key, options=None):
        options = options or {}
        version, records = self._choose(name, options, READ | {"explain"})
        node = self._here(name, key, version, options)
        told = [{"node": node}] if options.get("explain") else []
        return [records.get(key), version, *told]

    def _get_many(self, name, keys, options=None):
        version, records = self._choose(name, options or {}, READ)
        for key in keys:
            self._here(name, key, version, options or {})
        return [[records.get(key) for key in keys], version]

    def _scan(self, name, options=None):
        options = options or {}
        last = None
        if (cursor := options.get("cursor")) is not None:
            version, last = msgpack.unpackb(cursor, raw=False)
            options = {**options, "version": version}
        version, records = self._choose(name, options, SCAN)
        start, end, prefix = (options.get(option) for option in ("start", "end", "prefix"))
        keys = [
            key
            for key in sorted(records, reverse=bool(options.get("reverse")))
            if (start is None or key >= start) and (end is None or key < end) and key.startswith(prefix or b"")
        ]
        if last is not None:
            keys = [key for key in keys if (key < last if options.get("reverse") else key > last)]
        most = min(options.get("limit") or self.page, self.page)
        cursor = msgpack.packb([version, keys[most - 1]]) if len(keys) > most else None
        return [[[key, records[key]] for key in keys[:most]], cursor, version]

    def _choose(self, name, options, known):
        for option in options:
            if option not in known:
                raise BadRequest(f"unknown option {option}", {"option": option})
        database = self.databases.get(name)
        if database is None:
            raise UnknownDatabase(f"there is no database {name}", {"database": name})
        version, least = options.get("version"), options.get("min_version")
        if version is not None:
            if version not in database.versions:
                raise UnknownVersion(f"{name} {version} is not held here", {"database": name, "version": version})
            return version, database.versions[version]
        if database.active is None:
            raise NotReady(f"{name} has no version ready yet", {"database": name})
        version = database.active
        if least is not None and version < least:
            newer = [each for each in sorted(database.versions) if each >= least]
            if not newer:
                raise NotReady(f"{name} has nothing as new as {least}", {"database": name, "min_version": least})
            version = newer[0]
        return version, database.versions[version]

    def _here(self, name, key, version, options):
        """Return the answering node; raise if `local` forbids asking another node."""
        node = self.databases[name].elsewhere.get(key, OWN)
        if node != OWN and options.get("local"):
            raise NotServed(f"{name} {version}: that partition is not here", {"database": name, "version": version})
        return node


def baby_names():
    """Return a node with a database of two versions, one key on another node, and an empty database."""
    names = FakeDatabase(
        {
            "1": {b"1881/boy": b"John", b"old": b"here once"},
            "2": {
                b"1881/boy": b"Johnny",
                b"away": b"from n2",
                b"": b"of no key",
                b"a/../b//c": b"dots",
                b"a+b": b"plus",
                b"\0\0\0\x2a": b"\0\0\0d",
                b"M\xc3\xbcnchen": b"Isar",
                b"what?": b"a question",
                b"empty": b"",
                b"ten": b"0123456789",
            },
        },
        "2",
        {"1": 1_000_000_000_500, "2": 1_470_052_587_999},
        {b"away": "n2", b"gone": "n2"},
    )
    return FakeNode({"baby-names": names, "coming": FakeDatabase({}, None)})
