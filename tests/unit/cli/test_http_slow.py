"""`http`: the configuration of the gateway, without a process."""

from __future__ import annotations

import pytest

from gossipkv import cli
from gossipkv.address import Address
from gossipkv.cli import http as command
from gossipkv.http import alone


@pytest.fixture
def told(monkeypatch):
    """Record the configuration of each gateway."""
    told = []
    monkeypatch.setattr(command.trio, "run", lambda _run, given, listener, _ready: told.append((given, listener)))
    monkeypatch.setattr(command, "allow_descriptors", lambda: None)
    monkeypatch.setattr(command.logs, "configure", lambda *_: None)
    return told


def test_what_it_is_told(told, monkeypatch):
    """Nodes keep their order; types are general or by database; limits are passed on."""
    monkeypatch.setenv("GOSSIPKV_NODE", "e:9")
    flags = ["--content-type", "text/plain", "--content-type", "geo=image/png", "--max-connections", "7"]
    where = ["--listen", "127.0.0.1:0"]
    assert cli.run(["http", *where, "--node", "b:1", "--node", "a:2", *flags, "--drain-timeout", "2s"]) == 0
    assert cli.run(["http", *where, "--timeout", "3s"]) == 0
    (first, _), (second, _) = told
    assert first.nodes == (Address("b", 1), Address("a", 2))
    assert (first.types.usual, first.types.by_database) == ("text/plain", {"geo": "image/png"})
    assert (first.limits.max_connections, first.timeout_ms, first.drain_timeout_ms) == (7, 1000, 2000)
    assert (second.nodes, second.timeout_ms) == ((Address("e", 9),), 3000)
    assert second.types.of("geo") == b"application/octet-stream"


@pytest.mark.parametrize("wrong", [["--content-type", "plain"], ["--content-type", "geo=plain"], ["--listen", "8080"],
                                   ["--max-connections", "0"], ["--drain-timeout", "soon"]])  # fmt: skip
def test_what_is_wrong_is_said(told, capsys, wrong):
    assert cli.run(["http", *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert told == []


def test_a_port_is_shared_by_those_who_say_so():
    """The port can be shared only if every process asks for it."""
    with alone.listen(Address("127.0.0.1", 0), share_port=True) as first:
        where = Address(*first.getsockname())
        alone.listen(where, share_port=True).close()
        with pytest.raises(alone.LocalError, match="Address already in use; choose another with --listen"):
            alone.listen(where, share_port=False)
