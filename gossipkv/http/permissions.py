"""Who asks by HTTP, and whether that one may: the gateway asks its node whose a token is, and judges by what that says.

A token comes in `Authorization: Bearer`, or in the page's cookie, which `POST /login` sets: no script reads it
(HttpOnly), no other site's page sends it (SameSite=Strict), and if it has come by TLS it goes by nothing else (Secure).
Nor can such a page log somebody in: a form that says another `Origin` than the host that it is sent to is refused.
Who shows none is the user of whom its certificate is, as the node says of each connection.  The gateway itself may read
all, so nothing is answered here that was not judged before.  What a node has said of a user is good for a second.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qs

from gossipkv.access.rights import NOT_ANONYMOUS, NOT_THIS_USER, REFUSAL_PAUSE_S, parse_grant
from gossipkv.access.users import ANONYMOUS, User
from gossipkv.errors import GossipKVError, ProtocolError, TooLarge, Unauthorized
from gossipkv.http.answers import Answer, refusal, text
from gossipkv.log import Log, Sparing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.access.rights import Right
    from gossipkv.http.answers import Asker, Request
    from gossipkv.http.order import Peer
    from gossipkv.wire.rpc import Value

COOKIE: Final = "gossipkv-token"

# What was said of a token stands for so long: a token that was taken away is good for no longer.
KEPT_S: Final = 1.0
MOST_KEPT: Final = 1024
MAX_FORM_BYTES: Final = 4096  # A token has 43 characters; anybody may send a form.
TIMEOUT_MS: Final = 5000  # For the node to say it: of a wrong token it waits with that.

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
class Permissions:
    """What whoever asks by HTTP may do; `now` tells seconds that do not go back; `is_secured`: all come by TLS."""

    def __init__(self, ask: Asker, now: Callable[[], float], *, is_secured: bool = False) -> None:
        self._ask = ask
        self._now = now
        self._refusals = Sparing(REFUSAL_PAUSE_S)
        self._log = Log("gossipkv.http")
        self._is_secured = is_secured
        self._kept: dict[bytes | str, tuple[float, User | None]] = {}  # By token, or by name.

    async def check(self, request: Request, *needed: tuple[Right, str | None]) -> None:
        """Whether it may: it needs one right of each pair, of that database.

        Raises:
            Unauthorized: it may not, or its token is nobody's.
            GossipKVError: the node does not say.
        """
        if not any(right for right, _ in needed):
            return
        user = await self._user(token_of(request), request.peer)
        if user is not None and not all(user.may(right, database) for right, database in needed):
            address = request.peer.address
            if self._refusals.lets(self._now(), address):
                self._log.warning("refused", address=address, user=user.name, method=request.method.decode("latin-1"))
            raise Unauthorized(NOT_ANONYMOUS if user.name == ANONYMOUS else NOT_THIS_USER)

    async def allows(self, request: Request, needed: tuple[Right, str | None]) -> bool:
        """Return True if it has that right, of that database; of whom the node does not say it has none."""
        with contextlib.suppress(GossipKVError):
            user = await self._user(token_of(request), request.peer)
            return user is None or user.may(*needed)
        return False

    async def log_in(self, request: Request) -> Answer:
        """Answer `/login`: a form, or the cookie for the token that came from it.

        Raises:
            Unauthorized: it is nobody's.
            GossipKVError: the node does not say.
        """
        if request.method != b"POST":
            return form(200)
        if not _is_of_its_origin(request):
            return text(403, "this form came from a page of another site; open /login here", Unauthorized.code)
        if len(request.body) > MAX_FORM_BYTES:
            raise TooLarge(f"a form has {MAX_FORM_BYTES} bytes at most", {"limit": MAX_FORM_BYTES})
        token = parse_qs(request.body.decode("latin-1")).get("token", [""])[0]
        await self._user(token.encode("latin-1"), request.peer)
        is_secure = self._is_secured or request.headers.get(b"x-forwarded-proto") == b"https"
        safe = "".join(letter for letter in token if letter.isascii() and (letter.isalnum() or letter in "-_"))
        cookie = f"{COOKIE}={safe}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
        return Answer(303, [(b"Location", b"/"), (b"Set-Cookie", cookie.encode()), (b"Cache-Control", b"no-store")])

    async def _user(self, token: bytes | None, peer: Peer) -> User | None:
        """Whose the token is, or, without one, the certificate; None: the node has no users."""
        now = self._now()
        key = peer.user if token is None else token
        kept = self._kept.get(key)
        if kept is not None and now < kept[0] + KEPT_S:
            return kept[1]
        user = _read(await self._ask.call("whose", token, *peer, timeout_ms=TIMEOUT_MS))
        self._kept.pop(key, None)
        if len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[key] = (now, user)
        return user


def _read(told: Value) -> User | None:
    """The user that a node tells: `[name, [grants]]`, or nil.

    Raises:
        ProtocolError: it tells something else.
    """
    match told:
        case None:
            return None
        case [str(name), list(grants)]:
            return User(name, tuple(parse_grant(str(grant)) for grant in grants))
    raise ProtocolError("the node says in no known way what a user may")


def _is_of_its_origin(request: Request) -> bool:
    """True unless a browser says that the form stood in a page of another host, or of none; proxies tell of theirs."""
    origin, headers = request.headers.get(b"origin"), request.headers
    hosts = {headers.get(b"host"), headers.get(b"x-forwarded-host")}
    return origin is None or origin.partition(b"://")[2] in hosts


def token_of(request: Request) -> bytes | None:
    """The token that it shows; None: none."""
    shown = request.headers.get(b"authorization", b"")
    if shown[: len(_BEARER)].lower() == _BEARER:
        return shown[len(_BEARER) :].strip()
    for cookie in request.headers.get(b"cookie", b"").replace(b",", b";").split(b";"):
        name, _, value = cookie.strip().partition(b"=")
        if name == COOKIE.encode():
            return value
    return None


def form(status: int) -> Answer:
    """The form that asks for a token."""
    challenge = [(b"WWW-Authenticate", b"Bearer")] if status == 401 else []  # noqa: PLR2004  # The protocol's number.
    return Answer(status, [*_HEADERS, *challenge], _FORM)


def refused(request: Request, error: GossipKVError) -> Answer:
    """The answer to what met an error of the wire: for a browser that may not look at a page, the form."""
    wants_page = b"text/html" in request.headers.get(b"accept", b"") and request.method in {b"GET", b"POST"}
    return form(401) if wants_page and isinstance(error, Unauthorized) else refusal(error)
