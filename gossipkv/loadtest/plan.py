"""The plan of a load test, checked before anything is sent.  Two runs of one plan ask for the same keys.

A rate is a list of consecutive steps.  A step without a rate is a closed loop: the next request is sent after an
answer.  A ramp consists of steps of a second.  Each target has its own `connections`; all share the rate.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from gossipkv.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.address import Address
    from gossipkv.loadtest.result import Json

Scheme: TypeAlias = Literal["gossipkv", "http", "redis"]
Shape: TypeAlias = Literal["uniform", "zipf", "hot", "latest", "sequential"]
Kind: TypeAlias = Literal["get", "get_many", "scan", "put", "delete", "put_many", "insert", "read_modify_write"]
Level: TypeAlias = Literal["one", "majority", "all"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
READS: Final = frozenset({"get", "get_many", "scan"})
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)
DEFAULT_PORTS: Final[dict[Scheme, int]] = {"gossipkv": 7070, "http": 80, "redis": 6379}
MAX_SLOTS: Final = 1 << 24  # 16 million keys in flight take half a gibibyte here, and more in the server.
MAX_STEPS: Final = 1000  # Each step has its own histograms: 110 KB for each target, in each process.
MAX_PROCESSES: Final = 1024
STEEPEST: Final = 10.0  # The largest theta of zipf: beyond, one key gets everything.
MAX_RATE: Final = 1e9
SHORTEST_TIMEOUT_S: Final = 0.001
LONGEST_S: Final = 30 * 24 * 3600.0  # A month: longer tests are soaks, or a mistyped unit.
SHORTEST_VALUE: Final = 16  # A value tells its run, its key and the number of its write.
LONGEST_VALUE: Final = 16 << 20
MAX_RECORDS: Final = 1 << 28
RECORD_BYTES: Final = 1000  # YCSB's.
DATABASE_NAME: Final = re.compile(r"[-_a-zA-Z0-9]{1,255}\Z")


class PlanError(ConfigError):
    """An invalid plan; the message names the fault and the correction."""


@dataclass(frozen=True)
class LoadTarget:
    """A server, and its protocol; `redis_database` is only for Redis."""

    scheme: Scheme
    address: Address
    redis_database: int = 0

    def __str__(self) -> str:
        behind = f"/{self.redis_database}" if self.redis_database else ""
        return f"{self.scheme}://{self.address}{behind}"


@dataclass(frozen=True)
class Distribution:
    """The distribution of requested keys.

    Args:
        shape: `uniform`; `zipf`: key number k of the truth is requested in proportion to `1 / k ** theta`; `hot`:
            `hot_requests` of all requests go to the first `hot_keys` of all keys; `sequential`: in the order of the
            file, repeatedly; `latest`: the newest key, and by Zipf's law older ones.
        scattered: True if the popular keys of `zipf` and `hot` are drawn from the whole truth by the seed, and not
            from its beginning.
    """

    shape: Shape = "uniform"
    theta: float = 0.99
    hot_requests: float = 0.9
    hot_keys: float = 0.1
    scattered: bool = True

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            raise PlanError(f"unknown distribution {self.shape!r}; use one of {', '.join(get_args(Shape))}")
        if not 0 < self.theta <= STEEPEST:
            raise PlanError(f"the theta of zipf must be more than 0 and at most 10, got {self.theta:g}; 0.99 is usual")
        for name in ("hot_requests", "hot_keys"):
            if not 0 < getattr(self, name) < 1:
                raise PlanError(
                    f"{name} must be a share between 0 and 1, such as hot:0.9/0.1, got {getattr(self, name):g}"
                )


@dataclass(frozen=True)
class LoadStep:
    """A rate of requests for a duration; without a rate, a closed loop."""

    rate: float | None
    duration_s: float

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= MAX_RATE:
            raise PlanError(
                f"a rate must be more than 0 requests per second, got {self.rate:g}; omit it for a closed loop"
            )
        if not 0 < self.duration_s <= LONGEST_S:
            raise PlanError(f"a duration must be more than 0 s and at most 30 days, got {self.duration_s:g} s")


@dataclass(frozen=True)
class TruthFile:
    """The place of the right values: a file of key TAB value, or a directory that a node would take as a source.

    A directory is the source root, `<root>/<database>/<version>/<files>`, and each version is compared with its own
    files; or the directory of a database; or of one version.  `version` is the version of a file or of a directory of
    files; without it, every version must have these values.
    """

    path: str
    version: str | None = None


@dataclass(frozen=True)
class TlsFiles:
    """The signers of targets' certificates (None: the system's), and our own certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None  # None: the key stands with the certificate.


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """A load test.

    Args:
        targets: Each is asked over its own connections.
        all_members: Ask all live members of the targets' cluster, not only the targets.
        records: This many records of a table, with keys and values that tell who wrote them, in place of a truth.
        load: Write all of them first.
        value_bytes: The least and the greatest size of values that are written.
        level: What writes must reach; None: what servers do by default.
        ttl_ms: The lifetime of records that are written; None: as the table says.
        sessions: Each request belongs to a user with a session.
        database: Its name; Redis is asked for the keys as they are.
        truth: Keys and values to compare with.
        keys: A file with one key a line, requested instead of the truth's keys; without a truth, values stay unchecked.
        distribution: The distribution of requested keys.
        misses: The share of keys that are certain to be absent.
        mix: The kinds of requests, by weight.
        connections: To each target.
        pipeline: Requests in flight on each connection.
        batch: Keys of a `get_many`, records of a `scan`.
        processes: The number of load processes.
        steps: Consecutive; all of them closed loops, or all with a rate.
        warm_up_s: Preceding load at the first step's rate, which does not count.
        rounds: Repetitions of all steps.
        timeout_s: A server that leaves a request unanswered for this long loses the connection.
        seed: Of all random choices.
        watch: Watch the cluster during the run.
        tls: TLS with all targets; None: without.  A token is not part of a plan, which results contain.

    Raises:
        PlanError: the plan is invalid.
    """

    targets: tuple[LoadTarget, ...]
    database: str = ""
    all_members: bool = False
    truth: tuple[TruthFile, ...] = ()
    keys: str | None = None
    records: int = 0
    load: bool = False
    value_bytes: tuple[int, int] = (RECORD_BYTES, RECORD_BYTES)
    level: Level | None = None
    ttl_ms: int | None = None
    sessions: bool = False
    distribution: Distribution = field(default_factory=Distribution)
    misses: float = 0.0
    mix: Mapping[Kind, float] = field(default_factory=lambda: {"get": 1.0})
    connections: int = 1
    pipeline: int = 1
    batch: int = 1
    processes: int = 1
    steps: tuple[LoadStep, ...] = (LoadStep(None, 10.0),)
    warm_up_s: float = 0.0
    rounds: int = 1
    timeout_s: float = 5.0
    seed: int = 1
    watch: bool = True
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        self._check_targets()
        self._check_numbers()
        self._check_mix()
        self._check_writes()
        self._check_steps()

    @property
    def is_open(self) -> bool:
        """True if requests fall due at a rate."""
        return self.steps[0].rate is not None

    @property
    def is_written(self) -> bool:
        """True if the load writes, or reads what loads have written."""
        return self.records > 0 or bool({kind for kind, weight in self.mix.items() if weight} - READS)

    @property
    def duration_s(self) -> float:
        """Return the planned duration of one round, without its warm-up."""
        return sum(step.duration_s for step in self.steps)

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = asdict(self)
        found["targets"] = [str(target) for target in self.targets]
        found["truth"] = [asdict(truth) for truth in self.truth]
        found["value_bytes"] = [*self.value_bytes]
        found["steps"] = [asdict(step) for step in self.steps]
        return found

    def _check_targets(self) -> None:
        if not self.targets:
            raise PlanError("the load test has no target; name a target, such as gossipkv://127.0.0.1:7070")
        if len(set(self.targets)) < len(self.targets):
            raise PlanError("a target is named twice; to put more load on a target, use more connections")
        speaks = {target.scheme for target in self.targets}
        if speaks != {"redis"} and not DATABASE_NAME.match(self.database):
            raise PlanError(
                f"{self.database!r} is not a valid name of a database; use letters, digits, - and _, such as --db geo"
            )
        if self.all_members and "gossipkv" not in speaks:
            raise PlanError("--members needs a gossipkv:// target, which lists the members; name a gossipkv:// target")
        if not self.truth and self.keys is None and not self.records:
            raise PlanError(
                "the load test has no keys; give --truth (a file of key TAB value, or a source directory) or --keys"
            )
        if len({truth.version for truth in self.truth}) < len(self.truth):
            raise PlanError(
                "two truths have the same version; give one truth, or name the version of each with VERSION=PATH"
            )

    def _check_numbers(self) -> None:
        for name in ("connections", "pipeline", "batch", "processes", "rounds"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.processes > min(MAX_PROCESSES, len(self.targets) * self.connections):
            raise PlanError(
                f"{self.processes} processes cannot share {len(self.targets) * self.connections} connections; "
                "each process needs at least one; use more connections or fewer processes"
            )
        if self.connections * self.pipeline * self.batch * len(self.targets) > MAX_SLOTS:
            raise PlanError(f"more than {MAX_SLOTS:,} keys would be in flight; lower connections, pipeline or batch")
        if not 0 <= self.misses <= 1:
            raise PlanError(f"misses must be a share from 0 to 1, got {self.misses:g}; use 0.05 for 5 %")
        if not 0 <= self.warm_up_s <= LONGEST_S:
            raise PlanError(f"a warm-up must last from 0 s to 30 days, got {self.warm_up_s:g} s")
        if not SHORTEST_TIMEOUT_S <= self.timeout_s <= LONGEST_S:
            raise PlanError(f"a timeout must be at least 1 ms, got {self.timeout_s:g} s")
        if not 0 <= self.seed < 1 << 64:
            raise PlanError(f"a seed must be from 0 to 2^64 - 1, got {self.seed}")

    def _check_mix(self) -> None:
        unknown = [kind for kind in self.mix if kind not in KINDS]
        if unknown:
            raise PlanError(
                f"unknown kind of request {unknown[0]!r} in the mix; use {', '.join(KINDS)}, such as get=90,get_many=10"
            )
        if not all(math.isfinite(weight) and weight >= 0 for weight in self.mix.values()) or not sum(self.mix.values()):
            raise PlanError(
                "the weights of a mix must not be negative, and one must be more than 0, such as get=90,get_many=10"
            )
        if self.mix.get("scan", 0) and any(target.scheme == "redis" for target in self.targets):
            raise PlanError("Redis has no scan in key order; remove scan from the mix")

    def _check_writes(self) -> None:
        least, most = self.value_bytes
        if not 0 <= self.records <= MAX_RECORDS:
            raise PlanError(f"the number of records must be from 1 to {MAX_RECORDS:,}, got {self.records:,}")
        if not SHORTEST_VALUE <= least <= most <= LONGEST_VALUE:
            raise PlanError(
                f"values must have from {SHORTEST_VALUE} bytes to 16 MiB, such as 100-1000, got {least} to {most}"
            )
        if self.records and (self.truth or self.keys is not None):
            raise PlanError("the load test makes the records of --records itself; omit --truth and --keys")
        if self.is_written and (self.truth or self.misses):
            raise PlanError("a load that writes knows the right values itself; omit --truth and --misses")
        if not self.records and (self.load or self.mix.get("insert", 0)):
            raise PlanError("--load and inserts need a number of records; add, for example, --records 100000")
        if (self.sessions or self.level or self.ttl_ms) and not self.is_written:
            raise PlanError("--session, --level and --ttl are only for tables; add --records, or writes in --mix")
        if self.level and not any(target.scheme != "redis" for target in self.targets):
            raise PlanError("Redis has no levels of writes; omit --level")

    def _check_steps(self) -> None:
        if not 0 < len(self.steps) <= MAX_STEPS:
            raise PlanError(f"there must be from 1 to {MAX_STEPS:,} steps, got {len(self.steps):,}; make steps longer")
        if len({step.rate is None for step in self.steps}) > 1:
            raise PlanError("steps with and without a rate cannot be mixed; make two runs")
