"""The execution of a plan, up to its result.

    result = run_plan(plan, on_progress)

Load processes (`fleet.py`) make the requests.  This process starts and hears them, watches the cluster, and combines
their reports.  Ctrl-C ends the run, and the result covers the time until then; a second Ctrl-C ends everything.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Final, final

from gossipkv import __version__
from gossipkv.client.blocking import Client
from gossipkv.client.credentials import PLAIN
from gossipkv.client.link import Opening
from gossipkv.client.sockets import RECEIVE_BYTES, open_socket, opened, waited
from gossipkv.errors import Unauthorized, Unavailable
from gossipkv.loadtest import figures
from gossipkv.loadtest.fleet import LoadFleet, error_of
from gossipkv.loadtest.gathering import SECOND_NS, Gathering, unknown_versions, with_faults, with_wrong
from gossipkv.loadtest.late_truth import LateTruth
from gossipkv.loadtest.plan import PlanError
from gossipkv.loadtest.plan_text import parse_target
from gossipkv.loadtest.result import Event, OfRound, Result, RunProgress, ServerCpu
from gossipkv.loadtest.server_cpu import between, cpu_of_targets
from gossipkv.loadtest.watch import RunWatch, info_of, live_members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.client.credentials import Credentials
    from gossipkv.loadtest.fleet import ProcessLine
    from gossipkv.loadtest.plan import LoadPlan, LoadTarget
    from gossipkv.loadtest.result import Json, OfTarget

DONE: Final = "done"
INTERRUPTED: Final = "interrupted"
MS_IN_S: Final = 1000
US_IN_S: Final = 1e6
HEAR_S: Final = 0.1
TELL_NS: Final = 200_000_000  # The delay after the end of a second, so that all processes have reported it.
LEAD_NS: Final = 50_000_000  # The time between the order and the start, so that all processes start together.
LOAD_NS: Final = 3600 * SECOND_NS
CHECK_NS: Final = 600 * SECOND_NS
GRACE_NS: Final = 30 * SECOND_NS  # Processes that do not report the end of a run in this time are given up.
STOPPED_NS: Final = 5 * SECOND_NS  # The same limit after Ctrl-C.


def run_plan(
    plan: LoadPlan, on_progress: Callable[[RunProgress], None] | None = None, credentials: Credentials = PLAIN
) -> Result:
    """Put the targets of a plan under load; `credentials` match its `tls`, and contain the token.

    Raises:
        PlanError: there are no keys or no targets.
        SourceError, StorageError: the truth cannot be read.
        Unavailable: a target cannot be reached at the beginning.
        Unauthorized: a target refuses the token.
    """
    _look_first(plan, credentials)
    plan = _with_members(plan, credentials)
    with ExitStack() as stack:
        fleet = LoadFleet(plan, credentials.token, stack)
        conductor = Conductor(plan, fleet, on_progress, credentials, stack)
        conductor.await_ready()
        if plan.watch:
            addresses = [target.address for target in plan.targets if target.scheme == "gossipkv"]
            stack.enter_context(RunWatch(addresses, plan.database, conductor.note, credentials))
        conductor.load_records()
        for number in range(plan.rounds):
            if conductor.ended != DONE:
                break
            conductor.play_round(number)
        conductor.check_writes()
        return conductor.result()


@dataclass(frozen=True)
class _Run:
    phase: str
    number: int  # The number of the round.
    stages: list[tuple[float, int]]
    begun_ns: int
    walk: str = ""

    @property
    def planned_ns(self) -> int:
        return sum(duration_ns for _, duration_ns in self.stages)

    def rate_at(self, passed_ns: int) -> float | None:
        end_ns = 0
        for stage_rate, duration_ns in self.stages:
            end_ns += duration_ns
            if passed_ns < end_ns:
                return stage_rate or None
        return self.stages[-1][0] or None


@final
class Conductor:
    """All rounds of a plan, with their processes."""

    def __init__(
        self,
        plan: LoadPlan,
        fleet: LoadFleet,
        on_progress: Callable[[RunProgress], None] | None,
        credentials: Credentials,
        stack: ExitStack,
    ) -> None:
        self.ended = DONE
        self._credentials = credentials
        self._plan = plan
        self._fleet = fleet
        self._on_progress = on_progress
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self._zero_ns = monotonic_ns()  # The seconds and events of the result count from this time.
        self._events: list[tuple[int, str, str, str]] = []
        self._reported_events = 0
        self._reported_s = 0  # Seconds of this run that were reported.
        self._whole = Gathering(plan, self._zero_ns)
        self._warm_ups = Gathering(plan, self._zero_ns)
        self._rounds: list[OfRound] = []
        self._missing = 0
        self.late_truth = LateTruth(plan, self.note, fleet.take_version, stack)

    def note(self, what: str, who: str, detail: str) -> None:
        """Note an event at the present time; any thread may call this."""
        self._events.append((monotonic_ns(), what, who, detail))

    def await_ready(self) -> None:
        """Wait until every process has its connections.

        Raises:
            GossipKVError: a process cannot begin.
        """
        waiting = self._fleet.alive
        while waiting:
            for line in self._fleet.hear(HEAR_S):
                if line.kind == "failed":
                    raise error_of(line.value)
                if line.kind == "died":
                    raise PlanError(f"a generator process {line.value}")
                waiting.discard(line.process)

    def load_records(self) -> None:
        """Write all records, if the plan says so."""
        if self._plan.load:
            missing = self._walk("records", LOAD_NS)
            if missing:
                self._end(f"{missing} of {self._plan.records} records could not be loaded")

    def check_writes(self) -> None:
        """Read again what was written and acknowledged; it must be there."""
        if self._plan.is_written and self.ended != INTERRUPTED:
            missing = self._walk("check", CHECK_NS)
            if missing:
                self._end(f"{missing} keys with acknowledged writes did not have the right value at the end")

    def _walk(self, walk: str, duration_ns: int) -> int:
        """Return how many keys it missed; its faults count as those of a warm-up."""
        self._missing = 0
        self._play(_Run(walk, 0, [(0.0, duration_ns)], monotonic_ns() + LEAD_NS, walk), self._warm_ups)
        return self._missing

    def play_round(self, number: int) -> None:
        """Perform one round: the warm-up, and the counted load."""
        plan = self._plan
        if plan.warm_up_s > 0:
            stages = [(plan.steps[0].rate or 0.0, round(plan.warm_up_s * SECOND_NS))]
            self._play(_Run("warm-up", number, stages, monotonic_ns() + LEAD_NS), self._warm_ups)
            if self.ended != DONE:
                return
        before = cpu_of_targets(plan.targets)
        begun_ns = monotonic_ns() + LEAD_NS
        if not self._rounds:
            self._zero_ns = begun_ns
            self._whole = Gathering(plan, begun_ns)
        stages = [(step.rate or 0.0, round(step.duration_s * SECOND_NS)) for step in plan.steps]
        run = _Run("load", number, stages, begun_ns)
        found = self._play(run, self._whole)
        self._report_last(run, found)
        cpu = _server_cpu(found, between(before, cpu_of_targets(plan.targets)))
        self._rounds.append(OfRound(found.totals(), found.latency(), cpu))

    def _play(self, run: _Run, whole: Gathering) -> Gathering:
        gathering = Gathering(self._plan, run.begun_ns)
        waiting = self._fleet.alive
        give_up_ns = run.begun_ns + run.planned_ns + round(self._plan.timeout_s * SECOND_NS) + GRACE_NS
        self._reported_s = 0
        self._fleet.begin(run.stages, run.begun_ns, run.walk)
        while waiting and monotonic_ns() < give_up_ns:
            try:
                for line in self._fleet.hear(HEAR_S):
                    self._hear(line, run, (gathering, whole), waiting)
                self.late_truth.step()
                passed_s = (monotonic_ns() - run.begun_ns - TELL_NS) // SECOND_NS
                if passed_s > self._reported_s:
                    self._reported_s = passed_s
                    self._report(run, gathering)
            except KeyboardInterrupt:
                if self.ended == INTERRUPTED:
                    raise
                self.ended = INTERRUPTED
                self._fleet.interrupt()
                give_up_ns = monotonic_ns() + STOPPED_NS
        if not run.walk:
            self._note_frozen(gathering.frozen(min(monotonic_ns(), run.begun_ns + run.planned_ns)))
        if waiting:
            self._end(f"{len(waiting)} of {self._plan.processes} generator processes did not end in time")
        if not gathering.duration_s:  # No process is left to report the duration.
            for receiver in (gathering, whole):
                receiver.end(run.number, min(monotonic_ns() - run.begun_ns, run.planned_ns) / SECOND_NS)
        return gathering

    def _end(self, why: str) -> None:
        """End the test; the first reason is kept."""
        self.ended = why if self.ended == DONE else self.ended

    def _hear(self, line: ProcessLine, run: _Run, gatherings: tuple[Gathering, ...], waiting: set[int]) -> None:
        if line.kind == "died":
            waiting.discard(line.process)
            self.note("generator", f"process {line.process + 1}", str(line.value))
            self._end(f"generator process {line.process + 1} {line.value}")
            return
        assert isinstance(line.value, dict)
        if line.kind == "news":
            for version in unknown_versions(line.value):
                self.late_truth.want(version)
        for gathering in gatherings:
            if line.kind == "news":
                frozen = gathering.hear_news(run.number * self._plan.processes + line.process, line.value)
                # Between rounds nothing is requested, so that is no freeze.
                if gathering is gatherings[0] and not run.walk:
                    self._note_frozen(frozen)
            elif line.kind == "done":
                gathering.hear_done(run.number, line.value)
        if line.kind == "done":
            waiting.discard(line.process)
            missing = line.value["missing"]
            assert isinstance(missing, int)
            self._missing += missing

    def _note_frozen(self, frozen: tuple[int, int] | None) -> None:
        if frozen is not None:
            begin_ns, end_ns = frozen
            self._events.append((begin_ns, "frozen", "", figures.seconds(round((end_ns - begin_ns) / SECOND_NS, 1))))

    def _report_last(self, run: _Run, gathering: Gathering) -> None:
        """Report the last second, complete or not, if a round ended before that."""
        last_s = -(-run.planned_ns // SECOND_NS)
        if self.ended != DONE or last_s <= self._reported_s:
            return
        try:
            self._reported_s = last_s
            self._report(run, gathering)
        except KeyboardInterrupt:
            self.ended = INTERRUPTED

    def _report(self, run: _Run, gathering: Gathering) -> None:
        """Report the progress, and the counts of the last second."""
        if self._on_progress is None:
            return
        elapsed_ns = monotonic_ns() - run.begun_ns
        events = self._events[self._reported_events :]
        self._reported_events += len(events)
        self._on_progress(
            RunProgress(
                run.phase,
                run.number + 1,
                self._plan.rounds,
                elapsed_ns / SECOND_NS,
                run.planned_ns / SECOND_NS,
                run.rate_at(elapsed_ns),
                gathering.second(self._reported_s - 1),
                gathering.totals(elapsed_ns / SECOND_NS),
                gathering.all.latency(),
                [self._event(*event) for event in events],
            )
        )

    def _event(self, at_ns: int, what: str, who: str, detail: str) -> Event:
        return Event(round((at_ns - self._zero_ns) / SECOND_NS, 3), what, who, detail)

    def result(self) -> Result:
        whole, plan = self._whole, self._plan
        return Result(
            began=self._began,
            command=list(sys.orig_argv),
            plan=plan.to_json(),
            machine=machine(),
            totals=with_faults(whole.totals(), self._warm_ups.totals()),
            latency=whole.latency(),
            targets=[_named(target, plan.targets[at], self._credentials) for at, target in enumerate(whole.targets())],
            lateness=whole.lateness(),
            steps=whole.steps(),
            seconds=whole.seconds(),
            events=[self._event(*event) for event in sorted(self._events)],
            by_version=with_wrong(whole.versions(), self._warm_ups.versions()),
            server_cpu=_cpu_of_rounds(self._rounds, whole),
            generator_cpu_s=whole.cpu_s,
            rounds=self._rounds,
            first_wrong=whole.first_wrong or self._warm_ups.first_wrong,
            ended=self.ended,
        )


def machine() -> dict[str, Json]:
    """Return the facts about this machine."""
    model = None
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "system": platform.platform(),
        "processor": model or platform.processor(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "gossipkv": __version__,
    }


def _with_members(plan: LoadPlan, credentials: Credentials) -> LoadPlan:
    """Return the plan with all live members as targets, if it asks for them."""
    if not plan.all_members:
        return plan
    asked = next(target for target in plan.targets if target.scheme == "gossipkv")
    members = live_members(asked.address, round(plan.timeout_s * MS_IN_S), credentials)
    found = [parse_target(address) for address in members]
    return replace(plan, targets=tuple(dict.fromkeys((*plan.targets, *found))))


def _server_cpu(gathering: Gathering, seconds: dict[str, float]) -> dict[str, ServerCpu]:
    """Return the servers' processor time, in total and per answered request."""
    requests = {target.name: target.totals.requests for target in gathering.targets()}
    return {name: _cpu(cpu_s, requests[name]) for name, cpu_s in seconds.items()}


def _cpu(cpu_s: float, requests: int) -> ServerCpu:
    return ServerCpu(cpu_s, cpu_s / requests * US_IN_S if requests else None)


def _cpu_of_rounds(rounds: Sequence[OfRound], whole: Gathering) -> dict[str, ServerCpu]:
    """Return sums for the targets that are known in each round."""
    requests = {target.name: target.totals.requests for target in whole.targets()}
    return {
        name: _cpu(sum(round_.server_cpu[name].cpu_s for round_ in rounds), asked)
        for name, asked in requests.items()
        if rounds and all(name in round_.server_cpu for round_ in rounds)
    }


def _named(found: OfTarget, target: LoadTarget, credentials: Credentials) -> OfTarget:
    """Return a target with its own report about itself."""
    if target.scheme != "gossipkv":
        return found
    info = info_of(target.address, credentials)
    node, version = info.get("node"), info.get("version")
    return replace(
        found, node=node if isinstance(node, str) else None, version=version if isinstance(version, str) else None
    )


def _look_first(plan: LoadPlan, credentials: Credentials) -> None:
    """Check each target before the load: its identity, and its acceptance of the token.

    Raises:
        Unavailable: it is not there, or does not speak TLS.
        Unauthorized: it refuses the token, or reads with it.
    """
    if plan.tls is None and credentials.token is None:
        return
    for target in plan.targets:
        if target.scheme == "gossipkv":
            with Client([target.address], timeout_ms=round(plan.timeout_s * MS_IN_S), credentials=credentials) as node:
                node.dial()
            continue
        try:
            answer = _asked(target, _question(target, plan, credentials.token), plan.timeout_s, credentials)
        except (OSError, UnicodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise Unavailable(f"{target} cannot be reached: {reason}", {"address": str(target.address)}) from error
        if answer.startswith((b"HTTP/1.1 401 ", b"-")):
            refusal = answer.split(b"\r\n")[0].decode("utf-8", "replace")
            raise Unauthorized(f"{target} refused the request: {refusal}")


def _question(target: LoadTarget, plan: LoadPlan, token: str | None) -> bytes:
    if target.scheme == "redis":
        return f"AUTH {token}\r\n".encode() if token is not None else b"PING\r\n"
    shown = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"GET /{plan.database}/- HTTP/1.1\r\nHost: {target.address}\r\n{shown}\r\n".encode()


def _asked(target: LoadTarget, question: bytes, timeout_s: float, credentials: Credentials) -> bytes:
    tls = credentials.tls(target.address.host)
    with open_socket(target.address, monotonic() + timeout_s) as connection:
        connection.settimeout(timeout_s)
        if tls is not None:
            waited(opened(connection, Opening(tls), monotonic() + timeout_s))
        connection.sendall(question if tls is None else tls.seal(question))
        answer = b""
        while not answer.count(b"\r\n"):
            if not (data := connection.recv(RECEIVE_BYTES)):
                raise OSError("the server closed the connection")
            answer += data if tls is None else tls.open(data)
        return answer
