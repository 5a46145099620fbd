"""HTTP as the core answers it, held to an oracle and to the gateway: cut anywhere, mutated, smuggled, never refused."""

from __future__ import annotations

import pytest

from tests.unit.serving.http_driven import Served
from tests.unit.serving.http_judging import judge, judge_all
from tests.unit.serving.http_smuggling import ATTACKS, FOLLOWED

PLAIN = b"GET /db/k HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A loop that has the datasets."""
    served = Served(tmp_path_factory.mktemp("http"))
    yield served
    served.close()


def test_drawn_streams_are_answered_as_far_as_they_are_plain(served):
    """As the oracle and the gateway do; all from the first strange request on is left, however it arrived."""
    judge_all(range(1_500), served.answer_stream)


@pytest.mark.parametrize("name", [*ATTACKS, *FOLLOWED])
async def test_what_may_be_smuggled_is_left_whole(served, name):
    """Behind a plain request that is answered, or none; also where it arrives in two pieces."""
    stream = (ATTACKS | FOLLOWED)[name].stream
    for at in (1, len(stream) // 2, len(stream) - 1):
        await judge([stream[:at], stream[at:]], served.answer_stream)
        await judge([PLAIN + stream[:at], stream[at:]], served.answer_stream)
