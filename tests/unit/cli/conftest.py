"""Fixtures for the tests of commands."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gossipkv import cli
from tests.unit.cli.asked_node import AskedNode


@pytest.fixture
def run(capfd):
    """Run a command line in this process and return its status and output, with ample time for the node."""

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
    """Run a command line against a node with these methods; return the result and the questions."""

    def command(*arguments, **methods):
        with AskedNode(**methods) as node:
            monkeypatch.setenv("GOSSIPKV_NODE", node.address)
            return run(*arguments), node.asked

    return command
