"""The invariants of the debug build detect bugs in a session's use at once."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.client._client import Session, get_request
from tests.unit.debug_build import ONLY_DEBUG_BUILD

pytestmark = ONLY_DEBUG_BUILD


def test_bytes_that_were_not_taken_are_not_sent() -> None:
    """Bytes that are queued or do not exist cannot have been sent."""
    session = Session()
    session.send(get_request(msgpack.packb("geo"), b"k"))
    with pytest.raises(AssertionError, match="no byte is sent before it is taken"):
        session.sent(1)
    session = Session()
    session.send(get_request(msgpack.packb("geo"), b"k"))
    output = session.take_output()
    with pytest.raises(AssertionError, match="no byte is sent before it is taken"):
        session.sent(len(output) + 1)
