"""`certificates`: an authority and its certificates; no file is replaced and no key shown."""

from __future__ import annotations

import ssl
import sys

import pytest
from cryptography import x509


@pytest.fixture
def place(tmp_path, run):
    """Return a directory with an authority."""
    done = run("certificates", "new", tmp_path / "certificates")
    assert (done.status, done.out) == (0, "")
    return tmp_path / "certificates"


def names_of(path):
    found = x509.load_pem_x509_certificate(path.read_bytes()).extensions
    return [name.value for name in found.get_extension_for_class(x509.SubjectAlternativeName).value]


def test_new(place, run):
    """Keys are readable by their owner only, certificates by all; both load, and the note names the expiry."""
    assert place.stat().st_mode & 0o777 == 0o700
    node = run("certificates", "new", place, "n1", "--host", "10.0.0.1", "--host", "kv.example.org")
    client = run("certificates", "new", place, "ana", "--days", "30")
    assert (node.status, client.status, node.out + client.out) == (0, 0, "")
    assert "n1.key: a node, until 20" in node.err
    assert "ana.key: a client, until 20" in client.err
    assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == {
        f"{name}.{kind}": mode for name in ("ca", "n1", "ana") for kind, mode in (("pem", 0o644), ("key", 0o600))
    }
    for name in ("n1", "ana"):
        ssl.create_default_context(cafile=place / "ca.pem").load_cert_chain(
            place / f"{name}.pem", place / f"{name}.key"
        )


def test_a_node_has_a_uuid(place, run):
    """The certificate has the given uuid, or a new one."""
    for name, more in {"n1": ["--uuid", "6fa459eaee8a3ca4894edb77e160355e"], "n2": [], "n3": []}.items():
        assert run("certificates", "new", place, name, "--host", "::1", *more).status == 0
    first, second, third = (str(names_of(place / f"{name}.pem")[1]) for name in ("n1", "n2", "n3"))
    assert first == "urn:uuid:6fa459ea-ee8a-3ca4-894e-db77e160355e"
    assert second != third
    assert {second[:9], third[:9]} == {"urn:uuid:"}


REFUSED = [
    ([], "ca.pem exists and is not replaced"),
    (["ana"], "ana.pem exists and is not replaced"),
    (["ca"], "the authority's own files"),
    (["../ana"], "a name consists of"),
    (["n1", "--host", "10.0.0.1:7070"], "without a port"),
    (["n1", "--host", "a b"], "expected a name or an address"),
    (["n1", "--host", "a" * 254], "expected a name or an address"),
    (["n1", "--host", "::1", "--uuid", "12"], "not a valid UUID"),
    (["n1", "--uuid", "0" * 32], "give --host for"),
    (["--host", "::1"], "give NAME"),
    (["bob", "--days", "0"], "--days: 0: expected a whole number, at least 1 and at most 3650"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_is_refused_changes_nothing(place, run, arguments, told):
    """Wrong use gives status 2 and one line, and every file stays."""
    run("certificates", "new", place, "ana")
    before = {path: path.read_bytes() for path in place.iterdir()}
    done = run("certificates", "new", place, *arguments)
    assert (done.status, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1
    assert {path: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize("left", ["pem", "key"])
def test_half_of_a_pair_is_not_replaced(place, run, left):
    """The key may be in use although its certificate was moved."""
    (place / f"ana.{left}").write_text("ours")
    assert run("certificates", "new", place, "ana").status == 2
    assert (place / f"ana.{left}").read_text() == "ours"
    assert len([*place.iterdir()]) == 3


def test_without_an_authority(tmp_path, run):
    """Nothing is created, not even the directory: it may be the wrong one."""
    done = run("certificates", "new", tmp_path / "elsewhere", "ana")
    assert done.status == 2
    make = f"`gossipkv certificates new {tmp_path}/elsewhere` makes an authority"
    assert f"no certificate authority in this directory; {make}" in done.err
    assert [*tmp_path.iterdir()] == []


def test_an_authority_whose_key_others_may_read(place, run):
    (place / "ca.key").chmod(0o640)
    done = run("certificates", "new", place, "ana")
    assert done.status == 2
    assert "the key (mode 0640); run `chmod 600` on it, and replace all certificates" in done.err
    assert not (place / "ana.key").exists()


def test_without_the_library_one_line_says_what_to_install(tmp_path, run, monkeypatch):
    """Without the library the status is 3, but the help works."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "gossipkv.access.certificates", raising=False)
    monkeypatch.delattr("gossipkv.access.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert run("certificates", "new", "--help").status == 0
    done = run("certificates", "new", tmp_path / "certificates")
    assert done.status == 3
    assert "pip install 'gossipkv[secure]'" in done.err
