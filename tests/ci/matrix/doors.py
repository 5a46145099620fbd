"""The doors of a node: our three clients and single requests for MessagePack, curl for HTTP, redis-py for RESP.

Each door does the same actions and answers in the same form, so that a row of the matrix states an action once. A
refusal is `Refused` with the code of `docs/reference/errors.md`, with the status of HTTP, or with the first word of
RESP.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import urllib.parse
from typing import TYPE_CHECKING, NamedTuple

import msgpack
import redis
import trio

from gossipkv.client import aio, blocking, trio_client
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TIMEOUT_MS = 20_000  # Answers come in milliseconds; a busy machine needs more.
PATIENCE_S = 30.0
TIME = {"timeout_ms": TIMEOUT_MS}
STREAMS = {"scan", "changes"}
MSGPACK = {"Content-Type": "application/msgpack"}


class Place(NamedTuple):
    """The addresses of one node."""

    address: str
    http: str
    resp: str


class Database(NamedTuple):
    """A database, and keys that the asked node holds, or keys that it does not hold."""

    name: str
    kind: str  # `dataset`, `hash`, `range`, or `expiring`: a hash table whose records expire.
    keys: Sequence[bytes] = ()


class Refused(Exception):  # noqa: N818  # A documented outcome, no error of the test.
    def __init__(self, code: str, message: object = "") -> None:
        super().__init__(f"{code}: {str(message)[:200]}")
        self.code = code


Action = "Callable[[Place, Database, str, tuple[object, ...], dict[str, int]], object]"


def perform(door: str, place: Place, database: Database, method: str, args: tuple, options: dict[str, int]) -> object:
    """Return the answer of one door; an answer that does not come fails, and stops nothing else."""
    return patiently(lambda: DOORS[door](place, database, method, args, options))


def patiently(work: Callable[[], object], within_s: float = PATIENCE_S) -> object:
    """Return the result of `work` in another thread, which is left behind if it hangs."""
    ended: list[tuple[object, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except BaseException as error:  # Raised again below.
            ended.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(within_s)
    assert ended, f"no answer in {within_s:.0f} s"
    result, error = ended[0]
    if isinstance(error, GossipKVError):
        raise Refused(error.code, error) from error
    if error is not None:
        raise error
    return result


def dial(place: Place) -> blocking.Client:
    """Return a client that asks this node only."""
    return blocking.Client([place.address], timeout_ms=TIMEOUT_MS, follows=False)


# The wire, request by request: nothing divides large ones.


def wire(place: Place, database: Database, method: str, args: tuple, options: dict[str, int]) -> object:
    with dial(place) as client:

        def pages(name: str, asked: dict[str, object]) -> Iterator[list[object]]:
            while True:
                page = client.call(name, database.name, asked)
                yield page
                if page[1] is None:
                    return
                asked = asked | {"cursor": page[1]}

        match method, args:
            case "get" | "get_many", [asked]:
                return client.call(method, database.name, asked, TIME)[0]
            case "scan", [prefix, count]:
                found = []
                for rows, *_ in pages(method, {"prefix": prefix, "limit": count, **TIME}):
                    found += [tuple(row) for row in rows]
                    if len(found) >= count:
                        return found[:count]
                return found
            case "changes", [prefix, count]:
                rows, token = client.call(method, database.name, {"prefix": prefix, "start": "snapshot"})
                while len(rows) < count:
                    more, token = client.call(method, database.name, {"token": token, "wait_ms": 1000})
                    rows += more
                return sorted((key, value) for key, value, _ in rows)
            case "delete_range", [prefix]:
                span = [database.name, {"prefix": prefix}]
                deleted, cursor, _ = client.call(method, *span, TIME)
                while cursor is not None:
                    more, cursor, _ = client.call(method, *span, {**TIME, "cursor": cursor})
                    deleted += more
                return deleted
        client.call(method, database.name, *args, {**TIME, **options})
        return None


# Our clients: any size.


def _handle(client: object, database: Database, method: str) -> object:
    reads = database.kind == "dataset" and method in {"get", "get_many", "scan"}
    return client.dataset(database.name) if reads else client.table(database.name)


def _stream(method: str, args: tuple) -> dict[str, object]:
    prefix, count = args
    return {"prefix": prefix, **({"limit": count} if method == "scan" else {"start": "snapshot"})}


def _found(method: str, items: list[tuple]) -> list[tuple]:
    return items if method == "scan" else sorted((change.key, change.value) for change in items)


def by_blocking(place: Place, database: Database, method: str, args: tuple, options: dict[str, int]) -> object:
    with dial(place) as client:
        handle = _handle(client, database, method)
        if method == "delete_range":
            return handle.delete_range(prefix=args[0])
        if method not in STREAMS:
            return getattr(handle, method)(*args, **options)
        items = []
        for item in getattr(handle, method)(**_stream(method, args)):
            items.append(item)
            if len(items) == args[1]:
                break
        return _found(method, items)


async def _awaited(client: object, database: Database, method: str, args: tuple, options: dict[str, int]) -> object:
    async with client:
        handle = _handle(client, database, method)
        if method == "delete_range":
            return await handle.delete_range(prefix=args[0])
        if method not in STREAMS:
            return await getattr(handle, method)(*args, **options)
        items = []
        async for item in getattr(handle, method)(**_stream(method, args)):
            items.append(item)
            if len(items) == args[1]:
                break
        return _found(method, items)


def by_aio(place: Place, *asked: object) -> object:
    return asyncio.run(_awaited(aio.Client([place.address], timeout_ms=TIMEOUT_MS), *asked))


def by_trio(place: Place, *asked: object) -> object:
    return trio.run(_awaited, trio_client.Client([place.address], timeout_ms=TIMEOUT_MS), *asked)


# HTTP


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def curl(place: Place, path: str, *flags: str, body: bytes | None = None, **headers: str) -> Reply:
    """Return the answer to a request by curl, whatever its status is."""
    lines = {"Expect": "", "X-GossipKV-Timeout-Ms": str(TIMEOUT_MS)} | headers
    command = ["curl", "-sS", "-i", "--path-as-is", "--max-time", f"{PATIENCE_S:.0f}", *flags]
    command += [word for name, value in lines.items() for word in ("-H", f"{name}: {value}" if value else f"{name}:")]
    command += [] if body is None else ["--data-binary", "@-"]
    done = subprocess.run([*command, f"http://{place.http}{path}"], input=body, capture_output=True, check=False)
    assert done.returncode == 0, (path[:80], done.stderr)
    head, _, said = done.stdout.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return Reply(int(first.split()[1]), {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in rest}, said)


def _served(reply: Reply) -> Reply:
    if reply.status >= 400:
        raise Refused(f"{reply.status} {reply.headers.get('x-gossipkv-error', '')}".strip(), reply.body)
    return reply


def http(place: Place, database: Database, method: str, args: tuple, options: dict[str, int]) -> object:
    top, lifetime = f"/{database.name}/", {"GossipKV-TTL": str(ms // 1000) for ms in options.values()}
    match method, args:
        case "get", [key]:
            reply = curl(place, top + urllib.parse.quote(key))
            if reply.status == 404 and "x-gossipkv-error" not in reply.headers:
                return None
            return _served(reply).body
        case "get_many", [keys]:
            return msgpack.unpackb(_served(curl(place, f"{top}_mget", body=msgpack.packb(keys), **MSGPACK)).body)
        case "scan", [prefix, count]:
            asked = json.dumps({"prefix": prefix.decode(), "limit": count}).encode()
            reply = _served(curl(place, f"{top}_scan", body=asked, **{"Content-Type": "application/json"}))
            *rows, last = map(json.loads, reply.body.splitlines())
            if "error" in last:
                raise Refused(last["error"], last["message"])
            return [(row["key"].encode(), row["value"].encode()) for row in rows]
        case "changes", [prefix, count]:
            return sorted(events(place, f"{top}?prefix={prefix.decode()}&start=snapshot", count))
        case "put", [key, value]:
            _served(curl(place, top + urllib.parse.quote(key), "-X", "PUT", body=value, **lifetime))
        case "delete", [key]:
            _served(curl(place, top + urllib.parse.quote(key), "-X", "DELETE"))
        case "put_many", [rows]:
            _served(curl(place, f"{top}_mput", body=msgpack.packb(rows), **MSGPACK, **lifetime))
    return None


def events(place: Place, path: str, count: int) -> list[tuple[bytes, bytes | None]]:
    """Return the first changes of an event stream."""
    command = ["curl", "-sS", "-N", "-i", "-H", "Accept: text/event-stream", f"http://{place.http}{path}"]
    found: list[tuple[bytes, bytes | None]] = []
    with subprocess.Popen([*command, "--max-time", f"{PATIENCE_S:.0f}"], stdout=subprocess.PIPE) as stream:
        status = stream.stdout.readline().split()[1:2]
        lines = [*iter(stream.stdout.readline, b"\r\n")]
        if status != [b"200"]:
            status += [line.split()[1] for line in lines if line.lower().startswith(b"x-gossipkv-error:")]
            raise Refused(b" ".join(status).decode(), stream.stdout.read())
        while len(found) < count and (line := stream.stdout.readline()):
            if line.startswith(b"data: "):
                told = json.loads(line[6:])
                found.append((told["key"].encode(), None if told["value"] is None else told["value"].encode()))
        stream.kill()
    return found


# RESP


def connect(place: Place) -> redis.Redis:
    host, port = place.resp.split(":")
    return redis.Redis(host, int(port), socket_timeout=PATIENCE_S, protocol=2)


def resp(place: Place, database: Database, method: str, args: tuple, options: dict[str, int]) -> object:
    top = f"{database.name}:".encode()
    with connect(place) as client:

        def say(*words: object) -> object:
            try:
                return client.execute_command(*words)
            except redis.ResponseError as error:
                code = str(error).split()[0]  # The client takes `ERR` off.
                raise Refused(code if code.isupper() else "ERR", error) from error

        match method, args:
            case "get", [key]:
                return say("GET", top + key)
            case "get_many", [keys]:
                return say("MGET", *(top + key for key in keys))
            case "scan", [prefix, count]:
                cursor, keys = say("SCAN", 0, "MATCH", top + prefix + b"*", "COUNT", count)
                while len(keys) < count and cursor not in {b"0", 0}:
                    cursor, more = say("SCAN", cursor, "MATCH", top + prefix + b"*", "COUNT", count)
                    keys += more
                values = say("MGET", *keys[:count]) if keys else []
                return [(key[len(top) :], value) for key, value in zip(keys, values, strict=False)]
            case "put", [key, value]:
                say("SET", top + key, value, *(word for ms in options.values() for word in ("PX", ms)))
            case "put_many", [rows]:
                say("MSET", *(word for key, value in rows for word in (top + key, value)))
            case "delete", [key]:
                say("DEL", top + key)
            case "delete_many", [keys]:
                say("DEL", *(top + key for key in keys))
    return None


DOORS: dict[str, Action] = {
    "wire": wire,
    "blocking": by_blocking,
    "aio": by_aio,
    "trio": by_trio,
    "http": http,
    "resp": resp,
}
