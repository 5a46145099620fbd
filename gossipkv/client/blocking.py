"""The blocking client: plain threads, scripts, Spark tasks; any operating system, no event loop.

    with gossipkv.blocking.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        geo.get("paris")

Threads share a client.  Each request has a connection to itself while it lasts: one thread uses one connection, and at
most as many are made as threads ask at once, up to 64; further threads wait for one, within their deadlines.

Requests that may be repeated (every read) are repeated at another address when their connection breaks, within their
own deadline.  A request that may not be repeated raises `Unknown` if any of it was sent.  A node that is silent until
the deadline is left for the next address, so a frozen node costs each connection one request's time and no more.

Fork: a child may use the inherited client, which makes new connections; the parent's are left alone.  A client cannot
be pickled.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, final

from gossipkv.client import plain, reads
from gossipkv.client._client import get_request
from gossipkv.client.blocking_shell import IN_FLIGHT, BlockingShell
from gossipkv.client.credentials import Credentials
from gossipkv.client.plain import Table
from gossipkv.client.reads import TIMEOUT_MS
from gossipkv.client.sessions import read_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ssl import SSLContext

    from gossipkv.client._client import Request
    from gossipkv.client.reads import OneKey, Several, Stamp
    from gossipkv.client.route import Named

__all__ = ["Client", "Dataset", "Table", "connect"]


def __dir__() -> list[str]:
    """Return the public names: this module is `gossipkv.blocking`."""
    return [*__all__, "__doc__"]


def connect(
    *addresses: Named | Iterable[Named],
    timeout_ms: int = TIMEOUT_MS,
    stage_timeout_ms: int | None = None,
    tls: SSLContext | bool = False,
    token: str | None = None,
) -> Client:
    """Return a client connected to the first of `addresses` (`host:port`) that can be reached.

    Args:
        addresses: Some nodes of one cluster, or lists of them, in order of preference; shuffle them to spread many
            clients.
        timeout_ms: Time allowed for connecting, and for each request without a time of its own.
        stage_timeout_ms: Time after which a read that is not answered is asked of another node as well; None: never.
        tls: True: TLS, with certificates of the nodes' hosts that this system trusts; a context: TLS with that context.
        token: The user's token, if nodes have users.

    Raises:
        Unavailable: no node can be reached; the message and `details` list each address and why.
        Unauthorized: a node does not know the token.
        ValueError: no address, one that is not `host:port`, a timeout that is not positive, or an invalid token.
    """
    return Client(
        addresses, timeout_ms=timeout_ms, stage_timeout_ms=stage_timeout_ms, credentials=Credentials(tls, token)
    ).dial()


@final
class Client(BlockingShell, plain.Client):
    """Connections to a cluster, for any number of threads; `connect` makes one.

    Use it as a context manager, or call `close`.
    """

    __slots__ = ()
    PLACE: ClassVar[str] = "gossipkv.blocking"

    def dataset(self, name: str) -> Dataset:
        """Return the dataset `name`; the first read is the first request to the node."""
        return Dataset(self, name)


@final
class Dataset(plain.Dataset):
    """A dataset's reads; `Client.dataset` makes one.

    A key is bytes, a text (its UTF-8 bytes) or an integer (its digits).  Reads take `version` (exactly that), and all
    but `scan` take `min_version` (that or a newer one).  With a `session` no answer is older than it has seen.
    """

    __slots__ = ()
    _client: BlockingShell
    _database: bytes

    def iter_get(
        self,
        keys: Iterator[OneKey] | Several[OneKey],
        in_flight: int = IN_FLIGHT,
        *,
        version: str | None = None,
        min_version: str | None = None,
    ) -> Iterator[tuple[OneKey, bytes | None, str]]:
        """Yield `(key, value, version)` for each of `keys`, in order, with up to `in_flight` requests open.

        `keys` may be endless; they are consumed as requests are sent.  Each answer is from the version it names, so
        neighbours may differ while the node switches; `get_many` and `scan` are from one version.  Raises as `get`, at
        the key that failed.
        """
        asked: deque[OneKey] = deque()
        options = reads.packed(read_options(None, self.name, version, min_version))

        def requests() -> Iterator[Request[tuple[bytes | None, Stamp]]]:
            for key in reads.several(keys):
                asked.append(key)
                yield get_request(self._database, key, options)

        for answer in self._client.ask_all(requests(), in_flight):
            yield asked.popleft(), *reads.versioned(answer)
