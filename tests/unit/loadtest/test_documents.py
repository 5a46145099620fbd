"""Results read back from files, and files that are refused."""

import json

import pytest

from gossipkv.errors import ConfigError
from gossipkv.loadtest import documents
from tests.unit.loadtest import results

WHOLE = results.eventful(rounds=results.repeated([1.0], [2.0]).rounds, first_wrong="b'k': ...")


@pytest.mark.parametrize("result", [results.plain(), WHOLE])
def test_what_was_written_is_read_back(tmp_path, result):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(result.to_json()))
    assert documents.load(file) == result


def test_older_and_newer_ones_of_the_format_are_read():
    """Missing fields have defaults, and unknown fields are ignored."""
    document = json.loads(json.dumps(results.plain().to_json()))
    del document["events"], document["totals"]["misses"]
    document |= {"weather": "fine", "limits": []}
    found = documents.parse(document)
    assert (found.events, found.totals.misses, found.totals.requests) == ([], 0, 100)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[1]", b"7", b"[" * 100_000, b'{"format": 1}'])
def test_a_file_of_something_else_is_named(tmp_path, text):
    """The error has the file and the command that makes a right one."""
    file = tmp_path / "a.json"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=r"a.json is not the result of a load test: .*loadtest ... --json"):
        documents.load(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """A missing file and a directory are errors."""
    for place in (tmp_path / "gone.json", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            documents.load(place)
