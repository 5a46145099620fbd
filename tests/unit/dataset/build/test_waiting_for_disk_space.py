"""A disk that is full at any operation of an upgrade, or too small, over a simulated disk and clock."""

import errno

import pytest

from gossipkv.dataset.lifecycle.version_states import VersionWord
from tests.unit.dataset.simulated_node import SimulatedNode
from tests.world.faulty_files import CHANGING, Action, Fault

MAX_WAITS = 40


@pytest.fixture
def node():
    """Start a node that serves v1."""
    with_first = begin()
    yield with_first
    with_first.close()


def begin():
    node = SimulatedNode()
    node.start()
    put(node, "v1")
    node.finish()
    assert node.active == "v1"
    return node


def put(node, name):
    node.put(name, [b"name\t%s\n" % name.encode()])
    node.look()


def until_active(node, name):
    """Let builds finish and time pass until the version is active; v1 answers and no version is in error."""
    for _ in range(MAX_WAITS):
        if node.active == name:
            return
        assert node.value(b"name") == b"v1"
        assert node.states[name] is not VersionWord.ERROR
        if node.states[name] is VersionWord.BUILDING:
            node.finish()
        else:
            node.wait()
    raise AssertionError(node.status)


def test_a_disk_that_is_too_small_is_not_built_on(node):
    """No build starts before the disk has grown."""
    capacity = node.disk.capacity_bytes
    node.disk.capacity_bytes -= node.disk.free_bytes("/") - 10_000
    put(node, "v2")
    for _ in range(20):
        told = node.status["versions"]["v2"]
        assert told["state"] == "SEEN"
        assert 9_000 < told["free_bytes"] <= 10_000
        assert told["needed_bytes"] > 60_000
        assert told["waiting_for"].startswith("disk space: about ")
        assert "error" not in told
        node.wait()
    assert node.builds == ["v1"]
    node.disk.capacity_bytes = capacity
    until_active(node, "v2")


def test_what_a_refusal_taught_is_forgotten_after_ten_minutes(node):
    """Another program filled the disk for a moment: the space suffices for the estimate, but not for four times it."""
    node.disk.capacity_bytes -= node.disk.free_bytes("/") - 150_000
    node.files.faults = (Fault(5, Action.FAIL, kinds=CHANGING, error=errno.ENOSPC),)
    node.files._seen = [0]
    put(node, "v2")
    node.finish()
    told = node.status["versions"]["v2"]
    assert told["needed_bytes"] > told["free_bytes"] > 100_000
    for _ in range(9):
        node.wait(60)
    assert node.builds == ["v1", "v2"]
    for _ in range(2):
        node.wait(60)
    node.finish()
    assert node.active == "v2"


def test_that_there_is_no_room_is_said_again_after_ten_minutes(node):
    """Each reminder is one line of the log."""
    node.disk.capacity_bytes -= node.disk.free_bytes("/") - 60_000
    put(node, "v2")
    looks = 0
    while not node.log("no_room")[1:]:
        node.wait(60)
        looks += 1
    assert 9 <= looks <= 12


def test_room_that_a_retired_version_leaves_is_used(node):
    """The build starts without an operator."""
    node.put("v2", [b"name\t%s\n" % (b"v" * 50_000)])
    node.look()
    node.finish()
    assert node.active == "v2"
    free = node.disk.free_bytes("/")
    node.hold("v1")
    node.disk.capacity_bytes -= free - 65_000
    put(node, "v0")
    node.hold("v0")
    assert node.status["versions"]["v0"]["waiting_for"].startswith("disk space")
    for _ in range(12):
        node.wait()
    assert node.kept == {"v1"}
    node.finish()
    assert node.active == "v0"
