"""Each method by each door, node, size and kind: the documented answer, with its effect checked at another node."""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gossipkv.address import parse_address
from gossipkv.errors import BadRequest
from tests.ci.matrix import administration
from tests.ci.matrix.doors import DOORS, PATIENCE_S, Action, Refused, connect, patiently
from tests.ci.matrix.rows import HOUR_MS, KINDS, LIFETIME_MS, ROWS, Refusal, Row, rows_of
from tests.ci.matrix.stage import HOST, NO_HOST, NODES, OPTIONS, Stage, running, until
from tests.documented import methods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.ci.matrix.administration import Step
    from tests.documented import DocumentedMethod

PASSING = {"NOT_READY", "UNAVAILABLE", "OVERLOADED", "TIMEOUT", "UNKNOWN", "503"}  # The page says to try again.
STARTED = "just started"
PLACES = (HOST, NO_HOST, STARTED)
AT_ONCE = 6
OF_HOLDS = {"hold", "release", "rollback"}  # They change one hold, so each waits until the others have looked at it.
FEW = 3  # Methods right after a start, and pipelines: a wrong order may be a matter of luck.
EVENTUALLY_S = 10.0  # Any replica answers a read of another node, and it may lag.


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running(tmp_path_factory.mktemp("matrix")) as stage:
        yield stage


@pytest.fixture(scope="module")
def after_start() -> dict[str, dict[str, list[str]]]:
    """Return the faults right after a start by door and method; one start is for all rows of a door."""
    return {}


class Case(NamedTuple):
    """A row at a node that holds the database, or that does not."""

    where: str
    door: str
    action: Action
    row: Row

    def fault(self, stage: Stage) -> str | None:
        """Act, again while a refusal may pass; return how the answer differs from the documented one."""
        name = self.action.database.name
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = patiently(lambda: DOORS[self.door](stage.places[self.where], self.action))
            except Refused as refused:
                if {*refused.code.split()} & PASSING and time.monotonic() < give_up_s:
                    time.sleep(0.05)
                    continue
                answer, said = Refusal(refused.code), str(refused)
            except AssertionError as error:
                answer, said = error, str(error)
            else:
                said = repr(answer)[:200]
            if answer != self.row.answer:
                return f"{name}, {self.where}, {self.row.size}: {said}; documented is {self.row.answer!r:.100}"
            return self._unseen(stage)

    def _unseen(self, stage: Stage) -> str | None:
        """Return which records another node lacks, or which of them expire at a wrong time."""
        name, keys = self.action.database.name, [*self.row.after]
        is_own = self.action.method == "put_many" and len(self.action.args[0]) and len(self.action.args[0][0]) == 3
        try:
            until(lambda: stage.elsewhere("get_many", name, keys)[0] == [*self.row.after.values()], EVENTUALLY_S)
            for key in [key for key in keys if name == "expiring" and self.row.after[key] is not None]:
                expires_at = stage.elsewhere("get", name, key, {"explain": True})[2].get("expires_at", 0)
                wanted_ms = HOUR_MS if self.row.lifetime or is_own else LIFETIME_MS
                assert abs(expires_at - 1000 * time.time() - wanted_ms) < HOUR_MS / 2, expires_at
        except AssertionError as error:
            return f"{name}, {self.where}, {self.row.size}: another node has not what was written: {error!r:.300}"
        return None


def cases_of(stage: Stage, door: str, method: str, places: Iterable[str], run: str) -> list[Case]:
    """Return the cases of a method, after their records were put."""
    cases = []
    for where in places:
        for kind in KINDS:
            database, tag = stage.databases[kind, where], f"{run}/{door}/{method}/{where[:1]}".encode()
            for row in rows_of(method, door, database, tag):
                cases.append(Case(where, door, Action(database, method, row.args, row.lifetime), row))
                if row.before:
                    until(lambda name=database.name, row=row: stage.put(name, row.before))
    return cases


def faults_of(stage: Stage, cases: list[Case]) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [said for said in pool.map(lambda case: case.fault(stage), cases) if said]


@pytest.mark.parametrize("method", ROWS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("where", PLACES)
def test_records(
    stage: Stage, after_start: dict[str, dict[str, list[str]]], door: str, method: str, where: str
) -> None:
    if where != STARTED:
        found = faults_of(stage, cases_of(stage, door, method, [where], "steady"))
        assert not found, "\n".join(found)
        return
    if door not in after_start:
        cases = {method: cases_of(stage, door, method, [HOST, NO_HOST], "started") for method in ROWS}
        stage.restart()
        with ThreadPoolExecutor(FEW) as pool:
            found = pool.map(lambda item: (item[0], faults_of(stage, item[1])), cases.items())
            after_start[door] = dict(found)
    assert not after_start[door][method], "\n".join(after_start[door][method])


@pytest.mark.parametrize("kind", list(OPTIONS))
@pytest.mark.parametrize("where", [HOST, NO_HOST])
def test_pipelines(stage: Stage, where: str, kind: str) -> None:
    """Requests in one packet are done in their order, by HTTP and by Redis's protocol."""
    place, path = stage.places[where], f"/{kind}/packet/{where[:1]}"
    head = f"{path} HTTP/1.1\r\nHost: {place.http}\r\n"  # Without options, so that the loop answers.
    said = [f"PUT {head}Content-Length: 1\r\n\r\nv", f"GET {head}\r\n", f"DELETE {head}\r\n"]
    said += [f"GET {head}Connection: close\r\n\r\n"]
    for _ in range(FEW):
        with socket.create_connection(parse_address(place.http), PATIENCE_S) as peer, peer.makefile("rb") as answer:
            peer.sendall("".join(said).encode())
            statuses = re.findall(rb"HTTP/1.1 (\d+)", answer.read())
        assert statuses == [b"204", b"200", b"204", b"404"]
        with connect(place) as client, client.pipeline(transaction=False) as pipeline:
            key = f"{kind}:packet/r{where[:1]}"
            assert pipeline.set(key, b"v").get(key).delete(key).get(key).execute() == [True, b"v", 1, None]


class Names(dict[str, str]):
    """Names of one run of a method; nodes are looked up when they are needed."""

    def __init__(self, stage: Stage, where: str, run: str) -> None:
        super().__init__(made=f"{run}-r", hash=f"{run}-h", me=f"n{stage.asked[where]}", other=f"n{stage.other}")
        self["backups"] = str(stage.cluster.directory / "backups" / str(run))
        self._stage = stage

    def __missing__(self, name: str) -> str:
        if name in {"host", "guest"}:
            having = administration.hosts(self._stage.elsewhere("partition_map", self["made"]))
        else:
            having = administration.acceptors(self._stage.elsewhere("metadata_status", self["made"]))
        return min(having if name in {"host", "acceptor"} else {f"n{index}" for index in NODES} - having)


def first_fault(stage: Stage, where: str, method: str, run: str) -> list[str]:
    """Take the steps of a method; return the first answer that is not as documented."""
    asked, names = (NO_HOST if where == STARTED else where), Names(stage, HOST if where == HOST else NO_HOST, run)
    for step in administration.METHODS[method]:
        params, give_up_s = administration.filled(step.params, names), time.monotonic() + PATIENCE_S
        client = stage.clients[stage.other if step.is_elsewhere else stage.asked[asked]]

        def ask(step: Step = step, client: object = client, params: tuple[object, ...] = params) -> object:
            return patiently(lambda: client.call(step.method or method, *params))

        while (said := administration.differs(step, ask)) is not None:
            # Another node, and one that has just started, hears of a change a little later.
            may_pass = step.is_elsewhere or where == STARTED or said.split(":")[0] in PASSING
            if not may_pass or time.monotonic() > give_up_s:
                return [f"{step.method or method} {params}: {said}"]
            time.sleep(0.05)
    return []


@pytest.mark.parametrize("method", administration.METHODS)
@pytest.mark.parametrize("where", PLACES)
def test_administration(stage: Stage, after_start: dict[str, dict[str, list[str]]], method: str, where: str) -> None:
    if where != STARTED:
        assert first_fault(stage, where, method, f"{method}-{where.replace(' ', '-')}") == []
        return
    if "methods" not in after_start:
        stage.restart()
        holds = Lock()

        def take(name: str) -> list[str]:
            with holds if name in OF_HOLDS else nullcontext():
                return first_fault(stage, where, name, f"{name}-2")

        with ThreadPoolExecutor(AT_ONCE) as pool:
            begun = {name: pool.submit(take, name) for name in administration.METHODS}
        after_start["methods"] = {name: future.result() for name, future in begun.items()}
    assert after_start["methods"][method] == []


@pytest.mark.parametrize("where", [HOST, NO_HOST])
@pytest.mark.parametrize("method", methods(), ids=lambda one: one.name)
def test_parameters(stage: Stage, where: str, method: DocumentedMethod) -> None:
    """No parameters where some are needed, one too many, and an unknown option are refused."""
    names = ["hash" if name == "database" else name for name in method.parameters]
    wrong = [[*names, *([{}] if method.options else []), "one more"]]
    wrong += [[*names, {"nosuch": 1}]] if method.options else []
    wrong += [[]] if any("or nil" not in name for name in names) else []
    for params in wrong:
        with pytest.raises(BadRequest):
            stage.clients[stage.asked[where]].call(method.name, *params)


def test_every_method_is_known() -> None:
    """A new method needs a row here."""
    assert {method.name for method in methods()} == ROWS.keys() | administration.METHODS.keys()
