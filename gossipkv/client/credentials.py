"""What a client shows of itself, and how it makes sure of nodes: the same for each connection that it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.client._client import call_request
from gossipkv.errors import RequestError, Unauthorized

if TYPE_CHECKING:
    from ssl import SSLContext

    from gossipkv.client._client import Request
    from gossipkv.client.tls import ClientTls
    from gossipkv.wire.rpc import Value

# What a node says to a token that no other node would take either: it is raised at once.
REFUSALS: Final = (Unauthorized, RequestError)


@final
class Credentials:
    """Certificates, and a token, which no `repr`, error or log ever has.

    Args:
        tls: True: TLS, with the authorities that this system trusts; a context: as it says; False: none.
        token: What the first message of each connection shows.

    Raises:
        TypeError: something else.
        ValueError: a context for servers; a token that could not be one.
    """

    __slots__ = ("_context", "_token")

    def __init__(self, tls: SSLContext | bool = False, token: str | None = None) -> None:  # noqa: FBT001, FBT002  # As `connect`.
        self._context = None if tls is False else _checked(tls)
        if token is not None and not isinstance(token, str):
            raise TypeError(f"a token is text, not {type(token).__name__}")
        if token is not None and not (token.isascii() and token.isprintable() and token.split() == [token]):
            raise ValueError("a token is one word of printable ASCII, as `gossipkv users new` writes it")
        self._token = token

    def __repr__(self) -> str:
        shown = "no token" if self._token is None else "a token"
        return f"<credentials: {'plain' if self._context is None else 'TLS'}, {shown}>"

    @property
    def token(self) -> str | None:
        """For who shows it on connections of its own."""
        return self._token

    def tls(self, host: str) -> ClientTls | None:
        """TLS of a new connection to this host, or None: it is plain.

        Raises:
            OSError: no certificate could have such a name.
        """
        if self._context is None:
            return None
        from gossipkv.client.tls import ClientTls  # noqa: PLC0415  # Who speaks plain does not pay for it.

        return ClientTls(self._context, host)

    def greeting(self) -> Request[Value] | None:
        """The first request of a new connection."""
        return None if self._token is None else call_request("auth", [self._token])


def _checked(tls: object) -> SSLContext:
    import ssl  # noqa: PLC0415  # As above.

    if tls is True:
        return ssl.create_default_context()
    if not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls is True, False or an ssl.SSLContext, not {type(tls).__name__}")
    if tls.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("tls is a context for servers; clients have ssl.create_default_context()")
    return tls


PLAIN: Final = Credentials()
