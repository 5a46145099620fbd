"""Asked hosts are killed, frozen or cut off: requests of clients end or go on, and nothing of them stays.

All requests and feeds run together, and each event meets each host in turn: a test cannot know which one is asked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from tests.ci.leaving import actions
from tests.ci.leaving.actions import FEEDS, PAIR_KEYS, PROMISE_S, SLACK_S, Again, Feed
from tests.ci.leaving.stage import Stage, remaining, running
from tests.ci.matrix.doors import Place
from tests.ci.matrix.stage import until

if TYPE_CHECKING:
    from collections.abc import Iterator

CALM, EVENTS = "calm", ("killed", "frozen", "cut")
NO_CLIENT = blocking.Client(["127.0.0.1:1"])
ACTS = [*actions.requests(Place("127.0.0.1:1"), NO_CLIENT, ""), *(f"feed, {name}" for name in FEEDS)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running(tmp_path_factory.mktemp("hosts")) as stage:
        yield stage


class Rounds:
    """All requests and feeds at once, and the faults of each event by request; an event happens when it is wanted."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._faults = stage, {}
        self._before, self._memory = stage.gauges(), stage.memory()
        self._client = blocking.Client([stage.place.address], timeout_ms=actions.TIMEOUT_MS, follows=False)
        acts = actions.requests(stage.place, self._client, str(stage.cluster.directory / "backups"))
        self._running = [Again(name, act) for name, act in acts.items()]
        self._feeds = {name: Feed(follow, stage.place) for name, follow in FEEDS.items()}

    def of(self, event: str) -> dict[str, list[str]]:
        """Let an event happen to each host in turn; return the faults by request."""
        if event not in self._faults:
            faults = self._faults[event] = {name: [] for name in ACTS}
            for host in [0] if event == CALM else self._stage.hosts:
                self._round(event, host, faults)
        return self._faults[event]

    def _round(self, event: str, host: int, faults: dict[str, list[str]]) -> None:
        self._stage.happen(event, host)
        since_s = time.monotonic()
        for number in range(10 if event == CALM else 1):  # A feed that polls must not take the change of another.
            judge_feeds(self._stage, self._feeds, host, f"{event} {host} {number}".encode(), faults)
        waiting = [one for one in self._running if event == "cut" and one.name in actions.OF_ONE_HOST]
        self._judge([one for one in self._running if one not in waiting], since_s, f"n{host} {event}", faults)
        self._stage.end(event, host)
        self._judge(waiting, time.monotonic(), f"after n{host} {event}", faults)

    def _judge(self, running: list[Again], since_s: float, what: str, faults: dict[str, list[str]]) -> None:
        for one in running:
            said = one.fault(since_s, succeeds=one.name not in actions.FAILING)
            faults[one.name] += [f"{what}: {said}"] if said else []

    def end(self) -> list[str]:
        """End all requests after all events; return what remains of them."""
        if "end" not in self._faults:
            for event in (CALM, *EVENTS):
                self.of(event)
            for one in [*self._running, *self._feeds.values()]:
                one.end()
            self._stage.put(0, b"the end")  # Ends feeds of clients that wait.
            for one in self._running:
                until(lambda one=one: one.began_s is None)
            self._client.close()
            self._faults["end"] = {"gauges": remaining(self._stage, self._before, self._memory)}
        return self._faults["end"]["gauges"]


@pytest.fixture(scope="module")
def rounds(stage: Stage) -> Rounds:
    return Rounds(stage)


def judge_feeds(stage: Stage, feeds: dict[str, Feed], away: int, value: bytes, faults: dict[str, list[str]]) -> None:
    """Put a value; each feed must see it within the promise."""
    at_s = stage.put(away, value)
    give_up_s = at_s + PROMISE_S + SLACK_S
    expected = {name: {value + key for key in PAIR_KEYS} if "of two" in name else {value} for name in feeds}
    judged = {name: feed for name, feed in feeds.items() if not (away and "of two" in name)}
    while time.monotonic() < give_up_s and any(
        expected[name] - feed.seen.keys() and not feed.trouble for name, feed in judged.items()
    ):
        time.sleep(0.05)
    for name, feed in judged.items():
        if expected[name] - feed.seen.keys():
            faults[f"feed, {name}"].append(f"{value!r} did not come within {PROMISE_S + SLACK_S:.0f} s {feed.trouble}")


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("event", [CALM, *EVENTS])
def test_a_request_ends_or_goes_on(rounds: Rounds, event: str, name: str) -> None:
    faults = rounds.of(event)[name]
    assert not faults, "\n".join(faults)


def test_nothing_stays_of_requests_whose_hosts_went(rounds: Rounds) -> None:
    assert rounds.end() == []
