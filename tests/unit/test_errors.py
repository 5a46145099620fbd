"""Errors cross processes whole."""

import pickle

import pytest

from gossipkv import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind):
    """A task of a pool raises in one process and is read in another."""
    if issubclass(kind, errors.Corrupt):
        error = kind("part-00001.gkv", 4096, "torn", expected=1, got=2)
    else:
        error = kind("it broke", {"file": "x", "key": b"\xff"})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
