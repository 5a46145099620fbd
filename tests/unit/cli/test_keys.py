"""`keys`: the file of a key ring is created, shown and changed."""

from __future__ import annotations

import json

import pytest

from gossipkv.gossip.shell import key_file


@pytest.fixture
def ring(tmp_path, run):
    """Return a new key ring and the id of its key."""
    path = tmp_path / "ring"
    done = run("keys", "new", path)
    assert (done.status, done.err) == (0, "")
    return path, done.out.strip()


def ids(path):
    return [one.id.hex() for one in key_file.read(path)]


def test_new(ring, run):
    """The file has one key and belongs to its owner only; an existing file is not replaced."""
    path, first = ring
    assert ids(path) == [first]
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    done = run("keys", "new", path)
    assert (done.status, path.read_bytes()) == (2, before)
    assert "keys install" in done.err


def test_two_rings_have_two_keys(ring, run, tmp_path):
    """Keys are random."""
    other = run("keys", "new", tmp_path / "other").out.strip()
    assert other != ring[1]
    assert key_file.read(ring[0])[0].secret != key_file.read(tmp_path / "other")[0].secret


def test_list_shows_ids_and_no_keys(ring, run):
    """Each key has a line, and the first seals; no part of a key is written, as text or JSON."""
    path, first = ring
    second = run("keys", "install", path).out.strip()
    text, told = run("keys", "list", path), run("keys", "list", path, "--json")
    assert text.out == f"{first}\tseals and opens\n{second}\topens\n"
    assert json.loads(told.out) == [{"key_id": first, "seals": True}, {"key_id": second, "seals": False}]
    for line in path.read_text().splitlines():
        written = line.partition("#")[0].strip()
        assert written not in text.out + told.out
        assert written


def test_keys_change_in_three_steps(ring, run):
    """After each of install, use and remove the file suits the next node, and its mode stays 0600."""
    path, first = ring
    second = run("keys", "install", path).out.strip()
    assert ids(path) == [first, second]
    assert run("keys", "use", path, second).status == 0
    assert ids(path) == [second, first]
    done = run("keys", "remove", path, first)
    assert ids(path) == [second]
    assert "SIGHUP" in done.err
    assert path.stat().st_mode & 0o777 == 0o600


def test_install_from_another_ring(ring, run, tmp_path):
    """A key that is already there is not added again."""
    path, first = ring
    other = tmp_path / "other"
    run("keys", "new", other)
    for note in ("changed", "nothing to change"):
        done = run("keys", "install", path, "--from", other)
        assert done.status == 0
        assert note in done.err
        assert ids(path) == [first, *ids(other)]


REFUSED = [
    (["use", "xyz"], "expected the id of a key"),
    (["use", "00"], "expected the id of a key"),
    (["use", "00000000"], "the file has no key 00000000"),
    (["remove", "00000000"], "the file has no key 00000000"),
    (["remove", "FIRST"], "seals gossip"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_is_refused_changes_nothing(ring, run, arguments, told):
    """Wrong use gives status 2 and one line, and the file stays."""
    path, first = ring
    before = path.read_bytes()
    command, chosen = arguments
    done = run("keys", command, path, first if chosen == "FIRST" else chosen)
    assert (done.status, done.out, path.read_bytes()) == (2, "", before)
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", [["list"], ["install"], ["use", "00000000"], ["remove", "00000000"]])
def test_a_file_that_others_may_read_is_refused(ring, run, command):
    """Every command refuses the file, so that its owner notices."""
    path, _ = ring
    path.chmod(0o644)
    done = run("keys", command[0], path, *command[1:])
    assert (done.status, done.out) == (2, "")
    assert "chmod 600" in done.err


def test_no_command_is_wrong_use(run):
    done = run("keys")
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
