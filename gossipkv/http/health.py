"""How a node is: `/healthz` in Sequins' form, `/livez` and `/readyz` for whoever starts nodes and shares out requests.

`/livez` fails where the node does not answer: it wants to be started again.  `/readyz` fails where it should get no
requests: before it has joined and opened what it holds, and when it drains.  What is wrong elsewhere in the cluster
does not make it fail, or every node would be taken out of a balancer at once: `?verbose` and alert rules tell of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import GossipKVError
from gossipkv.http.answers import TEXT, Answer, document, refusal, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gossipkv.http.answers import Asker

# Kubernetes' probes wait 1 s by default, and a probe that says why has to be done before.
PROBE_TIMEOUT_MS: Final = 900
STATUS_TIMEOUT_MS: Final = 5000  # For people: it looks at every partition.

ACTIVE: Final = "ACTIVE"

# Flags of `info` under `ready`: what each has to be, and what it means if it is not.
READY: Final = (
    ("joined", True, "has joined its cluster", "has not joined its cluster yet"),
    ("opened", True, "has opened what it holds", "has not opened yet all that it holds"),
    ("draining", False, "is not draining", "is draining, and about to end"),
)


async def healthz(ask: Asker) -> Answer:
    """Answer with the state of each version, by database, version and node; 404 unless one of them is ACTIVE."""
    try:
        info = _map(await ask.call("info", timeout_ms=PROBE_TIMEOUT_MS))
        databases = await ask.call("databases", timeout_ms=PROBE_TIMEOUT_MS)
    except GossipKVError as error:
        return refusal(error)
    node = str(info.get("node"))
    told = {str(entry.get("name")): _states(entry) for entry in _maps(databases)}
    is_active = any(state == ACTIVE for states in told.values() for state in states.values())
    by_node = {name: {version: {node: state} for version, state in states.items()} for name, states in told.items()}
    return document(200 if is_active else 404, by_node)


async def livez(ask: Asker) -> Answer:
    """Answer whether the node, and not only the gateway, answers."""
    try:
        await ask.call("ping", timeout_ms=PROBE_TIMEOUT_MS)
    except GossipKVError as error:
        return _gone(error)
    return text(200, "alive")


async def readyz(ask: Asker, *, verbose: bool) -> Answer:
    """Answer whether the node should get requests; `verbose`: check by check, with what is wrong besides."""
    try:
        info = _map(await ask.call("info", timeout_ms=PROBE_TIMEOUT_MS))
    except GossipKVError as error:
        return _gone(error)
    ready = _map(info.get("ready"))
    # What an older node does not say is no reason against it: it answers.
    checks = [(ready[name] is wanted, good, bad) for name, wanted, good, bad in READY if name in ready]
    reasons = [bad for is_good, _, bad in checks if not is_good]
    verdict = f"not ready: the node {' and '.join(reasons)}" if reasons else "ready"
    if not verbose:
        return text(503, verdict, "NOT_READY") if reasons else text(200, verdict)
    lines = ["[+] the node answers"]
    lines += [f"[+] {good}" if is_good else f"[-] {bad}" for is_good, good, bad in checks]
    lines += [f"[!] {warning}" for warning in [*_of_node(info), *await _of_cluster(ask)]]
    body = "".join(f"{' '.join(line.split())}\n" for line in [*lines, verdict])
    named = [(b"X-GossipKV-Error", b"NOT_READY")] if reasons else []
    return Answer(503 if reasons else 200, [TEXT, *named], body.encode())


def _gone(error: GossipKVError) -> Answer:
    """Answer for a node that does not: 503 whatever the reason, which is what probes and balancers know."""
    return text(503, f"the node does not answer: {error.message}", error.code)


def _states(entry: Mapping[str, object]) -> dict[str, str]:
    """Return the state of each version on this node; of an older node, which does not say them, of the active one."""
    states = entry.get("states")
    if isinstance(states, dict):
        return {str(version): str(state) for version, state in states.items()}
    version = entry.get("version")
    return {} if version is None else {str(version): ACTIVE}


def _of_node(info: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong with the node and does not keep it from answering."""
    if info.get("isolated") is True:
        yield "it hears from no other node: what it knows of them is stale"
    if info.get("silent") is not None:
        yield f"it is silent, and builds nothing until it can write: {info['silent']}"
    if info.get("publish_error") is not None:
        yield f"others do not learn of all that it has: {info['publish_error']}"
    if info.get("source_error") is not None:
        yield f"its source cannot be read: {info['source_error']}"
    tables = _map(info.get("tables"))
    if tables.get("why") is not None:
        yield f"its tables are closed: {tables['why']}"
    twice = info.get("claimed_twice")
    if isinstance(twice, list) and twice:
        yield f"two nodes go by the name {', '.join(map(str, twice))}"


async def _of_cluster(ask: Asker) -> list[str]:
    """Return what is wrong with databases, as far as the node knows the others."""
    try:
        status = _map(await ask.call("status", timeout_ms=STATUS_TIMEOUT_MS))
    except GossipKVError as error:
        return [f"the state of databases is not known: {error.message}"]
    return [f"{name}: {trouble}" for name, entry in sorted(status.items()) for trouble in _of_database(_map(entry))]


def _of_database(entry: Mapping[str, object]) -> Iterator[str]:
    if entry.get("error") is not None:
        yield str(entry["error"])
    active = entry.get("active")
    if active is None:
        yield "no version is active yet"
        return
    version = _map(_map(entry.get("versions")).get(str(active)))
    missing = _map(version.get("missing")).get("count")
    if isinstance(missing, int) and missing > 0:
        yield f"{missing} of {version.get('partition_count')} partitions of version {active} have no live owner"


def _map(value: object) -> dict[str, object]:
    return {str(key): inner for key, inner in value.items()} if isinstance(value, dict) else {}


def _maps(value: object) -> list[dict[str, object]]:
    return [_map(each) for each in value] if isinstance(value, list) else []
