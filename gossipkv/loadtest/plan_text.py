"""Text forms of plans: for people (targets, rates, mixes, distributions, durations), and for processes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from gossipkv.address import parse_address
from gossipkv.loadtest.plan import (
    DEFAULT_PORTS,
    KINDS,
    MAX_STEPS,
    SCHEMES,
    Distribution,
    Kind,
    LoadPlan,
    LoadStep,
    LoadTarget,
    PlanError,
)
from gossipkv.settings import quantity

LAST_DATABASE: Final = 65_535  # The last database of Redis; it has 16 by default.


def parse_target(text: str) -> LoadTarget:
    """Parse a target from `scheme://host:port`; without a scheme, a node's address."""
    parts = urlsplit(text if "://" in text else f"gossipkv://{text}")
    if parts.scheme not in SCHEMES:
        raise PlanError(f"{text!r}: a target must begin with {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    scheme = next(scheme for scheme in SCHEMES if scheme == parts.scheme)
    behind = parts.path.strip("/")
    if parts.query or parts.fragment or parts.username or (behind and scheme != "redis"):
        raise PlanError(f"{text!r}: a target must be {scheme}://HOST:PORT; name the database with --db")
    if behind and not (behind.isdecimal() and behind.isascii() and int(behind) <= LAST_DATABASE):
        raise PlanError(f"{text!r}: the path must be the number of a Redis database, such as redis://127.0.0.1:6379/0")
    try:
        where = parts.netloc if parts.port is not None else f"{parts.netloc}:{DEFAULT_PORTS[scheme]}"
        return LoadTarget(scheme, parse_address(where), int(behind or 0))
    except ValueError as error:
        raise PlanError(
            f"{text!r}: the address is not valid: {error}; use, for example, {scheme}://127.0.0.1:{DEFAULT_PORTS[scheme]}"
        ) from None


def parse_distribution(text: str) -> Distribution:
    """Parse `uniform`, `zipf`, `zipf:0.99`, `hot:0.9/0.1` (requests to keys), `latest`, `latest:0.99`, `sequential`."""
    shape, _, numbers = text.partition(":")
    try:
        if shape in {"uniform", "sequential"} and not numbers:
            return Distribution("uniform" if shape == "uniform" else "sequential")
        if shape in {"zipf", "latest"}:
            return Distribution("zipf" if shape == "zipf" else "latest", theta=float(numbers or 0.99))
        if shape == "hot":
            requests, _, keys = (numbers or "0.9/0.1").partition("/")
            return Distribution("hot", hot_requests=float(requests), hot_keys=float(keys))
    except PlanError:
        raise
    except ValueError:
        pass
    raise PlanError(f"unknown distribution {text!r}; use uniform, zipf:0.99, hot:0.9/0.1, latest or sequential")


def parse_mix(text: str) -> dict[Kind, float]:
    """Parse a mix from `get=90,put=8,scan=2`; a kind without a weight has 1."""
    found: dict[Kind, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition("=")
        kind = next((kind for kind in KINDS if kind == name.replace("-", "_")), None)
        if kind is None:
            raise PlanError(
                f"mix {text!r}: unknown kind of request {name!r}; use {', '.join(KINDS)}, such as get=90,put=10"
            )
        if kind in found or not re.fullmatch(r"[0-9]*\.?[0-9]*", weight):
            raise PlanError(
                f"mix {text!r}: {part!r} is not KIND=WEIGHT or repeats a kind; use, for example, get=90,put=8,scan=2"
            )
        found[kind] = float(weight or 1)
    return found


@dataclass(frozen=True)
class Workload:
    """One of YCSB's core workloads (B. Cooper and others, SoCC 2010, section 4)."""

    mix: dict[Kind, float]
    shape: str = "zipf"
    batch: int = 1


WORKLOADS: Final = {
    "a": Workload({"get": 50, "put": 50}),
    "b": Workload({"get": 95, "put": 5}),
    "c": Workload({"get": 100}),
    "d": Workload({"get": 95, "insert": 5}, "latest"),
    "e": Workload({"scan": 95, "insert": 5}, batch=100),
    "f": Workload({"get": 50, "read_modify_write": 50}),
}


def parse_sizes(text: str) -> tuple[int, int]:
    """Parse the sizes of values from `1000` or `100-1000`."""
    least, _, most = text.partition("-")
    if not (least.isdecimal() and (most or "0").isdecimal() and text.isascii()):
        raise PlanError(f"{text!r} is not a size of values; use, for example, 1000 or 100-1000")
    return int(least), int(most or least)


def parse_steps(text: str | None, duration_s: float) -> tuple[LoadStep, ...]:
    """Parse steps of `1000`, `1000,2000,4000` (each for the duration) or `1000..5000/30s` (ramp); None: closed loop."""
    if text is None:
        return (LoadStep(None, duration_s),)
    try:
        return tuple(step for part in text.split(",") for step in _steps(part.strip(), duration_s))
    except PlanError:
        raise
    except ValueError:
        raise PlanError(
            f"rate {text!r} is not valid; use, for example, 1000, 1000,2000,4000 or 1000..5000/30s"
        ) from None


def _steps(part: str, duration_s: float) -> tuple[LoadStep, ...]:
    rates, _, during = part.partition("/")
    first, ramp, last = rates.partition("..")
    seconds = seconds_of(during) if during else duration_s
    if not ramp:
        return (LoadStep(float(first), seconds),)
    begin, end = float(first), float(last)
    count = max(2, min(round(seconds), MAX_STEPS + 1))
    return tuple(LoadStep(begin + (end - begin) * at / (count - 1), seconds / count) for at in range(count))


def seconds_of(text: str) -> float:
    """Parse a duration such as `500ms`, `30s`, `2m`, `1h` into seconds."""
    try:
        return quantity.parse(text, quantity.DURATION) / 1000
    except ValueError as error:
        raise PlanError(f"{text!r} is not a duration: {error}") from None


SEEDS_APART: Final = 0x9E3779B97F4A7C15  # It separates the processes' seeds, so that no two ask for the same keys.


@dataclass(frozen=True)
class Task:
    """A plan, the number of the process, its leash, and the token, which is nowhere else."""

    plan: LoadPlan
    turn: int
    worn: int
    token: str | None = field(default=None, repr=False)


def targets_of(plan: LoadPlan, turn: int) -> list[int]:
    """Return the target number of each connection of a process; connections go to the processes in turn."""
    every = [number for number in range(len(plan.targets)) for _ in range(plan.connections)]
    return every[turn :: plan.processes]
