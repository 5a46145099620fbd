"""A client's request about records: its options, its table's map, and its session.

resolve    find the table's map, at least as new as the client's
session    read the token, and compact a long one
plan       divide the request among the hosts of its partitions; what follows depends on the kind of request
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from gossipkv.errors import BadRequest, GossipKVError
from gossipkv.register.metadata.known import MAX_CONFIG
from gossipkv.table.records.forward import LOOK_S, RecordRequest
from gossipkv.table.records.token_survey import SettledSurvey
from gossipkv.table.session.readiness import WantedClock
from gossipkv.table.session.token import NOTHING, is_short
from gossipkv.wire.arguments import MAX_TIMEOUT_MS, NO_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.table.records.forward import RecordServices
    from gossipkv.table.records.router import TableRoute
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.results import Completion, Packed
    from gossipkv.wire.rpc import Value

T = TypeVar("T")

KNOWN_S: Final = 0.02  # Interval between checks for a newer map.
WAITS_BYTES: Final = 256  # Approximate memory of one parked request.
RECORD_MS: Final = 1000  # Default timeout of a read or a write.


class RecordOptions(NamedTuple):
    """The parsed options of a read or a write of records."""

    given: OptionArguments
    timeout_s: float
    local: bool  # True: ask no other node.
    token: bytes = b""
    wait_s: float = 0.0
    config: int = 0  # The config id of the client's map; 0: not given.


DEFAULTS: Final = RecordOptions(NO_OPTIONS, RECORD_MS / 1000, local=False)


def record_options(arguments: Arguments, *specific: str) -> RecordOptions:
    """Read the options of a request that `specific` names, and the options that all requests have.

    Raises:
        BadRequest: an option is unknown, has a wrong type, or asks for a version, which tables do not have.
    """
    options = arguments.options(*specific, "token", "wait_ms", "timeout_ms", "config", "version", "min_version")
    if options is NO_OPTIONS:  # Most requests have none.
        return DEFAULTS
    for name in ("version", "min_version"):
        if options.text(name) is not None:
            raise BadRequest(
                f"{arguments.method}: a table has no versions, unlike a dataset: omit {name}", {"option": name}
            )
    wait_ms = options.number("wait_ms", most=MAX_TIMEOUT_MS) or 0
    config = options.number("config", most=MAX_CONFIG) or 0
    timeout_ms = options.timeout_ms()
    timeout_s = (RECORD_MS if timeout_ms is None else timeout_ms) / 1000
    token, local = options.blob("token") or b"", "local" in specific and options.flag("local")
    return RecordOptions(options, timeout_s, local, token, min(wait_ms / 1000, timeout_s), config)


class ClientRequest(RecordRequest[T]):
    """A client's request to a table, from its arguments to its answer."""

    def __init__(self, services: RecordServices, name: str, options: RecordOptions) -> None:
        """Take the table's name and the options. Raises BadRequest: the token is malformed."""
        self.services, self.name, self.options, self.local = services, name, options, options.local
        self.wanted = WantedClock(services.tokens.read(options.token) if options.token else NOTHING, 0.0)
        self.complete: Completion[Value | Packed]
        self.route: TableRoute

    def begin(self, complete: Completion[Value | Packed]) -> Callable[[], None]:
        """Begin; `complete` is called once, unless this call raises. Return a function that ends all waits.

        Raises:
            GossipKVError: the error is the answer.
        """
        self.complete = complete
        self.replication = self.services.service.replicating(self.name)
        now = self.replication.now()
        self.deadline, self.looks_at = now + self.options.timeout_s, now + LOOK_S
        self.wanted.until = now + self.options.wait_s
        self._resolve()
        return self.leave

    def _resolve(self) -> None:
        """Find the table's map, and wait for a newer one if the client has that."""
        routing, until = self.services.routing, self.wanted.until
        self.route = routing.route(self.name)
        if self.options.config > self.route.config and (now := self.replication.now()) < until:
            routing.look_at(self.route.table.id)
            again = partial(self._attempt, self._resolve)
            self.replication.waiting.begin(min(until, now + KNOWN_S), WAITS_BYTES, again, self.wanted.waits)
            return
        self._check_map()
        if not self.wanted.token or is_short(self.wanted.token):
            self._plan()
        else:
            token = self.services.tokens.compacted(self.wanted.token)
            if is_short(token):
                self._compacted(token)
            else:
                SettledSurvey(self, token, self._compacted).begin()

    def _compacted(self, token: Token | GossipKVError) -> None:
        """Go on with the compacted token, by the map of this time."""
        if isinstance(token, GossipKVError):
            self.complete(token)
        else:
            self.wanted.token = token
            self._attempt(self._plan_anew)

    def _plan_anew(self) -> None:
        self.route = self.services.routing.route(self.name)
        self._plan()

    def _attempt(self, step: Callable[[], object]) -> None:
        """Take a step after `begin` has returned: an error is the answer."""
        try:
            step()
        except GossipKVError as error:
            self.complete(error)

    def _check_map(self) -> None:
        """Check that the known map suffices, although it may be older than the client's. Raises NotReady."""

    @abstractmethod
    def _plan(self) -> None:
        """Divide the request among hosts, and begin the parts. Raises GossipKVError."""
