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

from typing import final

from gossipkv.client import awaited
from gossipkv.client.awaited import Dataset, Table
from gossipkv.client.scan import Scan
from gossipkv.client.trio_shell import TrioShell

__all__ = ["Client", "Dataset", "Scan", "Table", "connect"]


@final
class Client(TrioShell, awaited.Client):
    """A connection to a cluster, for all tasks of one `trio.run`; `connect` makes one.

    It is entered once, with `async with`; every request raises `RuntimeError` outside of that block, in another thread
    and in a child after `fork`.
    """


connect = Client.connect
