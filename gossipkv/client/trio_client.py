"""The client under Trio: one connection, any number of tasks.

    async with gossipkv.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        await geo.get("paris")

All tasks share one connection to the first address that answers.  When it breaks, requests in flight that may be
repeated (every read) are repeated at once at the next address, within their own deadline.  A request that may not be
repeated raises `Unknown` if any of it was sent.  A node that is silent until a deadline is left for the next.

A waiting request needs no lock, event or cancel scope of its own.  Its task is parked until the answer, the deadline
(one heap, one task that sleeps until the earliest) or Trio's cancellation wakes it.  A cancelled request's bytes go out
whole and its late answer is dropped, so the connection stays usable.

A client belongs to the `trio.run` in which it was entered; anywhere else it raises `RuntimeError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.client import awaited
from gossipkv.client.awaited import Dataset, Table
from gossipkv.client.credentials import Credentials
from gossipkv.client.reads import STAGE_TIMEOUT_MS, TIMEOUT_MS
from gossipkv.client.scan import Scan
from gossipkv.client.trio_shell import TrioShell

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext

    from gossipkv.client.route import Named

__all__ = ["Client", "Dataset", "Scan", "Table", "connect"]


def connect(
    *addresses: Named | Iterable[Named],
    timeout_ms: int = TIMEOUT_MS,
    stage_timeout_ms: int | None = STAGE_TIMEOUT_MS,
    tls: SSLContext | bool = False,
    token: str | None = None,
) -> Client:
    """Return a client for `async with`, which connects to the first of `addresses` (`host:port`) that can be reached.

    Args:
        addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
            clients.
        timeout_ms: Time allowed for connecting, and for each request without a time of its own.
        stage_timeout_ms: Time after which a read that is not answered is asked of another node as well; None: never.
        tls: True: TLS, with certificates of the nodes' hosts that this system trusts; a context: TLS with that context.
        token: The user's token, if nodes have users.

    Raises:
        Unavailable: on entering, no node can be reached; the message and `details` list each address and why.
        Unauthorized: on entering, a node does not know the token.
        ValueError: no address, one that is not `host:port`, a timeout that is not positive, or an invalid token.
    """
    return Client(
        addresses, timeout_ms=timeout_ms, stage_timeout_ms=stage_timeout_ms, credentials=Credentials(tls, token)
    )


@final
class Client(TrioShell, awaited.Client):
    """A connection to a cluster, for all tasks of one `trio.run`; `connect` makes one.

    It is entered once, with `async with`; every request raises `RuntimeError` outside of that block, in another thread
    and in a child after `fork`.
    """
