"""A method that calls back is answered once, and its result is encoded or refused as usual."""

from __future__ import annotations

import pytest

from gossipkv.errors import Overloaded, SourceError
from gossipkv.wire.results import Later, Packed
from tests.unit.access.callers import STRANGER
from tests.unit.node.made_up_node import Node, decoded
from tests.world.logs import capture_logs


@pytest.mark.parametrize(("result", "told", "code"), [
    ([1, "a"], [1, "a"], None), (Packed(b"\x07"), 7, None), (Overloaded("full"), None, "OVERLOADED"),
    (SourceError("/a/path of ours"), None, "INTERNAL"), (1 << 64, None, "INTERNAL"),
])  # fmt: skip
@pytest.mark.parametrize("at_once", [True, False])
def test_what_calls_back(result, told, code, at_once):
    """The callback may come at once or later; a second call is a defect of the caller."""
    node, callbacks, answers = Node(), [], []

    def begin(on_result):
        callbacks.append(on_result)
        if at_once:
            on_result(result)

    node.handlers._methods[b"put"] = lambda _arguments: Later(begin)
    with capture_logs() as logs:
        node.handlers.begin(b"put", node.handlers.answer(b"put", b"\x90", STRANGER), answers.append)
        assert len(answers) == at_once
        if not at_once:
            callbacks[0](result)
        with pytest.raises(AssertionError, match="once"):
            callbacks[0](result)
    [response] = map(decoded, answers)
    assert (response.result, response.error and response.error.code) == (told, code)
    assert len(logs) == (code == "INTERNAL")


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_what_raises_when_it_is_begun(calls):
    """The defect is logged, and is the answer unless there is one."""
    answers = []

    def begin(on_result):
        for _ in range(calls):
            on_result("told")
        raise RuntimeError("secret")

    with capture_logs() as logs:
        Node().handlers.begin(b"put", Later(begin), answers.append)
    [response] = map(decoded, answers)
    assert (response.result, response.error is None) == (("told", True) if calls else (None, False))
    assert [line["event"] for line in logs] == ["internal_error"]
