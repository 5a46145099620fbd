"""The ways of a put and a get stay short: a ceiling for the Python calls of each, and for the files on the way."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from tests.simulation.calls import Calls, count_calls


class Ceiling(NamedTuple):
    calls: int
    files: int


# For each request, at one node. A put of a group costs less than one alone; the group's own calls are shared.
CEILINGS = {
    "put in Python, 1 in flight, origin": Ceiling(245, 42),
    "put in Python, 64 in flight, origin": Ceiling(102, 30),
    "get in Python": Ceiling(40, 12),
    "put, 1 in flight, origin": Ceiling(150, 30),
    "put, 1 in flight, target": Ceiling(120, 28),
    "put, 64 in flight, origin": Ceiling(20, 15),
    "put, 64 in flight, target": Ceiling(10, 5),
    "get": Ceiling(8, 2),
}


@cache
def counted() -> dict[str, Calls]:
    return count_calls()


@pytest.mark.parametrize("request_", CEILINGS)
def test_the_calls_of_a_request(request_: str) -> None:
    calls, ceiling = counted()[request_], CEILINGS[request_]
    assert calls.total <= ceiling.calls, f"{request_}: {calls}"
    assert len(calls.files) <= ceiling.files, f"{request_}: {calls}\n{sorted(calls.files)}"
