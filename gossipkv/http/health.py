"""Health of a node: `/healthz` in Sequins' form, `/livez` and `/readyz` for supervisors and load balancers.

`/livez` fails if the node does not answer, and should be restarted.  `/readyz` fails if the node should get no
requests: before it has joined and opened its data, and while it drains.  Faults elsewhere in the cluster do not affect
it, or a balancer would remove all nodes at once: `?verbose` and alert rules report them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import GossipKVError
from gossipkv.http.answers import TEXT, HttpAnswer, document, refusal, text
from gossipkv.status.codec import decode, decode_list
from gossipkv.status.reports import DatabaseSummary, InfoReport
from gossipkv.status.verdict import WELL, verdict_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gossipkv.http.answers import Asker

# Kubernetes' probes wait 1 s by default, and a probe must report its reason before that.
PROBE_TIMEOUT_MS: Final = 900
VERDICT_TIMEOUT_MS: Final = 5000  # People wait longer: the first verdict asks all members.

ACTIVE: Final = "ACTIVE"

# The flags of `info` under `ready`: the required value, and the texts for success and failure.
READY: Final = (
    ("joined", True, "has joined its cluster", "has not joined its cluster yet"),
    ("opened", True, "has opened its data", "has not yet opened all its data"),
    ("draining", False, "is not draining", "is draining, and about to end"),
)


async def healthz(ask: Asker) -> HttpAnswer:
    """Answer with the state of each version, by database, version and node; 404 unless one of them is ACTIVE."""
    try:
        info = decode(InfoReport, await ask.call("info", timeout_ms=PROBE_TIMEOUT_MS))
        databases = decode_list(DatabaseSummary, await ask.call("databases", timeout_ms=PROBE_TIMEOUT_MS))
    except GossipKVError as error:
        return refusal(error)
    is_active = any(ACTIVE in database.states.values() for database in databases)
    by_name = {
        database.name: {version: {info.node: state} for version, state in database.states.items()}
        for database in databases
    }
    return document(200 if is_active else 404, by_name)


async def livez(ask: Asker) -> HttpAnswer:
    """Answer 200 if the node, and not only the gateway, answers."""
    try:
        await ask.call("ping", timeout_ms=PROBE_TIMEOUT_MS)
    except GossipKVError as error:
        return _gone(error)
    return text(200, "alive")


async def readyz(ask: Asker, *, verbose: bool, may_see: Callable[[], Awaitable[bool]]) -> HttpAnswer:
    """Answer 200 if the node should get requests; `verbose`: list all checks and the cluster's faults.

    The reasons of the cluster's verdict need `may_see`: they name files, nodes and databases.
    """
    try:
        info = decode(InfoReport, await ask.call("info", timeout_ms=PROBE_TIMEOUT_MS))
    except GossipKVError as error:
        return _gone(error)
    checks = [(info.ready.get(name) is wanted, good, bad) for name, wanted, good, bad in READY]
    reasons = [bad for is_good, _, bad in checks if not is_good]
    verdict = f"not ready: the node {' and '.join(reasons)}" if reasons else "ready"
    if not verbose:
        return text(503, verdict, "NOT_READY") if reasons else text(200, verdict)
    lines = ["[+] the node answers"]
    lines += [f"[+] {good}" if is_good else f"[-] {bad}" for is_good, good, bad in checks]
    lines += [f"[!] {warning}" for warning in await _of_cluster(ask, may_see)]
    body = "".join(f"{' '.join(line.split())}\n" for line in [*lines, verdict])
    named = [(b"X-GossipKV-Error", b"NOT_READY")] if reasons else []
    return HttpAnswer(503 if reasons else 200, [TEXT, *named], body.encode())


def _gone(error: GossipKVError) -> HttpAnswer:
    """Answer 503 for a node that does not answer, as probes and balancers expect."""
    return text(503, f"the node does not answer: {error.message}", error.code)


async def _of_cluster(ask: Asker, may_see: Callable[[], Awaitable[bool]]) -> list[str]:
    """Return the last verdict, with its reasons if `may_see` allows them."""
    try:
        verdict = verdict_of(await ask.call("verdict", {"last": True}, timeout_ms=VERDICT_TIMEOUT_MS))
    except GossipKVError as error:
        return [f"the verdict cannot be determined: {error.message}"]
    if verdict.level == WELL:
        return []
    reasons = [text for level, text in verdict.findings if level != WELL]
    return [f"the cluster: {verdict.text}", *(reasons if await may_see() else [])]
