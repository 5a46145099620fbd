"""Results read back from files, and what is refused."""

import json
import re

import pytest

from gossipkv.errors import ConfigError
from gossipkv.loadtest import documents
from tests.unit.loadtest import results

WHOLE = results.eventful(rounds=results.repeated([1.0], [2.0]).rounds, first_wrong="b'k': ...")


@pytest.mark.parametrize("result", [results.plain(), WHOLE])
def test_what_was_written_is_read_back(tmp_path, result):
    """Nothing is lost on the way through JSON."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps(result.to_json()))
    assert documents.load(file) == result


def test_older_and_newer_ones_of_the_format_are_read():
    """What is missing has its default, and what is not known here is left alone."""
    document = json.loads(json.dumps(results.plain().to_json()))
    del document["events"], document["totals"]["misses"]
    document |= {"weather": "fine", "limits": []}
    found = documents.parse(document)
    assert (found.events, found.totals.misses, found.totals.requests) == ([], 0, 100)


def damaged(path, value):
    """A document with another value in one place; ... takes it out."""
    document = json.loads(json.dumps(WHOLE.to_json()))
    place = document
    for name in path[:-1]:
        place = place[name]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def refusal(document):
    """What is said of a document; nothing if it is taken."""
    try:
        documents.parse(document)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["format"], 2, "its format is 2, and 1 is read here"),
        (["format"], ..., "expected a map with `format`"),
        (["began"], ..., "`began` is missing"),
        (["began"], None, "`began` is None, expected text"),
        (["totals"], [], r"`totals` is \[\], expected a map"),
        (["totals", "keys"], 1.5, "`totals.keys` is 1.5, expected a whole number"),
        (["totals", "keys"], True, "`totals.keys` is True, expected a whole number"),
        (["totals", "rate"], "fast", "`totals.rate` is 'fast', expected a number"),
        (["totals", "rate"], float("nan"), "`totals.rate` is nan, expected a number"),
        (["totals", "errors", "TIMEOUT"], "2", "`totals.errors.TIMEOUT` is '2'"),
        (["latency", "get"], None, "`latency.get` is None, expected a map"),
        (["latency", "get", "buckets", 0, 1], "x", r"`latency.get.buckets\[0\]\[1\]` is 'x', expected a number"),
        (["seconds"], {}, "`seconds` is {}, expected a list"),
        (["seconds", 3], 7, r"`seconds\[3\]` is 7, expected a map"),
        (["first_wrong"], 7, "`first_wrong` is 7, expected text"),
        (["command"], "x" * 100, "`command` is 'x{39}"),
    ],
)
def test_what_is_no_result_is_refused(path, value, said):
    """The place is named, and what was expected there."""
    assert re.search(said, refusal(damaged(path, value)))


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[1]", b"7", b"[" * 100_000, b'{"format": 1}'])
def test_a_file_of_something_else_is_named(tmp_path, text):
    """One error with the file and the way to a right one, whatever is in it."""
    file = tmp_path / "a.json"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=r"a.json is no result of a load test: .*loadtest ... --json"):
        documents.load(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """One that is not there, or is a directory."""
    for place in (tmp_path / "gone.json", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            documents.load(place)
