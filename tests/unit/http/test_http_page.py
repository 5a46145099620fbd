"""Sequins' requests get their answers, and the numbers of docs/users/http.md are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipkv.http import batches, ranges, read_options
from gossipkv.http.exchange import RequestLimits
from gossipkv.http.target import MAX_TARGET_BYTES
from tests.unit.http.asking import context_of, converse, read_answers
from tests.unit.http.fake_node import baby_names
from tests.unit.http.sequins_table import lines

PAGE = (Path(__file__).parents[3] / "docs" / "users" / "http.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", lines(), ids=lambda line: f"{line.method} {line.target}")
async def test_sequins_requests_get_their_answers(line):
    stream = f"{line.method} {line.target} HTTP/1.1\r\nHost: localhost:9599\r\n\r\n".encode()
    _, sent, closing = await converse(context_of(baby_names()), stream)
    ((status, headers, body),) = read_answers(sent, [line.method])
    line.check(status, {name.decode(): value.decode() for name, value in headers.items()}, body)
    assert not closing


def test_the_table_has_them_all():
    """The table has every status of Sequins and the one that GossipKV adds."""
    assert {line.status for line in lines()} == {200, 400, 404, 405, 500, 501}
    assert len(lines()) > 20


def test_numbers_are_those_of_the_code():
    """The page states the limits of the code."""
    said = " ".join(PAGE.split())
    limits = RequestLimits()
    assert f"at most {MAX_TARGET_BYTES >> 10} KiB (414)" in said
    assert f"headers over {limits.max_head >> 10} KiB, or more than {limits.max_fields}" in said
    assert f"a body over {limits.max_body >> 20} MiB, or in more than {limits.max_pieces:,} chunks" in said
    assert f"At most {batches.MAX_KEYS:,} keys and {limits.max_body >> 20} MiB" in said
    assert f"more than {ranges.MAX_RANGES} ranges" in said
    assert f"1 to {read_options.MAX_TIMEOUT_MS:,}" in said
