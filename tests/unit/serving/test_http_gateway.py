"""What is plain of HTTP, and answered by the pump, by an oracle: the gateway says the same, byte for byte."""

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
    """Of drawn streams every plain request up to the first that is not, and whether the connection ends behind it."""
    seen = judge_all(range(1_500))
    assert all(seen[kind] > 5 for kind in KINDS), seen


def test_what_the_gateway_hides_is_not_plain():
    """By its own list of paths."""
    assert {name.encode() for name in HIDING} == HIDDEN
