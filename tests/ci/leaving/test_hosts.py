"""Asked hosts are killed, frozen or cut off: requests of clients end or go on, and nothing of them stays.

All requests and feeds run together, and each event meets each host in turn: a test cannot know which one is asked.
"""

from __future__ import annotations

import time
from functools import partial
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

CALM, ALONE = "calm", "alone"
EVENTS = ("killed", "frozen", ALONE, "cut")
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
        self._clients: list[blocking.Client] = []
        self._running = self._asking(stage.asked)
        self._feeds = {name: Feed(follow, stage.place) for name, follow in FEEDS.items()}

    def _asking(self, index: int) -> list[Again]:
        """Begin all requests at a node."""
        place = self._stage.place_of(index)
        client = blocking.Client([place.address], timeout_ms=actions.TIMEOUT_MS, follows=False)
        self._clients.append(client)
        acts = actions.requests(place, client, str(self._stage.cluster.directory / "backups"))
        return [Again(name, act) for name, act in acts.items()]

    def _polling(self, index: int) -> Again:
        """Begin polls at a node, of which each waits for changes as long as it may."""
        client = self._stage.clients[index]
        _, token = client.call("changes", actions.TABLE, {"limit": 0})
        options = {"token": token, "wait_ms": actions.TIMEOUT_MS}
        act = partial(client.call, "changes", actions.TABLE, options, timeout_ms=2 * actions.TIMEOUT_MS)
        return Again("feed, wire", act)

    def of(self, event: str) -> dict[str, list[str]]:
        """Let an event happen to each host in turn; return the faults by request."""
        if event not in self._faults:
            faults = self._faults[event] = {name: [] for name in ACTS}
            if event == ALONE:
                self._alone(faults)
            for host in {CALM: [0], ALONE: []}.get(event, self._stage.hosts):
                self._round(event, host, faults)
        return self._faults[event]

    def _round(self, event: str, host: int, faults: dict[str, list[str]]) -> None:
        self._stage.happen(event, host)
        since_s = time.monotonic()
        for number in range(10 if event == CALM else 1):  # A feed that polls must not take the change of another.
            judge_feeds(self._stage, self._feeds, host, f"{event} {host} {number}".encode(), faults)
        self._judge(self._running, since_s, f"n{host} {event}", faults)
        self._stage.end(event, host)

    def _alone(self, faults: dict[str, list[str]]) -> None:
        """Cut off the asked node, and also a host: few requests succeed at either, but each ends; then feeds go on."""
        stage, nodes = self._stage, (self._stage.asked, self._stage.hosts[0])
        briefly = [*self._asking(nodes[1]), *map(self._polling, nodes)]
        time.sleep(1.0)  # Until all requests are under way.
        for node in nodes:
            stage.happen("cut", node)
        self._judge([*self._running, *briefly], time.monotonic(), "alone", faults, succeeds=False)
        for one in briefly:
            one.end()
        for node in nodes:
            stage.network.heal(node)
        stage.end("cut", nodes[0])
        judge_feeds(stage, self._feeds, 0, b"not alone", faults)
        for one in briefly:
            until(lambda one=one: one.began_s is None)

    def _judge(
        self, running: list[Again], since_s: float, what: str, faults: dict[str, list[str]], *, succeeds: bool = True
    ) -> None:
        for one in running:
            said = one.fault(since_s, succeeds=succeeds and one.name not in actions.FAILING)
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
            for client in self._clients:
                client.close()
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


# The cause is not known: in some runs, polls at both nodes wait for longer than the promise after they are cut off.
LATE = pytest.mark.xfail(reason="a poll at a node that is cut off ends late in some runs", strict=False)
CASES = [
    pytest.param(event, name, marks=LATE if (event, name) == (ALONE, "feed, wire") else ())
    for event in (CALM, *EVENTS)
    for name in ACTS
]


@pytest.mark.parametrize(("event", "name"), CASES)
def test_a_request_ends_or_goes_on(rounds: Rounds, event: str, name: str) -> None:
    faults = rounds.of(event)[name]
    assert not faults, "\n".join(faults)


def test_nothing_stays_of_requests_whose_hosts_went(rounds: Rounds) -> None:
    assert rounds.end() == []
