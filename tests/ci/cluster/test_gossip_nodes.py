"""Real nodes that find each other: the members that each knows, on the wire and on the command line.

`profile local` probes twice a second, so that a test takes seconds.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from gossipkv.address import Address
from gossipkv.client import blocking
from gossipkv.errors import Unavailable
from gossipkv.gossip.member import Member, MemberState, member_id
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.envelope import Envelope
from gossipkv.gossip.packets.prefix import cluster_id_of
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.ports import quiet_ports
from tests.unit.client.fake_node import FakeNode, answering

QUICK = ("--profile", "local", "--time-to-converge", "300ms")


@pytest.fixture
def start(tmp_path):
    """Start a node of a name, in a directory of that name, and wait until it is ready."""
    with ExitStack() as stack:

        def begin(name, *options, directory=None, ready=True):
            place = tmp_path / (directory or name)
            place.mkdir(exist_ok=True)
            node = stack.enter_context(NodeProcess(place, "--node", name, *QUICK, *options))
            if ready:
                node.ready()
            return node

        yield begin


def joining(*others):
    return [flag for other in others for flag in ("--join", other.address)]


def ask(node, method, *params):
    with blocking.connect(node.address, timeout_ms=1000 * PATIENCE_S) as client:
        return client.call(method, *params)


def states(node):
    return {member["node"]: member["state"] for member in ask(node, "members")}


def eventually(look, expected, node):
    give_up_s = time.monotonic() + PATIENCE_S
    while (found := look()) != expected:
        assert time.monotonic() < give_up_s, (found, expected, node.said())
        time.sleep(0.02)


def until(condition, node):
    eventually(condition, expected=True, node=node)


def command(node, *arguments):
    line = [sys.executable, "-m", "gossipkv", *arguments, "--node", node.address, "--timeout", "60s"]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def owners(node):
    """Return the owners of places in the ring, as a node knows them, with their states."""
    entries = ask(node, "entries", "nodes", {"all": True})
    assert all(entry["age_s"] < 10 * PATIENCE_S for entry in entries)
    return {entry["owner"]: entry["state"] for entry in entries}


def test_a_node_that_leaves_says_so(start):
    """After SIGTERM the other node knows the member as left, and its published keys are gone."""
    alpha = start("alpha")
    beta = start("beta", *joining(alpha))
    eventually(lambda: len(ask(alpha, "children", "nodes")), 2, alpha)
    beta.process.send_signal(signal.SIGTERM)
    eventually(lambda: (states(alpha)["beta"], len(ask(alpha, "children", "nodes"))), ("left", 1), alpha)
    assert beta.process.wait(PATIENCE_S) == 0
    assert owners(alpha) == {"alpha": "alive", "beta": "left"}


def test_a_node_comes_back(start):
    """With its old data, on another port and without `join`, a node has a higher epoch, its old place and its peers."""
    alpha = start("alpha")
    beta = start("beta", *joining(alpha))
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    until(lambda: confirmed(beta), beta)
    for node in (alpha, beta):  # Nodes that hear of each other late may claim the same place first.
        eventually(lambda node=node: {place.partition("@")[0] for place in places(node)}, {"1", "2"}, node)
    place = ask(beta, "info")["shard_id"]
    epoch = ask(beta, "info")["epoch"]
    peers = beta.log.parent / "data" / "PEERS"
    until(lambda: peers.exists() and alpha.address in peers.read_text(), beta)
    assert beta.stop(signal.SIGKILL) != 0
    again = start("beta")
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    eventually(lambda: states(again), {"alpha": "alive", "beta": "alive"}, again)
    higher = ask(again, "info")["epoch"]
    assert higher > epoch
    eventually(lambda: known(alpha)["beta"], (again.address, higher, "alive"), alpha)
    eventually(lambda: ask(again, "info")["shard_id"], place, again)


def known(node):
    """Return the address, epoch and state of each member that a node knows."""
    return {member["node"]: (member["address"], member["epoch"], member["state"]) for member in ask(node, "members")}


def places(node):
    return ask(node, "children", "nodes")


def confirmed(node):
    own = ask(node, "info")["node"]
    return any(entry["owner"] == own and b"confirmed" in entry["value"] for entry in ask(node, "entries", "nodes"))


def test_a_node_that_hears_from_nobody_is_isolated(start, tmp_path):
    """A node that lost its peers reports isolation and goes on; a node that never had a peer is not isolated."""
    alpha = start("alpha")
    assert ask(alpha, "info")["isolated"] is False
    until(lambda: confirmed(alpha), alpha)  # An isolated node would wait for peers before it confirms its place.
    beta = start("beta", *joining(alpha))
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    beta.stop(signal.SIGKILL)
    until(lambda: ask(alpha, "info")["isolated"], alpha)
    eventually(lambda: states(alpha)["beta"], "dead", alpha)
    told = command(alpha, "status").stdout
    assert ("beta is dead" in told, "cut off" in told) == (True, False), told
    until(lambda: places(alpha) == [f"{ask(alpha, 'info')['shard_id']}@{alpha.address}"], alpha)


def test_a_name_claimed_twice(start):
    """Two established nodes of one name meet through a third: both go on, and all three report the conflict."""
    one, two = start("alpha", directory="one"), start("alpha", directory="two")
    until(lambda: confirmed(one) and confirmed(two), one)
    beta = start("beta", *joining(one, two))
    for node in beta, one, two:
        until(lambda node=node: ask(node, "info")["claimed_twice"] == ["alpha"], node)
    # A node that does not answer for a moment may count as ended until it is found again.
    eventually(lambda: {each["node"] for each in ask(beta, "members") if each["claimed_twice"]}, {"alpha"}, beta)
    until(lambda: "alive, claimed twice" in command(beta, "members").stdout, beta)
    until(lambda: "two nodes are called alpha" in command(beta, "status").stdout, beta)
    for node, other in (one, two), (two, one):
        assert node.process.poll() is None
        until(lambda node=node, other=other: f"another at {other.address}" in node.said(), node)


def test_a_forged_packet_ends_no_node(start):
    """A stranger that claims a node's name with a forged cluster id only causes a report of the conflict."""
    node = start("alpha")
    until(lambda: confirmed(node), node)
    announced_s = ask(node, "info")["uptime_s"]
    until(lambda: ask(node, "info")["uptime_s"] > announced_s + 1, node)  # The node is established by then.
    id_, asked = member_id("alpha"), []
    empty = Envelope("gossipkv").wrap(messages.sync(id_, bytes(8), 0))
    envelope = Envelope("gossipkv", cluster_id_of(ask(node, "gossip", empty)))

    def answer(request):
        who = messages.read_who(envelope.unwrap(request))
        asked.append(who)
        return envelope.wrap(messages.who(messages.ME, id_, who._replace(uuid=b"liar" * 4, age_ms=1 << 40)))

    with FakeNode(answering(("gossip", answer))) as liar, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        place = Address("127.0.0.1", liar.port)
        host, _, port = node.address.rpartition(":")

        def claimed():
            """Claim the name and return the reported conflicts; retried, since the liar may be slow to answer."""
            told = ask(node, "info")
            claim = Member(id_, "alpha", b"liar" * 4, place, told["epoch"] + 1, 0, MemberState.ALIVE)
            datagrams.sendto(envelope.wrap(messages.gossip(id_) + messages.record(claim)), (host, int(port)))
            return told["claimed_twice"]

        eventually(claimed, ["alpha"], node)
        assert asked
        until(lambda: f"another at {place}" in node.said(), node)
    assert ask(node, "ping") == "pong"
    assert node.process.poll() is None


def test_reads_wait_for_nobody(start, tmp_path):
    """Promise P1: reads go on while the only other node dies, when it is dead, and after a restart without peers."""
    files = tmp_path / "source" / "capitals" / "1"
    files.mkdir(parents=True)
    files.joinpath("part-0").write_text("peru\tLima\n")

    def read_until(node, condition):
        """Return how many reads were answered before the condition held."""
        reads, is_over = 0, False
        with blocking.connect(node.address, timeout_ms=1000 * PATIENCE_S) as client:
            while not is_over:
                assert client.dataset("capitals").get_with_version(b"peru") == (b"Lima", "1")
                is_over = condition()
                reads += not is_over
        return reads

    alpha = start("alpha", "--source", str(tmp_path / "source"))
    wait_for(alpha.address, "capitals", "1")
    beta = start("beta", *joining(alpha))
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    beta.stop(signal.SIGKILL)
    assert read_until(alpha, lambda: states(alpha)["beta"] == "dead") > 0, "or they waited for its death"
    read_until(alpha, lambda: ask(alpha, "info")["isolated"])
    alpha.stop(signal.SIGKILL)
    again = start("alpha", *joining(beta))
    read_until(again, lambda: ask(again, "info")["uptime_s"] > 1)
    assert states(again) == {"alpha": "alive"}


def test_a_name_that_is_taken_stops_the_newcomer(start):
    """The newcomer ends with status 3 and a line that names both addresses; the older node goes on."""
    alpha = start("alpha")
    beta = start("beta", *joining(alpha))
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    other = start("beta", *joining(alpha), directory="other", ready=False)
    assert other.process.wait(PATIENCE_S) == 3
    (line,) = [line for line in other.said().splitlines() if line.startswith("gossipkv:")]
    assert beta.address in line
    assert "'beta'" in line
    assert "Traceback" not in other.said()
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    assert beta.process.poll() is None


def test_another_cluster_is_refused_and_told(start):
    """No node joins, both go on, and the log of the stranger names both clusters."""
    alpha = start("alpha")
    stranger = start("stranger", "--cluster", "elsewhere", *joining(alpha))
    until(lambda: "'elsewhere'" in stranger.said() and "'gossipkv'" in stranger.said(), stranger)
    assert states(alpha) == {"alpha": "alive"}
    assert states(stranger) == {"stranger": "alive"}


def test_what_is_no_gossip_is_counted_and_harmless(start):
    """Junk over UDP and TCP is counted by reason."""
    alpha = start("alpha")
    host, port = alpha.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for packet in (b"", b"x", b"GET / HTTP/1.0\r\n\r\n" * 3, b"\xff" * 5000, b"G" * 100):
            stranger.sendto(packet, (host, int(port)))
    with pytest.raises(Unavailable, match="does not answer this request"):
        ask(alpha, "gossip", b"junk")

    def dropped():
        counters = ask(alpha, "info")["counters"]
        return sum(count for name, count in counters.items() if name.startswith("gossip_dropped"))

    eventually(dropped, 6, alpha)
    assert ask(alpha, "info")["counters"]["gossip_dropped_oversized"] == 1
    assert alpha.stop() == 0


def test_everywhere_is_told_as_the_way_to_the_others(start):
    """A node that listens on every interface advertises the address from which it reaches the node that it joins."""
    alpha = start("alpha")
    beta = start("beta", "--listen", "0.0.0.0:0", "--insecure-gossip", *joining(alpha))
    port = beta.address.rpartition(":")[2]
    eventually(lambda: states(alpha), {"alpha": "alive", "beta": "alive"}, alpha)
    assert {member["node"]: member["address"] for member in ask(alpha, "members")}["beta"] == f"127.0.0.1:{port}"
    assert "advertised" in beta.said()


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "localhost"), ("[::1]", "[::1]")])
def test_members_are_joined_by_name_and_over_either_family(start, host, name):
    """`localhost` often has an address of each family; a node asks only the family that it can use."""
    alpha = start("alpha", "--listen", f"{host}:0")
    port = alpha.address.rpartition(":")[2]
    beta = start("beta", "--listen", f"{host}:0", "--join", f"{name}:{port}")
    for node in (alpha, beta):
        eventually(lambda node=node: states(node), {"alpha": "alive", "beta": "alive"}, node)
    counters = ask(beta, "info")["counters"]
    assert not [name for name in counters if name.startswith(("gossip_asks_failed", "gossip_send_failed"))]


def test_a_port_that_is_taken_for_datagrams(start, tmp_path):
    """The error is one line, before the data directory is made."""
    (port,) = quiet_ports(1)  # The port must be free for connections, so another test's client cannot hold it.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        address = f"127.0.0.1:{port}"
        node = start("alpha", "--listen", address, ready=False)
        assert node.process.wait(PATIENCE_S) == 3
    assert f"gossipkv: cannot listen on {address} over UDP: Address already in use" in node.said()
    assert not (tmp_path / "alpha" / "data").exists()


def test_the_watched_members(start):
    alpha = start("alpha")
    what = ["members", "--watch", "--json", "--node", alpha.address, "--timeout", "60s"]
    line = [sys.executable, "-m", "gossipkv", *what]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as watching, ExitStack() as stack:
        stack.callback(watching.kill)
        assert json.loads(watching.stdout.readline())["node"] == "alpha"
        start("beta", *joining(alpha))
        found = json.loads(watching.stdout.readline())
        assert (found["node"], found["state"]) == ("beta", "alive")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 130
