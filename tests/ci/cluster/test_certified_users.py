"""A real node identifies users by their certificates, in each protocol and at the gateway."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError, Unauthorized
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess
from tests.ci.cluster.test_http import gateways
from tests.ci.cluster.test_users import GONE_S, KEYS, source, until
from tests.unit.serving.secured import Authority

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


def users(path: Path, *probes: str) -> None:
    """Replace the file: each of `probes` may read `geo` and see, and has no token."""
    new = path.with_name("new")
    new.write_text("".join(f'[{name}]\nmay = ["read:geo", "see"]\n' for name in (*probes, "other")))
    new.chmod(0o600)
    new.replace(path)


def asks(address: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    host, port = address.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), PATIENCE_S)
    return context.wrap_socket(plain, server_hostname="localhost")


def page(address: str, path: str, context: ssl.SSLContext, **more: object) -> tuple[int, dict[str, str]]:
    port = address.rsplit(":", 1)[1]
    request = urllib.request.Request(f"https://localhost:{port}{path}", **more)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), Staying())
    try:
        with opener.open(request, timeout=PATIENCE_S) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


class Staying(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Return None: do not follow."""


def test_a_certificate_s_name_is_a_user(tmp_path):
    """This holds in every protocol; a token takes precedence, and a removed user is refused within seconds."""
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    pair, path = authority.pair("node", "localhost"), tmp_path / "users"
    probe, carol = (authority.trusting(clients.pair(name)) for name in ("probe", "carol"))
    users(path, "probe")
    options = (
        "--users", str(path), "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key),
        "--tls-clients", str(clients.path), "--http-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0",
    )  # fmt: skip
    with NodeProcess(tmp_path, *options, source=source(tmp_path)) as node:
        port = node.ready().rsplit(":", 1)[1]

        def connect(context: ssl.SSLContext) -> blocking.Client:
            return blocking.connect(f"localhost:{port}", timeout_ms=PATIENCE_S * 1000, tls=context)

        def read(context: ssl.SSLContext) -> bytes | None:
            with connect(context) as client:
                return client.dataset("geo").get(KEYS[0])

        until(lambda: read(probe) == b"value of " + KEYS[0])
        http = gateways(node)[0][0]
        for context in (carol, authority.trusting()):
            with pytest.raises(Unauthorized):
                read(context)
        with pytest.raises(Unauthorized), connect(probe) as client:
            client.dataset("secrets").get(KEYS[0])
        for path_asked, status in (("/geo/key00", 200), ("/geo/", 200), ("/secrets/key00", 401), ("/metrics", 200)):
            assert page(http, path_asked, probe)[0] == status, path_asked
            assert page(http, path_asked, carol)[0] == 401, path_asked
        assert page(http, "/", probe, headers={"Authorization": "Bearer wrong"})[0] == 401
        with connect(probe) as client:
            resp = str(client.info()["resp"])
        for context, answer in ((probe, b"$14\r\nvalue of key00\r\n"), (carol, b"-NOAUTH ")):
            with asks(resp, context) as connection:
                connection.sendall(b"GET geo:key00\r\n")
                assert connection.recv(1024).startswith(answer)
        with connect(probe) as held:
            assert held.info()["certificate_expires_s"] > time.time()
            assert list(held.verdict()["certificates"].values()) == [held.info()["certificate_expires_s"]]
            users(path)
            began = time.monotonic()

            def is_gone() -> bool:
                try:
                    held.dataset("geo").get(KEYS[0])
                except GossipKVError:
                    return True
                return False

            until(is_gone)
            assert time.monotonic() - began < GONE_S + 4  # Other processes of the machine need their turn as well.
        until(lambda: page(http, "/geo/", probe)[0] == 401)
        assert node.stop() == 0
