"""A session: the state that its user has seen, so that no node answers with older data; shared by both clients.

It has the versions of datasets, and for tables the token of the last answer.  Requests in flight at the same time each
bring a token; the session keeps them all, joined, and a node reads them as one.  A session does no I/O.
"""

from __future__ import annotations

import base64
from threading import RLock
from typing import TYPE_CHECKING, Final, final

import msgpack

from gossipkv.client import reads
from gossipkv.errors import BadRequest
from gossipkv.wire.opaque import OpaqueLimits, unpack

if TYPE_CHECKING:
    from typing import TypeVar

    from gossipkv.wire.rpc import Value

    _Found = TypeVar("_Found")

FORMAT: Final = 1
TEXT: Final = OpaqueLimits(16 << 20, max_elements=1 << 17, max_depth=2)  # Applications may keep texts at their clients.


@final
class Session:
    """All that a user has seen and written, through any clients of one cluster; `Client.session` makes one.

    With a session reads never go back, and see the session's own writes at any node; a write comes after all that was
    seen.  Tasks and threads may share a session.
    """

    __slots__ = ("_lock", "_tokens", "_versions")

    def __init__(self, text: str | None = None) -> None:
        """Begin, or continue a session from the `text` that its `to_text` returned.

        Raises:
            BadRequest: the text is not of a session.
        """
        self._lock = RLock()  # A signal handler may come amid the use of its own thread.
        self._versions: dict[str, str] = {}
        self._tokens: tuple[bytes, ...] = ()
        if text is not None:
            self._versions, self._tokens = _read(text)

    def __repr__(self) -> str:
        return f"<gossipkv session over {len(self._versions)} datasets, {sum(map(len, self._tokens))} bytes of tokens>"

    def to_text(self) -> str:
        """Return the session as text of letters, digits, `-`, `_` and `=`, for `Client.session(text)` elsewhere."""
        with self._lock:
            packed: bytes = msgpack.packb([FORMAT, self._versions, [*self._tokens]])
        return base64.urlsafe_b64encode(packed).decode()

    def forget(self, name: str) -> None:
        """Forget the seen version of a dataset, as after a rollback; the name of a table stands for all tables."""
        with self._lock:
            if self._versions.pop(name, None) is None:
                self._tokens = ()

    # -- for the clients ---------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The tokens to send with a request to a table, joined."""
        return self._tokens

    def saw(self, sent: tuple[bytes, ...], token: bytes) -> None:
        """Note that a request with the tokens `sent` was answered with `token`, which covers them."""
        if token:
            with self._lock:
                self._tokens = (*(earlier for earlier in self._tokens if earlier not in sent), token)

    def version(self, dataset: str) -> str | None:
        """Return the newest version of the dataset that the session has seen."""
        return self._versions.get(dataset)

    def saw_version(self, dataset: str, version: str) -> None:
        """Note that an answer came from a version."""
        with self._lock:
            self._versions[dataset] = max(version, self._versions.get(dataset, ""))


@final
class SessionTurn:
    """One request to a table, in a session or without."""

    __slots__ = ("_sent", "_session", "token")

    def __init__(self, session: Session | None) -> None:
        """Raise TypeError if there is something else in place of a session."""
        self._session = session
        self._sent = () if session is None else _checked(session).tokens
        self.token = b"".join(self._sent)  # To send with the request.

    def saw(self, token: bytes) -> None:
        """Note the token of the answer."""
        if self._session is not None:
            self._session.saw(self._sent, token)

    def found(self, answer: tuple[_Found, reads.Stamp]) -> _Found:
        """Return an answer of a table, and note its token.  Raises BadRequest if it is a dataset's."""
        found, token = reads.tokened(answer)
        self.saw(token)
        return found

    def saw_page(self, answer: tuple[object, reads.Stamp]) -> None:
        """Note the token of a page of a scan; the next page is at least as new."""
        _, token = reads.tokened(answer)
        self.saw(token)
        self._sent = (token,)


def read_options(
    session: Session | None, dataset: str, version: str | None, least: str | None = None
) -> dict[str, Value]:
    """Return the options of a dataset read; without a `version` the session's version is the least allowed.

    Raises:
        TypeError: no session, or no text as a version.
    """
    options = reads.given({"version": version, "min_version": least})
    for name, text in options.items():
        reads.check_text(name, text)
    if session is not None and (seen := _checked(session).version(dataset)) is not None and version is None:
        options["min_version"] = max(least or seen, seen)
    return options


def _checked(session: Session) -> Session:
    if not isinstance(session, Session):
        raise TypeError(f"session must be one that `client.session(text)` returns, not {type(session).__name__}")
    return session


def saw_version(session: Session | None, dataset: str, answer: tuple[_Found, reads.Stamp]) -> tuple[_Found, str]:
    """Return an answer of a dataset, and note its version in the session.  Raises BadRequest if it is a table's."""
    found, version = reads.versioned(answer)
    if session is not None:
        session.saw_version(dataset, version)
    return found, version


def _read(text: str) -> tuple[dict[str, str], tuple[bytes, ...]]:
    try:
        match unpack(base64.b64decode(text, altchars=b"-_", validate=True), TEXT):
            case [int(format_), dict(versions), list(tokens)] if format_ == FORMAT:
                texts = [*versions, *versions.values()]
                if all(isinstance(text, str) for text in texts) and all(isinstance(one, bytes) for one in tokens):
                    return versions, tuple(tokens)
    except (TypeError, ValueError):  # From base64, MessagePack or UTF-8.
        pass
    raise BadRequest("the text is not a saved session; pass the result of `Session.to_text`")
