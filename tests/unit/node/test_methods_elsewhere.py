"""Reads of partitions that others have, which Python answers all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.node.test_methods import Node
from tests.unit.serving.driven import make_version

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.wire.rpc import Value


@pytest.mark.parametrize("method", ["get", "get_many"])
def test_a_partition_that_others_have(tmp_path: Path, method: str) -> None:
    """Python asks nobody: who may be answered by others is to ask again, who may not hears that it is not here."""
    shared = make_version(tmp_path, "db", "v1", {b"a": b"1"})
    shared.wire_id = bytes(16)
    shared.files = [None]
    asked: Value = b"a" if method == "get" else [b"a"]
    node = Node((shared, True))
    assert node.refusal(method, "db", asked)[0] == "NOT_READY"
    assert node.refusal(method, "db", asked, {"local": True})[0] == "NOT_SERVED"
    alone = replace(shared, wire_id=None)
    assert Node((alone, True)).refusal(method, "db", asked)[0] == "NOT_SERVED"
