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
    "put in Python, 1 in flight, origin": Ceiling(214, 41),
    "put in Python, 64 in flight, origin": Ceiling(99, 28),
    "get in Python": Ceiling(42, 13),
    "put, 1 in flight, origin": Ceiling(146, 29),
    "put, 1 in flight, target": Ceiling(105, 27),
    "put, 64 in flight, origin": Ceiling(17, 13),
    "put, 64 in flight, target": Ceiling(7, 5),
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
