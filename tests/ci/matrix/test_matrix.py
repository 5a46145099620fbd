"""Each method × each door × the asked node × size × kind: the documented answer, checked at another node."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import BadRequest
from gossipkv.wire.method_table import METHODS
from tests.ci.matrix import administration
from tests.ci.matrix.doors import DOORS, PATIENCE_S, Refused, patiently, perform
from tests.ci.matrix.rows import HOUR_MS, KINDS, LIFETIME_MS, READS, ROWS, WRITES, Refusal, Row, is_sensible, rows_of
from tests.ci.matrix.stage import HOST, NO_HOST, NODES, Stage, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.wire.method_table import WireMethod
    from tests.ci.matrix.doors import Database

PASSING = {"NOT_READY", "UNAVAILABLE", "OVERLOADED", "TIMEOUT", "UNKNOWN", "503"}
PLACES = (HOST, NO_HOST, "just started")
AT_ONCE = 8
Case = "tuple[str, str, Database, Row]"
EVENTUALLY_S = 10.0  # Reads of another node come from any replica, which may lag.


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running(tmp_path_factory.mktemp("matrix")) as stage:
        yield stage


@pytest.fixture(scope="module")
def just_started(stage: Stage) -> dict[str, dict[str, list[str]]]:
    """Return the faults by door and method; of each door, once, as its rows need a fresh start."""
    return {}


def rows_at(stage: Stage, door: str, method: str, where: str, run: str) -> Iterator[Case]:
    for kind in KINDS:
        database = stage.databases[kind, where]
        for row in rows_of(method, door, database, f"{run}/{door}/{method}/{where[:1]}".encode()):
            yield f"{kind}, {where}, {row.size}", where, database, row


def prepare(stage: Stage, rows: list[Case]) -> None:
    for _, _, database, row in rows:
        if row.before:
            until(lambda name=database.name, row=row: stage.put(name, row.before))


def fault(stage: Stage, door: str, method: str, where: str, database: Database, row: Row) -> str | None:
    """Perform a row, again while a refusal may pass; return how the answer differs from the documented one."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            answer: object = perform(door, stage.places[where], database, method, row.args, row.options)
        except Refused as refused:
            if {*refused.code.split()} & PASSING and time.monotonic() < give_up_s:
                time.sleep(0.05)
                continue
            answer, said = Refusal(refused.code), str(refused)
        except AssertionError as error:
            answer, said = error, str(error)
        else:
            said = repr(answer)[:200]
        return None if answer == row.answer else f"{said}; documented is {repr(row.answer)[:200]}"


def unseen(stage: Stage, database: Database, row: Row) -> str | None:
    """Return which records of a row another node lacks."""
    keys = [*row.after]

    def seen() -> bool:
        return stage.elsewhere("get_many", database.name, keys)[0] == [*row.after.values()]

    try:
        until(seen, EVENTUALLY_S)
        for key in [key for key in keys if row.after[key] is not None and database.kind == "expiring"]:
            expires_at = stage.elsewhere("get", database.name, key, {"explain": True})[2]["expires_at"]
            wanted_ms = HOUR_MS if row.options or len(row.args[0]) and len(row.args[0][0]) == 3 else LIFETIME_MS
            assert abs(expires_at - 1000 * time.time() - wanted_ms) < HOUR_MS / 2, expires_at
    except (AssertionError, KeyError) as error:
        return f"another node has not {repr(row.after)[:150]}: {error!r:.200}"
    return None


def judge(stage: Stage, door: str, method: str, rows: list[Case]) -> list[str]:
    """Perform rows together; return their faults."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = [*pool.map(lambda row: fault(stage, door, method, *row[1:]), rows)]
    faults = [said or unseen(stage, *row[2:]) for said, row in zip(faults, rows, strict=True)]
    return [f"{row[0]}: {said}" for said, row in zip(faults, rows, strict=True) if said]


@pytest.mark.parametrize("method", READS + WRITES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("where", PLACES)
def test_records(stage: Stage, just_started: dict, door: str, method: str, where: str) -> None:
    if not is_sensible(method, door, ""):
        return
    if where != PLACES[2]:
        rows = [*rows_at(stage, door, method, where, "steady")]
        prepare(stage, rows)
        assert judge(stage, door, method, rows) == []
        return
    if door not in just_started:
        rows = {
            method: [*rows_at(stage, door, method, HOST, "started"), *rows_at(stage, door, method, NO_HOST, "started")]
            for method in ROWS
            if is_sensible(method, door, "")
        }
        for some in rows.values():
            prepare(stage, some)
        stage.restart()
        with ThreadPoolExecutor(len(rows)) as pool:
            found = pool.map(lambda item: (item[0], judge(stage, door, *item)), rows.items())
            just_started[door] = dict(found)
    assert just_started[door][method] == []


class Names(dict[str, str]):
    """Names of one run of a method; nodes are looked up when they are needed."""

    def __init__(self, stage: Stage, where: str, run: str) -> None:
        super().__init__(made=f"{run}-r", hash=f"{run}-h", me=f"n{stage.asked[where]}", other=f"n{stage.other}")
        self["backups"] = str(stage.cluster.directory / f"backups-{run}")
        self._stage = stage

    def __missing__(self, name: str) -> str:
        if name in {"host", "guest"}:
            having = administration.hosts(self._stage.elsewhere("partition_map", self["made"]))
        else:
            having = administration.acceptors(self._stage.elsewhere("metadata_status", self["made"]))
        others = {f"n{index}" for index in NODES} - having
        return min(having if name in {"host", "acceptor"} else others)


def taken(stage: Stage, where: str, method: str, run: str) -> list[str]:
    """Take the steps of a method; return the first fault."""
    names = Names(stage, where, run)
    for step in administration.METHODS[method]:
        give_up_s = time.monotonic() + PATIENCE_S

        def ask(step: administration.Step = step) -> object:
            client = stage.clients[stage.other if step.is_elsewhere else stage.asked[where]]
            params = administration.filled(step.params, names)
            return patiently(lambda: client.call(step.method or method, *params))

        while (said := administration.differs(step, ask)) is not None:
            # Another node, and one that has just started, hears of a change a little later.
            may_pass = step.is_elsewhere or "just" in run or {*said.replace(":", " ").split()[:1]} & PASSING
            if not may_pass or time.monotonic() > give_up_s:
                return [f"{step.method or method} {step.params}: {said}"]
            time.sleep(0.05)
    return []


@pytest.mark.parametrize("method", administration.METHODS)
@pytest.mark.parametrize("where", PLACES)
def test_administration(stage: Stage, just_started: dict, method: str, where: str) -> None:
    if where != PLACES[2]:
        assert taken(stage, where, method, f"{method}-{where.replace(' ', '-')}") == []
        return
    if "methods" not in just_started:
        stage.restart()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = {name: pool.submit(taken, stage, NO_HOST, name, f"{name}-just") for name in administration.METHODS}
        just_started["methods"] = {name: future.result() for name, future in found.items()}
    assert just_started["methods"][method] == []


@pytest.mark.parametrize("where", PLACES[:2])
@pytest.mark.parametrize("method", [method for group in METHODS.values() for method in group], ids=lambda one: one.name)
def test_parameters(stage: Stage, where: str, method: WireMethod) -> None:
    """No parameters where some are needed, one too many, and an unknown option are refused."""
    names = method.parameters.split(", ") if method.parameters else []
    wrong = [[*names, *([{}] if method.options else []), "one more"]]
    wrong += [[*names, {"nosuch": 1}]] if method.options else []
    wrong += [[]] if names else []
    for params in wrong:
        with pytest.raises(BadRequest):
            stage.ask(where, method.name, *params)


def test_every_method_is_known() -> None:
    known = {method.name for group in METHODS.values() for method in group}
    assert known == ROWS.keys() | administration.METHODS.keys()
