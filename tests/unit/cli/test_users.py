"""`users`: the file of who may do what, made, shown and changed."""

from __future__ import annotations

import json

import pytest

from gossipkv.access.rights import Right
from gossipkv.access.users import digest_of
from gossipkv.node.users_file import read


@pytest.fixture
def users(tmp_path, run):
    """Runs `users`, of one file; the file."""
    path = tmp_path / "users"

    def command(*arguments):
        return run("users", *arguments, "--file", path)

    command.path = path
    return command


def test_new(users):
    """The token that is written is the user's; the file is its owner's alone, and has no token in it."""
    done = users("new", "ana", "--may", "read:geo*", "--may", "write:carts")
    assert done.status == 0
    token = done.out.strip()
    assert token.startswith("gkv-")
    assert len(token) == 47
    assert users.path.stat().st_mode & 0o777 == 0o600
    assert token not in users.path.read_text()
    assert token not in done.err
    ana = read(users.path).by_token(token.encode())
    assert ana.name == "ana"
    assert [ana.may(right, name) for name in ("geo", "carts") for right in (Right.READ, Right.WRITE)] == [
        True,
        False,
        False,
        True,
    ]


def test_tokens_are_drawn(users):
    """Each is another, and each is its user's."""
    tokens = {name: users("new", name).out.strip() for name in ("ana", "bob")}
    known = read(users.path)
    assert {known.by_token(token.encode()).name: token for token in tokens.values()} == tokens


def test_who_has_no_token(users):
    """Who is known by a certificate, and whoever shows nothing; nothing is written."""
    for arguments in (["new", "probe", "--may", "see", "--no-token"], ["new", "anonymous", "--may", "read:public"]):
        done = users(*arguments)
        assert (done.status, done.out) == (0, "")
    known = read(users.path)
    assert known.named["probe"].may(Right.SEE)
    assert known.anonymous.may(Right.READ, "public")
    assert users("list").out == "probe\tcertificate\tsee\nanonymous\tanybody\tread:public\n"


def test_list_has_no_hashes(users):
    """Names, by what they are known, rights; as text or JSON."""
    token = users("new", "ana", "--may", "read:geo", "--may", "see").out.strip()
    text, told = users("list"), users("list", "--json")
    assert text.out == "ana\ttoken\tread:geo see\n"
    assert json.loads(told.out) == [{"name": "ana", "may": ["read:geo", "see"], "token": True}]
    assert digest_of(token.encode()).hex() not in text.out + told.out


def test_remove(users):
    """The token is nobody's afterwards; the others stay, and so does the mode."""
    tokens = [users("new", name).out.strip().encode() for name in ("ana", "bob")]
    assert users("remove", "ana").status == 0
    known = read(users.path)
    assert known.by_token(tokens[0]) is None
    assert known.by_token(tokens[1]).name == "bob"
    assert users.path.stat().st_mode & 0o777 == 0o600


REFUSED = [
    (["new", "ana"], "there is a user ana"),
    (["new", "a b"], "a name has"),
    (["new", "bob", "--may", "read"], "of which databases"),
    (["new", "bob", "--may", "peer"], "no such right"),
    (["remove", "bob"], "no user bob in it; there are ana"),
    (["remove", "ana"], "ana is the only user"),
    ([], "Missing command"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_is_refused_changes_nothing(users, run, arguments, told):
    """Wrong use: status 2, one line, no token, the file as it was."""
    users("new", "ana")
    before = users.path.read_bytes()
    done = users(*arguments) if arguments else run("users")
    assert (done.status, done.out, users.path.read_bytes()) == (2, "", before)
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["new", "bob"], ["list"], ["remove", "ana"]])
def test_a_file_that_others_may_read_is_refused(users, arguments):
    """By every command: whoever edits it should know."""
    users("new", "ana")
    users.path.chmod(0o640)
    done = users(*arguments)
    assert (done.status, done.out) == (2, "")
    assert "this users file (mode 0640): chmod 600 it" in done.err


@pytest.mark.parametrize("arguments", [["list"], ["remove", "ana"]])
def test_only_new_makes_the_file(users, arguments):
    """One that is not there is told."""
    done = users(*arguments)
    assert done.status == 2
    assert "the users file cannot be read: No such file" in done.err
    assert not users.path.exists()


def test_the_file_is_that_of_the_settings(tmp_path, run, monkeypatch):
    """Unless one is named; where there is none nobody guesses."""
    done = run("users", "list")
    assert (done.status, done.out) == (2, "")
    assert "which file? --file FILE, or the setting `users`" in done.err
    (tmp_path / "settings.toml").write_text(f'users = "{tmp_path / "first"}"\n')
    monkeypatch.setenv("GOSSIPKV_CONFIG", str(tmp_path / "settings.toml"))
    assert run("users", "new", "ana").status == 0
    monkeypatch.setenv("GOSSIPKV_USERS", str(tmp_path / "second"))
    assert run("users", "new", "bob").status == 0
    assert run("users", "new", "eve", "--file", tmp_path / "third").status == 0
    found = {name: [*read(tmp_path / name).named] for name in ("first", "second", "third")}
    assert found == {"first": ["ana"], "second": ["bob"], "third": ["eve"]}
