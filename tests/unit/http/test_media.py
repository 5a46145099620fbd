from __future__ import annotations

import pytest

from gossipkv.http import media
from gossipkv.http.answers import RefusedRequest
from gossipkv.http.media import Media

BOTH = (Media.LINES, Media.MESSAGEPACK)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, Media.LINES),
        (b"*/*", Media.LINES),
        (b"application/*", Media.LINES),
        (b"application/msgpack", Media.MESSAGEPACK),
        (b"Application/X-MsgPack ; q=0.3", Media.MESSAGEPACK),
        (b"application/json", Media.LINES),
        (b"application/x-ndjson;q=0.2, application/msgpack;q=0.8", Media.MESSAGEPACK),
        (b"application/x-ndjson;q=0.8, application/msgpack;q=0.8", Media.LINES),
        (b"application/x-ndjson;q=0, */*", Media.MESSAGEPACK),
        (b"*/*;q=0.1, application/msgpack;q=0.05", Media.LINES),
        (b"text/html, application/vnd.msgpack;version=5;q=1.000", Media.MESSAGEPACK),
        (b"text/html", None),
        (b"application/msgpack;q=0", None),
        (b"*/*;q=0.0", None),
        (b"", None),
    ],
)
def test_what_is_wanted_most(accept, expected):
    """Quality decides, then an exact name before its kind and a wildcard; equals give the usual one."""
    headers = {} if accept is None else {b"accept": accept}
    if expected is None:
        with pytest.raises(RefusedRequest) as refused:
            media.wanted(headers, BOTH, usual=Media.LINES)
        assert refused.value.answer.status == 406
    else:
        assert media.wanted(headers, BOTH, usual=Media.LINES) is expected


def test_the_usual_one_is_the_first_of_equals():
    assert media.wanted({b"accept": b"*/*"}, BOTH, usual=Media.MESSAGEPACK) is Media.MESSAGEPACK
    assert media.wanted({b"accept": b"*/*;q=0.5"}, BOTH, usual=Media.MESSAGEPACK) is Media.MESSAGEPACK


@pytest.mark.parametrize(
    ("content_type", "known", "expected"),
    [
        (None, BOTH, Media.LINES),
        (b"application/jsonl; charset=utf-8", BOTH, Media.LINES),
        (b"application/json", BOTH, Media.LINES),
        (b"application/x-msgpack", BOTH, Media.MESSAGEPACK),
        (b"APPLICATION/JSON", (Media.JSON,), Media.JSON),
        (b"application/msgpack", (Media.JSON,), None),
        (b"", BOTH, None),
        (b"text/\xff", BOTH, None),
    ],
)
def test_what_is_given(content_type, known, expected):
    """Parameters are ignored; JSON lines may be called JSON."""
    headers = {} if content_type is None else {b"content-type": content_type}
    if expected is None:
        with pytest.raises(RefusedRequest) as refused:
            media.given(headers, known)
        assert refused.value.answer.status == 415
    else:
        assert media.given(headers, known) is expected
