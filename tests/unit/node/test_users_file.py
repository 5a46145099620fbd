"""A running node follows each change of its users file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.node.users_file import LOOK_S, UsersFile
from tests.unit.node.test_certificate import Threads
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from gossipkv.access.users import Users

ANA = '[ana]\nmay = ["read:geo*"]\n'
BOB = '[bob]\nmay = ["read:cats", "see"]\n'


class Node:
    """A node with the databases `geo` and `carts`, and the users that it knows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: list[Users] = []
        self.write(ANA)
        self.file = UsersFile(path, SimpleNamespace(threads=Threads()), self.known.append, lambda: ["geo", "carts"])

    def write(self, text: str, mode: int = 0o600) -> None:
        self.path.write_text(text)
        self.path.chmod(mode)

    async def looks(self) -> list[tuple[str, str | int]]:
        """Let the node look once, and return the log: an event, and a number or a reason."""
        with capture_logs() as logs:
            await trio.sleep(2 * LOOK_S)
            await trio.testing.wait_all_tasks_blocked()
        return [(entry["event"], entry.get("count", entry.get("reason"))) for entry in logs]


@pytest.fixture
async def node(tmp_path: Path, nursery: trio.Nursery) -> Node:
    """Return a node whose file was read."""
    node = Node(tmp_path / "users")
    nursery.start_soon(node.file.run)
    return node


async def test_who_is_new_is_known_and_the_file_is_read_once(node: Node, autojump_clock: MockClock) -> None:
    """A pattern that matches no database is logged."""
    assert await node.looks() == [("users", 1)]
    node.write(ANA + BOB)
    assert await node.looks() == [("users", 2), ("users_unmatched", "bob: read:cats matches no database")]
    assert await node.looks() == []
    assert [[*users.named] for users in node.known] == [["ana"], ["ana", "bob"]]


@pytest.mark.parametrize("text", ["", ANA[:3], ANA + BOB[:-4], f"{ANA}{BOB}{ANA}"])
async def test_half_a_file_changes_nothing(node: Node, text: str, autojump_clock: MockClock) -> None:
    """The known users stay, and the complete file is read later."""
    await node.looks()
    node.write(text)
    ((event, reason),) = await node.looks()
    assert (event, str(node.path) in str(reason), len(node.known)) == ("users_unchanged", True, 1)
    assert await node.looks() == []
    node.write(ANA + BOB)
    assert ("users", 2) in await node.looks()


async def test_a_file_that_others_may_read_or_that_is_gone(node: Node, autojump_clock: MockClock) -> None:
    """The change is ignored and logged once; a missing file does not drop the known users."""
    await node.looks()
    node.write(ANA + BOB, mode=0o640)
    ((event, reason),) = await node.looks()
    assert (event, "chmod 600" in str(reason)) == ("users_unchanged", True)
    node.path.unlink()
    ((event, reason),) = await node.looks()
    assert (event, "No such file" in str(reason)) == ("users_unchanged", True)
    assert await node.looks() == []
    with capture_logs() as logs:
        await node.file.read()
    assert [entry["event"] for entry in logs] == ["users_unchanged"]
    assert len(node.known) == 1
