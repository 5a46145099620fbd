"""The doors of a node: our three clients and single requests for MessagePack, curl for HTTP, redis-py for RESP.

Each door does the same actions and answers in the same form, so that a row of the matrix states an action once. A
refusal is `Refused` with the code of the error, for HTTP behind the status.
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
    from collections.abc import Callable, Sequence

TIMEOUT_MS = 20_000  # Answers come in milliseconds; a busy machine needs more.
TIME = {"timeout_ms": TIMEOUT_MS}
PATIENCE_S = 30.0
MSGPACK = {"Content-Type": "application/msgpack"}


class Place(NamedTuple):
    """The addresses of one node."""

    address: str
    http: str = ""
    resp: str = ""
    time_ms: int = TIMEOUT_MS  # Requests by HTTP have this time.


class Database(NamedTuple):
    name: str
    kind: str  # `dataset`, `hash`, `range`, or `expiring`: a hash table whose records expire.
    keys: Sequence[bytes] = ()  # Those of a dataset that the asked node holds, or does not hold.


class Action(NamedTuple):
    """A method of the wire as every door can do it; scans and feeds have a prefix and a number of records."""

    database: Database
    method: str
    args: tuple[object, ...]
    lifetime: dict[str, int] = {}  # noqa: RUF012  # Never changed: the option of the records' lifetime.


class Refused(Exception):  # A documented outcome.
    def __init__(self, code: str, message: object = "") -> None:
        super().__init__(f"{code}: {str(message)[:200]}")
        self.code = code


def patiently(work: Callable[[], object], within_s: float = PATIENCE_S) -> object:
    """Return the result of `work` in another thread, which is left behind if it hangs."""
    ended: list[tuple[object, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except BaseException as error:  # noqa: BLE001  # Raised again below.
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


def dial(address: str) -> blocking.Client:
    """Return a client that asks this node only."""
    return blocking.Client([address], timeout_ms=TIMEOUT_MS, follows=False)


def wire(place: Place, action: Action) -> object:
    """Ask request by request: nothing divides large ones, and each page is asked for."""
    with dial(place.address) as client:
        name, method, args = action.database.name, action.method, action.args
        if method in {"get", "get_many"}:
            return client.call(method, name, *args, TIME)[0]
        if method in {"put", "delete", "put_many", "delete_many"}:
            client.call(method, name, *args, {**TIME, **action.lifetime})
            return None
        found, more = [], {"start": "snapshot"} if method == "changes" else {**TIME}
        if method == "scan":
            more["limit"] = args[1]
        while more is not None and len(found) < (args[1] if method != "delete_range" else len(found) + 1):
            if method == "delete_range":
                deleted, cursor, _ = client.call(method, name, {"prefix": args[0]}, more)
                found += [None] * deleted
            elif method == "scan":
                rows, cursor, _ = client.call(method, name, {"prefix": args[0], **more})
                found += [(key, value) for key, value in rows]
            else:
                prefix = {"prefix": args[0]} if "start" in more else {}
                rows, token = client.call(method, name, {**prefix, **more})
                found += [(key, value) for key, value, _ in rows]
                more = {"token": token, "wait_ms": 1000}
                continue
            more = None if cursor is None else {**more, "cursor": cursor}
        return len(found) if method == "delete_range" else found[: args[1]] if method == "scan" else sorted(found)


def _begun(client: object, action: Action) -> object:
    """Return the request or the stream of a client."""
    reads = action.database.kind == "dataset" and action.method in {"get", "get_many", "scan"}
    handle = (client.dataset if reads else client.table)(action.database.name)
    match action.method, action.args:
        case "scan", [prefix, count]:
            return handle.scan(prefix=prefix, limit=count)
        case "changes", [prefix, _]:
            return handle.changes(prefix=prefix, start="snapshot")
        case "delete_range", [prefix]:
            return handle.delete_range(prefix=prefix)
    return getattr(handle, action.method)(*action.args, **action.lifetime)


def _found(action: Action, items: list[tuple]) -> list[tuple]:
    return items if action.method == "scan" else sorted((change.key, change.value) for change in items)


def by_blocking(place: Place, action: Action) -> object:
    with dial(place.address) as client:
        begun, items = _begun(client, action), []
        if action.method not in {"scan", "changes"}:
            return begun
        for item in begun:
            items.append(item)
            if len(items) == action.args[1]:
                break
        return _found(action, items)


async def _awaited(client: object, action: Action) -> object:
    async with client:
        begun, items = _begun(client, action), []
        if action.method not in {"scan", "changes"}:
            return await begun
        async for item in begun:
            items.append(item)
            if len(items) == action.args[1]:
                break
        return _found(action, items)


def by_aio(place: Place, action: Action) -> object:
    return asyncio.run(_awaited(aio.Client([place.address], **TIME), action))


def by_trio(place: Place, action: Action) -> object:
    return trio.run(_awaited, trio_client.Client([place.address], **TIME), action)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def curl(place: Place, path: str, *flags: str, body: bytes | None = None, **headers: str) -> Reply:
    """Return the answer to a request by curl; a status of an error is `Refused`."""
    lines = {"Expect": "", "X-GossipKV-Timeout-Ms": str(place.time_ms)} | headers
    command = [
        "curl",
        "-sS",
        "-i",
        "--path-as-is",
        "--max-time",
        f"{PATIENCE_S:.0f}",
        *flags,
        f"http://{place.http}{path}",
    ]
    command += [word for name, value in lines.items() for word in ("-H", f"{name}: {value}".rstrip())]
    command += [] if body is None else ["--data-binary", "@-"]
    done = subprocess.run(command, input=body, capture_output=True, check=False)
    assert done.returncode == 0, (path[:80], done.stderr)
    head, _, said = done.stdout.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    found = Reply(int(first.split()[1]), {line.lower().split(": ")[0]: line.split(": ", 1)[1] for line in rest}, said)
    if found.status >= 400:
        raise Refused(f"{found.status} {found.headers.get('x-gossipkv-error', '')}".strip(), said)
    return found


def http(place: Place, action: Action) -> object:
    top = f"/{action.database.name}/"
    match action.method, action.args:
        case "get", [key]:
            try:
                return curl(place, top + urllib.parse.quote(key)).body
            except Refused as refused:
                if refused.code == "404":
                    return None
                raise
        case "get_many", [keys]:
            return msgpack.unpackb(curl(place, f"{top}_mget", body=msgpack.packb(keys), **MSGPACK).body)
        case "scan", [prefix, count]:
            asked = json.dumps({"prefix": prefix.decode(), "limit": count})
            found = curl(place, f"{top}_scan", "-H", "Content-Type: application/json", "-d", asked).body
            *rows, last = map(json.loads, found.splitlines())
            assert "error" not in last, last
            return [(row["key"].encode(), row["value"].encode()) for row in rows]
        case "changes", [prefix, count]:
            return sorted(events(place, f"{top}?prefix={prefix.decode()}&start=snapshot", count))
    _write(place, top, action)
    return None


def _write(place: Place, top: str, action: Action) -> None:
    lifetime = {"GossipKV-TTL": str(ms // 1000) for ms in action.lifetime.values()}  # noqa: B035  # There is one.
    match action.method, action.args:
        case "put", [key, value]:
            curl(place, top + urllib.parse.quote(key), "-X", "PUT", body=value, **lifetime)
        case "delete", [key]:
            curl(place, top + urllib.parse.quote(key), "-X", "DELETE")
        case "put_many", [rows]:
            curl(place, f"{top}_mput", body=msgpack.packb(rows), **MSGPACK, **lifetime)


def events(place: Place, path: str, count: int) -> list[tuple[bytes, bytes | None]]:
    """Return the first changes of an event stream; curl fails on a refusal, and prints its head."""
    command = ["curl", "-sS", "-N", "-i", "-H", "Accept: text/event-stream", f"http://{place.http}{path}"]
    found: list[tuple[bytes, bytes | None]] = []
    with subprocess.Popen([*command, "--max-time", f"{PATIENCE_S:.0f}"], stdout=subprocess.PIPE) as stream:
        head = b"".join(iter(stream.stdout.readline, b"\r\n")).decode().split()
        if head[1] != "200":
            raise Refused(f"{head[1]} {head[head.index('X-GossipKV-Error:') + 1]}")
        while len(found) < count and (line := stream.stdout.readline()):
            if line.startswith(b"data: "):
                told = json.loads(line[6:])
                found.append((told["key"].encode(), None if told["value"] is None else told["value"].encode()))
        stream.kill()
    return found


def connect(place: Place) -> redis.Redis:
    host, port = place.resp.split(":")
    return redis.Redis(host, int(port), socket_timeout=PATIENCE_S, protocol=2)


def resp(place: Place, action: Action) -> object:
    with connect(place) as client:
        try:
            return _by_commands(client.execute_command, f"{action.database.name}:".encode(), action)
        except redis.ResponseError as error:
            code = str(error).split()[0]  # The client takes `ERR` off.
            raise Refused(code if code.isupper() else "ERR", error) from error


def _by_commands(say: Callable[..., object], top: bytes, action: Action) -> object:
    match action.method, action.args:
        case "get", [key]:
            return say("GET", top + key)
        case "get_many", [keys]:
            return say("MGET", *(top + key for key in keys))
        case "scan", [prefix, count]:
            words = ["MATCH", top + prefix + b"*", "COUNT", count]
            cursor, keys = say("SCAN", 0, *words)
            while len(keys) < count and int(cursor):
                cursor, more = say("SCAN", cursor, *words)
                keys += more
            values = say("MGET", *keys[:count]) if keys else []
            return [(key[len(top) :], value) for key, value in zip(keys, values, strict=False)]
        case "put", [key, value]:
            say("SET", top + key, value, *(word for ms in action.lifetime.values() for word in ("PX", ms)))
        case "put_many", [rows]:
            say("MSET", *(word for key, value in rows for word in (top + key, value)))
        case "delete", [key]:
            say("DEL", top + key)
        case "delete_many", [keys]:
            say("DEL", *(top + key for key in keys))
    return None


DOORS = {"wire": wire, "blocking": by_blocking, "aio": by_aio, "trio": by_trio, "http": http, "resp": resp}
