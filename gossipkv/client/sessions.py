"""A session: what somebody has seen, so that no node shows him anything older; shared by both clients, without any I/O.

Of datasets it has versions, of tables the token that the last answer came with.  Of requests that are under way at the
same time each brings a token: they are joined, and a node reads several as one.
"""

from __future__ import annotations

import base64
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.client import reads
from gossipkv.errors import BadRequest, GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from gossipkv.client._client import Request

    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")

FORMAT: Final = 1


@final
class Session:
    """What somebody has seen and written, by whatever clients of one cluster; `Client.session` makes one.

    With it reads never go back, and show what was written with it, at any node; a write comes after all that was seen.
    Tasks and threads may share it.
    """

    __slots__ = ("_lock", "_tokens", "_versions")

    def __init__(self, text: str | None = None) -> None:
        """`text`: what `to_text` gave of an earlier one.

        Raises:
            BadRequest: it is not of a session.
        """
        self._lock = Lock()
        self._versions: dict[str, str] = {}
        self._tokens: tuple[bytes, ...] = ()
        if text is not None:
            self._versions, self._tokens = _read(text)

    def __repr__(self) -> str:
        return f"<gossipkv session over {len(self._versions)} datasets, {sum(map(len, self._tokens))} bytes of tokens>"

    def to_text(self) -> str:
        """All of it as text of letters, digits, `-`, `_` and `=`, to go on with elsewhere: `Client.session(text)`."""
        with self._lock:
            packed: bytes = msgpack.packb([FORMAT, self._versions, [*self._tokens]])
        return base64.urlsafe_b64encode(packed).decode()

    def forget(self, name: str) -> None:
        """Let go of what was seen of a dataset, as after a roll-back; by the name of a table, of all tables."""
        with self._lock:
            if self._versions.pop(name, None) is None:
                self._tokens = ()

    # -- for the clients ---------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """What is to be sent with a request to a table, joined."""
        return self._tokens

    def saw(self, sent: tuple[bytes, ...], token: bytes) -> None:
        """A request with those tokens was answered with this one, which has seen all that they have."""
        if token:
            with self._lock:
                self._tokens = (*(one for one in self._tokens if one not in sent), token)

    def version(self, dataset: str) -> str | None:
        """The newest that was seen."""
        return self._versions.get(dataset)

    def saw_version(self, dataset: str, version: str) -> None:
        """An answer was from a version."""
        with self._lock:
            self._versions[dataset] = max(version, self._versions.get(dataset, ""))


@final
class SessionTurn:
    """One request to a table in a session, or in none."""

    __slots__ = ("_sent", "_session")

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._sent = () if session is None else session.tokens

    @property
    def token(self) -> bytes:
        """What is to be sent with it."""
        return b"".join(self._sent)

    def saw(self, token: bytes) -> None:
        """It was answered."""
        if self._session is not None:
            self._session.saw(self._sent, token)

    def saw_page(self, answer: tuple[object, reads.Stamp]) -> None:
        """A page of a scan has come; the next one will have seen all that this one has."""
        _, token = reads.tokened(answer)
        self.saw(token)
        self._sent = (token,)


def read_options(session: Session | None, dataset: str, version: str | None, least: str | None) -> bytes | None:
    """The options of a read of a dataset: what a session has seen is the least version, where none is named."""
    if session is not None and version is None:
        least = max(filter(None, (least, session.version(dataset))), default=None)
    return reads.read_options(version, least)


def saw_version(session: Session | None, dataset: str, answer: tuple[_Whole, reads.Stamp]) -> tuple[_Whole, str]:
    """The answer of a dataset, which a session has seen.  Raises BadRequest: it is one of a table."""
    found, version = reads.versioned(answer)
    if session is not None:
        session.saw_version(dataset, version)
    return found, version


def watched(
    steps: Generator[Request[_Result], _Result, _Whole], saw: Callable[[_Result], object]
) -> Generator[Request[_Result], _Result, _Whole]:
    """The same steps (`parts`), with each answer shown to `saw`."""
    try:
        request = next(steps)
        while True:
            try:
                answer = yield request
            except GossipKVError as error:
                request = steps.throw(error)
            else:
                saw(answer)
                request = steps.send(answer)
    except StopIteration as end:
        whole: _Whole = end.value
        return whole


def _read(text: str) -> tuple[dict[str, str], tuple[bytes, ...]]:
    try:
        match msgpack.unpackb(base64.b64decode(text, altchars=b"-_", validate=True)):
            case [int(format_), dict(versions), list(tokens)] if format_ == FORMAT:
                named = {name: one for name, one in versions.items() if isinstance(name, str) and isinstance(one, str)}
                whole = tuple(one for one in tokens if isinstance(one, bytes))
                if (len(named), len(whole)) == (len(versions), len(tokens)):
                    return named, whole
    except ValueError:  # Of base64, MessagePack or UTF-8.
        pass
    raise BadRequest("this is no text that a session was written as")
