"""A client's token and certificates, and its trust in nodes: the same for each of its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.client._client import call_request
from gossipkv.errors import RequestError, Unauthorized

if TYPE_CHECKING:
    from ssl import SSLContext

    from gossipkv.client._client import Request
    from gossipkv.client.tls import ClientTls
    from gossipkv.wire.rpc import Value

# Answers to a token that every other node would give as well, so they are raised at once.
REFUSALS: Final = (Unauthorized, RequestError)


@final
class Credentials:
    """Certificates, and a token; no `repr`, error or log shows the token.

    Args:
        tls: True: TLS with the authorities that this system trusts; a context: TLS with that context; False: no TLS.
        token: The token that the first message of each connection shows.

    Raises:
        TypeError: another type.
        ValueError: a context for servers; a token with invalid characters.
    """

    __slots__ = ("_context", "_token")

    # The signature is that of `connect`.
    def __init__(self, tls: SSLContext | bool = False, token: str | None = None) -> None:  # noqa: FBT001, FBT002  # Positional, as in `connect`.
        self._context = None if tls is False else _checked(tls)
        if token is not None and not isinstance(token, str):
            raise TypeError(f"a token must be a str, not {type(token).__name__}")
        if token is not None and not (token.isascii() and token.isprintable() and token.split() == [token]):
            raise ValueError(
                "a token must be one word of printable ASCII characters, as `gossipkv users new` prints it"
            )
        self._token = token

    def __repr__(self) -> str:
        shown = "no token" if self._token is None else "a token"
        return f"<credentials: {'plain' if self._context is None else 'TLS'}, {shown}>"

    @property
    def token(self) -> str | None:
        """The token, for a shell that authenticates its connections itself."""
        return self._token

    def tls(self, host: str) -> ClientTls | None:
        """Return TLS for a new connection to this host; None for a plain connection.

        Raises:
            OSError: no certificate could have such a name.
        """
        if self._context is None:
            return None
        from gossipkv.client.tls import ClientTls  # noqa: PLC0415  # Plain connections do not pay for the import.

        return ClientTls(self._context, host)

    def greeting(self) -> Request[Value] | None:
        """Return the first request of a new connection; None without a token."""
        return None if self._token is None else call_request("auth", [self._token])


def _checked(tls: object) -> SSLContext:
    import ssl  # noqa: PLC0415  # Plain connections do not pay for the import.

    if tls is True:
        return ssl.create_default_context()
    if not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls must be True, False or an ssl.SSLContext, not {type(tls).__name__}")
    if tls.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("tls is an SSL context for servers; make one for clients with ssl.create_default_context()")
    return tls


PLAIN: Final = Credentials()
