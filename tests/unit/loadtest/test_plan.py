"""Plans: nonsense is refused with advice, and the same text gives the same plan everywhere."""

from __future__ import annotations

import json
from itertools import chain

import pytest

from gossipkv.address import Address
from gossipkv.loadtest.plan import Distribution, LoadPlan, LoadStep, LoadTarget, PlanError, TlsFiles, TruthFile
from gossipkv.loadtest.plan_text import (
    Task,
    parse_distribution,
    parse_mix,
    parse_steps,
    parse_target,
    seconds_of,
    targets_of,
)
from gossipkv.processes.program import order_line, read_order

NODE = LoadTarget("gossipkv", Address("127.0.0.1", 7070))
REDIS = LoadTarget("redis", Address("::1", 6379), 2)
RIGHT = {"targets": (NODE,), "database": "geo", "truth": (TruthFile("t.tsv"),)}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"targets": ()}, "name a target"),
        ({"targets": (NODE, NODE)}, "named twice"),
        ({"database": "a/b"}, "not a valid name of a database"),
        ({"targets": (REDIS,), "all_members": True}, "a gossipkv:// target"),
        ({"truth": ()}, "no keys"),
        ({"truth": (TruthFile("a"), TruthFile("b"))}, "two truths have the same version"),
        ({"connections": 0}, "connections must be at least 1"),
        ({"processes": 2}, "more connections or fewer processes"),
        ({"connections": 5000, "pipeline": 5000}, "keys would be in flight"),
        ({"misses": 1.5}, "a share from 0 to 1"),
        ({"misses": float("nan")}, "a share from 0 to 1"),
        ({"warm_up_s": -1}, "a warm-up"),
        ({"timeout_s": 0}, "at least 1 ms"),
        ({"seed": -1}, "a seed"),
        ({"mix": {"set": 1}}, "unknown kind of request"),
        ({"mix": {"get": 0}}, "one must be more than 0"),
        ({"mix": {"get": float("inf")}}, "weights of a mix"),
        ({"targets": (REDIS,), "mix": {"scan": 1}}, "remove scan"),
        ({"steps": ()}, "from 1 to"),
        ({"steps": (LoadStep(None, 1), LoadStep(5, 1))}, "make two runs"),
    ],
)
def test_a_plan_that_makes_no_sense(wrong: dict[str, object], says: str) -> None:
    """Each field is checked when the plan is made, and the error has advice."""
    with pytest.raises(PlanError, match=says):
        LoadPlan(**(RIGHT | wrong))


def test_a_plan_that_makes_sense() -> None:
    """Redis needs no database; a plan knows its mode and duration."""
    assert not LoadPlan(targets=(REDIS,), keys="keys.txt").is_open
    plan = LoadPlan(**RIGHT, steps=parse_steps("10,20", 3))
    assert (plan.is_open, plan.duration_s) == (True, 6)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("127.0.0.1:7070", NODE),
        ("gossipkv://127.0.0.1", NODE),
        ("redis://[::1]:6379/2", REDIS),
        ("http://here:8080/", LoadTarget("http", Address("here", 8080))),
        ("http://here", LoadTarget("http", Address("here", 80))),
    ],
)
def test_targets(text: str, target: LoadTarget) -> None:
    """A target has a scheme, an address and the scheme's port, and survives the round trip."""
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    ["ftp://a:1", "http://a:1/geo", "gossipkv://a:1?x=1", "redis://a:1/x", "redis://a:1/70000", "http://", "http://a:99999",
     "http://u:p@a:1", "::1"],
)  # fmt: skip
def test_what_is_no_target(text: str) -> None:
    """The error has the text and the form of a target."""
    with pytest.raises(PlanError, match=r"://|HOST:PORT"):
        parse_target(text)


def test_distributions() -> None:
    """Each shape has given or default numbers."""
    assert parse_distribution("uniform") == Distribution()
    assert parse_distribution("zipf") == Distribution("zipf", theta=0.99)
    assert parse_distribution("zipf:1.2") == Distribution("zipf", theta=1.2)
    assert parse_distribution("hot:0.8/0.2") == Distribution("hot", hot_requests=0.8, hot_keys=0.2)
    assert parse_distribution("sequential") == Distribution("sequential")
    assert parse_distribution("latest:0.9") == Distribution("latest", theta=0.9)


@pytest.mark.parametrize("text", ["", "normal", "uniform:1", "zipf:x", "zipf:0", "zipf:nan", "hot:2/0.1", "hot:0.9/0"])
def test_what_is_no_distribution(text: str) -> None:
    """The error lists the shapes."""
    with pytest.raises(PlanError, match=r"zipf|hot"):
        parse_distribution(text)


def test_mixes() -> None:
    """Weights are by kind; a dash may replace an underscore, and the default weight is 1."""
    assert parse_mix("get=90, get-many=8,scan") == {"get": 90, "get_many": 8, "scan": 1}
    for text in ("", "set=1", "get=1,get=2", "get=-1", "get=x", "get=1=2"):
        with pytest.raises(PlanError, match=r"such as get=90|for example, get=90"):
            parse_mix(text)


def test_steps() -> None:
    """Steps are a rate, several rates, a ramp or a combination; none means a closed loop."""
    assert parse_steps(None, 5) == (LoadStep(None, 5),)
    assert parse_steps("100,2e3", 5) == (LoadStep(100, 5), LoadStep(2000, 5))
    assert parse_steps("100..300/3s,50", 9) == (LoadStep(100, 1), LoadStep(200, 1), LoadStep(300, 1), LoadStep(50, 9))
    assert len(parse_steps("1..2/500ms", 9)) == 2
    for text in ("", "x", "0", "-5", "1..", "nan", "1/0s", "1/5 lightyears", "1..5/2000s"):
        with pytest.raises(PlanError, match=r"say|rate|duration|steps"):
            LoadPlan(**RIGHT, steps=parse_steps(text, 5))


def test_durations() -> None:
    """Durations need a unit, as in settings."""
    assert [seconds_of(text) for text in ("500ms", "30s", "2m", "1h", "1.5s", "0s")] == [0.5, 30, 120, 3600, 1.5, 0]
    with pytest.raises(PlanError, match=r'number with a unit .*, such as "10s"'):
        seconds_of("10")


@pytest.mark.parametrize("theta", [0, -1, 11, float("nan")])
def test_what_is_no_zipf(theta: float) -> None:
    with pytest.raises(PlanError, match="theta"):
        Distribution("zipf", theta=theta)


def test_a_task_comes_through_as_it_was() -> None:
    """A task passes from parent to child unchanged."""
    plan = LoadPlan(
        targets=(NODE, REDIS), database="geo", truth=(TruthFile("a"), TruthFile("b", "2")), keys="k", misses=0.5,
        distribution=parse_distribution("hot:0.8/0.2"), mix={"get": 1, "get_many": 2}, connections=3, pipeline=4,
        batch=5, processes=6, steps=parse_steps("1..3/3s", 1), warm_up_s=1, rounds=2, timeout_s=9, seed=2**63,
        watch=False, tls=TlsFiles("ca", "certificate"),
    )  # fmt: skip
    task = Task(plan, 3, 7, "gkv-token")
    assert read_order(order_line(task), Task) == task
    assert "gkv-token" not in repr(task)
    json.dumps(plan.to_json())


def test_processes_share_the_connections() -> None:
    """Every connection belongs to one process, and the shares differ by at most one."""
    plan = LoadPlan(targets=(NODE, REDIS), database="geo", keys="k", connections=5, processes=3)
    shares = [targets_of(plan, turn) for turn in range(3)]
    assert sorted(chain.from_iterable(shares)) == [0] * 5 + [1] * 5
    assert sorted(map(len, shares)) == [3, 3, 4]
