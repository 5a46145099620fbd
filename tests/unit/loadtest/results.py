"""Hand-made results for the tests of reports, comparisons, limits and the command."""

from __future__ import annotations

import bisect
import math
from dataclasses import replace

from gossipkv.loadtest.result import (
    PERCENTILES,
    Event,
    LatencyResult,
    OfRound,
    OfStep,
    OfTarget,
    OfVersion,
    Result,
    RunTotals,
    Second,
    ServerCpu,
)

KINDS = {"get": (9000, 210.0), "get_many": (800, 560.0), "scan": (200, 1900.0)}
HOSTILE = "</script><script>alert('x')</script>\"'&\x1b[2J\x00\u202e{{ 7 * 7 }}"


def latency(values):
    """Return the statistics of durations in microseconds, each in a bucket of its own."""
    ordered = sorted(values)
    return LatencyResult(
        count=len(ordered),
        mean_us=sum(ordered) / len(ordered) if ordered else 0.0,
        percentiles={name: ordered[math.ceil(float(name) / 100 * len(ordered)) - 1] for name in PERCENTILES}
        if ordered
        else {},
        buckets=[[value, bisect.bisect_right(ordered, value)] for value in sorted(set(ordered))],
    )


def tail(count, middle_us):
    """Return `count` durations around a middle; one in 100 is slower and one in 1,000 much slower."""
    return [
        round(middle_us * (0.7 + 0.6 * at / count) * (1 + 6 * (at % 100 == 99) + 40 * (at % 1000 == 999)), 1)
        for at in range(count)
    ]


def plain(**changes):
    """Return a correct result of one node and a closed loop of three seconds."""
    all_ = latency([100.0] * 50 + [200.0] * 40 + [900.0] * 9 + [4000.0])
    totals = RunTotals(requests=100, keys=100, misses=5, duration_s=2.5, rate=40.0)
    made = Result(
        began="2026-03-01T12:00:00Z",
        command=["gossipkv", "loadtest", "--node", "127.0.0.1:7070", "--db", "geo", "--truth", "geo truth.tsv"],
        plan={"targets": ["gossipkv://127.0.0.1:7070"], "database": "geo", "connections": 8, "pipeline": 4},
        machine={"processor": "some", "cores": 2},
        totals=totals,
        latency={"all": all_, "get": all_},
        targets=[OfTarget("gossipkv://127.0.0.1:7070", totals, all_, {"1": OfVersion(100, 0)}, "n1", "0.1.0")],
        steps=[OfStep(0.0, 2.5, None, totals, all_)],
        seconds=[Second(t, (40, 40, 20)[t], 0, 0, 100.0, 900.0, 4000.0) for t in range(3)],
        by_version={"1": OfVersion(100, 0)},
    )
    return replace(made, **changes)


def eventful(**changes):
    """Return a result of three nodes, a mix at rising rates in an open loop, a version switch and a killed node."""
    kinds = {kind: latency(tail(count, middle_us)) for kind, (count, middle_us) in KINDS.items()}
    all_ = latency([us for count, middle_us in KINDS.values() for us in tail(count, middle_us)])
    errors = {"UNAVAILABLE": 40, "TIMEOUT": 2}
    totals = RunTotals(
        requests=10_000,
        keys=43_000,
        misses=500,
        errors=errors,
        lost=18,
        unsent=5,
        broken={"reset": 6},
        reconnects=4,
        duration_s=60.0,
        rate=166.7,
    )
    shares = [(f"gossipkv://10.0.0.{n}:7070", f"n{n}") for n in (1, 2, 3)]
    each = replace(totals, requests=3333, errors={}, lost=0, unsent=0, rate=55.6)
    return plain(
        **{
            "command": ["gossipkv", "loadtest", "--node", "10.0.0.1:7070", "--db", "geo", "--rate", "100..220/60s"],
            "plan": {
                "targets": [url for url, _ in shares],
                "database": "geo",
                "connections": 64,
                "pipeline": 4,
                "distribution": {"shape": "zipf", "theta": 0.99},
                "mix": {"get": 90.0, "get_many": 8.0, "scan": 2.0},
                "steps": [{"rate": 100.0 + 30 * n, "duration_s": 12.0} for n in range(5)],
                "truth": [{"path": "geo.tsv", "version": None}],
                "watch": True,
            },
            "totals": totals,
            "latency": {"all": all_, **kinds},
            "lateness": latency([9.0] * 9980 + [40.0] * 20),
            "targets": [OfTarget(url, each, kinds["get"], {}, node, "0.1.0") for url, node in shares],
            "steps": [
                OfStep(12.0 * n, 12.0, 100.0 + 30 * n, each, latency(tail(1000, 200.0 * 1.5**n))) for n in range(5)
            ],
            "seconds": [
                Second(t, 100 + 30 * (t // 12), 12 * (t in {40, 41, 42}), 0, 210.0 + t, 900.0 + 300 * (t % 7 == 0), 9e3)
                for t in range(60)
                if t != 43
            ],
            "events": [
                Event(20.4, "version", "n1 geo", "1 -> 2"),
                Event(21.0, "version", "n2 geo", "1 -> 2"),
                Event(40.2, "member", "n3", "alive -> suspect"),
                Event(40.3, "silent", "n3", "UNAVAILABLE"),
                Event(44.9, "member", "n3", "suspect -> dead"),
            ],
            "by_version": {"1": OfVersion(3500, 0), "2": OfVersion(6500, 0)},
            "server_cpu": {"n1": ServerCpu(0.2, 60.0), "n2": ServerCpu(0.21, 63.0)},
            "generator_cpu_s": 0.3,
            **changes,
        }
    )


def repeated(rates, p99s, **changes):
    """Return a result of several rounds with given rates and p99s."""
    rounds = []
    for rate, p99_us in zip(rates, p99s, strict=True):
        all_ = latency([100.0] * 98 + [p99_us, 10_000.0])
        totals = RunTotals(requests=100, keys=100, duration_s=100 / rate, rate=rate)
        rounds.append(OfRound(totals, {"all": all_, "get": all_}))
    return plain(rounds=rounds, **changes)
