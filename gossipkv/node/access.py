"""Users and their rights: users as numbers, by which connections are known.

    0           anonymous: the caller has shown neither a token nor a certificate
    1           proven: another node, or this node's own gateway; may call every method, and is not looked up
    from 2 on   users of the file; while the node runs, a number belongs to one name with one token and is not reused

The serving loop answers a plain read itself if a bit for number and database allows it (`bitmaps`). Every other
request is judged here before it is done (`judge`). So there is one place that refuses, and a refusal tells neither
which users exist nor which right is lacking.

Without a users file every caller may do everything, with one exception: once nodes can prove themselves
(`gossipkv.node.peers.proof`), methods between nodes are for proven nodes alone. `auth` then accepts any token, so that
clients can have their tokens before nodes have their users.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, Never, final

import trio

from gossipkv.access.rights import NOT_ANONYMOUS, NOT_THIS_USER, OF_A_DATABASE, REFUSAL_PAUSE_S, Right, of_method
from gossipkv.access.users import ANONYMOUS as ANONYMOUS_NAME
from gossipkv.access.users import Throttle
from gossipkv.errors import BadRequest, ConfigError, Overloaded, Unauthorized
from gossipkv.gossip.packets.envelope import Seal
from gossipkv.http.order import GatewayPeer
from gossipkv.log import Log, Sparing
from gossipkv.node import users_file
from gossipkv.wire.results import DeferredResult, ProvenUser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.access.users import User, Users
    from gossipkv.serving.loop import Caller
    from gossipkv.settings.config import Config
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

ANONYMOUS: Final = 0
PROVEN: Final = 1

# Delay before a wrong token is refused, once its address has shown several. Clients wait longer for any answer, so
# they see the refusal.
PAUSE_S: Final = 0.5
# Refusals that may wait at a time. Each takes one of the node's 1,000 tasks, and an address that keeps guessing must
# not take them all.
MAX_PAUSED: Final = 100


@final
class Access:
    """The users, and the judgement of their requests; `proves`: nodes prove to each other that they are nodes.

    `now` returns seconds of a clock that does not go back.
    """

    def __init__(self, users: Users | None, *, proves: bool, now: Callable[[], float]) -> None:
        self._users: Users | None = None
        self._proves = proves
        self.is_open = not proves  # True: every caller may do everything, and `judge` need not be called.
        self.now = now
        self._throttle = Throttle()
        self._paused = 0
        self._by_number: list[User | None] = [None, None]  # Users by number.
        self._named: dict[str, int] = {}  # Numbers by name.
        self._bitmaps: list[bytes | None] = []
        self._databases: Sequence[str] | None = None  # The names that `_bitmaps` was made for.
        self._refusals = Sparing(REFUSAL_PAUSE_S)
        self._log = Log("gossipkv.node")
        if users is not None:
            self.use(users)

    def use(self, users: Users) -> list[int]:
        """Use these users from now on, and return the numbers that became invalid: their connections must end."""
        self._users, self._databases, self.is_open = users, None, False
        new = {(user.name, user.digest): user for user in users.named.values() if user.name != ANONYMOUS_NAME}
        invalid = []
        for number, user in enumerate(self._by_number[PROVEN + 1 :], PROVEN + 1):
            if user is not None:
                self._by_number[number] = new.pop((user.name, user.digest), None)
                if self._by_number[number] is None:
                    invalid.append(number)
        self._by_number[ANONYMOUS] = users.anonymous
        self._by_number += new.values()
        # The dict is replaced whole and last, since serving loops read it at any time. A number that they found in the
        # old dict is still valid or is in `invalid`.
        self._named = {user.name: number for number, user in enumerate(self._by_number) if user is not None}
        return invalid

    @property
    def has_users(self) -> bool:
        """True if there is a users file: without one every caller may do everything."""
        return self._users is not None

    @property
    def knows_peers(self) -> bool:
        """True if methods between nodes are only for callers that have proved to be nodes."""
        return self._users is not None or self._proves

    def named(self, name: str) -> int:
        """Return the number of the user that a certificate names; `ANONYMOUS` if there is no such user."""
        return self._named.get(name, ANONYMOUS)

    def bitmaps(self, databases: Sequence[str]) -> list[bytes | None]:
        """Return by user number which databases the user may read, for `PublishedTable.let_read`; None: all."""
        if self._users is None:
            return []
        if databases != self._databases:
            self._databases = databases
            self._bitmaps = [
                None if number == PROVEN else _bits([self.may_read(number, name) for name in databases])
                for number in range(len(self._by_number))
            ]
        return self._bitmaps

    def wants_tokens(self) -> bool:
        """Return True if a caller without token and certificate may do nothing."""
        return self._users is not None and not self._users.anonymous.grants

    # Requests

    def may(self, number: int, needed: Right, database: str | None = None) -> bool:
        """Return True if the user has one of the rights `needed`, on `database` if that is given."""
        if number == PROVEN or not needed:
            return True
        if self._users is None:
            return needed != Right.PEER or not self._proves
        user = self._by_number[number]
        return user is not None and user.may(needed, database)

    def judge(self, arguments: Arguments, caller: Caller) -> None:
        """Refuse a request that the caller may not make. A `resp` request is judged by its command (`judge_command`).

        Raises:
            Unauthorized: the caller lacks the right.
            BadRequest: the request names no database where one is needed.
        """
        needed = of_method(arguments.method.encode())
        database = None
        if needed & OF_A_DATABASE and self._users is not None and caller.user != PROVEN:
            database = arguments.text("database")
            arguments.rewind()
        if not self.may(caller.user, needed, database):
            raise self.refuse(caller, arguments.method)

    def judge_command(self, command: bytes, caller: Caller, database: str | None = None) -> None:
        """Refuse a command of RESP that the caller may not give.

        Raises:
            Unauthorized: the caller lacks the right.
        """
        if not self.may(caller.user, of_method(b"resp", command), database):
            raise self.refuse(caller, command.decode(errors="replace"))

    def may_read(self, number: int, database: str) -> bool:
        """Return True if the user may read the database."""
        return self.may(number, Right.READ, database)

    def is_reader(self, number: int, database: str) -> bool:
        """Return True if the caller is a user who may read the database; nodes and gateways would show it to others."""
        return self._users is None or (number != PROVEN and self.may_read(number, database))

    def refuse(self, caller: Caller, method: str) -> Unauthorized:
        """Return the refusal, and log it."""
        self.note_refused(shown(caller.address), method, self.name_of(caller))
        if caller.user == ANONYMOUS:
            return Unauthorized(NOT_ANONYMOUS, {"auth": "missing"})
        return Unauthorized(NOT_THIS_USER)

    def name_of(self, caller: Caller) -> str:
        """Return the name of a caller's user for the log."""
        user = self._by_number[caller.user]
        return "a node" if caller.user == PROVEN else "nobody" if user is None else user.name

    def note_refused(self, address: str, method: str, user: str = "nobody") -> None:
        """Log a refusal, unless one of the same address was logged just now."""
        if self._refusals.lets(self.now(), address):
            self._log.warning("refused", address=address, user=user, method=method)

    # Authentication

    def auth(self, arguments: Arguments, caller: Caller) -> ProvenUser | DeferredResult:
        """Answer `auth [token]` with the name of the user that the connection belongs to from then on."""
        token = arguments.blob("token")
        arguments.end()
        return self.prove(token, caller)

    def prove(self, token: bytes, caller: Caller) -> ProvenUser | DeferredResult:
        """Return the user of a token.

        Raises:
            Unauthorized: no user has this token. After many wrong tokens from its address, the returned
                `DeferredResult` raises.
        """
        if self._users is None:
            return ProvenUser(ANONYMOUS, ANONYMOUS_NAME)
        user = self._users.by_token(token)
        if user is None:
            return self._refuse_token(shown(caller.address))
        return ProvenUser(self._by_number.index(user), user.name)

    def whose(self, arguments: Arguments) -> Value | DeferredResult:
        """Answer `whose [token or nil, address, name]` with the user's name and grants; nil if there are no users.

        Without a token the user is found by `name`, which the gateway was told with the connection (`peer_of`).
        """
        token, address, name = arguments.blob_or_nil("token"), arguments.text("address"), arguments.text_or_nil("name")
        arguments.end()
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise BadRequest(f"whose: {address!r} is not an address") from None
        if self._users is None:
            return None
        user = self._by_number[self.named(name or ANONYMOUS_NAME)] if token is None else self._users.by_token(token)
        return self._refuse_token(address) if user is None else [user.name, [str(grant) for grant in user.grants]]

    def peer_of(self, caller: Caller) -> GatewayPeer:
        """Return the address and the user's name of a caller, for the process that goes on with its connection."""
        user = self._by_number[caller.user]
        return GatewayPeer(shown(caller.address), ANONYMOUS_NAME if user is None else user.name)

    def _refuse_token(self, address: str) -> DeferredResult:
        """Refuse an unknown token, at once or after a pause."""
        self.note_refused(address, "auth")
        refusal = Unauthorized("no user has this token")
        if not self._throttle.wrong(address, self.now()):
            raise refusal

        async def refuse_later() -> Never:
            if self._paused >= MAX_PAUSED:
                raise Overloaded("too many wrong tokens were sent; try again later", {"limit": MAX_PAUSED})
            self._paused += 1
            try:
                await trio.sleep(PAUSE_S)
            finally:
                self._paused -= 1
            raise refusal

        return DeferredResult(refuse_later)


def access_of(config: Config) -> Access:
    """Return the access that the settings ask for. Blocks.

    Raises:
        ConfigError: the users file cannot be read or parsed; or nodes with users would have no way to prove themselves.
    """
    if config.users is not None and config.join and config.key_ring is None and config.tls_peers is None:
        where = config.origin("users")
        raise ConfigError(
            f"{where}: with users, nodes must prove their identity to each other; make keys (`gossipkv "
            "keys new`, key_ring), or certificates (`gossipkv certificates new`, tls_peers)",
            {"setting": "key_ring", "where": where},
        )
    return Access(
        None if config.users is None else users_file.read(config.users),
        proves=config.tls_peers is not None or (config.key_ring is not None and Seal(config.seal) is Seal.REQUIRE),
        now=trio.current_time,
    )


def shown(address: int) -> str:
    """Return the text of an address number (`connection/_addresses.pxd`); for IPv6 the first address of its /64."""
    return str(ipaddress.IPv4Address(address) if address < 1 << 32 else ipaddress.IPv6Address(address << 64))


def _bits(bits: Sequence[bool]) -> bytes:
    """Pack booleans into bytes; the first is the lowest bit."""
    return sum(1 << place for place, bit in enumerate(bits) if bit).to_bytes(len(bits) // 8 + 1, "little")
