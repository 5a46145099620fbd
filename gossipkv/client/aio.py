"""The client under asyncio: one connection, any number of tasks; uvloop is welcome.

    async with gossipkv.aio.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        await geo.get("paris")

A service opens it once, with `client = await gossipkv.aio.connect(…)`, and ends it with `await client.aclose()`.

All tasks share one connection to the first address that answers.  When it breaks, requests in flight that may be
repeated (every read) are repeated at once at the next address, within their own deadline.  A request that may not be
repeated raises `Unknown` if any of it was sent.  A node that is silent until a deadline is left for the next.

A waiting request costs one future, and no task, lock or timer of its own.  The answer, the deadline (one heap, one
timer for the earliest) or the task's cancellation ends it.  A cancelled request's bytes go out whole and its late
answer is dropped, so the connection stays usable.

A client belongs to the event loop of its first use; anywhere else it raises `RuntimeError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from gossipkv.client import awaited
from gossipkv.client.aio_shell import AioShell
from gossipkv.client.awaited import Dataset, Table
from gossipkv.client.credentials import Credentials
from gossipkv.client.reads import STAGE_TIMEOUT_MS, TIMEOUT_MS
from gossipkv.client.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext

    from gossipkv.client.route import Named

__all__ = ["Client", "Dataset", "Scan", "Table", "connect"]


def __dir__() -> list[str]:
    """Return the public names: this module is `gossipkv.aio`."""
    return [*__all__, "__doc__"]


def connect(
    *addresses: Named | Iterable[Named],
    timeout_ms: int = TIMEOUT_MS,
    stage_timeout_ms: int | None = STAGE_TIMEOUT_MS,
    tls: SSLContext | bool = False,
    token: str | None = None,
) -> Client:
    """Return a client, which connects to the first of `addresses` (`host:port`) that can be reached.

    It does so in `async with` or when it is awaited, and otherwise with the first request.

    Args:
        addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
            clients.
        timeout_ms: Time allowed for connecting, and for each request without a time of its own.
        stage_timeout_ms: Time after which a read that is not answered is asked of another node as well; None: never.
        tls: True: TLS, with certificates of the nodes' hosts that this system trusts; a context: TLS with that context.
        token: The user's token, if nodes have users.

    Raises:
        Unavailable: on connecting, no node can be reached; the message and `details` list each address and why.
        Unauthorized: on connecting, a node does not know the token.
        ValueError: no address, one that is not `host:port`, a timeout that is not positive, or an invalid token.
    """
    return Client(
        addresses, timeout_ms=timeout_ms, stage_timeout_ms=stage_timeout_ms, credentials=Credentials(tls, token)
    )


@final
class Client(AioShell, awaited.Client):
    """A connection to a cluster, for all tasks of one event loop; `connect` makes one.

    `async with` or `aclose` ends it.  Every request raises `RuntimeError` in another event loop, in another thread and
    in a child after `fork`.
    """

    PLACE: ClassVar[str] = "gossipkv.aio"
