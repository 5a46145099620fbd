"""The plain HTTP requests that the pump answers, by an oracle: the gateway's answers are byte-identical."""

from __future__ import annotations

from gossipkv.http.order import HIDING
from tests.oracle.http import HIDDEN
from tests.unit.serving.http_judging import judge_all

KINDS = (
    "200",
    "206",
    "304",
    "404",
    "416",
    "429",
    "500",
    "502",
    "503",
    "504",
    "strange",
    "partial",
    "unread",
    "nothing",
)


def test_the_gateway_answers_what_is_plain_as_the_oracle_does():
    """Answers and end agree for every plain request up to the first other one."""
    seen = judge_all(range(1_000))
    assert all(seen[kind] > 5 for kind in KINDS), seen


def test_what_the_gateway_hides_is_not_plain():
    assert {name.encode() for name in HIDING} == HIDDEN
