"""A gateway without a node of its own: in front of any cluster, in any number of processes.

The gateway asks the first of its nodes that answers, and the next one when that node is gone.  Nodes switch to a new
version one after the other, so the gateway keeps a session: no answer is of an older version than an earlier one.
After a roll-back (`hold`) the older version is wanted, and SIGHUP clears the session.
"""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv import name_service
from gossipkv.address import Address
from gossipkv.client.credentials import PLAIN, Credentials
from gossipkv.client.route import reason_of
from gossipkv.client.trio_client import Client
from gossipkv.errors import LocalError
from gossipkv.http.gateway import HttpGateway
from gossipkv.http.order import GatewayLimits, Types
from gossipkv.http.read_options import ReadSession
from gossipkv.http.reads import EventStreams, ReadContext
from gossipkv.http.site import site_of
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

BACKLOG: Final = 4096  # A burst may bring this many connections; the kernel caps it at net.core.somaxconn.


@final
@dataclass(frozen=True, slots=True)
class Alone:
    """The configuration of a gateway without a node."""

    nodes: tuple[Address, ...]
    types: Types
    timeout_ms: int
    drain_timeout_ms: int
    hosts: str  # The names that `Host` may have, separated by spaces; empty: any.
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    credentials: Credentials = PLAIN
    may_write: bool = False  # Clients write with these credentials.


def listen(address: Address, *, share_port: bool) -> socket.socket:
    """Return the listening socket; with `share_port`, other processes of this user may share its connections.

    Raises:
        LocalError: the address is in use, not this machine's, or not allowed.
    """
    try:
        family, kind, protocol, _, where = name_service.local_addresses(address)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share_port:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        raise LocalError(
            f"cannot listen on {address}: {reason_of(error)}; choose another with --listen", {"address": str(address)}
        ) from error
    return listener


async def run(settings: Alone, listener: socket.socket, on_ready: Callable[[Address], None]) -> None:
    """Answer until SIGTERM or SIGINT, then finish requests in flight; a second signal ends it at once."""
    bound = Address(*listener.getsockname()[:2])
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with Client(
            settings.nodes, timeout_ms=settings.timeout_ms, credentials=settings.credentials, patient=True
        ) as client:
            streams = EventStreams(settings.limits.max_streams_of_address)
            session = ReadSession()
            context = ReadContext(
                *(client, None, settings.types.of),
                alone=True,
                session=session,
                hosts=settings.hosts,
                may_write=settings.may_write,
                streams=streams,
            )
            site, pages = site_of(context, client)
            gateway = HttpGateway(site, settings.limits)
            async with trio.open_nursery() as nursery:
                await nursery.start(pages.run)
                nursery.start_soon(_obey, signals, settings, gateway, context, nursery)
                on_ready(bound)
                await gateway.run(trio.SocketListener(trio.socket.from_stdlib_socket(listener)))
                nursery.cancel_scope.cancel()


async def _obey(
    signals: AsyncIterator[int], settings: Alone, gateway: HttpGateway, context: ReadContext, nursery: trio.Nursery
) -> None:
    log = Log("gossipkv.http")
    is_stopping = False
    async for number in signals:
        if number == signal.SIGHUP:
            context.session = ReadSession()
            log.info("http_forgot", reason="SIGHUP")
        elif is_stopping:
            log.warning("cut", reason=signal.Signals(number).name)
            nursery.cancel_scope.cancel()
        else:
            is_stopping = True
            log.info("draining", reason=signal.Signals(number).name, timeout_ms=settings.drain_timeout_ms)
            nursery.start_soon(gateway.drain, settings.drain_timeout_ms / 1000)
