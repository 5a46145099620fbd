"""One port number for TCP and UDP, and the address that a node advertises."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
import trio

from gossipkv.address import Address
from gossipkv.errors import LocalError
from gossipkv.node.binding import MAX_ATTEMPTS, advertised, bind, listen
from gossipkv.settings.config import Config

SEED = Address("seed", 7070)


async def address_told(sockets, bound, wanted, joins):
    """Return the address that other nodes are told."""
    address, _ = await advertised(sockets, bound, Config(advertise=wanted, join=tuple(joins)))
    return address


class Sockets:
    """Sockets that offer `free` TCP ports in turn, refuse `taken` UDP ports and resolve `names`."""

    def __init__(self, *free, taken=(), names=None, refusal=errno.EADDRINUSE):
        self.free = list(free)
        self.taken = set(taken)
        self.names = names or {}
        self.refusal = refusal
        self.open = set()

    def listen(self, host, port, _backlog):
        """Return a listener on the given port or the next free one."""
        port = port or self.free.pop(0)
        self.open.add(port)
        host = self.names.get(host, [host])[0]
        return SimpleNamespace(getsockname=lambda: (host, port, 0, 0), close=lambda: self.open.discard(port))

    def datagrams(self, host, port):
        if port in self.taken:
            raise OSError(self.refusal, "refused")
        return host, port

    async def resolve(self, name):
        """Look the name up; one name is never answered."""
        if name.host == "silent":
            await trio.sleep_forever()
        if name.host not in self.names:
            raise OSError(errno.ENOENT, "nobody knows")
        return [Address(host, name.port) for host in self.names[name.host]]

    def source_towards(self, to):
        if to.host.startswith("203."):
            raise OSError(errno.ENETUNREACH, "no way")
        return to.host.rpartition(".")[0] + ".1"


def test_a_number_that_is_free_for_both():
    """Ports that UDP cannot have are skipped and released."""
    sockets = Sockets(1, 2, 3, 4, taken={1, 2})
    listener, datagrams = bind(SimpleNamespace(sockets=sockets), Address("127.0.0.1", 0))
    assert listener.getsockname()[:2] == datagrams == ("127.0.0.1", 3)
    assert sockets.open == {3}


@pytest.mark.parametrize(("port", "refusal"), [(0, errno.EADDRINUSE), (0, errno.EACCES), (1, errno.EADDRINUSE)])
def test_no_number_for_datagrams(port, refusal):
    """The error has the address and advice; a requested port is not replaced."""
    sockets = Sockets(*range(1, MAX_ATTEMPTS + 2), taken=range(MAX_ATTEMPTS + 2), refusal=refusal)
    with pytest.raises(LocalError, match=r"cannot listen on 127.0.0.1:\d+ over UDP: refused; .*--listen"):
        bind(SimpleNamespace(sockets=sockets), Address("127.0.0.1", port))
    assert sockets.open == set()


def test_an_address_in_use_names_what_said_it():
    """The flag tells several addresses apart."""

    def refuse(*_):
        raise OSError(errno.EADDRINUSE, "in use")

    environment = SimpleNamespace(sockets=SimpleNamespace(listen=refuse))
    for named, flag in (({}, "--listen"), ({"flag": "--http-listen"}, "--http-listen")):
        with pytest.raises(LocalError, match=rf"cannot listen on 127.0.0.1:80: in use; choose another with {flag}$"):
            listen(environment, Address("127.0.0.1", 80), **named)


@pytest.mark.parametrize(("bound", "wanted", "joins", "expected"), [
    (Address("10.0.0.5", 7), None, [SEED], Address("10.0.0.5", 7)),
    (Address("10.0.0.5", 7), Address("198.51.100.1", 70), [], Address("198.51.100.1", 70)),
    (Address("0.0.0.0", 7), Address("public", 0), [], Address("198.51.100.2", 7)),
    (Address("0.0.0.0", 7), None, [SEED], Address("10.1.0.1", 7)),
    (Address("0.0.0.0", 7), None, [Address("far", 1), Address("nobody", 1), SEED], Address("10.1.0.1", 7)),
    (Address("0.0.0.0", 7), None, [], Address("127.0.0.1", 7)),
    (Address("::", 7), None, [Address("nobody", 1)], Address("::1", 7)),
    (Address("0.0.0.0", 7), None, [Address("dual", 1)], Address("10.3.0.1", 7)),
    (Address("0.0.0.0", 7), None, [Address("six", 1)], Address("127.0.0.1", 7)),
    (Address("::", 7), None, [Address("half", 1)], Address("10.4.0.1", 7)),
    (Address("0.0.0.0", 7), Address("dual", 0), [], Address("10.3.0.9", 7)),
    (Address("fd00::5", 7), Address("dual", 0), [], Address("fd00::9", 7)),
    (Address("::", 7), Address("public", 0), [], Address("198.51.100.2", 7)),
])  # fmt: skip
async def test_the_address_that_others_are_told(bound, wanted, joins, expected):
    """The setting wins, then the listening address, then the route to the seeds, then loopback."""
    names = {"seed": ["10.1.0.9", "10.2.0.9"], "far": ["203.0.113.1"], "public": ["198.51.100.2"]}
    names |= {"198.51.100.1": ["198.51.100.1"], "dual": ["fd00::9", "10.3.0.9"], "six": ["fd00::9"]}
    names["half"] = ["203.0.113.1", "10.4.0.9"]
    assert await address_told(Sockets(names=names), bound, wanted, joins) == expected


async def test_a_name_whose_address_is_known():
    """The name service is not asked; clients are told the name with the port, and no number."""
    bound, wanted = Address("0.0.0.0", 7), Address("n1.nodes", 0)
    sockets = Sockets(names={"10.0.0.1": ["10.0.0.1"]})
    config = Config(advertise=wanted, advertise_address="10.0.0.1")
    assert await advertised(sockets, bound, config) == (Address("10.0.0.1", 7), "n1.nodes:7")
    config = Config(advertise=Address("10.0.0.1", 0))
    assert await advertised(sockets, bound, config) == (Address("10.0.0.1", 7), None)


async def test_an_address_to_advertise_that_nobody_knows():
    """The start fails; otherwise no other node could find this one."""
    with pytest.raises(LocalError, match="the advertised address public:7 cannot be resolved: nobody knows"):
        await address_told(Sockets(), Address("0.0.0.0", 7), Address("public", 7), [])


@pytest.mark.parametrize(("bound", "stands_for", "told"), [
    ("0.0.0.0", ["fd00::9", "fd00::8"], "the node listens on 0.0.0.0:7, not at fd00::9, fd00::8"),
    ("fd00::5", ["10.3.0.9"], r"the node listens on \[fd00::5\]:7, not at 10.3.0.9"), ("::", [], "link-local"),
])  # fmt: skip
async def test_an_address_to_advertise_that_leads_elsewhere(bound, stands_for, told):
    """An unusable family or a link-local address is an error in words."""
    wanted = Address("public", 7)
    with pytest.raises(
        LocalError, match=f"other nodes cannot use the advertised address public:7: .*{told}.*--advertise"
    ):
        await address_told(Sockets(names={"public": stands_for}), Address(bound, 7), wanted, [])


@pytest.mark.parametrize("host", ["fe80::1%eth0", "fe80::1", "name"])
def test_no_link_local_address(host):
    """Other hosts cannot use such an address; the error says so, and nothing stays open."""
    sockets = Sockets(names={"name": ["fe80::1"]})
    with pytest.raises(LocalError, match=r"cannot listen on \[?(fe80|name).*: it is a link-local address.*--listen"):
        bind(SimpleNamespace(sockets=sockets), Address(host, 7))
    assert sockets.open == set()


async def test_a_silent_name_service(autojump_clock):
    """A silent name service delays a start by seconds only."""
    began_s = trio.current_time()
    silent = Address("silent", 7)
    with pytest.raises(LocalError, match="cannot be resolved: the name service has not answered in time"):
        await address_told(Sockets(), Address("0.0.0.0", 7), silent, [])
    found = await address_told(Sockets(), Address("0.0.0.0", 7), None, [silent])
    assert found == Address("127.0.0.1", 7)
    assert trio.current_time() - began_s == pytest.approx(10)


async def test_a_name_that_is_not_answered_hides_no_other(autojump_clock):
    """A node that listens everywhere advertises the route to the first seed that resolves."""
    sockets = Sockets(names={"seed": ["10.1.0.9"], "other": ["10.2.0.9"]})
    joins = [Address("silent", 7), Address("nobody", 7), SEED, Address("other", 7)]
    assert await address_told(sockets, Address("0.0.0.0", 7), None, joins) == Address("10.1.0.1", 7)
    began_s = trio.current_time()
    assert await address_told(sockets, Address("0.0.0.0", 7), None, joins[::-1]) == Address("10.2.0.1", 7)
    assert trio.current_time() == began_s
