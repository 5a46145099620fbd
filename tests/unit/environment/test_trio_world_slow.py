"""The production side of the seam: sockets, threads, signals."""

import os
import signal
import socket
import struct
import threading
from contextlib import closing, suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gossipkv import name_service
from gossipkv.address import Address
from gossipkv.environment import trio_world
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import UNCONFIRMED_S
from gossipkv.environment.trio_world import RealSignals, RealSockets, RealThreads
from gossipkv.errors import LocalError
from gossipkv.http import alone


def where(datagrams):
    with closing(socket.socket(fileno=os.dup(datagrams.fileno()))) as same:
        return Address(*same.getsockname()[:2])


def test_a_listener_does_not_block_and_refuses_a_port_in_use():
    """The system chooses port 0."""
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener:
        assert listener.getblocking() is False
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(OSError, match="in use"):
            sockets.listen("127.0.0.1", listener.getsockname()[1], 5)


def test_the_real_environment_has_every_part():
    real = trio_world.real()
    assert isinstance(real.files, RealFiles)
    assert real.random.random() < 1


async def test_a_listener_is_readable_when_somebody_has_come():
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener:
        with trio.move_on_after(0.01) as waiting:
            await sockets.wait_readable(listener)
        assert waiting.cancelled_caught
        with socket.create_connection(listener.getsockname()), trio.fail_after(60):
            await sockets.wait_readable(listener)


async def test_what_blocks_runs_in_a_thread_of_its_own():
    """The result and the error of the call are passed on."""
    assert await RealThreads().run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await RealThreads().run(divmod, 1, 0)


async def test_a_signal_that_is_received_does_nothing_else():
    """Only the receiver gets the signal."""
    with RealSignals().receive(signal.SIGUSR1) as numbers, trio.fail_after(60):
        os.kill(os.getpid(), signal.SIGUSR1)
        async for number in numbers:
            assert number == signal.SIGUSR1
            break


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_datagrams_there_and_back(host):
    """A socket is readable when a datagram has come, and raises when there is none."""
    sockets = RealSockets()
    with closing(sockets.datagrams(host, 0)) as one, closing(sockets.datagrams(host, 0)) as other:
        address = where(other)
        one.send(b"hello", address)
        with trio.fail_after(60):
            await sockets.wait_readable(other)
        packet, source = other.receive()
        other.send(packet + b" yourself", source)
        with trio.fail_after(60):
            await sockets.wait_readable(one)
        assert one.receive() == (b"hello yourself", address)
        with pytest.raises(BlockingIOError):
            one.receive()


async def test_a_socket_for_all_addresses_speaks_with_both_families():
    """An IPv4 address is written as IPv4 even for an IPv6 socket."""
    sockets = RealSockets()
    with closing(sockets.datagrams("::", 0)) as everywhere, closing(sockets.datagrams("127.0.0.1", 0)) as four:
        port = where(everywhere).port
        four.send(b"hello", Address("127.0.0.1", port))
        with trio.fail_after(60):
            await sockets.wait_readable(everywhere)
        packet, source = everywhere.receive()
        assert source.host == "127.0.0.1"
        everywhere.send(packet, source)
        with trio.fail_after(60):
            await sockets.wait_readable(four)
        assert four.receive() == (b"hello", Address("127.0.0.1", port))


def test_a_number_is_taken_once():
    """A second socket on the port fails; a wrong family and an oversized packet are the system's errors."""
    sockets = RealSockets()
    with closing(sockets.datagrams("127.0.0.1", 0)) as one:
        port = where(one).port
        with pytest.raises(OSError, match="in use"):
            sockets.datagrams("127.0.0.1", port)
        with pytest.raises(OSError, match="family"):
            one.send(b"x", Address("::1", port))
        with pytest.raises(OSError, match="too long"):
            one.send(b"x" * 70_000, Address("127.0.0.1", port))


@pytest.mark.parametrize(
    ("host", "four", "six"), [("127.0.0.1", True, False), ("::1", False, True), ("::", True, True)]
)
def test_the_families_that_a_socket_reaches(host, four, six):
    """An IPv4 socket reaches IPv4, an IPv6 socket IPv6, and a wildcard one both."""
    with closing(RealSockets().datagrams(host, 0)) as datagrams:
        assert datagrams.reaches(Address("10.0.0.1", 1)) is four
        assert datagrams.reaches(Address("fd00::1", 1)) is six


def test_what_the_system_has_no_room_for_is_counted():
    """The receive buffer holds a burst, and the datagrams beyond it are counted."""
    sockets = RealSockets()
    with closing(sockets.datagrams("127.0.0.1", 0)) as one, closing(sockets.datagrams("127.0.0.1", 0)) as other:
        address = where(one)
        assert one.lost == 0
        sent = 0
        while not one.lost:
            other.send(b"x" * 1400, address)
            sent += 1
            assert sent < 1_000_000
        heard = 0
        with suppress(BlockingIOError):
            while True:
                one.receive()
                heard += 1
        assert heard + one.lost == sent
        assert heard > 80  # The smallest buffer of Linux holds so many.


async def test_a_connection():
    """Bytes go both ways until the end, and a port without a listener is the system's error."""
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener, trio.fail_after(60):
        address = Address(*listener.getsockname())
        stream = await sockets.connect(address)
        await sockets.wait_readable(listener)
        peer, _ = listener.accept()
        with peer:
            await stream.send_all(b"hello")
            assert peer.recv(100) == b"hello"
            peer.sendall(b"yourself")
            assert await stream.receive_some(100) == b"yourself"
        assert await stream.receive_some(100) == b""
        await stream.aclose()
    with pytest.raises(ConnectionRefusedError):
        await sockets.connect(address)


async def test_a_connection_breaks_when_the_other_machine_is_gone():
    """The connection breaks soon, not after the system's quarter of an hour."""
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener, trio.fail_after(60):
        stream = await sockets.connect(Address(*listener.getsockname()))
        with socket.socket(fileno=stream.detach()) as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * UNCONFIRMED_S


async def test_a_connection_that_breaks():
    """Reads and writes raise the system's error."""
    sockets = RealSockets()
    with sockets.listen("127.0.0.1", 0, 5) as listener, trio.fail_after(60):
        stream = await sockets.connect(Address(*listener.getsockname()))
        await sockets.wait_readable(listener)
        peer, _ = listener.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        with pytest.raises(ConnectionResetError):
            await stream.receive_some(100)
        with pytest.raises(OSError, match="pipe"):
            await stream.send_all(b"x")
        await stream.aclose()


async def test_names():
    """Numeric addresses resolve to themselves; an unknown name is the system's error."""
    sockets = RealSockets()
    assert await sockets.resolve(Address("10.1.2.3", 7)) == [Address("10.1.2.3", 7)]
    assert await sockets.resolve(Address("::1", 7)) == [Address("::1", 7)]
    assert Address("127.0.0.1", 7) in await sockets.resolve(Address("localhost", 7))
    for name in ("a..b", "a" * 64):
        with pytest.raises(OSError, match=r"."):
            await sockets.resolve(Address(name, 7))


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::ffff:7f00:1"])
async def test_an_ipv4_address_has_one_form(host):
    """The IPv6 form is the same address: a node in two forms would look like a namesake."""
    with closing(RealSockets().listen(host, 0, 1)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    assert await RealSockets().resolve(Address(host, 7)) == [Address("127.0.0.1", 7)]


async def test_a_name_stands_for_no_address_that_needs_an_interface(monkeypatch):
    """A link-local address is useless without an interface, except for IPv4."""
    hosts = ["fe80::1", "fd00::1", "169.254.0.1"]
    found = [(socket.AF_INET6, socket.SOCK_DGRAM, 17, "", (host, 7, 0, 2)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: found)
    assert await RealSockets().resolve(Address("name", 7)) == [Address("fd00::1", 7), Address("169.254.0.1", 7)]


@pytest.fixture
def hanging_names(monkeypatch):
    """Make the name service hang until the event is set; yield the event and the names."""
    goes_on, asked = threading.Event(), []
    real = socket.getaddrinfo

    def hang(host, *arguments, **named):
        if (named.get("flags") or dict(enumerate(arguments)).get(4, 0)) & socket.AI_NUMERICHOST:
            return real(host, *arguments, **named)
        asked.append(host if isinstance(host, str) else host.decode())
        goes_on.wait(60)
        return real("127.0.0.1", *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield goes_on, asked
    goes_on.set()


def test_a_node_or_gateway_that_is_to_listen_at_a_name_waits_for_a_time(hanging_names, monkeypatch):
    """If the name service hangs, the error says so."""
    monkeypatch.setattr(name_service, "LISTEN_TIMEOUT_S", 0.05)
    with pytest.raises(OSError, match="the name service has not answered in time"):
        RealSockets().listen("node", 0, 1)
    with pytest.raises(LocalError, match="the name service has not answered in time"):
        alone.listen(Address("gateway", 0), share_port=False)


async def test_a_name_service_that_hangs_takes_no_threads_of_others(hanging_names):
    """The number of look-ups is limited, and numeric addresses need none."""
    _, asked = hanging_names
    sockets = RealSockets()
    async with trio.open_nursery() as nursery:
        for number in range(2 * trio_world.MAX_LOOKUPS):
            nursery.start_soon(sockets.resolve, Address(f"name{number}", 7))
        while len(asked) < trio_world.MAX_LOOKUPS:
            await trio.sleep(0.001)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    assert len(asked) == trio_world.MAX_LOOKUPS
    assert await sockets.resolve(Address("::1", 7)) == [Address("::1", 7)]


async def test_a_name_is_not_looked_up_while_it_still_is(hanging_names):
    """A second look-up fails while the first one hangs; afterwards the service is asked again."""
    goes_on, asked = hanging_names
    sockets, name = RealSockets(), Address("name", 7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sockets.resolve, name)
        while not asked:
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        with pytest.raises(OSError, match="has not answered yet"):
            await sockets.resolve(name)
        assert asked == ["name"]
        goes_on.set()
        while True:
            with suppress(OSError):
                assert await sockets.resolve(name) == [Address("127.0.0.1", 7)]
                break
            await trio.sleep(0.01)
    assert asked == ["name", "name"]


def test_the_way_to_somebody():
    """The way starts at an address of this machine; nothing is sent."""
    assert RealSockets().source_towards(Address("127.0.0.5", 7)) == "127.0.0.1"
    assert RealSockets().source_towards(Address("::1", 7)) == "::1"
