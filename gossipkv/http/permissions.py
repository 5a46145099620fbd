"""Users of HTTP and their rights: the gateway asks its node for a token's user, and judges requests by the answer.

A token comes in `Authorization: Bearer`, or in the page's cookie, which `POST /login` sets.  No script can read the
cookie (HttpOnly) and no other site's page sends it (SameSite=Strict).  If it came by TLS, it is sent only by TLS
(Secure).  Forms from another `Origin` than their host are refused, so no foreign page can log a user in.  Without a
token, the user is that of the certificate, as the node reports for each connection.  The gateway itself may read
everything, so every request is judged first.  The node's statement about a user is valid for a second.

Without users, a foreign page must not act by DNS rebinding: its site lets its own name mean a node's address, so to the
browser its requests stay on the site.  But their `Host` is that name, which is refused (`check_host`).
"""

from __future__ import annotations

import contextlib
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qs

from gossipkv.access.rights import HEALTH, NOT_ANONYMOUS, NOT_THIS_USER, REFUSAL_PAUSE_S, parse_grant
from gossipkv.access.users import ANONYMOUS, User
from gossipkv.errors import BadRequest, GossipKVError, ProtocolError, TooLarge, Unauthorized
from gossipkv.http import target
from gossipkv.http.answers import HttpAnswer, RefusedRequest, refusal, text
from gossipkv.log import Log, Sparing
from gossipkv.wire.hosts import is_expected_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.access.rights import Right
    from gossipkv.http.answers import Asker, HttpRequest
    from gossipkv.http.order import GatewayPeer
    from gossipkv.wire.rpc import Value

COOKIE: Final = "gossipkv-token"

# A statement about a token is valid for this long; so is a revoked token.
KEPT_S: Final = 1.0
MAX_KEPT: Final = 1024
MAX_FORM_BYTES: Final = 4096  # A token has 43 characters; anybody may send a form.
TIMEOUT_MS: Final = 5000  # The node delays its statement about a wrong token.

_NAMED: Final = re.compile(rb"([-_.a-zA-Z0-9]{1,253})(:[0-9]*)?$")

_BEARER: Final = b"bearer "
_FORM: Final = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>GossipKV</title>
<form method="post" action="/login">
<p>This node knows its users. <label>Token:
<input name="token" type="password" autocomplete="current-password" autofocus></label>
<button>Go on</button>
</form></html>
"""
_HEADERS: Final = (
    (b"Content-Type", b"text/html; charset=utf-8"),
    (b"Content-Security-Policy", b"default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"Cache-Control", b"no-store"),
)


@final
class HttpPermissions:
    """The rights of HTTP clients; `now` returns monotonic seconds; `is_secured`: all connections come by TLS."""

    def __init__(self, ask: Asker, now: Callable[[], float], *, is_secured: bool = False) -> None:
        self._ask = ask
        self._now = now
        self._refusals = Sparing(REFUSAL_PAUSE_S)
        self._log = Log("gossipkv.http")
        self._is_secured = is_secured
        self._kept: dict[bytes | str, tuple[float, User | None]] = {}  # The key is a token's digest, or a name.

    async def check(self, request: HttpRequest, *needed: tuple[Right, str | None]) -> None:
        """Check that the request may proceed: for each pair, one of the rights on that database.

        Raises:
            Unauthorized: a right is missing, or the token is unknown.
            GossipKVError: the node does not answer.
        """
        if not any(right for right, _ in needed):
            return
        user = await self._user(token_of(request), request.peer)
        if user is not None and not all(user.may(right, database) for right, database in needed):
            address = request.peer.address
            if self._refusals.lets(self._now(), address):
                self._log.warning("refused", address=address, user=user.name, method=request.method.decode("latin-1"))
            raise Unauthorized(NOT_ANONYMOUS if user.name == ANONYMOUS else NOT_THIS_USER)

    async def allows(self, request: HttpRequest, needed: tuple[Right, str | None]) -> bool:
        """Return True if the client has the right on that database; False if the node does not answer."""
        with contextlib.suppress(GossipKVError):
            user = await self._user(token_of(request), request.peer)
            return user is None or user.may(*needed)
        return False

    async def log_in(self, request: HttpRequest) -> HttpAnswer:
        """Answer `/login`: a form, or the cookie for the submitted token.

        Raises:
            Unauthorized: the token is unknown.
            GossipKVError: the node does not answer.
        """
        if request.method != b"POST":
            return form(200)
        if not is_of_its_origin(request):
            return text(
                403, "the form was sent from a page of another site; open /login on this server", Unauthorized.code
            )
        if len(request.body) > MAX_FORM_BYTES:
            raise TooLarge(f"the form has more than {MAX_FORM_BYTES} bytes", {"limit": MAX_FORM_BYTES})
        token = parse_qs(request.body.decode("latin-1")).get("token", [""])[0]
        await self._user(token.encode("latin-1"), request.peer)
        is_secure = self._is_secured or request.headers.get(b"x-forwarded-proto") == b"https"
        safe = "".join(letter for letter in token if letter.isascii() and (letter.isalnum() or letter in "-_"))
        cookie = f"{COOKIE}={safe}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
        return HttpAnswer(303, [(b"Location", b"/"), (b"Set-Cookie", cookie.encode()), (b"Cache-Control", b"no-store")])

    async def _user(self, token: bytes | None, peer: GatewayPeer) -> User | None:
        """Return the user of the token or, without one, of the certificate; None: the node has no users."""
        now = self._now()
        key = peer.user if token is None else sha256(token).digest()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0] + KEPT_S:
            return kept[1]
        user = _read(await self._ask.call("whose", token, *peer, timeout_ms=TIMEOUT_MS))
        self._kept.pop(key, None)
        if len(self._kept) >= MAX_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[key] = (now, user)
        return user


def _read(statement: Value) -> User | None:
    """Return the user in a node's statement: `[name, [grants]]`, or nil.

    Raises:
        ProtocolError: the statement is malformed.
    """
    match statement:
        case None:
            return None
        case [str(name), list(grants)]:
            return User(name, tuple(parse_grant(str(grant)) for grant in grants))
    raise ProtocolError("the node described the user's rights in an unknown form")


def check_host(request: HttpRequest, path: bytes, expected: str) -> None:
    """Check that the host is an address or one of the names in `expected`, separated by spaces; empty: any is right.

    The host in a target of the form `http://host/path` takes the header's place, which only HTTP/1.0 may lack (RFC
    9112, 3.2).  The serving loop leaves requests for other hosts to the gateway.

    Raises:
        RefusedRequest: 421.
    """
    host = target.authority_of(request.target, request.headers.get(b"host"))
    if not expected or host is None or path in HEALTH or is_expected_host(host, expected.encode()):
        return
    found = _NAMED.match(host)
    name = found[1].decode().lower() if found else "NAME"
    line = (
        f"the host {name} is neither an address nor a name of this server, so a web page of another site may have "
        f'sent the request; if the name is right, add http_hosts = "{name}" to the settings and start the node again, '
        f"or start `gossipkv http` with --http-hosts {name}"
    )
    raise RefusedRequest(text(421, line, BadRequest.code))


def is_of_its_origin(request: HttpRequest) -> bool:
    """True unless a browser reports that the form stood in a page of another host, or of none."""
    origin, headers = request.headers.get(b"origin"), request.headers
    hosts = {headers.get(b"host"), headers.get(b"x-forwarded-host")}
    return origin is None or origin.partition(b"://")[2] in hosts


def token_of(request: HttpRequest) -> bytes | None:
    """Return the token of a request; None if there is none."""
    shown = request.headers.get(b"authorization", b"")
    if shown[: len(_BEARER)].lower() == _BEARER:
        return shown[len(_BEARER) :].strip()
    for cookie in request.headers.get(b"cookie", b"").replace(b",", b";").split(b";"):
        name, _, value = cookie.strip().partition(b"=")
        if name == COOKIE.encode():
            return value
    return None


def form(status: int) -> HttpAnswer:
    """Return the form that asks for a token."""
    challenge = [(b"WWW-Authenticate", b"Bearer")] if status == 401 else []  # noqa: PLR2004  # HTTP defines the number.
    return HttpAnswer(status, [*_HEADERS, *challenge], _FORM)


def refused(request: HttpRequest, error: GossipKVError) -> HttpAnswer:
    """Return the answer for an error of the wire: the form if a browser may not see a page."""
    wants_page = b"text/html" in request.headers.get(b"accept", b"") and request.method in {b"GET", b"POST"}
    return form(401) if wants_page and isinstance(error, Unauthorized) else refusal(error)
