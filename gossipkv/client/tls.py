"""TLS of one connection, without any I/O: received bytes to plain text, and plain text to bytes to send.

The shells move these bytes like those of a plain connection, with their own deadlines.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final, final

RECORD_BYTES: Final = 16_384  # The largest record.
DOUBT: Final = "check that its port speaks TLS"

_UNTRUSTED: Final = (
    "its certificate is not signed by an authority that this client trusts; add that authority's certificate"
)
_OTHER_HOST: Final = "its certificate is not valid for the host name {host}"
# OpenSSL's numbers (X509_V_ERR_...), for which Python has no names.
_REFUSALS: Final = {
    9: "its certificate is not valid yet; check the clocks of both machines",
    10: "its certificate has expired",
    18: _UNTRUSTED,  # Self-signed.
    19: _UNTRUSTED,  # The authority that came with it is self-signed.
    20: _UNTRUSTED,  # Its authority is unknown.
    21: _UNTRUSTED,  # Its authority did not come with it.
    62: _OTHER_HOST,
    64: _OTHER_HOST,
}


@final
class ClientTls:
    """The client's side of TLS.  Call `shake` first, until `is_shaken`.

    Args:
        context: The offered protocols and trusted authorities.
        host: As the user wrote it; the certificate must match it, if the context checks that.

    Raises:
        OSError: no certificate could have such a name; in methods: the received bytes end the connection.
    """

    __slots__ = ("_arrived", "_host", "_leaving", "_object", "has_ended", "is_shaken")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._host = host
        self.is_shaken = False
        self.has_ended = False  # The node sends no more.
        named = host.partition("%")[0]  # The zone of an IPv6 address is local to this machine.
        try:
            self._object = context.wrap_bio(self._arrived, self._leaving, server_hostname=named)
        except ValueError as error:
            raise OSError(f"the host name cannot stand in a certificate: {error}") from error

    def shake(self, data: bytes | None) -> bytes:
        """Continue the handshake with received bytes, first with None; return the bytes to send."""
        if data is not None:
            if not data:
                raise OSError(f"the node closed the connection during the TLS handshake; {DOUBT}")
            self._arrived.write(data)
        try:
            self._object.do_handshake()
            self.is_shaken = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise OSError(self._words(error)) from error
        return self._leaving.read()

    def open(self, data: bytes) -> bytes:
        """Return the plain text of the records that `data` completes; empty if none is complete."""
        pieces = []
        self._arrived.write(data)
        try:
            while piece := self._object.read(RECORD_BYTES):
                pieces.append(piece)
                if not self._arrived.pending:
                    break
            else:
                self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if not pieces:
                raise OSError(self._words(error)) from error
            self.has_ended = True  # Records that came whole before count.
        return b"".join(pieces)

    def seal(self, data: bytes) -> bytes:
        """Return the bytes to send for `data`; empty if TLS is broken, which the receiving side reports."""
        with suppress(ssl.SSLError):
            self._object.write(data)  # A memory buffer always takes all of it.
        return self._leaving.read()

    def farewell(self) -> bytes:
        """Return the last bytes to send, which tell the node that nothing was cut off."""
        with suppress(ssl.SSLError):  # It would wait for the node's own.
            self._object.unwrap()
        return self._leaving.read()

    def _words(self, error: ssl.SSLError) -> str:
        """Return one sentence for an error that lists addresses with reasons."""
        if isinstance(error, ssl.SSLCertVerificationError):
            refusal = _REFUSALS.get(error.verify_code, f"its certificate was refused: {error.verify_message}")
            return refusal.format(host=self._host)
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            is_plain = reason.endswith("protocol version")  # A node without TLS answers so.
            return f"the node ended TLS: {reason}" + f"; {DOUBT}" * is_plain
        return f"TLS failed: {reason}" if self.is_shaken else f"the TLS handshake failed: {reason}; {DOUBT}"
