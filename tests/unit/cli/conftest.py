"""What the tests of commands share."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gossipkv import cli
from tests.unit.cli.asked_node import AskedNode


@pytest.fixture
def run(capfd):
    """Run a command line in this process: its status, and what it wrote.  The node that it names has all the time."""

    def command(*arguments):
        if "--node" in arguments and not {"loadtest", "--timeout"} & {*map(str, arguments)}:
            at = arguments.index("--node")
            arguments = (*arguments[:at], "--timeout", "60s", *arguments[at:])
        status = cli.run([str(argument) for argument in arguments])
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return command


@pytest.fixture
def ask(run, monkeypatch):
    """Runs a command line against a node with these methods; how that ended, and what the node was asked."""

    def command(*arguments, **methods):
        with AskedNode(**methods) as node:
            monkeypatch.setenv("GOSSIPKV_NODE", node.address)
            return run(*arguments), node.asked

    return command
