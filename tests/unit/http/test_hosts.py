"""Without users, requests for the host of another site are answered 421, by the loop and the gateway alike."""

from __future__ import annotations

import pytest
import trio

from tests.unit.serving import http_world as world
from tests.unit.serving.http_driven import make_http_core
from tests.world._world import Driver

HOSTS = "localhost n1.example.org"
KEY = b"/db/k"

ADDRESSES = ["127.0.0.1", "127.0.0.1:8080", "10.0.0.1:", "255.255.255.255", "[::1]", "[::1]:8080", "[fd00::a:B]"]
NAMES = ["localhost", "localhost:8080", "LocalHost", "localhost.", "localhost.:80", "N1.Example.org:8080"]
OTHERS = [
    *("evil.example", "evil.example:8080", "localhost.evil.example", "evil.localhost", "n1", "n1.example.or"),
    *("n1.example.orgs", "example.org", "localhost n1.example.org", "localhost..", "localhost:80:80", "localhost:8o"),
    *("127.0.0.1.evil.example", "127.0.0.1evil", "evil.127.0.0.1", "127.1", "0x7f.0.0.1", "2130706433", "1.2.3.4.5"),
    *("[evil.example]", "[::1", "::1", "[]", "[::1]x", "ana@localhost", "localhost@evil.example", "", ":8080", "."),
    *("localhost, evil.example", "localhost/", "xn--lcalhost-54a", "b\xfccher.example", "*"),
]


def sent(host: str, line: bytes = b"GET %b HTTP/1.1" % KEY) -> bytes:
    return b"%b\r\nHost: %b\r\n\r\n" % (line, host.encode("latin-1"))


def by_gateway(request: bytes, hosts: str = HOSTS) -> tuple[int, str]:
    (answer,) = trio.run(world.Gateway(hosts=hosts).answers, request)
    return int(answer[9:12]), answer.partition(b"\r\n\r\n")[2].decode()


def by_loop(directory, request: bytes, hosts: str = HOSTS) -> bytes:
    """Return the loop's answer; empty if the loop leaves the request to the gateway."""
    driver = Driver(make_http_core(directory, hosts=hosts))
    handle = driver.open(1, listener=2)
    assert driver.feed(handle, request, 1) == []
    return driver.take_output(handle, 1 << 20, 1)


@pytest.mark.parametrize("host", ADDRESSES + NAMES)
def test_addresses_and_own_names_are_answered(tmp_path, host):
    assert by_gateway(sent(host)) == (200, "v")
    assert by_loop(tmp_path, sent(host)).endswith(b"\r\n\r\nv")


@pytest.mark.parametrize("host", OTHERS)
def test_other_hosts_are_refused(tmp_path, host):
    status, line = by_gateway(sent(host))
    assert (status, "http_hosts" in line, line.count("\n")) == (421, True, 1)
    assert by_loop(tmp_path, sent(host)) == b""


@pytest.mark.parametrize("host", ["evil.example", "", "ana@localhost"])
def test_any_host_is_answered_if_none_is_expected(tmp_path, host):
    """The setting is `*`, or the node has users."""
    assert by_gateway(sent(host), hosts="")[0] == 200
    assert by_loop(tmp_path, sent(host), hosts="")[9:12] == b"200"


@pytest.mark.parametrize(("target", "host", "status"), [
    (b"http://evil.example/db/k", "localhost", 421), (b"http://localhost:8080/db/k", "evil.example", 200),
    (b"HTTPS://[::1]/db/k", "evil.example", 200), (b"http:///db/k", "localhost", 421),
    (b"http://localhost@evil.example/db/k", "localhost", 421), (b"http://ana@localhost/db/k", "localhost", 421),
    (b"http://evil.example?/db/k", "localhost", 421), (b"http://evil.example/healthz", "localhost", 200),
])  # fmt: skip
def test_the_host_in_a_target_takes_the_header_s_place(target, host, status):
    """RFC 9112, 3.2.2."""
    assert by_gateway(sent(host, b"GET %b HTTP/1.1" % target))[0] == status


@pytest.mark.parametrize(("request_", "status"), [
    (b"GET /db/k HTTP/1.1\r\n\r\n", 400), (b"GET /db/k HTTP/1.0\r\n\r\n", 200),
    (b"GET /db/k HTTP/1.0\r\nHost: evil.example\r\n\r\n", 421),
    (b"GET /db/k HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /db/k HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Host: evil.example\r\n\r\n", 200),
    (b"GET /db/k HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n\r\n", 421),
])  # fmt: skip
def test_missing_and_repeated_headers(tmp_path, request_, status):
    """RFC 9112, 3.2: only HTTP/1.0 may have no host, and nobody may have two."""
    assert by_gateway(request_)[0] == status
    assert by_loop(tmp_path, request_)[9:12] in ({b"200"} if status == 200 else {b""})


@pytest.mark.parametrize(("line", "status"), [
    (b"GET /healthz", 200), (b"GET /healthz?x", 200), (b"GET /metrics", 421), (b"GET /", 421), (b"GET /db/", 421),
    (b"GET /static/page.css", 421), (b"OPTIONS *", 421), (b"OPTIONS /db/k", 421), (b"PUT /carts/k", 421),
    (b"DELETE /carts/k", 421), (b"POST /carts/_mput", 421), (b"POST /db/_mget", 421), (b"GET /login", 421),
])  # fmt: skip
def test_only_health_is_exempt(line, status):
    assert by_gateway(sent("evil.example", line + b" HTTP/1.1\r\nContent-Length: 0"))[0] == status


def test_each_request_of_a_connection_is_judged(tmp_path):
    """The loop answers up to the first other host, in the middle of a burst and of a body."""
    burst = sent("localhost") + sent("evil.example") + sent("localhost")
    assert by_loop(tmp_path, burst).count(b"HTTP/1.1 200") == 1
    answers = trio.run(world.Gateway(hosts=HOSTS).answers, burst)
    assert [answer[9:12] for answer in answers] == [b"200", b"421", b"200"]
    put = b"PUT /%b/k HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\nv" % world.TABLE.encode()
    assert by_loop(tmp_path, put) == b""


@pytest.mark.parametrize(("host", "named"), [
    ("Evil.example:8080", "evil.example"), ("ana@localhost", "NAME"), ("b\xfccher.example", "NAME"),
])  # fmt: skip
def test_the_refusal_gives_the_line_to_add(host, named):
    """A host that no setting may have is not repeated."""
    line = by_gateway(sent(host))[1]
    assert f'add http_hosts = "{named}" to the settings' in line
    assert ("Evil" in line, "ana" in line, "cher" in line) == (False, False, False)
