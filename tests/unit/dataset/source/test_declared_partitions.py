"""`_PARTITIONS.json`: right declarations survive a round trip, and each fault is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.source.declared_partitions import MAX_DECLARED_BYTES, Declared, read_declared, write_declared
from gossipkv.errors import SourceError
from gossipkv.keyspace.partitioner import FUNCTIONS
from tests.unit.dataset.formats.cut_reader import CutReader

RIGHT = {"function": "text", "partitions": 4, "files": {"part-00000": 2, "part-00001": [0, 3, 0], "part-00002": []}}
NAMES = st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name and "\0" not in name)


def test_what_any_job_writes_is_understood():
    """Partitions are a number or a list; unnamed files are to be read."""
    declared = read_declared(CutReader(json.dumps(RIGHT).encode()))
    assert declared == Declared("text", 4, {"part-00000": (2,), "part-00001": (0, 3), "part-00002": ()})
    assert declared.of("part-00001") == (0, 3)
    assert declared.of("part-00009") is None


@given(
    st.sampled_from(FUNCTIONS),
    st.integers(1, 16_384).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.dictionaries(
                NAMES, st.sets(st.integers(0, count - 1), max_size=4).map(lambda held: tuple(sorted(held)))
            ),
        )
    ),
)
def test_what_is_written_is_read(function, numbered):
    """Names may have any characters, also lone surrogates, as in file systems."""
    count, files = numbered
    declared = Declared(function, count, files)
    data = write_declared(declared)
    assert read_declared(CutReader(data)) == declared
    assert json.loads(data)["partitions"] == count


def but(**changes):
    """Return the right declaration with changed fields; None removes a field."""
    body = {field: value for field, value in (RIGHT | changes).items() if value is not None}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        (b"", None, "not JSON"),
        (b"{", None, "not JSON"),
        (b"\xff{}", None, "not JSON"),
        (b"[" * 100_000, None, "not JSON"),
        (b'{"partitions": ' + b"9" * 5000 + b"}", None, "not JSON"),
        (b'{"function": "text", "function": "spark"}', None, '"function" occurs twice'),
        (b"[]", None, r"should be a JSON object, not \[\]"),
        (but(function=None), "function", "is missing"),
        (but(files=None), "files", "is missing"),
        (but(version=7), "version", "is unknown; the known fields are function, partitions, files"),
        (but(function="murmur"), "function", 'should be one of sequins, text, .* not "murmur"'),
        (but(function=["text"]), "function", "should be one of"),
        (but(partitions=0), "partitions", "from 1 to 16,384, not 0"),
        (but(partitions=16_385), "partitions", "from 1 to 16,384, not 16385"),
        (but(partitions=True), "partitions", "not true"),
        (but(partitions=4.0), "partitions", "not 4.0"),
        (but(files=[1]), "files", "should be an object"),
        (but(files={"a": 4}), 'files["a"]', "a partition from 0 to 3, or a list of them, not 4"),
        (but(files={"a": -1}), 'files["a"]', "not -1"),
        (but(files={"a": [0, "1"]}), 'files["a"]', r'not \[0, "1"\]'),
        (but(files={"a": False}), 'files["a"]', "not false"),
        (but(files={"a/b": 1}), 'files["a/b"]', "without a directory"),
        (but(files={"": 1}), 'files[""]', "without a directory"),
        (but(files={f"part-{n}": 0 for n in range(16_385)}), "files", "16,385 entries; the limit is 16,384"),
        (b" " * (MAX_DECLARED_BYTES + 1), None, "the file has 8,388,609 bytes"),
    ],
    ids=range(25),
)
def test_what_is_wrong_is_named(data, field, reason):
    """The error has the file, the field and the expected value."""
    with pytest.raises(SourceError, match=reason) as caught:
        read_declared(CutReader(data, name="db/v1/_PARTITIONS.json"))
    assert caught.value.message.startswith("db/v1/_PARTITIONS.json: ")
    assert (caught.value.details["file"], caught.value.details["field"]) == ("db/v1/_PARTITIONS.json", field)
    assert len(caught.value.message) < 300


def test_one_that_is_too_long_is_not_read():
    """Its size suffices for the refusal."""
    reader = CutReader(b" " * (MAX_DECLARED_BYTES + 1), name="x")
    with pytest.raises(SourceError, match="the limit is"):
        read_declared(reader)
    assert reader.largest_read == 0
