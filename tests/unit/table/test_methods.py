"""What nodes answer about tables, clients and each other, as whole nodes with their stores in virtual time."""

from __future__ import annotations

import errno
import random
import re
import signal
from pathlib import Path

import pytest
import trio

from gossipkv.errors import (
    BadRequest,
    Conflict,
    GossipKVError,
    NotReady,
    Unavailable,
    Unknown,
    UnknownDatabase,
    UnknownMethod,
)
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.phases import begin
from tests.world.nodes.trace import Trace
from tests.world.nodes.whole_cluster import simulate

PAGE = (Path(__file__).parents[3] / "docs" / "users" / "wire.md").read_text(encoding="utf-8")
BETWEEN_NODES = {
    "register", "metadata_hold", "metadata_pages", "metadata_transact", "metadata_outcome", "metadata_known",
    "metadata_invite", "metadata_discover",
}  # fmt: skip
ONE_COPY = {"kind": "hash", "partitions": 2, "replication": 1}


def keys_on_the_page(heading):
    """The names in the first column of the tables below a heading of docs/users/wire.md."""
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n#")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


async def refused(cluster, machine, method, *params):
    """The error of a question that has to have one."""
    try:
        told = await cluster.ask(machine, method, *params, timeout_s=30)
    except GossipKVError as error:
        return error
    raise AssertionError(f"{method}{params} was answered with {told!r}")


def test_the_life_of_a_table():
    """Made, listed, shown and dropped at a node alone; answers are as the page for clients says."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        assert await cluster.ask(machine, "metadata_status", None) == []
        made = await cluster.ask(machine, "create_table", "orders", {**ONE_COPY, "operation": bytes(20)})
        assert set(made) == {"table", "config"}
        assert re.fullmatch("[0-9a-f]{32}", made["table"])
        again = await cluster.ask(machine, "create_table", "orders", {**ONE_COPY, "operation": bytes(20)})
        assert again == made
        assert isinstance(await refused(cluster, machine, "create_table", "orders", ONE_COPY), Conflict)
        assert await cluster.ask(machine, "databases") == [{"name": "orders", "kind": "hash"}]
        shown = await cluster.ask(machine, "partition_map", "orders")
        assert (shown["table"], shown["config"], shown["kind"]) == (made["table"], made["config"], "hash")
        assert [one["start"] for one in shown["partitions"]] == [b"\0\0\0\0", b"\0\0\0\1"]
        (assignment,) = shown["partitions"][0]["assignments"]
        assert (assignment["node"], assignment["slot"], assignment["state"]) == ("n1", 0, "AVAILABLE")
        assert re.fullmatch("[0-9a-f]{16}", assignment["id"])
        registers = await cluster.ask(machine, "metadata_status", None)
        assert [one["table"] for one in registers] == [None, "orders"]
        (acceptor,) = registers[0]["new"]
        assert (acceptor["node"], acceptor["answers"], acceptor["why"]) == ("n1", True, None)
        options = {*ONE_COPY, "operation", "bounds"}
        page = keys_on_the_page("tables") - options - {"partitioner", "owners"}
        assert {*shown, *registers[0]} - {"partitions", "kind"} - page <= {"next"}
        assert page <= {*shown, *registers[0]}
        dropped = await cluster.ask(machine, "drop_table", "orders")
        assert (dropped["table"], set(dropped)) == (made["table"], {"table", "config"})
        assert await cluster.ask(machine, "databases") == []
        assert isinstance(await refused(cluster, machine, "drop_table", "orders"), UnknownDatabase)
        error = await refused(cluster, machine, "create_table", "orders", {**ONE_COPY, "operation": bytes(20)})
        assert isinstance(error, Conflict)
        assert "dropped since" in error.message
        second = await cluster.ask(machine, "create_table", "orders", ONE_COPY)
        assert second["table"] != made["table"]
        await machine.stop()
        await machine.start()
        assert (await cluster.ask(machine, "partition_map", "orders"))["table"] == second["table"]

    simulate(scenario, 1, machines=1)


def test_a_map_in_pieces():
    """As many partitions as are wanted, and where the next one begins; from anywhere on."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        bounds = [b"b", b"c", b"d"]
        await cluster.ask(machine, "create_table", "t", {"kind": "range", "bounds": bounds, "replication": 1})
        first = await cluster.ask(machine, "partition_map", "t", {"limit": 3})
        assert ([one["start"] for one in first["partitions"]], first["next"]) == ([b"", b"b", b"c"], b"d")
        rest = await cluster.ask(machine, "partition_map", "t", {"start": first["next"], "limit": 3})
        assert ([one["start"] for one in rest["partitions"]], rest["next"]) == ([b"d"], None)

    simulate(scenario, 1, machines=1)


WRONG = [
    ("create_table", [], "the table is missing"),
    ("create_table", ["t", {"kind": "tree"}], "the kind must be"),
    ("create_table", ["a b", {"kind": "hash"}], "is no name of a table"),
    ("drop_table", [b"\xff"], "the table is not UTF-8"),
    ("drop_table", ["t", {}, 1], "takes 2 parameters"),
    ("partition_map", ["t", {"limit": 0}], "at least 1"),
    ("partition_map", ["t", {"start": 1}], "must be bytes"),
    ("metadata_status", [1], "the table must be"),
    ("metadata_join", [None], "the node is missing"),
    ("metadata_leave", [None, "n1"], "the last"),
    ("metadata_force", [None, []], "1 to 16 survivors"),
    ("register", [b""], ""),
    ("register", [b"\xc1"], ""),
    ("register", ["text"], ""),
    ("metadata_hold", [bytes(15), bytes(16), None, bytes(32), 1, []], "the register must be 16 bytes, not 15"),
    ("metadata_hold", [bytes(16), bytes(15), None, bytes(32), 1, []], "the source must be 16 bytes"),
    ("metadata_hold", [bytes(16), bytes(16), None, bytes(31), 1, []], "the root must be 32 bytes"),
    ("metadata_hold", [bytes(16), bytes(16), None, bytes(32), -1, []], "config"),
    ("metadata_hold", [bytes(16), bytes(16), None, bytes(32), 1, [b"x" * 65537]], "pages"),
    ("metadata_pages", [bytes(16), [bytes(33)]], "names"),
    ("metadata_pages", [bytes(16), [1]], "names"),
    ("metadata_transact", [bytes(16), [], 1], "1 to"),
    ("metadata_transact", [bytes(16), [b"\xc1"], 1], ""),
    ("metadata_transact", [bytes(16), [b"x"], 60_001], "timeout"),
    ("metadata_outcome", [bytes(16), bytes(19), 1], "20 bytes"),
    ("metadata_known", [bytes(17)], "16 bytes"),
    ("metadata_invite", ["x" * 8, 1], "takes 1 parameter"),
    ("metadata_discover", [bytes(16), bytes(16), 1, [[1, b""]]], "a partition is"),
    ("metadata_discover", [bytes(16), bytes(16), 1, [[1, 2, None]]], "a partition is"),
]  # fmt: skip


def test_what_is_no_request():
    """Is refused with one clear error, at a node that takes part."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        await cluster.ask(machine, "create_table", "t", ONE_COPY)
        for method, params, words in WRONG:
            error = await refused(cluster, machine, method, *params)
            assert isinstance(error, BadRequest), (method, params, error.code, error.message)
            assert words in error.message, (method, params, error.message)

    simulate(scenario, 1, machines=1)


def anything(draw, depth=2):
    """Some value that can be sent."""
    kind = draw.randrange(9 if depth else 7)
    if kind < 2:
        return draw.choice((None, True, 0, 1, -1, 2**63, 1 << 48, 0.5))
    if kind < 5:
        return draw.randbytes(draw.choice((0, 1, 8, 16, 16, 20, 32)))
    if kind == 5:
        return draw.choice(("", "t", "n1", "hash", "\0", "x" * 300))
    if kind == 6:
        return {draw.choice(("kind", "replication", "operation", "limit")): draw.choice(("hash", 1, b"", None))}
    return [anything(draw, depth - 1) for _ in range(draw.randrange(4))]


@pytest.mark.parametrize("seed", range(3))
def test_no_request_is_a_defect(seed):
    """Whatever is asked, with the right number of parameters: an answer, or an error that is the asker's."""
    counts = {
        "create_table": 2, "drop_table": 1, "partition_map": 2, "metadata_status": 1, "metadata_join": 2,
        "metadata_leave": 2, "register": 1, "metadata_hold": 6, "metadata_pages": 2, "metadata_transact": 3,
        "metadata_outcome": 3, "metadata_known": 1, "metadata_invite": 1, "metadata_discover": 4,
    }  # fmt: skip

    async def scenario(cluster):
        draw = random.Random(seed)
        (machine,) = cluster.machines
        await machine.start()
        await cluster.ask(machine, "create_table", "t", ONE_COPY)
        for _ in range(300):
            method = draw.choice(sorted(counts))
            params = [anything(draw) for _ in range(counts[method])]
            try:
                await cluster.ask(machine, method, *params, timeout_s=70)
            except GossipKVError as error:
                assert error.code not in {"INTERNAL", "TIMEOUT", "UNKNOWN_METHOD"}, (method, params, error.message)
        assert await cluster.ask(machine, "ping") == "pong"

    simulate(scenario, seed, machines=1)


def test_methods_are_on_the_page():
    """Each method about tables has a row in the page for clients, those between nodes as well."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        for method in sorted(BETWEEN_NODES):
            error = await refused(cluster, machine, method, 1, 2, 3, 4, 5, 6, 7, 8)
            assert not isinstance(error, UnknownMethod), method

    simulate(scenario, 1, machines=1)
    methods = PAGE.split("\n## Methods\n")[1].split("\n## ")[0]
    assert {method for method in BETWEEN_NODES if f"`{method}`" not in methods} == set()


def test_a_node_that_never_had_tables():
    """Says so, in a clear word, whatever it is asked; it founds nothing and makes no store."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        for method, *params in (
            ("drop_table", "t"), ("partition_map", "t"), ("metadata_join", None, "n1"), ("metadata_leave", None, "n1"),
            ("register", b""), ("metadata_pages", bytes(16), []),
        ):  # fmt: skip
            error = await refused(cluster, machine, method, *params)
            assert isinstance(error, NotReady | UnknownDatabase), (method, error.code)
            assert "table" in error.message
        assert (await cluster.ask(machine, "info"))["tables"]["state"] == "none"

    simulate(scenario, 1, machines=1)


def test_an_invitation_of_another_cluster():
    """Is refused, and has no effect; one of its own is taken, and told the store."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        await trio.sleep(5)  # Until it has drawn an id.
        error = await refused(cluster, machine, "metadata_invite", b"another!")
        assert isinstance(error, NotReady)
        assert "is of the cluster" in error.message
        assert (await cluster.ask(machine, "info"))["tables"]["state"] == "none"
        store = await cluster.ask(machine, "metadata_invite", bytes.fromhex(error.message.split()[6].rstrip(",")))
        assert f"{store:016x}" == (await cluster.ask(machine, "info"))["tables"]["store"]

    simulate(scenario, 1, machines=1)


def test_who_decides_is_changed_by_command():
    """One leaves and joins a table's register; twice is once; the last one cannot leave."""

    async def scenario(cluster):
        await begin(cluster)
        one, other, _ = cluster.machines
        await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)

        async def decides(machine, method, *params):
            told = await cluster.ask(machine, method, "t", *params, timeout_s=30)
            assert told["old"] == told["new"]
            return sorted(each["node"] for each in told["new"])

        assert await decides(one, "metadata_leave", "n2") == ["n1", "n3"]
        assert await decides(other, "metadata_leave", "n2") == ["n1", "n3"]
        assert await decides(other, "metadata_leave", "n1") == ["n3"]
        assert isinstance(await refused(cluster, one, "metadata_leave", "t", "n3"), BadRequest)
        assert await decides(one, "metadata_join", "n2") == ["n2", "n3"]
        assert await decides(one, "metadata_join", "n2") == ["n2", "n3"]
        assert (await refused(cluster, one, "metadata_join", "t", "n9")).message == "no member n9 is known"
        assert isinstance(await refused(cluster, one, "metadata_join", "nothing", "n1"), UnknownDatabase)
        assert isinstance(await refused(cluster, one, "metadata_force", "t", ["n2", "n3"]), Conflict)

    simulate(scenario, 1, machines=3)


def test_a_majority_that_is_lost():
    """Nothing is decided until a force names all that are left; it says what may be lost; then all goes on."""

    async def scenario(cluster):
        await begin(cluster)
        one, *others = cluster.machines
        await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
        await grown_to(cluster, one, 3)
        for machine in others:
            machine.kill()
        error = await refused(cluster, one, "create_table", "u", ONE_COPY)
        assert isinstance(error, Unavailable | Unknown)
        assert await cluster.ask(one, "databases") == [{"name": "t", "kind": "hash"}]
        told = await cluster.ask(one, "metadata_force", None, ["n1"], timeout_s=60)
        assert [each["node"] for each in told["new"]] == ["n1"]
        assert re.search("what (n2, n3|n3, n2) alone had accepted is lost", told["lost"])
        await cluster.ask(one, "create_table", "u", ONE_COPY, timeout_s=60)
        for machine in others:
            await machine.start()

        async def follows():
            """They follow: what they alone knew counts for nothing."""
            told = [await cluster.ask(machine, "databases") for machine in cluster.machines]
            return all(len(each) == 2 for each in told)

        await cluster.until(follows, within_s=90)

    simulate(scenario, 1, machines=3)


async def grown_to(cluster, machine, count):
    """Returns when so many decide on the catalogue."""

    async def holds():
        """So many decide on the catalogue."""
        told = await cluster.ask(machine, "metadata_status", None)
        return len(told[0]["new"]) == count and told[0]["old"] == told[0]["new"]

    await cluster.until(holds, within_s=20)


def test_a_node_that_is_stopped():
    """What is asked of it is answered, and nothing in its log is an error."""
    trace = Trace()

    async def scenario(cluster):
        (machine,) = cluster.machines
        for _ in range(10):
            await machine.start()
            async with trio.open_nursery() as nursery:

                async def create(name):
                    async with cluster.connected(machine) as connection:
                        await connection.send("create_table", name, ONE_COPY)
                        response = await connection.read()
                        assert response.error is None or isinstance(response.error, Unavailable | Unknown)

                for _ in range(3):
                    nursery.start_soon(create, f"t{cluster.chance.getrandbits(60)}")
                await trio.sleep(cluster.chance.uniform(0.001, 0.1))
                machine.tell(signal.SIGTERM)
                await machine.ended()
            assert machine.error is None

    simulate(scenario, 1, machines=1, trace=trace)
    assert [line for line in trace.lines if " error event=" in line] == []


def test_a_disk_that_fails_below_the_tables():
    """Decisions are refused with the reason, what was decided is read; when the disk is well the node decides again."""

    async def scenario(cluster):
        (machine,) = cluster.machines
        await machine.start()
        await cluster.ask(machine, "create_table", "t", ONE_COPY)
        known = await cluster.ask(machine, "partition_map", "t")
        life = (await cluster.ask(machine, "info"))["tables"]["life"]
        machine.strike(Fault(0, Action.FAIL, kinds=CHANGING, error=errno.EIO, lasting=True))
        for _ in range(2):
            error = await refused(cluster, machine, "create_table", "u", ONE_COPY)
            assert isinstance(error, Unavailable | Unknown), error.code
            assert isinstance(await refused(cluster, machine, "drop_table", "t"), Unavailable | Unknown)
        assert (await cluster.ask(machine, "info"))["tables"]["state"] == "closed"
        assert await cluster.ask(machine, "databases") == [{"name": "t", "kind": "hash"}]
        assert (await cluster.ask(machine, "partition_map", "t")) == known
        (status,) = await cluster.ask(machine, "metadata_status", "t")
        assert "cannot be written" in status["new"][0]["why"]
        machine.strike()
        while (told := (await cluster.ask(machine, "info"))["tables"])["state"] == "closed":
            assert "opened again" in told["why"]
            await trio.sleep(0.5)
        await trio.sleep(2)
        assert told["life"] > life
        assert (await cluster.ask(machine, "partition_map", "t")) == known
        error = None
        try:
            await cluster.ask(machine, "create_table", "u", ONE_COPY)
        except (Unavailable, Unknown) as refusal:
            error = refusal
        assert error is None
        await cluster.ask(machine, "drop_table", "t")
        machine.kill()
        await machine.start()
        assert [each["name"] for each in await cluster.ask(machine, "databases")] == ["u"]

    simulate(scenario, 1, machines=1)
