"""TLS clients of other projects speak with a real node: OpenSSL, curl, redis-cli, JavaScript, Java, Python."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gossipkv.access.users import token_of
from gossipkv.address import Address, parse_address
from gossipkv.client import blocking
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess
from tests.ci.cluster.test_http import gateways
from tests.ci.cluster.test_users import KEYS, source, until, users
from tests.unit.client.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = token_of(b"1" * 32)
VERSIONS = ["1.2", "1.3"]


class Node(NamedTuple):
    """The addresses of a node, and the authority that its clients trust."""

    listen: str
    resp: Address
    http: Address
    ca: str
    place: Path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Start a node that speaks TLS at each port and knows one user."""
    place: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(place)
    pair = str(authority.pair("localhost", "127.0.0.1"))
    users(place / "users", ana=TOKEN)
    options = (
        *("--tls-certificate", pair, "--tls-key", pair, "--tls-listeners", "listen, resp_listen, http_listen"),
        *("--users", str(place / "users"), "--http-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0"),
    )
    with NodeProcess(place, *options, source=source(place)) as process:
        process.ready()
        how = {"timeout_ms": PATIENCE_S * 1000, "tls": authority.client(), "token": TOKEN}
        with blocking.connect(process.address, **how) as client:
            until(lambda: client.dataset("geo").get(KEYS[0]))
            resp = parse_address(str(client.info()["resp"]))
        yield Node(process.address, resp, parse_address(gateways(process)[-1][0]), str(authority.file), place)
        assert process.stop() == 0, process.said()


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def run(*command: str, typed: str = "", **environ: str) -> str:
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env=os.environ | environ,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout


def over_resp(*asked: str) -> str:
    """Return RESP lines: the authentication, the commands, and the end."""
    return "".join(f"{line}\n" for line in (f"AUTH {TOKEN}", *asked, "QUIT"))


@needs("openssl")
@pytest.mark.parametrize("version", VERSIONS)
def test_openssl(node: Node, version: str) -> None:
    """OpenSSL's client is answered, and again after it resumes the session by a ticket."""
    ticket = node.place / f"ticket-{version}"
    command = (
        "openssl",
        "s_client",
        f"-tls{version.replace('.', '_')}",
        "-connect",
        str(node.resp),
        "-crlf",
        "-ign_eof",
    )
    command += ("-CAfile", node.ca, "-verify_ip", node.resp.host, "-verify_return_error")
    for way, begin in (("-sess_out", "New"), ("-sess_in", "Reused")):
        told = run(*command, way, str(ticket), typed=over_resp("GET geo:key07", "GET secrets:key07"))
        assert f"{begin}, TLSv{version}, Cipher is " in told
        assert "Verify return code: 0 (ok)" in told
        assert "\nvalue of key07\n" in told
        assert "\n-NOPERM " in told


@needs("curl")
@pytest.mark.parametrize("version", VERSIONS)
def test_curl(node: Node, version: str) -> None:
    """A key, served by the pump, and the page, served by the gateway, share one connection."""
    curl = ("curl", "-sS", "--http1.1", "--cacert", node.ca, f"--tlsv{version}", "--tls-max", version, "-K", "-")
    curl += ("-w", " %{http_code} %{num_connects}\n")
    urls = [f"https://{node.http}{path}" for path in ("/geo/key07", "/", "/geo/none", "/geo/key08")]
    told = run(*curl, *urls, typed=f'header = "Authorization: Bearer {TOKEN}"\n')
    assert told.startswith("value of key07 200 1\n<!doctype html>")
    assert " 200 0\n" in told
    assert told.endswith(" 404 0\nvalue of key08 200 0\n")
    assert run(*curl, "-o", os.devnull, *urls[:1]) == " 401 1\n"
    plain = run(*curl, urls[0].replace("https:", "http:"))
    assert "TLS" in plain
    assert plain.endswith(" 400 1\n")


@needs("redis-cli")
def test_redis_cli(node: Node) -> None:
    """A command, a greeting, lines, and a thousand pipelined requests are answered."""
    cli = ("redis-cli", "--tls", "--cacert", node.ca, "-h", node.resp.host, "-p", str(node.resp.port))
    assert run(*cli, "get", "geo:key07", REDISCLI_AUTH=TOKEN) == "value of key07\n"
    assert "gossipkv" in run(*cli, "hello", "3", "AUTH", "ana", TOKEN)
    assert run(*cli, typed="get geo:key07\n").startswith("NOAUTH ")
    asked = "".join(f"GET geo:{key.decode()}\r\n" for key in KEYS * 10)
    told = run(*cli, "--pipe", typed=asked, REDISCLI_AUTH=TOKEN)
    assert "errors: 0, replies: 1000" in told


def test_our_load_test(node: Node) -> None:
    """Every answer is right in each protocol; a missing or wrong token gives one line."""
    truth, token = node.place / "truth", node.place / "token"
    truth.write_bytes(b"".join(b"%s\tvalue of %s\n" % (key, key) for key in KEYS))
    token.write_text(TOKEN)
    token.chmod(0o600)
    of_resp = node.place / "resp"
    of_resp.write_bytes(b"".join(b"geo:%s\tvalue of %s\n" % (key, key) for key in KEYS))
    line = ("-m", "gossipkv", "loadtest", "--db", "geo", "--duration", "500ms", "--warm-up", "0s", "--connections", "3")
    line += ("--mix", "get=3,get_many=1", "--pipeline", "4", "--json", "--ca", node.ca)
    for target, right in (
        (f"gossipkv://{node.listen}", truth),
        (f"http://{node.http}", truth),
        (f"redis://{node.resp}", of_resp),
    ):
        asked = (*line, "--target", target, "--truth", str(right))
        told = run(sys.executable, *asked, "--token-file", str(token))
        totals = json.loads(told)["totals"]
        assert totals["requests"] > 0
        assert {name for name in ("wrong", "unchecked", "lost", "errors", "broken") if totals[name]} == set()
        environ = os.environ | {"GOSSIPKV_TOKEN": token_of(b"2" * 32)}
        done = subprocess.run(
            [sys.executable, *asked], capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environ
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
        for secret in (TOKEN, environ["GOSSIPKV_TOKEN"]):
            assert secret not in told + done.stderr


IN_JAVASCRIPT = """
const [host, port, ca, asked] = process.argv.slice(1);
const options = { host, port, ca: require("fs").readFileSync(ca) };
function ask(session, version) {
  return new Promise((resolve, reject) => {
    const said = [], found = {};
    const socket = require("tls").connect({ ...options, session, minVersion: version, maxVersion: version }, () => {
      found.begin = [socket.getProtocol(), socket.authorized, socket.isSessionReused()];
      for (const part of asked.match(/[^]{1,7}/g)) socket.write(part);
    });
    socket.on("session", (ticket) => { found.ticket = ticket; });
    socket.on("data", (data) => said.push(data));
    socket.on("error", reject);
    socket.on("end", () => { socket.end(); resolve({ ...found, said: Buffer.concat(said).toString() }); });
  });
}
(async () => {
  for (const version of ["TLSv1.2", "TLSv1.3"]) {
    const first = await ask(undefined, version), again = await ask(first.ticket, version);
    console.log(JSON.stringify([first.begin, again.begin, first.said, again.said]));
  }
})();
"""


@needs("node")
def test_javascript(node: Node) -> None:
    """Many small records each way are answered in both versions, with a ticket the second time."""
    asked = over_resp(*(f"GET geo:{key.decode()}" for key in KEYS)).replace("\n", "\r\n")
    told = run("node", "-e", IN_JAVASCRIPT, node.resp.host, str(node.resp.port), node.ca, asked).splitlines()
    answers = "+OK\\r\\n" + "".join(rf"$14\r\nvalue of {key.decode()}\r\n" for key in KEYS) + r"+OK\r\n"
    assert told == [
        f'[["TLSv{version}",true,false],["TLSv{version}",true,true],"{answers}","{answers}"]' for version in VERSIONS
    ]


IN_JAVA = """
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.security.KeyStore;
import java.security.cert.*;
import javax.net.ssl.*;

class Ask {
  public static void main(String[] words) throws Exception {
    KeyStore trusted = KeyStore.getInstance("PKCS12");
    trusted.load(null, null);
    try (InputStream file = new FileInputStream(words[0])) {
      trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
    trust.init(trusted);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    SSLParameters checked = new SSLParameters();
    checked.setEndpointIdentificationAlgorithm("HTTPS");
    for (String version : new String[] {"TLSv1.2", "TLSv1.3"}) {
      checked.setProtocols(new String[] {version});
      SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(words[1], Integer.parseInt(words[2]));
      socket.setSSLParameters(checked);
      socket.getOutputStream().write(System.getenv("ASKED").getBytes());
      System.out.print(socket.getSession().getProtocol() + " " + new String(socket.getInputStream().readAllBytes()));
      socket.close();
      HttpClient client = HttpClient.newBuilder().sslContext(context).sslParameters(checked).build();
      for (String path : new String[] {"/geo/key07", "/readyz"}) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(words[3] + path))
            .header("Authorization", "Bearer " + System.getenv("TOKEN")).build();
        HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body().strip());
      }
    }
  }
}
"""


@needs("javac")
def test_java(node: Node) -> None:
    """Java reads RESP over a socket, and HTTP by its client, which prefers HTTP/2."""
    (node.place / "Ask.java").write_text(IN_JAVA)
    told = run(
        *("java", str(node.place / "Ask.java"), node.ca, node.resp.host, str(node.resp.port), f"https://{node.http}"),
        ASKED=over_resp("GET geo:key07").replace("\n", "\r\n"), TOKEN=TOKEN,
    )  # fmt: skip
    by_http = "200 value of key07\n200 ready\n"
    assert told == "".join(f"TLSv{one} +OK\n$14\nvalue of key07\n+OK\n{by_http}" for one in VERSIONS)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_python(node: Node, version: ssl.TLSVersion) -> None:
    """Python's socket checks the host name and reads to the TLS end on both sides."""
    context = ssl.create_default_context(cafile=node.ca)
    context.minimum_version = context.maximum_version = version
    plain = socket.create_connection((node.resp.host, node.resp.port), timeout=PATIENCE_S)
    with context.wrap_socket(plain, server_hostname=node.resp.host, suppress_ragged_eofs=False) as connection:
        connection.sendall(over_resp(*["GET geo:key07"] * 1000).replace("\n", "\r\n").encode())
        with connection.makefile("rb") as file:
            assert file.read() == b"+OK\r\n" + b"$14\r\nvalue of key07\r\n" * 1000 + b"+OK\r\n"
