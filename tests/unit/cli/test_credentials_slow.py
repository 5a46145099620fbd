"""Commands verify the nodes they ask and present credentials; wrong files and options are refused."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from cryptography.hazmat.primitives import serialization

from gossipkv.errors import Unauthorized
from tests.unit.cli.asked_node import AskedNode
from tests.unit.client.certificates import Authority

TOKEN = "gkv-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return the authority that signs all certificates here."""
    return Authority(tmp_path_factory.mktemp("certificates"))


def node(context=None):
    """Return a node that answers `ping`, under TLS if a context is given."""
    return AskedNode(context, ping=lambda: "pong", auth=lambda _: "ana")


@pytest.mark.parametrize("divided", [False, True])
def test_certificates(run, authority, tmp_path, divided):
    """`--ca` names the trusted authority, `--cert` and `--key` are presented; each option turns TLS on."""
    pair = authority.pair("ana")
    shown = ["--cert", pair]
    if divided:
        key, certificate = tmp_path / "key", tmp_path / "certificate"
        private, begin, public = pair.read_text().partition("-----BEGIN CERTIFICATE")
        key.write_text(private)
        key.chmod(0o600)
        certificate.write_text(begin + public)
        shown = ["--cert", certificate, "--key", key]
    with node(authority.node("127.0.0.1", asks=True)) as asked:
        done = run("ping", "--node", asked.address, "--ca", authority.file, *shown)
        assert (done.status, done.err) == (0, "")
        done = run("ping", "--node", asked.address, "--ca", authority.file)
        assert done.status == 3
        assert "certificate required" in done.err


@pytest.mark.parametrize("command", ["ping", "loadtest"])
def test_files_that_can_be_read_once(run, authority, command):
    """Pipes such as `<(…)` also work for a command that needs them in several connections and processes."""
    private, begin, public = authority.pair("ana").read_text().partition("-----BEGIN CERTIFICATE")
    texts = {"--ca": authority.file.read_text(), "--cert": begin + public, "--key": private, "--token-file": TOKEN}
    line = [command]
    if command == "loadtest":
        line += [
            "--db",
            "geo",
            "--mix",
            "get",
            "--duration",
            "200ms",
            "--warm-up",
            "0s",
            "--processes",
            "2",
            "--connections",
            "2",
        ]
    methods = {"get": lambda *_: [b"value", "1"], "info": dict, "members": list, "databases": list}
    methods["scan"] = lambda *_: [[[b"key", b"value"]], None, "1"]
    with contextlib.ExitStack() as stack:
        for option, text in texts.items():
            line += [option, stack.enter_context(pipe(text))]
        context = authority.node("127.0.0.1", asks=True)
        asked = stack.enter_context(AskedNode(context, ping=lambda: "pong", auth=known, **methods))
        done = run(*line, "--node", asked.address)
        assert done.status == 0, done.err
        assert ("auth", [TOKEN]) in asked.asked


@contextlib.contextmanager
def pipe(text):
    """Yield the path of a pipe with this text."""
    out, into = os.pipe()
    os.write(into, text.encode())
    os.close(into)
    try:
        yield f"/dev/fd/{out}"
    finally:
        os.close(out)


def test_the_authorities_of_the_system(run, authority, monkeypatch):
    """With `--tls` alone, only the system's authorities are trusted."""
    with node(authority.node("127.0.0.1")) as asked:
        assert (
            "is not signed by an authority that this client trusts" in run("ping", "--node", asked.address, "--tls").err
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert run("ping", "--node", asked.address, "--tls").status == 0


def test_a_token_of_a_file_or_of_the_environment(run, monkeypatch, tmp_path):
    """The file's token wins, without its line feed; without a token there is no `auth`."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    with node() as asked:
        for variable, arguments in (("", ()), ("gkv-other", ()), ("gkv-other", ("--token-file", file))):
            monkeypatch.setenv("GOSSIPKV_TOKEN", variable)
            assert run("ping", "--node", asked.address, *arguments).status == 0
        assert [params for method, params in asked.asked if method == "auth"] == [["gkv-other"], [TOKEN]]
        assert [method for method, _ in asked.asked] == ["ping", "auth", "ping", "auth", "ping"]


def test_what_is_in_files_and_is_not_right(run, authority, monkeypatch, tmp_path):
    """The error names the file and never shows its content."""
    pair, other, nothing = authority.pair("ana"), authority.pair("bob"), tmp_path / "nothing"
    nothing.write_text("gkv-secret and\nmore")
    nothing.chmod(0o600)
    loose = tmp_path / "loose"
    loose.write_text(TOKEN)
    loose.chmod(0o644)
    sealed = tmp_path / "sealed"
    key = serialization.load_pem_private_key(pair.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    password = serialization.BestAvailableEncryption(b"word")
    sealed.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, password) + pair.read_bytes())
    sealed.chmod(0o600)
    for arguments, why in (
        (["--ca", nothing], f"--ca {nothing}: the file has no certificate in PEM form"),
        (["--cert", nothing], f"--cert {nothing}: the file has no certificate and key in PEM form"),
        (["--cert", pair, "--key", other], f"--cert {pair}: the key belongs to another certificate"),
        (["--cert", sealed], "the key of --cert is encrypted with a passphrase: give an unencrypted key"),
        (["--key", pair], "--key: belongs to a certificate: give --cert as well"),
        (["--token-file", nothing], f"{nothing}: a token must be one word of printable ASCII"),
        (["--token-file", tmp_path / "none"], "does not exist"),
        (["--token-file", loose], f"{loose}: other users than the owner can read or write the token file (mode 0644)"),
        (
            ["--cert", pair, "--key", loose],
            f"{loose}: other users than the owner can read or write the key (mode 0644)",
        ),
        *(
            (arguments, "bytes, which is the limit")
            for arguments in (
                ["--ca", "/dev/zero"],
                ["--cert", "/dev/zero", "--key", pair],
                ["--token-file", "/dev/zero"],
            )
        ),
        ([], "GOSSIPKV_TOKEN: a token must be one word of printable ASCII"),
    ):
        if not arguments:
            monkeypatch.setenv("GOSSIPKV_TOKEN", "gkv-secret and more")
        done = run("ping", "--node", "127.0.0.1:1", *arguments)
        assert done.status == 2
        assert why in done.err
        assert TOKEN not in done.err


def test_the_load_test(run, authority, tmp_path, monkeypatch):
    """A run works by TLS and with a token; a fault is one sentence, and no token is written."""
    file, keys, other = tmp_path / "token", tmp_path / "keys", tmp_path / "other"
    file.write_text(TOKEN)
    file.chmod(0o600)
    keys.write_text("key\n")
    other.mkdir()
    by_tls = ("--ca", authority.file, "--cert", authority.pair("ana"), "--token-file", file)
    line = ("loadtest", "--db", "geo", "--keys", keys, "--duration", "200ms", "--warm-up", "0s", "--json")
    methods = {"get": lambda *_: [b"value", "1"], "info": dict, "members": list, "databases": list}
    with AskedNode(authority.node("127.0.0.1", asks=True), auth=known, **methods) as asked:
        monkeypatch.setenv("GOSSIPKV_NODE", asked.address)
        done = run(*line, *by_tls)
        assert done.status == 0, done.err
        result = json.loads(done.out)
        assert (result["totals"]["errors"], result["totals"]["broken"]) == ({}, {})
        assert {"auth", "get", "info"} <= {method for method, _ in asked.asked}
        assert result["plan"]["tls"] == {"ca": str(by_tls[1]), "certificate": str(by_tls[3]), "key": None}
        assert TOKEN not in done.out + done.err
        file.write_text("gkv-other")
        for arguments, why in (
            (by_tls, "this token is nobody's"),
            (("--ca", Authority(other).file), "not signed by an authority that this client trusts"),
        ):
            done = run(*line, *arguments)
            assert (done.status, done.err.count("\n"), done.err.startswith("gossipkv: ")) == (3, 1, True), done.err
            assert why in done.err
            assert "gkv-other" not in done.err


def known(token):
    if token != TOKEN:
        raise Unauthorized("this token is nobody's")
    return "ana"
