"""Sealed packets: AES-256-GCM under the keys of a ring, with protection against replay.

    offset size field
    0      15   as in every packet (`prefix.py`), form 1
    15     4    id of the ring's key
    19     16   session: random, drawn at each start of the sender
    35     8    counter: of this session, from 1
    43     n    message, enciphered
    43+n   16   tag: of the enciphered message and all bytes before it

A sender's key is derived from the ring's key and its session (HKDF-SHA256), and its nonce is its counter. So no nonce
is used twice under one key, regardless of clocks, disks or the number of nodes: a new start is a new key.

Limits: packets name no receiver, and a node that starts, or has forgotten a session, opens its old packets once more.
Gossip tolerates that: an old statement loses against the newer one, whatever its source.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gossipkv.gossip.packets.key_ring import KEY_BYTES, KEY_ID_BYTES, SESSION_BYTES, Key
from gossipkv.gossip.packets.prefix import PREFIX_BYTES, DroppedPacket

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTER_BYTES: Final = 8
TAG_BYTES: Final = 16
NONCE_BYTES: Final = 12

SESSION_AT: Final = PREFIX_BYTES + KEY_ID_BYTES
COUNTER_AT: Final = SESSION_AT + SESSION_BYTES
MESSAGE_AT: Final = COUNTER_AT + COUNTER_BYTES

# A session's counter grows with every packet to any node, and a TCP reply may arrive seconds after a datagram that was
# sent later. At 400 packets a second this window covers ten seconds, and takes half a kilobyte for each session.
WINDOW: Final = 4096
# A cluster has as many sessions as members, and one more for each restart and change of keys. Measured with full
# windows: 26 MiB, 3 KiB each, most of it in the library.
MAX_SESSIONS: Final = 8192

_INFO: Final = b"gossipkv packets 1"
_KEPT: Final = (1 << WINDOW) - 1


@final
class _SenderSession:
    """A sender's session at a receiver: the highest counter, and which of the `WINDOW` below it were opened."""

    __slots__ = ("cipher", "highest", "opened")

    def __init__(self, cipher: AESGCM) -> None:
        self.cipher = cipher
        self.highest = 0
        self.opened = 0  # Bit n: the packet with counter `highest - n` was opened.

    def is_fresh(self, counter: int) -> bool:
        """Return True if a packet with this counter was surely not opened yet."""
        behind = self.highest - counter
        return behind < 0 or (behind < WINDOW and not self.opened >> behind & 1)

    def note(self, counter: int) -> None:
        ahead = counter - self.highest
        if ahead <= 0:
            self.opened |= 1 << -ahead
            return
        self.opened = (self.opened << ahead & _KEPT | 1) if ahead < WINDOW else 1
        self.highest = counter


@final
class Sealing:
    """Seals with the first of its keys and opens with any.

    Sessions are bounded in number; the session that was silent longest is forgotten first. A session is remembered only
    once a packet of it was authentic, so nobody without a key can displace others.
    """

    overhead: Final = MESSAGE_AT + TAG_BYTES

    def __init__(self, keys: Sequence[Key], session: bytes, *, max_sessions: int = MAX_SESSIONS) -> None:
        assert len(session) == SESSION_BYTES
        self._session = session
        self._max_sessions = max_sessions
        self._counter = 0
        # The key is a key id and a session; the last used session is the last.
        self._heard: OrderedDict[bytes, _SenderSession] = OrderedDict()
        self.use(keys)

    def use(self, keys: Sequence[Key]) -> None:
        """Use these keys from now on, and no others."""
        first = keys[0]
        self._keys = dict(keys)
        # The counter goes on, so no nonce is used twice under a key that comes back.
        self._head = first.id + self._session
        self._cipher = _cipher(first.secret, self._session)
        for sender in [sender for sender in self._heard if sender[:KEY_ID_BYTES] not in self._keys]:
            del self._heard[sender]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys; the first one seals."""
        return tuple(Key(*item) for item in self._keys.items())

    @property
    def sessions(self) -> int:
        """Number of remembered sessions."""
        return len(self._heard)

    def seal(self, prefix: bytes, message: bytes) -> bytes:
        """Return the packet of a message."""
        self._counter += 1
        counter = self._counter.to_bytes(NONCE_BYTES, "big")
        assert not any(counter[:-COUNTER_BYTES]), self._counter  # A larger counter would use a nonce twice.
        head = prefix + self._head + counter[-COUNTER_BYTES:]
        packet = head + self._cipher.encrypt(counter, message, head)
        assert len(packet) == len(message) + self.overhead, len(packet)
        return packet

    def open(self, packet: bytes) -> bytes:
        """Return the message of a packet whose prefix was checked.

        Raises:
            DroppedPacket: no key fits, the packet changed in transit, or it was opened before.
        """
        if len(packet) < self.overhead:
            raise DroppedPacket("short")
        sender = packet[PREFIX_BYTES:COUNTER_AT]
        counter = packet[COUNTER_AT:MESSAGE_AT]
        heard = self._heard.get(sender)
        if heard is None:
            heard = self._newcomer(sender)
        number = int.from_bytes(counter, "big")
        if not heard.is_fresh(number):
            raise DroppedPacket("replayed")
        try:
            nonce = bytes(NONCE_BYTES - COUNTER_BYTES) + counter
            message = heard.cipher.decrypt(nonce, packet[MESSAGE_AT:], packet[:MESSAGE_AT])
        except InvalidTag:
            raise DroppedPacket("not_authentic") from None
        heard.note(number)
        assert not heard.is_fresh(number), number
        self._heard[sender] = heard
        self._heard.move_to_end(sender)
        if len(self._heard) > self._max_sessions:
            self._heard.popitem(last=False)
        assert len(self._heard) <= self._max_sessions, len(self._heard)
        return message

    def _newcomer(self, sender: bytes) -> _SenderSession:
        if sender[KEY_ID_BYTES:] == self._session:
            raise DroppedPacket("own")
        secret = self._keys.get(sender[:KEY_ID_BYTES])
        if secret is None:
            raise DroppedPacket("unknown_key")
        return _SenderSession(_cipher(secret, sender[KEY_ID_BYTES:]))


def _cipher(secret: bytes, session: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=session, info=_INFO).derive(secret))
