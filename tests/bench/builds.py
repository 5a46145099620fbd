"""Compare the costs of this tree with those of another build.

    python -m tests.bench.builds OTHER_TREE [--rounds 7] [--only ROW]

OTHER_TREE is another checkout, compiled in place. Rows of `performance.md` and one more are run with both packages, by
the same interpreter, in turns: this tree, the other, the other, this tree. The measured processes take their package
from their own tree; the load and the checks are this tree's. First comes processor time over all rounds, then
instructions in three rounds of less work. A row with a wrong value has no figure.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import gossipkv
from gossipkv.address import Address
from tests.bench import data, goals, machine, one_build, processes, report, sources
from tests.bench.cluster import nodes
from tests.bench.measurement import Measurement, Row, WrongAnswerError
from tests.bench.meters import Meter, ProcessorTime, instructions
from tests.bench.network import one_core, rows, servers
from tests.bench.network.rows import Shape
from tests.bench.processes import Cores, Server
from tests.bench.tables import writing
from tests.load import HttpDialect, RedisDialect, RpcDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from gossipkv.loadtest._loadtest import Dialect
    from tests.bench.data import Record

    # The use by all operations of one turn.
    Turn = Callable[[], float]

ROOT = Path(__file__).parents[2]
THIS, OTHER = "this tree", "the other"
SHORT_VALUE_BYTES = 15  # Records of 31 bytes.
FILES = 4
COUNTED_ROUNDS = 3  # Instructions do not scatter as times do, and counting is slow.
QUICK_PART = 100


@dataclass(frozen=True)
class Side:
    """One of the two builds: its tree, the directory of its files, and the meter of its processes."""

    name: str
    tree: Path
    directory: Path
    meter: Meter
    cores: Cores

    @property
    def place(self) -> tuple[str, ...]:
        """The prefix of a command that makes it find this build's package, and order sets alike."""
        return ("env", "-C", str(self.tree), f"PYTHONPATH={self.tree}", "PYTHONHASHSEED=0")

    @property
    def python(self) -> tuple[str, ...]:
        """The interpreter of a process whose turns are measured."""
        return (*self.place, *self.meter.wrapper, sys.executable)

    def run(self, module: str, *arguments: str) -> tuple[float, str]:
        """Run a module to its end; return its use and its output."""
        return self.meter.command(self.place, (sys.executable, "-m", module, *arguments))


@cache
def served() -> list[Record]:
    return data.make(one_build.KEYS).records


@contextmanager
def node(side: Side, *options: str, name: str = "node") -> Iterator[Server]:
    with processes.node(
        side.directory / name, served(), side.cores, *processes.NO_POLLING, *options, python=side.python
    ) as running:
        if side.cores.server == side.cores.load:
            give_way(running.process.pid)
        yield running


def users_of(side: Side) -> tuple[str, ...]:
    """Return the option with which all users may read, and do nothing else."""
    path = side.directory / "users"
    path.unlink(missing_ok=True)
    users = ("-m", "gossipkv", "users", "new", "anonymous", "--may", "read:*", "--no-token", "--file", str(path))
    subprocess.run([*side.place, sys.executable, *users], check=True, capture_output=True)
    return ("--users", str(path))


def give_way(process: int) -> None:
    """Make a process interrupt no other on its core: then it finds nearly as many requests at each turn."""
    for task in Path(f"/proc/{process}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def loaded(
    side: Side,
    requests: int,
    *,
    connections: int = 64,
    in_flight: int = 1,
    batch: int = 1,
    calls: bool = False,
    users: bool = False,
) -> Iterator[Turn]:
    """Run a node that is asked for values, or with `calls` for its databases, which its core hands to Python.

    With `users` this tree's node checks the rights of its clients, which show no token.
    """
    with node(side, *(users_of(side) if users and side.name == THIS else ())) as server:
        asked = one_core.called_databases(server) if calls else server
        with rows.open_traffic(asked, Shape(connections, in_flight, batch)) as traffic:
            yield lambda: side.meter.turn(
                server.process.pid, lambda: rows.checked(traffic.run(requests=requests), side.name)
            )


@contextmanager
def in_dialect(side: Side, requests: int, *, dialect: str) -> Iterator[Turn]:
    """Run a node that is asked by Redis' protocol, or by HTTP."""
    address = Address("127.0.0.1", processes.free_port())
    spoken: Dialect = RedisDialect(served(), database=1)
    listens = ("--resp-listen", str(address), "--resp-databases", processes.DATABASE)
    if dialect == "http":
        spoken, listens = HttpDialect(processes.DATABASE, str(address), served()), ("--http-listen", str(address))
    with (
        node(side, *listens) as server,
        rows.open_traffic(replace(server, address=address, dialect=spoken), Shape(64)) as traffic,
    ):
        yield lambda: side.meter.turn(
            server.process.pid, lambda: rows.checked(traffic.run(requests=requests), side.name)
        )


@contextmanager
def forwarded(side: Side, requests: int, *, in_flight: int, owners: int = 1, batch: int = 1) -> Iterator[Turn]:
    """Run a node that holds nothing; the owners that it asks are this tree's, and not measured."""
    directory = Path(tempfile.mkdtemp(dir=side.directory))
    with (
        servers.asker(directory, served(), side.cores, owners, python=side.python) as asker,
        rows.open_traffic(asker, Shape(64 if batch == 1 else 16, in_flight, batch)) as traffic,
    ):
        yield lambda: side.meter.turn(
            asker.process.pid, lambda: rows.checked(traffic.run(requests=requests), side.name)
        )


@contextmanager
def scanned(side: Side, count: int) -> Iterator[Turn]:
    """Run a node that is scanned in key order, page by page, and from the first record again after the last."""
    in_order = sorted(served())
    with node(side) as server, gossipkv.blocking.connect(server.address) as client:
        dataset = client.dataset(processes.DATABASE)

        def scan() -> None:
            for first in range(0, count, len(in_order)):
                expected = in_order[: count - first]
                if [tuple(record) for record in dataset.scan(limit=len(expected))] != expected:
                    raise WrongAnswerError(f"{side.name}: a scan is not as it should be")

        yield lambda: side.meter.turn(server.process.pid, scan)


@contextmanager
def of_table(side: Side, requests: int, *, in_flight: int = 1) -> Iterator[Turn]:
    """Run a node that is asked for the records of a table of its own."""
    with node(side, name=f"table-{in_flight}-{requests}") as server:
        writing.fill(server.address, served(), writing.PARTITIONS)
        asked = replace(server, dialect=RpcDialect(writing.TABLE, served()))
        with rows.open_traffic(asked, Shape(64, in_flight)) as traffic:
            yield lambda: side.meter.turn(
                server.process.pid, lambda: rows.checked(traffic.run(requests=requests), side.name)
            )


@contextmanager
def put(side: Side, puts: int, *, number: int, in_flight: int = 1) -> Iterator[Turn]:
    """Run three nodes of this build, with a table that the first is asked to write; measure one of them.

    The others run without the meter, which may be slow.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=side.directory)))
        started: list[Server] = []
        for each in range(writing.REPLICAS):
            join = {"join": str(started[0].address)} if started else {}
            options = nodes.options(refresh_period="off", busy_poll="off", **join)
            python = side.python if each == number else (*side.place, sys.executable)
            command = processes.serve(directory / str(each), *options, python=python)
            started.append(stack.enter_context(processes.serving(command)))
        origin, measured = started[0], started[number]
        writing.fill(origin.address, [], writing.PARTITIONS, replication=writing.REPLICAS)
        dialect = servers.protocols().PutDialect(writing.TABLE.encode(), 0, patient=True)
        traffic = stack.enter_context(rows.open_traffic(replace(origin, dialect=dialect), Shape(64, in_flight)))

        def turn() -> float:
            first = dialect.next
            used = side.meter.turn(measured.process.pid, lambda: rows.checked(traffic.run(requests=puts), side.name))
            for server in started:
                writing.wait_for_numbered(server.address, range(first, dialect.next))
            return used

        yield turn


@contextmanager
def working(side: Side, count: int, *, work: str, asks_node: bool = False) -> Iterator[Turn]:
    """Run a process of this build at one of `one_build.WORK`; a node that it asks is this tree's, and not measured."""
    with ExitStack() as stack:
        place = str(side.directory / "file.gkv")
        if asks_node:
            asked_node = processes.node(side.directory / "asked", served(), side.cores, *processes.NO_POLLING)
            place = str(stack.enter_context(asked_node).address)
        command = [*side.python, one_build.__file__, work, place, str(count)]
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answered = process.stdin, process.stdout

        def turn() -> None:
            asked.write("turn\n")
            asked.flush()
            if answered.readline() != "turn\n":
                raise WrongAnswerError(f"{side.name}: {work} ended early; why stands above")

        turn()  # The start is not measured.
        yield lambda: side.meter.turn(process.pid, turn)


@contextmanager
def built(side: Side, count: int) -> Iterator[Turn]:
    """Build sorted files from SequenceFiles, measured from the start of the process to its end."""
    source, target = side.directory.parent / f"source-{count}", side.directory / "built"
    if not source.exists():
        sources.write_sequence_files(source, list(data.numbered(count, SHORT_VALUE_BYTES)), FILES)

    def turn() -> float:
        used, _ = side.run("gossipkv", "build", "--lanes", "1", str(source), str(target))
        sources.check_numbered(target, count, partial(data.value_of, value_bytes=SHORT_VALUE_BYTES))
        shutil.rmtree(target)
        return used

    yield turn


@contextmanager
def simulated(side: Side, runs: int) -> Iterator[Turn]:
    """Run members in the simulated world, the same run to the last datagram."""

    def turn() -> float:
        used, output = side.run("tests.world", "--seed", "1", "--runs", str(runs), "--json")
        found, expected = traces(output), traces_here(runs)
        if found != expected:
            raise WrongAnswerError(f"{side.name}: runs are not the same: expected {expected}, got {found}")
        return used

    yield turn


def traces(output: str) -> list[tuple[str, str]]:
    """Return the fold of each simulated run's network traffic, and its number of datagrams.

    The trace also has the number of wake-ups of cores, which is ignored: it may differ between equal runs.
    """
    return re.findall(r'"trace": "(\w+)-\d+-(\d+)"', output)


@cache
def traces_here(runs: int) -> list[tuple[str, str]]:
    command = [sys.executable, "-m", "tests.world", "--seed", "1", "--runs", str(runs), "--json"]
    found = traces(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert len(found) == runs, found
    return found


@dataclass(frozen=True)
class Work:
    """Work that is repeated in a timed turn, and in a counted one; `words` is the name of the row."""

    words: str
    open: Callable[[Side, int], AbstractContextManager[Turn]]
    timed: int
    counted: int


ROWS = {
    "get": Work(goals.NETWORK_ONE, loaded, 100_000, 50_000),
    "pipelined": Work(goals.NETWORK_PIPELINED, partial(loaded, in_flight=16), 1_000_000, 200_000),
    "users": Work(
        f"{goals.NETWORK_PIPELINED}, users here alone", partial(loaded, in_flight=16, users=True), 1_000_000, 200_000
    ),
    "get_many": Work(goals.NETWORK_BATCHED, partial(loaded, connections=16, batch=one_core.BATCH), 40_000, 4_000),
    "resp": Work(goals.RESP_ONE, partial(in_dialect, dialect="resp"), 100_000, 50_000),
    "http": Work(goals.HTTP_NODE, partial(in_dialect, dialect="http"), 100_000, 50_000),
    "forwarded": Work(goals.NETWORK_FORWARDED_PIPELINED, partial(forwarded, in_flight=16), 200_000, 50_000),
    "forwarded_many": Work(
        goals.NETWORK_FORWARDED_BATCHED, partial(forwarded, in_flight=1, owners=2, batch=one_core.BATCH), 20_000, 3_000
    ),
    "lone": Work(goals.NETWORK_ROUND_TRIP, partial(loaded, connections=1), 15_000, 5_000),
    "databases": Work(
        "`databases`, 64 connections, 16 in flight, CPU", partial(loaded, in_flight=16, calls=True), 150_000, 10_000
    ),
    "blocking": Work(goals.CLIENT_GET, partial(working, work="blocking", asks_node=True), 20_000, 10_000),
    "trio": Work(goals.CLIENT_TASKS, partial(working, work="trio", asks_node=True), 60_000, 10_000),
    "lookup": Work(goals.GET_HIT_SMALL, partial(working, work="lookup"), 1_000_000, 200_000),
    "build": Work(goals.SEQUENCE_SHORT, built, 1_000_000, 200_000),
    "simulation": Work("CPU of a simulated run of a minute", simulated, 10, 1),
    "table": Work(goals.TABLE_GET, of_table, 20_000, 1_000),
    "table_pipelined": Work(goals.TABLE_GET_PIPELINED, partial(of_table, in_flight=16), 20_000, 1_000),
    "put_origin": Work(goals.PUT_ORIGIN, partial(put, number=0), 5_000, 400),
    "put_target": Work(goals.PUT_TARGET, partial(put, number=1), 5_000, 400),
    "put_pipelined": Work(goals.PUT_ORIGIN_PIPELINED, partial(put, number=0, in_flight=16), 10_000, 1_000),
    "scan": Work("beside the ten: scan of a node, per record", scanned, 1_000_000, 500_000),
}


def measure(row: Work, sides: list[Side], rounds: int, amount: int) -> Measurement:
    """Measure one operation in each round, after a round that does not count."""
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    with ExitStack() as stack:
        turns = {side.name: stack.enter_context(row.open(side, amount)) for side in sides}
        for number in range(rounds + 1):
            for name in samples if number % 2 else reversed(samples):
                used = turns[name]() / amount
                if number > 0:
                    samples[name].append(used)
    return Measurement(Row(row.words, sides[0].meter.unit, ours=THIS), samples)


def compare(sides_of: Callable[[Meter], list[Side]], counter: Meter | None, chosen: argparse.Namespace) -> bool:
    """Measure the rows one by one and print them; return True if all answers were right."""
    found: list[Measurement] = []
    wrong = []
    part = QUICK_PART if chosen.quick else 1
    for name in chosen.only or ROWS:
        row = ROWS[name]
        machine.say(f"  {row.words}")
        try:
            found.append(measure(row, sides_of(ProcessorTime()), chosen.rounds, max(1, row.timed // part)))
            if counter is not None:
                rounds = min(chosen.rounds, COUNTED_ROUNDS)
                found.append(measure(row, sides_of(counter), rounds, max(1, row.counted // part)))
        except WrongAnswerError as error:
            wrong.append(f"- **{row.words}: {error}**")
    counted_by = counter.name if counter else "not counted: neither perf nor valgrind counts here"
    print(f"{machine.describe()}\n\n{chosen.rounds} rounds; instructions: {counted_by}\n")
    print("\n".join([report.table(found, exact=True), *wrong]))
    return not wrong


def check_package(side: Side) -> None:
    """Raise if commands of this side would not find their own package, complete."""
    code = "import gossipkv.cli, gossipkv.loadtest._loadtest; print(gossipkv.__file__)"
    found = subprocess.run([*side.place, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = side.tree / "gossipkv" / "__init__.py"
    if found.returncode != 0 or Path(found.stdout.strip()).resolve() != expected.resolve():
        raise SystemExit(f"{side.tree} is no checkout that is built: expected {expected}, got {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER_TREE")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", action="append", choices=ROWS, help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="only prove that it works; ratios mean nothing")
    chosen = parser.parse_args()
    cores = Cores.of_this_machine()
    with tempfile.TemporaryDirectory() as name, machine.pinned(cores.load):
        directory = Path(name)

        def sides_of(meter: Meter) -> list[Side]:
            trees = ((THIS, ROOT), (OTHER, chosen.other.resolve()))
            used = cores if isinstance(meter, ProcessorTime) else Cores(server=cores.load, load=cores.load)
            return [Side(name, tree, directory / name.replace(" ", "-"), meter, used) for name, tree in trees]

        for side in sides_of(ProcessorTime()):
            check_package(side)
            side.directory.mkdir()
        counts = directory / "counts"
        counts.mkdir()
        if not compare(sides_of, instructions(counts), chosen):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
