"""Smuggling streams: none is plain to the loop, and no request within a body is answered."""

from __future__ import annotations

import pytest

from tests.oracle import http
from tests.unit.serving.http_smuggling import ATTACKS, FOLLOWED, SMUGGLED
from tests.unit.serving.http_world import Gateway

# Only the gateway answers this request; its headers are those of most attacks, which are then cached as valid.
BEFORE = b"GET http://h/db/k HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("before", [b"", BEFORE])
@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_the_last_that_is_answered(name, before):
    """The gateway refuses the attack, or closes behind its answer."""
    stream, statuses = ATTACKS[name]
    assert (http.read(stream, {b"db"}).plain, http.read(stream).left) in [([], "strange"), ([], "partial")]
    gateway = Gateway()
    answers = await gateway.answers(before + stream)
    assert statuses_of(answers) == ((200,) if before else ()) + statuses
    assert gateway.exchange.is_closing
    assert SMUGGLED not in b"".join(answers)


@pytest.mark.parametrize("name", FOLLOWED)
async def test_what_follows_without_doubt_is_answered(name):
    """The gateway answers these, as none is plain."""
    stream, statuses = FOLLOWED[name]
    assert http.read(stream)[:2] == ([], 0)
    gateway = Gateway()
    answers = await gateway.answers(stream)
    assert statuses_of(answers) == statuses
    assert not gateway.exchange.is_closing
    assert [SMUGGLED in answer for answer in answers] == [number > 0 for number in range(len(statuses))]


def statuses_of(answers: list[bytes]) -> tuple[int, ...]:
    return tuple(int(answer.split()[1]) for answer in answers)
