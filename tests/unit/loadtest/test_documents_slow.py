"""Slow tests of documents; the fast ones are in `test_documents.py`."""

import json
import re

import pytest

from gossipkv.loadtest import documents
from tests.unit.loadtest import results

WHOLE = results.eventful(rounds=results.repeated([1.0], [2.0]).rounds, first_wrong="b'k': ...")


def damaged(path, value):
    """Return a document with another value in one place; `...` removes the value."""
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
    """Return the error of a document, or an empty text."""
    try:
        documents.parse(document)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["format"], 2, "the format is 2, and this program reads only format 1"),
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
    """The error names the place and the expected type."""
    assert re.search(said, refusal(damaged(path, value)))
