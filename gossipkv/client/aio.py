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

from typing import ClassVar, final

from gossipkv.client import awaited
from gossipkv.client.aio_shell import AioShell
from gossipkv.client.awaited import Dataset, Table
from gossipkv.client.scan import Scan

__all__ = ["Client", "Dataset", "Scan", "Table", "connect"]


def __dir__() -> list[str]:
    """Return the public names: this module is `gossipkv.aio`."""
    return [*__all__, "__doc__"]


@final
class Client(AioShell, awaited.Client):
    """A connection to a cluster, for all tasks of one event loop; `connect` makes one.

    `async with` or `aclose` ends it.  Every request raises `RuntimeError` in another event loop, in another thread and
    in a child after `fork`.
    """

    PLACE: ClassVar[str] = "gossipkv.aio"


connect = Client.connect
