"""Reads of owners that pause: new ones are asked for `proxy_timeout`, and silent ones may answer for `timeout_ms`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.wire import rpc
from tests.unit.serving.asker import AWAY, Asker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("method", ["get", "get_many"])
@pytest.mark.parametrize("pause_ms", [50, 89, 90, 400, 3000, 4999])
def test_owners_that_pause_may_answer_for_the_clients_time(tmp_path: Path, method: str, pause_ms: int) -> None:
    """Both owners pause for longer than `proxy_timeout`: the first answer after the pause counts."""
    asker = Asker(tmp_path, 2)
    subject, value = (AWAY[0], b"value") if method == "get" else ([AWAY[0]], [b"value"])
    assert asker.client.send(rpc.request(1, method, ["db", subject, {"timeout_ms": 5000}])) == []
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    early = first.asked(method.encode())
    assert asker.wait(40) == []
    late = second.asked(method.encode())
    assert asker.wait(pause_ms - 40) == []
    assert first.requests() == second.requests() == [], "each owner is asked once"
    second.say(rpc.response(late, [value, "v1"]))
    assert asker.answers() == [[1, 1, None, [value, "v1"]]]
    first.say(rpc.response(early, [value, "v1"]))
    assert (asker.answers(), asker.count("held_bytes"), asker.count("in_flight")) == ([], 0, 0)


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_no_owner_that_owes_an_answer_is_asked_again(tmp_path: Path, method: str) -> None:
    """Bytes of an answer after `proxy_timeout` begin another round: only an owner that was not asked yet is asked."""
    asker = Asker(tmp_path, 4)
    subject, value = (AWAY[0], b"value") if method == "get" else ([AWAY[0]], [b"value"])
    assert asker.client.send(rpc.request(1, method, ["db", subject, {"timeout_ms": 5000}])) == []
    assert asker.wait(100) == []
    (last,) = [link for link in asker.links if not link.has_requests()]
    first, *silent = [link for link in asker.links if link is not last]
    frame = rpc.response(first.asked(method.encode()), [value, "v1"])
    assert [link.asked(method.encode()) > 0 for link in silent] == [True, True]
    first.say(frame[:8])
    assert asker.wait(1000) == []
    assert last.asked(method.encode())
    assert [link.requests() for link in (first, *silent)] == [[], [], []]
    first.say(frame[8:])
    assert asker.answers() == [[1, 1, None, [value, "v1"]]]


@pytest.mark.parametrize("end", ["refused", "closed"])
def test_nobody_is_waited_for_once_all_have_refused(tmp_path: Path, end: str) -> None:
    """After `proxy_timeout` the last refusal ends the read; at first one owner was only silent."""
    asker = Asker(tmp_path, 2)
    asker.get(AWAY[0], timeout_ms=5000)
    first, second = asker.links if asker.links[0].has_requests() else reversed(asker.links)
    asker.wait(200)
    first.refuse(first.asked(), "NOT_READY")
    assert asker.wait(100) == []
    if end == "refused":
        second.refuse(second.asked(), "NOT_READY")
    else:
        second.close()
    ((_, msgid, method, report),) = asker.wait(1)
    assert (msgid, method) == (1, None)
    outcomes = {outcome for _, outcome in msgpack.unpackb(report)[5]}
    assert outcomes == {"NOT_READY", "NOT_READY" if end == "refused" else "lost"}


@pytest.mark.parametrize("options", [{}, {"timeout_ms": 5000}])
@pytest.mark.parametrize("method", ["get", "get_many"])
def test_a_lost_partition_is_reported_after_the_proxy_timeout(
    tmp_path: Path, method: str, options: dict[str, int]
) -> None:
    """Its owners are dead: neither their silence nor the lack of connections is waited for."""
    asker = Asker(tmp_path, 2)
    for link in asker.links:
        asker.core.set_peer(link.column, f"peer{link.column}:1", 2)
    asker.links[1].close()
    subject = AWAY[0] if method == "get" else [AWAY[0]]
    assert asker.client.send(rpc.request(1, method, ["db", subject, options])) == []
    assert asker.wait(89) == []
    assert [(msgid, name) for _, msgid, name, _ in asker.wait(1)] == [(1, None)]
