"""Requests at a node whose tables are closed: another node answers, within the time that the client waits."""

from __future__ import annotations

from random import Random
from unittest.mock import AsyncMock, MagicMock

import msgpack
import pytest

from gossipkv.settings.config import Config
from gossipkv.table.rpc.dispatch import PASS_MS, TableMethods
from gossipkv.wire.arguments import Arguments


@pytest.mark.parametrize(("options", "timeout_ms"), [({"wait_ms": 30_000}, PASS_MS + 30_000), ({}, PASS_MS)])
async def test_a_poll_of_a_change_feed_is_forwarded_with_time_for_its_wait(options, timeout_ms):
    participant = MagicMock()
    participant.service.catalogue = participant.service.metadata = None
    participant.watcher.participants.return_value = [b"n2"]
    participant.peers.ask_any = AsyncMock(return_value=[[], b"token"])
    answer = TableMethods(participant, Random(1), Config()).read(
        "t", Arguments(b"changes", msgpack.packb(["t", {"token": b"x", **options}]))
    )
    assert await answer.result() == [[], b"token"]
    (nodes, method, params, timeout_s) = participant.peers.ask_any.await_args.args
    assert (nodes, method, params[0], timeout_s * 1000) == ([b"n2"], "changes", b"t", timeout_ms)
    assert params[1][b"token"] == b"x"
