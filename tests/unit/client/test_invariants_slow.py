"""The invariants that the debug build checks in a session: what only a bug of ours could do is noticed at once."""

from __future__ import annotations

import msgpack
import pytest

from gossipkv.client._client import Session, get_request
from tests.unit.debug_build import ONLY_DEBUG_BUILD

pytestmark = ONLY_DEBUG_BUILD


def test_bytes_that_were_not_taken_are_not_sent() -> None:
    """What waits in the session, and what never was in it, cannot have gone to the network."""
    session = Session()
    session.send(get_request(msgpack.packb("geo"), b"k"))
    with pytest.raises(AssertionError, match="no byte is sent before it is taken"):
        session.sent(1)
    session = Session()
    session.send(get_request(msgpack.packb("geo"), b"k"))
    output = session.take_output()
    with pytest.raises(AssertionError, match="no byte is sent before it is taken"):
        session.sent(len(output) + 1)
