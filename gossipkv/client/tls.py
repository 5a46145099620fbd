"""TLS of one connection, without any I/O: what arrives to what the node said, and what is said to what leaves.

The shells move its bytes as they move those of a plain connection, with their own deadlines.  Rejected, measured:
`trio.SSLStream` (twice the processor's time of a get, for its locks and checkpoints), and the sockets of `ssl` (half as
much again in the blocking client: two receives for each record, and a poll before each of them).
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final, final

RECORD_BYTES: Final = 16_384  # What a record holds at most.
DOUBT: Final = "does it speak TLS there?"

_UNTRUSTED: Final = "its certificate is signed by nobody who is trusted here: name its authority"
_OTHER_HOST: Final = "its certificate is not that of {host}"
# OpenSSL's numbers (X509_V_ERR_...), which Python has no names for.
_REFUSALS: Final = {
    9: "its certificate is not valid yet: is a clock wrong?",
    10: "its certificate has expired",
    18: _UNTRUSTED,  # It signed itself;
    19: _UNTRUSTED,  # its authority did, which came with it;
    20: _UNTRUSTED,  # its authority is not known;
    21: _UNTRUSTED,  # nor did it come with it.
    62: _OTHER_HOST,
    64: _OTHER_HOST,
}


@final
class ClientTls:
    """The client's side of it.  `shake` comes first, until `is_shaken`.

    Args:
        context: What is offered and who is trusted.
        host: As the user wrote it; the certificate must be its own, if the context looks at that.

    Raises:
        OSError: no certificate could have such a name; the methods: what the node sent ends the connection.
    """

    __slots__ = ("_arrived", "_host", "_leaving", "_object", "has_ended", "is_shaken")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._host = host
        self.is_shaken = False
        self.has_ended = False  # The node says no more.
        named = host.partition("%")[0]  # The zone of an IPv6 address is this machine's own word.
        try:
            self._object = context.wrap_bio(self._arrived, self._leaving, server_hostname=named)
        except ValueError as error:
            raise OSError(f"not a name that a certificate could have: {error}") from error

    def shake(self, data: bytes | None) -> bytes:
        """Go on with the handshake by what arrived, first by None; returns what leaves next."""
        if data is not None:
            if not data:
                raise OSError(f"it closed the connection amid the TLS handshake; {DOUBT}")
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
        """What the records say that `data` completes; nothing, if none is whole."""
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
            self.has_ended = True  # What came whole before counts.
        return b"".join(pieces)

    def seal(self, data: bytes) -> bytes:
        """What leaves so that the node reads `data`; nothing where TLS is broken, as who receives is told."""
        with suppress(ssl.SSLError):
            self._object.write(data)  # All of it: there is always room.
        return self._leaving.read()

    def farewell(self) -> bytes:
        """What leaves last, so that the node knows that nothing was cut off."""
        with suppress(ssl.SSLError):  # It would wait for the node's own.
            self._object.unwrap()
        return self._leaving.read()

    def _words(self, error: ssl.SSLError) -> str:
        """One sentence for who reads which address failed, and why."""
        if isinstance(error, ssl.SSLCertVerificationError):
            refusal = _REFUSALS.get(error.verify_code, f"its certificate is refused: {error.verify_message}")
            return refusal.format(host=self._host)
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            is_plain = reason.endswith("protocol version")  # A node's word where it speaks none.
            return f"it ended TLS: {reason}" + f"; {DOUBT}" * is_plain
        return f"broken TLS: {reason}" if self.is_shaken else f"no TLS that is understood ({reason}); {DOUBT}"
