"""`cluster`: what it writes and hands on, without processes."""

from __future__ import annotations

import pytest

from gossipkv import cli
from gossipkv.cli import FAILED
from gossipkv.cli import cluster as command
from gossipkv.launcher import Cluster, NodeFailed
from gossipkv.launcher.plan import NodePlan, Plan


@pytest.fixture
def begun(monkeypatch):
    """The clusters that `up` was to start: in each a node fails."""
    begun = []

    def up(self, *, detach):
        begun.append((self, detach))
        raise NodeFailed("n1 ended", {"node": 1, "words": "n1 ended", "said": ["why"]})

    monkeypatch.setattr(Cluster, "up", up)
    monkeypatch.setattr(command, "_hear_signals", lambda: None)
    return begun


@pytest.mark.parametrize("name", ["[abc]", "a[/b]", "[red]x"])
def test_brackets_in_a_path(tmp_path, capsys, monkeypatch, name):
    """Are written as they are."""
    monkeypatch.setenv("COLUMNS", "300")
    place = tmp_path / name
    place.mkdir(parents=True)
    Plan([NodePlan(1, 7070)], settings={"cluster": "x"}).save(place)
    assert cli.run(["cluster", "status", "--data", str(place)]) == 0
    out = capsys.readouterr().out
    assert str(place / "n1" / "data") in out
    assert "cluster x\n" in out


def test_paths_are_remembered_from_here(tmp_path, begun, monkeypatch):
    """The next `up` may be from elsewhere; what is no path stays as it is."""
    monkeypatch.chdir(tmp_path)
    settings = ["--set", "key-ring=ring", "--set", "profile=lan", "--set", "seal="]
    cli.run(["cluster", "up", "--data", "c", "--source", "s", *settings])
    cli.run(["cluster", "up", "--data", "c", "--source", "s3://s", "--set", "key_ring=~nobody-has-this-name/r"])
    first, second = (cluster._order for cluster, _ in begun)
    assert first.source == str(tmp_path / "s")
    assert first.settings == {"key_ring": str(tmp_path / "ring"), "profile": "lan", "seal": ""}
    assert second.source == "s3://s"
    assert second.settings == {"key_ring": "~nobody-has-this-name/r"}


def test_a_setting_that_nodes_fail_with(tmp_path, begun, capsys):
    """Is remembered all the same, so the error says what forgets it."""
    place = ["--data", str(tmp_path)]
    assert cli.run(["cluster", "up", *place, "--set", "key_ring=/none", "--set", "seal=send"]) == FAILED
    assert "what forgets them: --set key_ring= --set seal=\n" in capsys.readouterr().err
    assert cli.run(["cluster", "up", *place, "--set", "seal="]) == FAILED
    assert capsys.readouterr().err == "gossipkv: n1 ended\n    why\n"
    assert len(begun) == 2
