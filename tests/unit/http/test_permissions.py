"""Permissions by HTTP: every path with every right, the user of a token, and the answers for browsers."""

from __future__ import annotations

import json
from unittest.mock import MagicMock

import pytest
import trio

from gossipkv.access.rights import Right, of_path, parse_grant
from gossipkv.access.users import User, Users, digest_of
from gossipkv.errors import ProtocolError, Unauthorized, Unavailable
from gossipkv.http.answers import HttpRequest
from gossipkv.http.order import GatewayPeer
from gossipkv.http.permissions import KEPT_S, MAX_FORM_BYTES, MAX_KEPT, TIMEOUT_MS, HttpPermissions, token_of
from gossipkv.http.site import Site, site_of
from tests.unit.http.asking import context_of, whole
from tests.unit.http.fake_node import FakeDatabase, FakeNode
from tests.unit.http.test_site import FakePages, looking

GRANTS = {
    "read": Right.READ, "write": Right.WRITE, "operate": Right.OPERATE, "see": Right.SEE,
}  # fmt: skip
OWN = (b"/healthz", b"/livez", b"/readyz", b"/metrics", b"/debug/vars")
# The right that each path of `db` needs.
TARGETS = {
    **{path: of_path(path, b"vars" if path == b"/debug/vars" else None) for path in OWN},
    b"/": Right.SEE, b"/db/": Right.SEE, b"/static/page.css": Right.SEE, b"*": Right.SEE, b"/db": Right.SEE,
    b"/db/key": Right.READ, b"/db/_mget": Right.READ, b"/db/_scan": Right.READ, b"/db/_mput": Right.READ,
    b"/%64b/key": Right.READ,
    b"http://host/db/key": Right.READ,
}  # fmt: skip


class Asked:
    """A node that has users, and grants their rights."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.users: Users | None = Users()
        self.tell: object = None

    async def call(self, method: str, *params: object, timeout_ms: int | None = None) -> object:
        assert (method, timeout_ms) == ("whose", TIMEOUT_MS)
        await trio.lowlevel.checkpoint()
        self.asked.append(params)
        if isinstance(self.tell, Exception):
            raise self.tell
        if self.tell is not None or self.users is None:
            return self.tell
        token, _, name = params
        user = self.users.named.get(name, self.users.anonymous) if token is None else self.users.by_token(token)
        if user is None:
            raise Unauthorized("no user has this token")
        return [user.name, [str(grant) for grant in user.grants]]

    def let(self, **may: str) -> None:
        """Replace the users; each token is its user's name."""
        self.users = Users(
            User(
                name,
                tuple(parse_grant(grant) for grant in grants.split()),
                None if name == "anonymous" else digest_of(name.encode()),
            )
            for name, grants in may.items()
        )


@pytest.fixture
def node() -> Asked:
    return Asked()


def site_that(node, *, is_secured: bool) -> Site:
    """Return a gateway's site whose clients all come by TLS, or all without."""
    records = FakeDatabase({"1": {b"key": b"value", b"_mget": b"a key", b"_scan": b"a key", b"_mput": b"a key"}}, "1")
    permissions = HttpPermissions(node, trio.current_time, is_secured=is_secured)
    databases = context_of(FakeNode({"db": records, "dba": records, "d": records}), permissions=permissions)
    return Site(databases, dict.fromkeys(OWN, looking), FakePages())


@pytest.fixture
def site(node) -> Site:
    return site_that(node, is_secured=False)


def bearer(token: str | None, target: bytes, method: bytes = b"GET", **more: bytes) -> HttpRequest:
    shown = {} if token is None else {b"authorization": b"Bearer " + token.encode()}
    headers = {**shown, **{name.encode(): value for name, value in more.items()}}
    return HttpRequest(method, target, headers, peer=GatewayPeer("10.0.0.1", "anonymous"))


async def test_who_may_see_more_is_no_refusal(node, autojump_clock):
    """A user that the node does not know has no right; without users everybody has it."""
    permissions = HttpPermissions(node, trio.current_time)
    node.let(see="see", read="read:*", anonymous="read:db")
    asked = (None, "see", "read", "nobody")
    assert [await permissions.allows(bearer(name, b"/readyz"), (Right.SEE, None)) for name in asked] == [
        False, True, False, False,
    ]  # fmt: skip
    node.users = None
    await trio.sleep(KEPT_S)
    assert await permissions.allows(bearer(None, b"/readyz"), (Right.SEE, None))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"OPTIONS", b"PUT", b"DELETE"])
async def test_every_path_with_every_right(site, node, target, method):
    """A request succeeds for users with the path's right, for writes with that to write, and for no others."""
    needed = TARGETS[target]
    if needed == Right.READ and (method in {b"PUT", b"DELETE"} or (method == b"POST" and target.endswith(b"/_mput"))):
        needed = Right.WRITE
    node.let(
        **{name: name + ":db" * (right in Right.READ | Right.WRITE) for name, right in GRANTS.items()},
        near="read:dba read:d", anonymous="write:db",
    )  # fmt: skip
    for user in (*GRANTS, "near", None):
        answer = await site.answer(bearer(user, target, method))
        may = needed == Right.NONE or (user != "near" and (GRANTS[user] if user else Right.WRITE) in needed)
        assert (answer.status == 401) != may, (user, answer)
        if not may:
            assert dict(answer.headers)[b"WWW-Authenticate"] == b"Bearer"
            told = b"not allowed without a token\n" if user is None else b"not allowed to this user\n"
            assert await whole(answer) == told
    assert {peer for _, peer, _ in node.asked} <= {"10.0.0.1"}


def test_no_path_is_forgotten():
    """The test covers every path of the gateway's own."""
    assert set(site_of(MagicMock(), None)[0]._paths) == set(OWN)


async def test_a_key_that_the_page_looks_up_is_read(site, node):
    """The right to see the page does not permit looking up a key."""
    node.let(sees="see", both="see read:db")
    for target in (b"/?database=db&key=k", b"/db/?key=k", b"/?database=db&key=", b"/db/?database=dba&key=k"):
        assert (await site.answer(bearer("sees", target))).status == 401
        assert (await site.answer(bearer("both", target))).status == 200
    assert (await site.answer(bearer("both", b"/?database=dba&key=k"))).status == 401
    assert (await site.answer(bearer("both", b"/?key=k"))).status == 401
    assert (await site.answer(bearer("sees", b"/?database=dba"))).status == 200


async def test_without_users_all_may_all(site, node):
    """A token does no harm."""
    node.users = None
    for user in (None, "anybody"):
        for target in TARGETS.keys() - {b"*", b"/db"}:
            assert (await site.answer(bearer(user, target))).status == 200, target
    refused = await site.answer(bearer(None, b"/db"))
    assert refused.status == 400


async def test_what_was_said_of_a_token_stands_for_a_second(autojump_clock, site, node):
    """A permission is kept for a second, and the number of kept permissions is limited."""
    node.let(ana="read:db")
    for _ in range(5):
        assert (await site.answer(bearer("ana", b"/db/key"))).status == 200
    assert node.asked == [(b"ana", "10.0.0.1", "anonymous")]
    node.let(ana="")
    await trio.sleep(KEPT_S)
    assert (await site.answer(bearer("ana", b"/db/key"))).status == 401
    node.let()
    await trio.sleep(KEPT_S)
    gone = await site.answer(bearer("ana", b"/db/key"))
    assert (gone.status, await whole(gone)) == (401, b"no user has this token\n")
    node.users = None
    for number in range(MAX_KEPT + 10):
        assert (await site.answer(bearer(f"t{number}", b"/db/key"))).status == 200
    assert len(site._permissions._kept) == MAX_KEPT


@pytest.mark.parametrize(("told", "status"), [
    (Unavailable("gone"), 502), ("yes", 400), ([], 400), (["ana"], 400), (["ana", "read:*"], 400),
    (ProtocolError("x"), 400),
])  # fmt: skip
async def test_a_node_that_does_not_say_lets_nobody_through(site, node, told, status):
    node.tell = told
    assert (await site.answer(bearer("ana", b"/db/key"))).status == status


@pytest.mark.parametrize(("headers", "token"), [
    ({}, None), ({b"authorization": b"Bearer abc"}, b"abc"), ({b"authorization": b"bearer  abc "}, b"abc"),
    ({b"authorization": b"Basic YTpi"}, None), ({b"authorization": b"Bearer"}, None),
    ({b"authorization": b"Bearer "}, b""),
    ({b"cookie": b"gossipkv-token=abc"}, b"abc"), ({b"cookie": b"a=b; gossipkv-token=abc; c=d"}, b"abc"),
    ({b"cookie": b"xgossipkv-token=abc"}, None), ({b"cookie": b"gossipkv-tokens=abc"}, None),
    ({b"cookie": b"a=b, gossipkv-token=abc"}, b"abc"),
    ({b"authorization": b"Bearer abc", b"cookie": b"gossipkv-token=no"}, b"abc"),
])  # fmt: skip
def test_where_a_token_is(headers, token):
    """A bearer token precedes the cookie; the cookie's name must match exactly."""
    assert token_of(HttpRequest(b"GET", b"/", headers)) == token


async def test_a_browser_is_shown_a_form_and_gets_a_cookie(site, node):
    """No script can read the cookie and no other site can send it; it is `Secure` over TLS."""
    node.let(ana="see")
    page = await site.answer(bearer(None, b"/", accept=b"text/html,*/*"))
    assert (page.status, dict(page.headers)[b"WWW-Authenticate"]) == (401, b"Bearer")
    assert b'<form method="post" action="/login">' in await whole(page)
    assert (await site.answer(bearer(None, b"/login"))).status == 200
    for token, more in (("ana", {}), ("ana", {"x-forwarded-proto": b"https"})):
        headers = {name.encode(): value for name, value in more.items()}
        done = await site.answer(HttpRequest(b"POST", b"/login", headers, b"token=" + token.encode()))
        cookie = dict(done.headers)[b"Set-Cookie"]
        assert (done.status, dict(done.headers)[b"Location"]) == (303, b"/")
        expected = b"gossipkv-token=ana; Path=/; HttpOnly; SameSite=Strict" + b"; Secure" * bool(more)
        assert cookie == expected
        seen = await site.answer(HttpRequest(b"GET", b"/", {b"cookie": cookie.partition(b";")[0]}))
        assert seen.status == 200
    for body in (b"token=wrong", b"", b"token=ana%0D%0AX%3A1", b"token=\xff"):
        refused = await site.answer(HttpRequest(b"POST", b"/login", {b"accept": b"text/html"}, body))
        assert refused.status == 401
        assert b"Set-Cookie" not in dict(refused.headers)
    node.users = None
    split = await site.answer(HttpRequest(b"POST", b"/login", {}, b"token=a%0D%0AX%3A1"))
    assert dict(split.headers)[b"Set-Cookie"].startswith(b"gossipkv-token=aX1;")


@pytest.mark.parametrize(("headers", "status"), [
    ({b"origin": b"http://node:8080"}, 303), ({b"origin": b"https://node:8080"}, 303), ({}, 303),
    ({b"origin": b"https://public", b"x-forwarded-host": b"public"}, 303),
    ({b"origin": b"http://evil"}, 403), ({b"origin": b"null"}, 403), ({b"origin": b"http://node"}, 403),
    ({b"origin": b""}, 403), ({b"origin": b"http://evil", b"referer": b"http://node:8080/"}, 403),
])  # fmt: skip
async def test_a_form_comes_from_a_page_of_this_host(site, node, headers, status):
    node.let(ana="see")
    done = await site.answer(HttpRequest(b"POST", b"/login", {b"host": b"node:8080", **headers}, b"token=ana"))
    assert (done.status, b"Set-Cookie" in dict(done.headers)) == (status, status == 303)
    assert len(node.asked) == (status == 303)


async def test_a_form_is_short(site, node):
    node.let(ana="see")
    for size, status in ((MAX_FORM_BYTES, 303), (MAX_FORM_BYTES + 1, 413)):
        body = b"token=ana&x=" + b"y" * (size - 12)
        assert (await site.answer(HttpRequest(b"POST", b"/login", {}, body))).status == status


async def test_a_scan_ends_with_the_right_to_read(autojump_clock, node):
    """The scan ends at the next page once the kept permission has expired; earlier pages are whole."""
    records = FakeDatabase({"1": {b"key%02d" % number: b"v" for number in range(50)}}, "1")
    permissions = HttpPermissions(node, trio.current_time)
    fake = FakeNode({"db": records}, page=7)
    site = Site(context_of(fake, permissions=permissions), {}, FakePages())
    for gone in ({"ana": "read:other"}, {}):
        node.let(ana="read:db")
        await trio.sleep(KEPT_S)
        fake.calls.clear()
        answer = await site.answer(bearer("ana", b"/db/_scan", b"POST"))
        assert answer.status == 200
        for _ in range(2):
            await anext(answer.body)
        node.let(**gone)
        await trio.sleep(KEPT_S)
        rest = b"".join([piece async for piece in answer.body])
        assert [json.loads(line).get("error") for line in rest.splitlines()] == ["UNAUTHORIZED"]
        assert len(fake.asked("scan")) == 2


async def test_the_cookie_of_who_has_come_by_tls_goes_by_nothing_else(node):
    """The node terminates TLS, so no header decides about `Secure`."""
    node.let(ana="see")
    for headers in ({}, {b"x-forwarded-proto": b"http"}):
        done = await site_that(node, is_secured=True).answer(HttpRequest(b"POST", b"/login", headers, b"token=ana"))
        assert dict(done.headers)[b"Set-Cookie"].endswith(b"; SameSite=Strict; Secure")


async def test_who_shows_a_certificate_is_its_user(autojump_clock, site, node):
    """A token takes precedence over a certificate; both are kept for a second."""
    node.let(ana="read:db", bob="see", anonymous="")

    async def status(target: bytes, user: str, token: bytes | None = None) -> int:
        shown = {} if token is None else {b"authorization": b"Bearer " + token}
        return (await site.answer(HttpRequest(b"GET", target, shown, peer=GatewayPeer("10.0.0.1", user)))).status

    assert [await status(b"/db/key", user) for user in ("ana", "bob", "anonymous")] == [200, 401, 401]
    assert [await status(b"/", user) for user in ("ana", "bob", "anonymous")] == [401, 200, 401]
    assert (await status(b"/db/key", "bob", b"ana"), await status(b"/db/key", "ana", b"bob")) == (200, 401)
    assert await status(b"/db/key", "ana", b"wrong") == 401
    node.let(bob="see", anonymous="")
    await trio.sleep(KEPT_S)
    assert await status(b"/db/key", "ana") == 401


async def test_a_gateway_of_no_node_judges_nobody():
    """A gateway without a node reads with its own token, and leaves refusals to the node that it asks."""
    records = FakeDatabase({"1": {b"key": b"value"}}, "1")
    alone = Site(context_of(FakeNode({"db": records})), {}, FakePages())
    assert (await alone.answer(bearer(None, b"/db/key"))).status == 200
