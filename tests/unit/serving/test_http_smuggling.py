"""Streams on whose requests two readers may disagree: none is plain, and none gets what stands in a body."""

from __future__ import annotations

import pytest

from tests.oracle import http
from tests.unit.serving.http_smuggling import ATTACKS, FOLLOWED, SMUGGLED
from tests.unit.serving.http_world import Gateway


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_the_last_that_is_answered(name):
    """It is left to the gateway, which refuses it, or closes behind its answer."""
    stream, statuses = ATTACKS[name]
    assert (http.read(stream).plain, http.read(stream).left) in [([], "strange"), ([], "partial")]
    gateway = Gateway()
    answers = await gateway.answers(stream)
    assert statuses_of(answers) == statuses
    assert gateway.exchange.is_closing
    assert SMUGGLED not in b"".join(answers)


@pytest.mark.parametrize("name", FOLLOWED)
async def test_what_follows_without_doubt_is_answered(name):
    """By the gateway as well: none of it is plain."""
    stream, statuses = FOLLOWED[name]
    assert http.read(stream)[:2] == ([], 0)
    gateway = Gateway()
    answers = await gateway.answers(stream)
    assert statuses_of(answers) == statuses
    assert not gateway.exchange.is_closing
    assert [SMUGGLED in answer for answer in answers] == [number > 0 for number in range(len(statuses))]


def statuses_of(answers: list[bytes]) -> tuple[int, ...]:
    """What the answers of a connection begin with."""
    return tuple(int(answer.split()[1]) for answer in answers)
