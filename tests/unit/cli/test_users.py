"""`users`: the file of users and their rights is created, shown and changed."""

from __future__ import annotations

import json

import pytest

from gossipkv.access.rights import Right
from gossipkv.access.users import digest_of
from gossipkv.node.users_file import read


@pytest.fixture
def users(tmp_path, run):
    """Return a function that runs `users` on one file; its `path` is the file."""
    path = tmp_path / "users"

    def command(*arguments):
        return run("users", *arguments, "--file", path)

    command.path = path
    return command


def test_new(users):
    """The written token is valid; the file is readable by its owner only and does not contain the token."""
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
    tokens = {name: users("new", name).out.strip() for name in ("ana", "bob")}
    known = read(users.path)
    assert {known.by_token(token.encode()).name: token for token in tokens.values()} == tokens


def test_who_has_no_token(users):
    """Users with certificates and anonymous clients have no token, so none is written."""
    for arguments in (["new", "probe", "--may", "see", "--no-token"], ["new", "anonymous", "--may", "read:public"]):
        done = users(*arguments)
        assert (done.status, done.out) == (0, "")
    known = read(users.path)
    assert known.named["probe"].may(Right.SEE)
    assert known.anonymous.may(Right.READ, "public")
    assert users("list").out == "probe\tcertificate\tsee\nanonymous\tanybody\tread:public\n"


def test_list_has_no_hashes(users):
    """The list has names, kinds of credentials and rights, as text or JSON."""
    token = users("new", "ana", "--may", "read:geo", "--may", "see").out.strip()
    text, told = users("list"), users("list", "--json")
    assert text.out == "ana\ttoken\tread:geo see\n"
    assert json.loads(told.out) == [{"name": "ana", "may": ["read:geo", "see"], "token": True}]
    assert digest_of(token.encode()).hex() not in text.out + told.out


def test_remove(users):
    """The token becomes invalid; other users and the mode stay."""
    tokens = [users("new", name).out.strip().encode() for name in ("ana", "bob")]
    assert users("remove", "ana").status == 0
    known = read(users.path)
    assert known.by_token(tokens[0]) is None
    assert known.by_token(tokens[1]).name == "bob"
    assert users.path.stat().st_mode & 0o777 == 0o600


REFUSED = [
    (["new", "ana"], "the user ana exists"),
    (["new", "a b"], "a name consists of"),
    (["new", "bob", "--may", "read"], "needs a pattern"),
    (["new", "bob", "--may", "peer"], "unknown right"),
    (["remove", "bob"], "the file has no user bob; its users are ana"),
    (["remove", "ana"], "ana is the only user"),
    ([], "missing command"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_is_refused_changes_nothing(users, run, arguments, told):
    """Wrong use gives status 2, one line and no token, and the file stays."""
    users("new", "ana")
    before = users.path.read_bytes()
    done = users(*arguments) if arguments else run("users")
    assert (done.status, done.out, users.path.read_bytes()) == (2, "", before)
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["new", "bob"], ["list"], ["remove", "ana"]])
def test_a_file_that_others_may_read_is_refused(users, arguments):
    """Every command refuses the file, so that its owner notices."""
    users("new", "ana")
    users.path.chmod(0o640)
    done = users(*arguments)
    assert (done.status, done.out) == (2, "")
    assert "the users file (mode 0640); run `chmod 600` on it" in done.err


@pytest.mark.parametrize("arguments", [["list"], ["remove", "ana"]])
def test_only_new_makes_the_file(users, arguments):
    """Other commands report a missing file."""
    done = users(*arguments)
    assert done.status == 2
    assert "the users file cannot be read: No such file" in done.err
    assert not users.path.exists()


def test_the_file_is_that_of_the_settings(tmp_path, run, monkeypatch):
    """`--file` overrides the settings; without either the command refuses."""
    done = run("users", "list")
    assert (done.status, done.out) == (2, "")
    assert "no users file: give --file FILE, or set `users`" in done.err
    (tmp_path / "settings.toml").write_text(f'users = "{tmp_path / "first"}"\n')
    monkeypatch.setenv("GOSSIPKV_CONFIG", str(tmp_path / "settings.toml"))
    assert run("users", "new", "ana").status == 0
    monkeypatch.setenv("GOSSIPKV_USERS", str(tmp_path / "second"))
    assert run("users", "new", "bob").status == 0
    assert run("users", "new", "eve", "--file", tmp_path / "third").status == 0
    found = {name: [*read(tmp_path / name).named] for name in ("first", "second", "third")}
    assert found == {"first": ["ana"], "second": ["bob"], "third": ["eve"]}
