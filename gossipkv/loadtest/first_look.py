"""A look at each target before its load, by TLS or with a token: what is wrong with these is said in a sentence."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from gossipkv.client.blocking import Client
from gossipkv.client.link import RECEIVE_BYTES, shake
from gossipkv.errors import Unauthorized, Unavailable

if TYPE_CHECKING:
    from gossipkv.client.credentials import Credentials
    from gossipkv.loadtest.plan import Plan, Target

MS_IN_S: Final = 1000


def look(plan: Plan, credentials: Credentials) -> None:
    """Make sure that each target proves who it is, and takes the token.

    Raises:
        Unavailable: it is not there, or no TLS is spoken with it.
        Unauthorized: it does not let who shows this token read, or refuses the token.
    """
    if plan.tls is None and credentials.token is None:
        return
    for target in plan.targets:
        if target.scheme == "gossipkv":
            with Client([target.address], timeout_ms=round(plan.timeout_s * MS_IN_S), credentials=credentials) as node:
                node.dial()
            continue
        try:
            answer = _asked(target, _question(target, plan, credentials.token), plan.timeout_s, credentials)
        except (OSError, UnicodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise Unavailable(f"{target} cannot be asked: {reason}", {"address": str(target.address)}) from error
        if answer.startswith((b"HTTP/1.1 401 ", b"-")):
            said = answer.split(b"\r\n")[0].decode("utf-8", "replace")
            raise Unauthorized(f"{target} refuses to be read: {said}")


def _question(target: Target, plan: Plan, token: str | None) -> bytes:
    if target.scheme == "redis":
        return f"AUTH {token}\r\n".encode() if token is not None else b"PING\r\n"
    shown = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"GET /{plan.database}/- HTTP/1.1\r\nHost: {target.address}\r\n{shown}\r\n".encode()


def _asked(target: Target, question: bytes, timeout_s: float, credentials: Credentials) -> bytes:
    """The beginning of what it answers."""
    tls = credentials.tls(target.address.host)
    with socket.create_connection(target.address, timeout_s) as connection:
        if tls is not None:
            shake(connection, tls, lambda: None)  # The socket's own limit stands.
        connection.sendall(question if tls is None else tls.seal(question))
        answer = b""
        while not answer.count(b"\r\n"):
            if not (data := connection.recv(RECEIVE_BYTES)):
                raise OSError("it ended the connection")
            answer += data if tls is None else tls.open(data)
        return answer
