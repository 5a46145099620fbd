"""Plans are executed by real processes, against servers in threads that behave in every way."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Unavailable
from gossipkv.loadtest.judgement import judge
from gossipkv.loadtest.plan import Distribution, LoadPlan, LoadStep, PlanError, TruthFile
from gossipkv.loadtest.plan_text import parse_steps, parse_target
from gossipkv.loadtest.run import run_plan
from tests.unit.client.fake_node import FakeNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.loadtest.result import RunProgress
    from tests.unit.client.fake_node import Connection

TOLD: dict[str, object] = {
    "info": {"node": "fake", "version": "0", "process": {"cpu_s": 1.5}},
    "members": [{"node": "fake", "address": "127.0.0.1:1", "state": "alive"}],
    "databases": [{"name": "db", "version": "1"}],
}
HELD = {b"key-%d" % number: b"value of %d" % number for number in range(50)}


def serving(answer: Callable[[str, object], object]) -> Callable[[Connection], None]:
    """Return a behaviour that answers reads by a function, and a watch as a lone node does."""

    def serve(connection: Connection) -> None:
        while (request := connection.next_request(has_members=True)) is not None:
            message_id, method, params = request
            connection.answer(message_id, TOLD[method] if method in TOLD else answer(method, params[1]))

    return serve


def right(method: str, keys: object) -> object:
    if method == "get_many":
        assert isinstance(keys, list)
        return [[HELD.get(key) for key in keys], "1"]
    assert isinstance(keys, bytes)
    return [HELD.get(keys), "1"]


@pytest.fixture
def truth(tmp_path: Path) -> tuple[TruthFile, ...]:
    place = tmp_path / "truth.tsv"
    place.write_bytes(b"".join(b"%b\t%b\n" % record for record in HELD.items()))
    return (TruthFile(str(place)),)


def plan(node: FakeNode, truth: tuple[TruthFile, ...], **more: object) -> LoadPlan:
    """Return a plan of a short closed loop, with changes."""
    usual = {"connections": 4, "steps": (LoadStep(None, 0.3),), "timeout_s": 60.0}
    return LoadPlan(**{"targets": (parse_target(node.address),), "database": "db", "truth": truth} | usual | more)


def test_processes_make_one_result(truth: tuple[TruthFile, ...]) -> None:
    """Each request of two processes with steps, a mix, misses and two rounds is counted in every total."""
    with FakeNode(serving(right)) as node:
        result = run_plan(
            plan(node, truth, processes=2, steps=parse_steps("100,200", 0.5), mix={"get": 1, "get_many": 1}, batch=3,
                 misses=0.2, rounds=2, warm_up_s=0.2)
        )  # fmt: skip
    assert (result.ended, result.is_clean, result.totals.requests) == ("done", True, 300)
    assert [step.totals.requests for step in result.steps] == [100, 200]
    assert [each.totals.requests for each in result.rounds] == [150, 150]
    assert result.latency["all"].count == result.latency["get"].count + result.latency["get_many"].count == 300
    assert result.lateness is not None
    assert result.lateness.count == 300
    assert sum(second.requests for second in result.seconds) == 300
    assert result.totals.keys == result.latency["get"].count + 3 * result.latency["get_many"].count
    assert 0 < result.totals.misses < result.totals.keys
    (target,) = result.targets
    assert (target.node, target.totals.requests, target.latency.count) == ("fake", 300, 300)
    assert result.by_version["1"].requests == 300  # Requests of the warm-ups are excluded.
    assert result.server_cpu[target.name].cpu_s == 0  # The fake node always reports the same time.
    assert json.loads(json.dumps(result.to_json())) == result.to_json()


def test_what_is_wrong_is_found(truth: tuple[TruthFile, ...]) -> None:
    """Planted wrong values are counted by version and reported, and so are steps back."""
    count = 0
    lock = threading.Lock()

    def lies(_: str, key: object) -> object:
        nonlocal count
        with lock:
            count += 1
            assert isinstance(key, bytes)
            return [b"lie" if count % 10 == 0 else HELD[key], "2" if count % 5 else "1"]

    with FakeNode(serving(lies)) as node:
        result = run_plan(plan(node, truth, connections=1, watch=False, steps=(LoadStep(200, 0.5),)))
    totals = result.totals
    assert totals.wrong == count // 10 > 0
    assert totals.steps_back == count // 5
    assert result.by_version["1"].wrong == totals.wrong
    assert result.first_wrong is not None
    assert "got b'lie' of 3 bytes (version 1)" in result.first_wrong
    assert not result.is_clean


def test_what_is_not_compared_is_counted_with_its_reason(tmp_path: Path) -> None:
    """A scan's records count as unchecked if the file lacks their keys or the answering version."""
    place = tmp_path / "truth.tsv"
    place.write_bytes(b"key-10\tvalue of 10\nkey-12\tvalue of 12\n")

    def scan(_: str, options: object) -> object:
        assert isinstance(options, dict)
        page = sorted(record for record in HELD.items() if record[0] >= options["start"])[: options["limit"]]
        return [page, b"more", "1"]

    with FakeNode(serving(scan)) as node:
        usual = {"mix": {"scan": 1}, "batch": 3, "watch": False, "steps": (LoadStep(100, 0.3),)}
        known = run_plan(plan(node, (TruthFile(str(place)),), **usual))
        unknown = run_plan(plan(node, (TruthFile(str(place), "2"),), **usual))
        place.write_bytes(b"key-10\tvalue of 10\nkey-100\tvalue of 12\n")
        lie = run_plan(plan(node, (TruthFile(str(place)),), distribution=Distribution("sequential"), **usual))
    assert (known.totals.keys, known.totals.wrong, known.by_version["1"].unchecked) == (90, 0, 0)
    assert 30 <= known.totals.unchecked <= 60  # The keys were key-10, key-11, key-12, or key-12, key-13, key-14.
    assert (unknown.totals.unchecked, unknown.by_version["1"].unchecked) == (90, 90)
    assert lie.first_wrong is not None
    assert "key-100': expected b'value of 12' of 11 bytes, got no value" in lie.first_wrong


def test_a_version_that_comes_later_is_compared_once_it_is_read(tmp_path: Path) -> None:
    """The new version's wrong values are found once it is read; earlier answers are reported as unchecked."""
    put_version(tmp_path, "1", b"")
    told: list[RunProgress] = []
    switched, lies = threading.Event(), threading.Event()

    def answer(_: str, key: object) -> object:
        assert isinstance(key, bytes)
        if switched.is_set():
            return [b"lie" if lies.is_set() else HELD[key] + b" anew", "2"]
        return [HELD[key], "1"]

    def note(progress: RunProgress) -> None:
        told.append(progress)
        if len(told) == 1:
            put_version(tmp_path, "2", b" anew")
            switched.set()
        if any(event.what == "truth" for event in progress.events):
            lies.set()
        if progress.totals.wrong:
            raise KeyboardInterrupt

    with FakeNode(serving(answer)) as node:
        truth = (TruthFile(str(tmp_path)),)
        result = run_plan(plan(node, truth, steps=(LoadStep(200, 60),), processes=2, watch=False), note)
    assert result.ended == "interrupted"
    assert [(event.what, event.who) for event in result.events] == [("truth", "2")]
    first, second = result.by_version["1"], result.by_version["2"]
    assert (first.wrong, first.unchecked) == (0, 0)
    assert 0 < second.unchecked < second.requests
    assert second.unchecked == result.totals.unchecked
    assert second.wrong == result.totals.wrong > 0
    assert result.first_wrong is not None
    assert " anew' of " in result.first_wrong
    assert "got b'lie' of 3 bytes (version 2)" in result.first_wrong


def put_version(root: Path, name: str, suffix: bytes) -> None:
    place = root / "db" / name
    place.mkdir(parents=True)
    (place / "part-0.tsv").write_bytes(b"".join(b"%b\t%b%b\n" % (*record, suffix) for record in HELD.items()))


def test_what_is_lost_is_told_and_connections_come_again(truth: tuple[TruthFile, ...]) -> None:
    """A server that closes connections costs one request each time, and is dialled again."""

    def some(connection: Connection) -> None:
        for _ in range(20):
            request = connection.next_request()
            if request is None:
                return
            message_id, method, params = request
            connection.answer(message_id, TOLD[method] if method in TOLD else right(method, params[1]))
        connection.next_request()

    with FakeNode(some) as node:
        result = run_plan(plan(node, truth, watch=False))
    totals = result.totals
    assert totals.broken["closed"] == totals.lost > 4
    assert totals.reconnects >= totals.lost - 4
    assert totals.requests >= 20 * totals.lost
    assert (totals.wrong, result.ended) == (0, "done")


def test_a_server_that_dies_is_reported(truth: tuple[TruthFile, ...]) -> None:
    """The run continues to its end, reports lost and unsent requests, and the watch reports the silence."""
    node = FakeNode(serving(right))
    told: list[RunProgress] = []

    def note(progress: RunProgress) -> None:
        told.append(progress)
        if len(told) == 1:
            node.close()

    result = run_plan(plan(node, truth, steps=(LoadStep(200, 3.5),), timeout_s=1.0), note)
    assert result.ended == "done"
    assert result.totals.requests + result.totals.lost + result.totals.unsent == 700
    assert result.totals.unsent > 0
    assert result.totals.broken.keys() <= {"closed", "reset"}
    assert sorted(event.what for event in result.events) == ["frozen", "silent"]
    assert [progress.phase for progress in told] == 4 * ["load"]
    assert told[0].second is not None
    assert told[0].rate_asked == 200


def test_a_frozen_second_is_told(truth: tuple[TruthFile, ...]) -> None:
    """A server that pauses for a second is reported with begin and duration."""
    asked, until_s = itertools.count(1), 0.0

    def held_up(method: str, keys: object) -> object:
        nonlocal until_s
        if next(asked) == 100:
            until_s = time.monotonic() + 2.25  # The pause contains a whole second of the run, whenever it begins.
        time.sleep(max(0.0, until_s - time.monotonic()))
        return right(method, keys)

    with FakeNode(serving(held_up)) as node:
        result = run_plan(plan(node, truth, steps=(LoadStep(200, 4.0),), watch=False))
    (event,) = result.events
    assert (event.what, event.t > 0, result.ended) == ("frozen", True, "done")
    assert any(second.requests == 0 for second in result.seconds)
    assert [
        each for each in judge(result).reasons if each.startswith(f"No request was answered for {event.detail} from ")
    ]


def test_nothing_there(truth: tuple[TruthFile, ...]) -> None:
    """A target that is unreachable at the start is an error that names the target."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{port} cannot be opened: .*refused"):
        run_plan(LoadPlan(targets=(parse_target(f"127.0.0.1:{port}"),), database="db", truth=truth))


def test_a_truth_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    """An error of a process is passed on unchanged."""
    with FakeNode(serving(right)) as node, pytest.raises(PlanError, match="the truth does not exist"):
        run_plan(plan(node, (TruthFile(str(tmp_path / "none")),)))


def test_a_ctrl_c_gives_a_report(truth: tuple[TruthFile, ...]) -> None:
    """The result has all answers until then."""

    def interrupt(_: RunProgress) -> None:
        raise KeyboardInterrupt

    with FakeNode(serving(right)) as node:
        result = run_plan(plan(node, truth, steps=(LoadStep(100, 60),), rounds=3), interrupt)
    assert result.ended == "interrupted"
    assert result.totals.requests > 0
    assert 100 <= result.totals.requests + result.totals.unsent < 1000  # Most of the 6,000 requests were still to come.
    assert result.totals.lost == 0
    assert len(result.rounds) == 1


def test_a_ctrl_c_awaits_what_is_in_flight(truth: tuple[TruthFile, ...]) -> None:
    """A request without an answer is given up; only due requests count as unsent."""
    silent = threading.Event()

    def stall(method: str, key: object) -> object:
        silent.wait()
        return right(method, key)

    pressed = threading.Event()

    def interrupt(_: RunProgress) -> None:
        if not pressed.is_set():
            pressed.set()
            raise KeyboardInterrupt

    with FakeNode(serving(stall)) as node:
        more = {"connections": 1, "watch": False, "timeout_s": 60.0}
        result = run_plan(plan(node, truth, steps=(LoadStep(100, 60),), **more), interrupt)
        silent.set()
    assert result.ended == "interrupted"
    assert result.totals.requests == 0
    assert 100 <= result.totals.unsent < 1000


def test_the_last_second_is_told(truth: tuple[TruthFile, ...]) -> None:
    """The last second of a round is reported, whole or not, and no second twice; a short warm-up is not."""
    told: list[RunProgress] = []
    with FakeNode(serving(right)) as node:
        result = run_plan(plan(node, truth, steps=(LoadStep(100, 1.5),), warm_up_s=0.3), told.append)
    assert {each.phase for each in told} == {"load"}
    # A busy machine may skip a report; the next one then includes the skipped second.
    assert [each.second.t for each in told if each.second is not None] in ([0, 1], [1])
    assert sum(each.second.requests for each in told if each.second is not None) <= 150
    assert result.totals.requests == 150


def test_what_was_wrong_in_the_warm_up_counts(truth: tuple[TruthFile, ...]) -> None:
    """A wrong value of the warm-up counts under its version, which may have no request of the run."""
    asked = 0

    def early(_: str, key: object) -> object:
        nonlocal asked
        asked += 1
        assert isinstance(key, bytes)
        return [b"lie", "0"] if asked == 1 else [HELD[key], "1"]

    with FakeNode(serving(early)) as node:
        result = run_plan(plan(node, truth, connections=1, steps=(LoadStep(100, 0.3),), warm_up_s=0.2, watch=False))
    assert {name: (of.requests, of.wrong) for name, of in result.by_version.items()} == {"0": (0, 1), "1": (30, 0)}


def test_a_process_that_dies_is_told(truth: tuple[TruthFile, ...]) -> None:
    """Other processes go on, and the result names the dead one and its end."""
    killed: list[int] = []

    def kill(_: RunProgress) -> None:
        if not killed:
            children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
            killed.append(int(children[0]))
            os.kill(killed[0], signal.SIGKILL)

    with FakeNode(serving(right)) as node:
        result = run_plan(plan(node, truth, steps=(LoadStep(100, 2.5),), processes=2), kill)
    assert "was killed by signal 9" in result.ended
    assert [event.what for event in result.events] == ["generator"]
    assert 125 <= result.totals.requests <= 250


def test_all_members_are_asked(truth: tuple[TruthFile, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A node names the live members, and all of them become targets."""
    with FakeNode(serving(right)) as other, FakeNode(serving(right)) as first:
        addresses = {first.address: "alive", other.address: "alive", "127.0.0.1:1": "dead"}
        members = [{"node": at, "address": at, "state": state} for at, state in addresses.items()]
        monkeypatch.setitem(TOLD, "members", members)
        result = run_plan(plan(first, truth, all_members=True, watch=False, steps=(LoadStep(100, 0.5),)))
    assert [target.name for target in result.targets] == [f"gossipkv://{node.address}" for node in (first, other)]
    assert result.totals.requests == 50
    assert all(target.totals.requests > 10 for target in result.targets)
