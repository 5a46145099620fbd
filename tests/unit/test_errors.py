"""Errors cross processes whole."""

import pickle

import pytest

from gossipkv import errors
from gossipkv.http import answers

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


@pytest.mark.parametrize("code", sorted(answers.STATUS_BY_CODE))
def test_an_error_comes_back_from_the_wire(code):
    """Each code that HTTP knows has a class, and a client raises it with the node's words."""
    details = {"file": "f", "offset": 7, "reason": "torn"} if code == "CORRUPT" else {"config": 1 << 48}
    raised = errors.from_wire(code, "it broke", details)
    assert raised.code == code
    assert type(raised) is not errors.ServiceError
    assert errors.to_wire(raised)[0] == code
    assert raised.details == details
