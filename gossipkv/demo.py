"""The main job, end to end, on real data: a node serves one version of a dataset, and changes to the next under load.

The data is the Unicode character database that ships inside Python, in the two versions that it has: 3.2.0 (kept for
internationalised host names) and the current one.  Key: a character's name; value: the character and what the version
says of it.  Both are written as tab-separated files below a source root in a temporary directory; one node runs as a
process of its own; a pipelined reader asks without a pause while the second version appears at the source, is built,
and is switched to.

Every answer is compared with what the version that it names says.  What must hold stands in `REQUIRED`; the outcome
is a success only if all of it does.  However this ends, the node is stopped and the directory removed.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, final

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.keyspace.partitioner import partition
from gossipkv.processes.program import command, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

DATABASE: Final = "unicode"
FILES: Final = 8  # A version's files, and so its partitions.
IN_FLIGHT: Final = 256  # Requests the reader keeps open; the pipeline refills at half of it.
READS_BEFORE: Final = 5_000  # Answers from the first version before the second appears.
SAMPLE: Final = 1_459  # Characters read besides those that the versions describe differently: 2,000 in all.
MANY_FAILURES: Final = 100  # No use in going on.
TOLD_FAILURES: Final = 3  # Enough to see what it is about.
REFRESH_MS: Final = 200
# No more than a bound, on a machine that is busy with all else: what cannot go on is told by its state, and sooner.
PATIENCE_S: Final = 900.0
LOOK_PERIOD_S: Final = 5.0  # Between two looks at how the second version fares.

SHOWN: Final = ("PLUS SIGN", "GREEK SMALL LETTER ALPHA", "GEORGIAN LETTER ZEN", "CHEROKEE LETTER NU", "PILE OF POO")

# What must hold: name in the outcome, least, most, and the words for people.
REQUIRED: Final = (
    ("reads", 10_000, None, "reads"),
    ("in_flight", 100, None, "in flight across the switch"),
    ("changed", 500, None, "reads whose answer changed"),
    ("failures", 0, 0, "failures"),
    ("steps_back", 0, 0, "steps back"),
)

Records = dict[bytes, bytes]


@final
@dataclass(frozen=True, slots=True)
class Edition:
    """One version of the dataset: the truth that answers are compared with."""

    unicode_version: str
    records: Records

    @property
    def version(self) -> str:
        """Its name as a version; versions are ordered as strings, hence the two digits."""
        major, minor, patch = self.unicode_version.split(".")
        return f"{int(major):02}-{minor}-{patch}"

    def write(self, directory: Path) -> None:
        """Write the source files, spread over them as the job of an existing engine would."""
        directory.mkdir(parents=True)
        lines: list[list[bytes]] = [[] for _ in range(FILES)]
        for key, value in self.records.items():
            assert not {b"\t", b"\n"} & {key[index : index + 1] for index in range(len(key))}, key
            assert b"\n" not in value, value
            lines[partition("sequins", key, FILES)].append(b"%b\t%b\n" % (key, value))
        for number, part in enumerate(lines):
            (directory / f"part-{number:05}.tsv").write_bytes(b"".join(part))


def editions() -> tuple[Edition, Edition]:
    """The two versions that are inside this Python."""
    old = unicodedata.ucd_3_2_0
    return (
        Edition(old.unidata_version, _records(old)),
        Edition(unicodedata.unidata_version, _records(unicodedata)),
    )


class CharacterDatabase(Protocol):
    """What the module `unicodedata` and its older version have in common."""

    def name(self, character: str, default: str, /) -> str:
        """Its name, or `default`."""
        ...

    def category(self, character: str, /) -> str:
        """Its general category, such as `Lu`."""
        ...

    def bidirectional(self, character: str, /) -> str:
        """Its bidirectional class, such as `AL`."""
        ...

    def mirrored(self, character: str, /) -> int:
        """1 if it is mirrored in text from right to left."""
        ...

    def east_asian_width(self, character: str, /) -> str:
        """Its width, such as `W`."""
        ...


def _records(database: CharacterDatabase) -> Records:
    """Name: character, category, bidirectional class, mirrored, width; separated by tabs."""
    named = ((database.name(character, ""), character) for character in map(chr, range(sys.maxunicode + 1)))
    return {
        name.encode(): "\t".join(
            (
                character,
                database.category(character),
                database.bidirectional(character),
                str(database.mirrored(character)),
                database.east_asian_width(character),
            )
        ).encode()
        for name, character in named
        if name
    }


@final
@dataclass(slots=True)
class Outcome:
    """The numbers of a run."""

    versions: list[str] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    reads: int = 0
    in_flight: int = 0
    changed: int = 0
    failures: int = 0
    steps_back: int = 0
    reads_per_s: int = 0
    seconds: float = 0.0
    trouble: list[str] = field(default_factory=list)  # The first failures, in words.

    def holds(self, name: str) -> bool:
        """Whether one of the required numbers is what it must be."""
        least, most = next((least, most) for required, least, most, _ in REQUIRED if required == name)
        value: int = getattr(self, name)
        return value >= least and (most is None or value <= most)

    @property
    def is_success(self) -> bool:
        """Whether all of them are."""
        return all(self.holds(name) for name, *_ in REQUIRED)


@final
class Reader:
    """Asks for the same keys round and round, and judges every answer."""

    def __init__(self, old: Edition, new: Edition, outcome: Outcome) -> None:
        differ = [key for key, value in old.records.items() if new.records.get(key) != value]
        same = [key for key, value in old.records.items() if new.records.get(key) == value]
        step = max(1, len(same) // SAMPLE)
        self.keys = differ + same[::step][:SAMPLE]
        self._has_switched = False
        self._truth = {old.version: old.records, new.version: new.records}
        self._new = new.version
        self._outcome = outcome
        self._last: dict[bytes, bytes | None] = {}
        self._asked = 0
        self._answered = 0
        self._after_switch = 0

    def read(self, client: blocking.Client, publish: Callable[[], object]) -> None:
        """Read until the second version, published on the way, has answered every key."""
        outcome, dataset = self._outcome, client.dataset(DATABASE)
        begin_s = time.monotonic()
        give_up_s, look_s = begin_s + PATIENCE_S, begin_s + LOOK_PERIOD_S
        published = False
        while not self._has_read_all() and outcome.failures < MANY_FAILURES:
            self._asked = self._answered = 0
            try:
                for key, value, version in dataset.iter_get(self._endless_keys(), IN_FLIGHT):
                    self._judge(key, value, version)
                    if not published and outcome.reads >= READS_BEFORE:
                        publish()
                        published = True
                    if self._has_read_all() or outcome.failures >= MANY_FAILURES:
                        break
                    if (now_s := time.monotonic()) > look_s:
                        look_s = now_s + LOOK_PERIOD_S
                        if (why := self._trouble(client)) is not None or now_s > give_up_s:
                            self._fail(f"the node did not switch within {now_s - begin_s:.0f} s: {why or 'no trouble'}")
                            return
            except GossipKVError as error:
                self._fail(str(error))  # And on with the next round: what was in flight is lost.
        outcome.reads_per_s = round(outcome.reads / (time.monotonic() - begin_s))

    def _trouble(self, client: blocking.Client) -> str | None:
        """Why the second version will not serve, if so."""
        match client.status(DATABASE):
            case {"unicode": {"versions": {self._new: {"error": {"message": str(message)}}}}}:
                return message
        return None

    def _has_read_all(self) -> bool:
        """Whether every key was read again after the switch, and enough were read in all."""
        return self._after_switch >= len(self.keys) and self._outcome.reads >= REQUIRED[0][1]

    def _endless_keys(self) -> Iterator[bytes]:
        """What to ask, counted as it is sent."""
        for key in itertools.cycle(self.keys):
            self._asked += 1
            yield key

    def _judge(self, key: bytes, value: bytes | None, version: str) -> None:
        """Count one answer."""
        outcome = self._outcome
        outcome.reads += 1
        self._answered += 1
        if version == self._new:
            if not self._has_switched:
                self._has_switched = True
                outcome.in_flight = self._asked - self._answered + 1  # This one was on its way as well.
            self._after_switch += 1
        elif self._has_switched:
            outcome.steps_back += 1
        truth = self._truth.get(version)
        if truth is None or truth.get(key) != value:
            self._fail(f"{key.decode()}: {value!r} is not what version {version} says")
        outcome.changed += key in self._last and self._last[key] != value
        self._last[key] = value

    def _fail(self, why: str) -> None:
        """Count a failure."""
        self._outcome.failures += 1
        if len(self._outcome.trouble) < TOLD_FAILURES:
            self._outcome.trouble.append(why)


@final
class NodeProcess:
    """`gossipkv serve` as a process of its own, which does not outlive this object's `with`."""

    def __init__(self, root: Path) -> None:
        self._log = root / "node.log"
        environ = {name: value for name, value in environment().items() if not name.startswith("GOSSIPKV_")}
        order = [*command("gossipkv"), "serve", "--listen", "127.0.0.1:0"]
        order += ["--source", str(root / "source"), "--data", str(root / "data")]
        order += ["--refresh-period", f"{REFRESH_MS}ms", "--log-level", "warning"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  # Our own command; nothing in it is from outside.
                order, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environ,
                start_new_session=True,  # Ctrl-C is for the demo, which stops the node itself.
            )  # fmt: skip
        self.address = ""
        self.process_id = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        """Take the address from the line that the node prints.

        Raises:
            Unavailable: it ended, or said nothing in time; with the end of what it logged.
        """
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline().decode() if readable else ""
        word, _, self.address = line.strip().partition(" ")
        if word != "ready":
            raise Unavailable(f"the node did not start: {self.last_words()}")

    def stop(self) -> int:
        """End it, politely first; its exit status."""
        self._process.terminate()
        try:
            status = self._process.wait(PATIENCE_S)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
        return status

    def last_words(self) -> str:
        """The end of its log, in one line."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return " / ".join(line for line in lines[-4:] if line) or "it said nothing"


def run(say: Callable[[str], None]) -> Outcome:
    """Run the demo; `say` is given lines for people as things happen.

    Raises:
        GossipKVError: it could not be run to its end.
    """
    begin_s = time.monotonic()
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="gossipkv-demo-") as place, _terminated_as_interrupted():
        root = Path(place)
        source = root / "source" / DATABASE
        old, new = editions()
        outcome.versions = [old.version, new.version]
        outcome.records = [len(old.records), len(new.records)]
        old.write(source / old.version)
        staged = source / f"_{new.version}"  # Names that begin with _ are no versions.
        new.write(staged)
        say(f"source   {len(old.records):,} characters of Unicode {old.unicode_version}, in {FILES} files")
        with NodeProcess(root) as node:
            node.wait_until_ready()
            say(f"node     {node.address}, process {node.process_id}, listens")
            with blocking.connect(node.address, timeout_ms=int(1000 * PATIENCE_S)) as client:
                dataset = client.dataset(DATABASE)
                dataset.get(SHOWN[0])  # Waits until it is built.
                say(f"serves   {DATABASE}, version {old.version}")
                say("")
                _show(dataset, say)
                say("")
                say(f"upgrade  {len(new.records):,} characters of Unicode {new.unicode_version} appear at the source")
                say(f"         while a reader goes on, {IN_FLIGHT} requests at a time")
                say("")
                Reader(old, new, outcome).read(client, lambda: staged.rename(source / new.version))
                _show(dataset, say)
            if (status := node.stop()) != 0:
                outcome.failures += 1
                outcome.trouble.append(f"the node ended with status {status}: {node.last_words()}")
    outcome.seconds = round(time.monotonic() - begin_s, 1)
    return outcome


def report(outcome: Outcome) -> Iterable[str]:
    """The numbers, a line each, with what each must be."""
    for name, least, most, words in REQUIRED:
        wanted = "none" if most == 0 else f"at least {least:,}"
        verdict = "ok" if outcome.holds(name) else "NOT OK"
        yield f"{words:<30}{getattr(outcome, name):>10,}   {wanted:<18}{verdict}"
    yield f"{'reads a second':<30}{outcome.reads_per_s:>10,}   every answer checked against its version"
    yield from (f"failure: {line}" for line in outcome.trouble)


def _show(dataset: blocking.Dataset, say: Callable[[str], None]) -> None:
    values, version = dataset.get_many_with_version(SHOWN)
    for name, value in zip(SHOWN, values, strict=True):
        described = "not there" if value is None else "  ".join(value.decode().split("\t"))
        say(f"  {version}  {name:<26}{described}")


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Clean up on SIGTERM as on Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
