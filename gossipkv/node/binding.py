"""The sockets of a node, TCP and UDP on one port, and the address that other nodes are told."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

import trio

from gossipkv.address import Address
from gossipkv.environment.seam import is_link_local
from gossipkv.errors import LocalError
from gossipkv.log import Log
from gossipkv.name_service import numeric

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gossipkv.environment.seam import Datagrams, Environment, SocketFactory, SocketListener
    from gossipkv.settings.config import Config

BACKLOG = 4096  # Connections of one burst that may wait to be accepted; the kernel caps this at net.core.somaxconn.

MAX_ATTEMPTS = 64  # The system chooses a port that is free for TCP; one of this many is free for UDP as well.

RESOLVE_TIMEOUT_S = 5.0  # Time for the names that the own address depends on; they delay a start no longer than this.

_LINK_LOCAL = "it is a link-local address, which has a meaning only on one machine"


class Listeners(NamedTuple):
    """The listening sockets of a node, for its own protocol and for the two others."""

    own: SocketListener
    resp: SocketListener | None
    http: SocketListener | None


def bind(environment: Environment, address: Address) -> tuple[SocketListener, Datagrams]:
    """Return the sockets of a node, both on one port; port 0 stands for one that is free for both.

    Raises:
        LocalError: the address is in use, not this machine's, not allowed, or link-local.
    """
    listeners: list[SocketListener] = []  # Stay open until the end, so that the system chooses another port each time.
    try:
        while True:
            listener = listen(environment, address)
            host, port = listener.getsockname()[:2]
            try:
                return listener, environment.sockets.datagrams(host, port)
            except OSError as error:
                listeners.append(listener)
                if address.port != 0 or error.errno != errno.EADDRINUSE or len(listeners) == MAX_ATTEMPTS:
                    raise _refused(f"{Address(host, port)} over UDP", error, address) from error
    finally:
        for listener in listeners:
            listener.close()


def listen(environment: Environment, address: Address, *, flag: str = "--listen") -> SocketListener:
    """Return a listening socket; `flag` is the option that set the address, for the error.

    Raises:
        LocalError: the address is in use, not this machine's, not allowed, or link-local.
    """
    link_local = _refused(str(address), OSError(_LINK_LOCAL), address, flag)
    if is_link_local(address.host):
        raise link_local
    try:
        listener = environment.sockets.listen(address.host, address.port, BACKLOG)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name service could know the name.
        raise _refused(str(address), error, address, flag) from error
    if is_link_local(listener.getsockname()[0]):  # The given address was a name for this one.
        listener.close()
        raise link_local
    return listener


@contextlib.contextmanager
def listening_beside(
    environment: Environment, config: Config
) -> Iterator[tuple[SocketListener | None, SocketListener | None]]:
    """Yield the sockets for RESP and for HTTP, each None if the settings name no address; close them after the block.

    Raises:
        LocalError: as `listen`.
    """
    asked = {"--resp-listen": config.resp_listen, "--http-listen": config.http_listen}
    with contextlib.ExitStack() as stack:
        resp, http = (
            None
            if address is None
            else stack.enter_context(contextlib.closing(listen(environment, address, flag=flag)))
            for flag, address in asked.items()
        )
        yield resp, http


def bound_to(listener: SocketListener) -> Address:
    """Return the address at which it listens."""
    return Address(*listener.getsockname()[:2])


def _refused(where: str, error: OSError | UnicodeError, address: Address, flag: str = "--listen") -> LocalError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return LocalError(f"cannot listen on {where}: {reason}; choose another with {flag}", {"address": str(address)})


async def advertised(sockets: SocketFactory, bound: Address, config: Config) -> tuple[Address, str | None]:
    """Return the numeric address for other nodes, and the name for clients, `host:port`, if `advertise` is a name.

    The address is that of `advertise` (`advertise_address`, if the name need not be resolved), or else the one at which
    the node listens. A node that listens on all addresses tells the one from which it reaches the first of `join`.
    Without `join` and `advertise` such a node can only be reached from its own machine.

    Raises:
        LocalError: `advertise` is an unknown name, or stands for no address at which this node is heard.
    """
    wanted, known = config.advertise, config.advertise_address
    known_at = Address(known, wanted.port) if wanted and known else wanted
    address = await _address(sockets, bound, known_at, config.join)
    if wanted is None or numeric(wanted) is not None:
        return address, None
    return address, str(Address(wanted.host, address.port))


async def _address(sockets: SocketFactory, bound: Address, wanted: Address | None, joins: Sequence[Address]) -> Address:
    if wanted is not None:
        try:
            with trio.fail_after(RESOLVE_TIMEOUT_S):
                addresses = await sockets.resolve(wanted)
        except (OSError, trio.TooSlowError) as error:
            silent = "the name service has not answered in time"
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else silent
            raise LocalError(
                f"the advertised address {wanted} cannot be resolved: {reason}; see --advertise",
                {"address": str(wanted)},
            ) from error
        host = next((address.host for address in addresses if _is_heard(bound, address)), None)
        if host is None:
            hosts = ", ".join(address.host for address in addresses)
            reason = f"the node listens on {bound}, not at {hosts}" if addresses else _LINK_LOCAL
            raise LocalError(
                f"other nodes cannot use the advertised address {wanted}: {reason}; see --advertise",
                {"address": str(wanted)},
            )
        return Address(host, wanted.port or bound.port)
    if not ipaddress.ip_address(bound.host).is_unspecified:
        return bound
    log = Log("gossipkv.node")
    found = Address(await _way(sockets, bound, joins) or ("::1" if ":" in bound.host else "127.0.0.1"), bound.port)
    if ipaddress.ip_address(found.host).is_loopback:
        log.warning("advertised", address=str(found), reason="only this machine can reach it: see --advertise")
    else:
        log.info("advertised", address=str(found), reason="leads to the members of `join`")
    return found


def _is_heard(bound: Address, address: Address) -> bool:
    """Return True if a node that listens at `bound` can get packets sent to an address of that family."""
    is_ipv6 = ":" in bound.host
    return is_ipv6 == (":" in address.host) or (is_ipv6 and ipaddress.ip_address(bound.host).is_unspecified)


async def _way(sockets: SocketFactory, bound: Address, joins: Sequence[Address]) -> str | None:
    """Return this machine's address towards the first reachable one of `joins`; skip names not resolved in time."""
    resolved: dict[Address, Sequence[Address]] = {}
    looked_up = {name: trio.Event() for name in joins}

    async def look_up(name: Address) -> None:
        with contextlib.suppress(OSError):
            resolved[name] = await sockets.resolve(name)
        looked_up[name].set()

    def towards(name: Address) -> str | None:
        for address in resolved.get(name, ()):
            if _is_heard(bound, address):
                with contextlib.suppress(OSError):
                    return sockets.source_towards(address)
        return None

    async with trio.open_nursery() as nursery:
        for name in looked_up:  # Names are resolved all at once: a slow one must not delay those after it.
            nursery.start_soon(look_up, name)
        with trio.move_on_after(RESOLVE_TIMEOUT_S):
            for name, is_known in looked_up.items():
                await is_known.wait()
                if towards(name) is not None:
                    break
        nursery.cancel_scope.cancel()
    return next(filter(None, map(towards, looked_up)), None)
