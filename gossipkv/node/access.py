"""Who is asked by, and whether that one may: users as numbers, which connections are known by.

    0           anonymous: whoever has shown nothing
    1           proven: another node, or this node's own gateway; it may call everything, and is not looked up
    from 2 on   users of the file; a number is one name with one token while the node runs, and never another's

The serving loop answers a plain read itself where a bit for number and database says so (`bitmaps`).  Everything else
is judged here before it is done (`judge`): so there is one place that says no, and it says neither who there is nor
what is lacking.

Without a users file all may do all.  But for what nodes ask each other, once they can prove themselves to be some
(`gossipkv.node.peers.proof`): that is theirs alone.  `auth` is then taken whatever it shows, so that clients can have
their tokens before nodes have their users.
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

# How long a wrong token of an address that had several waits for its refusal: well within what clients wait for any
# answer, so that it is the refusal that they see.
PAUSE_S: Final = 0.5
# Refusals that wait.  Each takes one of the node's tasks, and there are a thousand of those: who is wrong again and
# again must not take them all.
MAX_PAUSED: Final = 100


@final
class Access:
    """Knows users, and judges requests; `proves`: nodes prove to each other that they are some.

    `now` tells seconds that do not go back.
    """

    def __init__(self, users: Users | None, *, proves: bool, now: Callable[[], float]) -> None:
        self._users: Users | None = None
        self._proves = proves
        self._now = now
        self._throttle = Throttle()
        self._paused = 0
        self._known: list[User | None] = [None, None]  # By number.
        self._named: dict[str, int] = {}  # Numbers, by name.
        self._bitmaps: list[bytes | None] = []
        self._databases: Sequence[str] | None = None  # Which those are of.
        self._refusals = Sparing(REFUSAL_PAUSE_S)
        self._log = Log("gossipkv.node")
        if users is not None:
            self.use(users)

    def use(self, users: Users) -> list[int]:
        """Go by these users from now on; the numbers that are nobody's any more: their connections are to end."""
        self._users, self._databases = users, None
        new = {(user.name, user.digest): user for user in users.named.values() if user.name != ANONYMOUS_NAME}
        gone = []
        for number, user in enumerate(self._known[PROVEN + 1 :], PROVEN + 1):
            if user is not None:
                self._known[number] = new.pop((user.name, user.digest), None)
                gone += [] if self._known[number] is not None else [number]
        self._known[ANONYMOUS] = users.anonymous
        self._known += new.values()
        # At once, and last: pumps look here at any time, and whom they have found before is among those who are gone.
        self._named = {user.name: number for number, user in enumerate(self._known) if user is not None}
        return gone

    @property
    def has_users(self) -> bool:
        """True if not all may do all."""
        return self._users is not None

    @property
    def knows_peers(self) -> bool:
        """True if methods between nodes are only for those who have proved to be nodes."""
        return self._users is not None or self._proves

    def named(self, name: str) -> int:
        """The number of the user of whom a certificate is that has this name."""
        return self._named.get(name, ANONYMOUS)

    def bitmaps(self, databases: Sequence[str]) -> list[bytes | None]:
        """What each number may read of these databases, as the serving loop takes it (`PublishedTable.let_read`)."""
        if self._users is None:
            return []
        if databases != self._databases:
            self._databases = databases
            self._bitmaps = [
                None if number == PROVEN else _bits([self.may_read(number, name) for name in databases])
                for number in range(len(self._known))
            ]
        return self._bitmaps

    def wants_tokens(self) -> bool:
        """Return True if nobody is let do anything who has not shown a token, or a certificate."""
        return self._users is not None and not self._users.anonymous.grants

    # Requests

    def may(self, number: int, needed: Right, database: str | None = None) -> bool:
        """Whether that user may do what needs one of these rights."""
        if number == PROVEN or not needed:
            return True
        if self._users is None:
            return needed != Right.PEER or not self._proves
        user = self._known[number]
        return user is not None and user.may(needed, database)

    def judge(self, arguments: Arguments, caller: Caller) -> None:
        """Whether a request may be done, but for a `resp`: that is judged by the command in it, where that is known.

        Raises:
            Unauthorized: it may not.
            BadRequest: it names no database where one is needed.
        """
        if self._users is None and not self._proves:  # All may do all, and pay nothing for it.
            return
        needed = of_method(arguments.method.encode())
        database = None
        if needed & OF_A_DATABASE and self._users is not None and caller.user != PROVEN:
            database = arguments.text("database")
            arguments.rewind()
        if not self.may(caller.user, needed, database):
            raise self.refuse(caller, arguments.method)

    def judge_command(self, command: bytes, caller: Caller, database: str | None = None) -> None:
        """Whether a command of RESP may be done.

        Raises:
            Unauthorized: it may not.
        """
        if not self.may(caller.user, of_method(b"resp", command), database):
            raise self.refuse(caller, command.decode(errors="replace"))

    def may_read(self, number: int, database: str) -> bool:
        """Whether that user may read that database."""
        return self.may(number, Right.READ, database)

    def is_reader(self, number: int, database: str) -> bool:
        """True of a user who may read that database; a node, or a gateway, shows to others what it is told."""
        return self._users is None or (number != PROVEN and self.may_read(number, database))

    def refuse(self, caller: Caller, method: str) -> Unauthorized:
        """The refusal, which the log has as well."""
        user = self._known[caller.user]
        self.note_refused(shown(caller.address), method, "nobody" if user is None else user.name)
        return (
            Unauthorized(NOT_ANONYMOUS, {"auth": "missing"})
            if caller.user == ANONYMOUS
            else Unauthorized(NOT_THIS_USER)
        )

    def note_refused(self, address: str, method: str, user: str = "nobody") -> None:
        """A line in the log, if there was none of that address just now."""
        if self._refusals.lets(self._now(), address):
            self._log.warning("refused", address=address, user=user, method=method)

    # Who it is

    def auth(self, arguments: Arguments, caller: Caller) -> ProvenUser | DeferredResult:
        """Answer `auth [token]`: the name of the user that the connection is of from then on."""
        token = arguments.blob("token")
        arguments.end()
        return self.prove(token, caller)

    def prove(self, token: bytes, caller: Caller) -> ProvenUser | DeferredResult:
        """Whose token it is.

        Raises:
            Unauthorized: nobody's; after many of that address it is what comes of waiting.
        """
        if self._users is None:
            return ProvenUser(ANONYMOUS, ANONYMOUS_NAME)
        user = self._users.by_token(token)
        return (
            self._refuse_token(shown(caller.address))
            if user is None
            else ProvenUser(self._known.index(user), user.name)
        )

    def whose(self, arguments: Arguments) -> Value | DeferredResult:
        """Answer `whose [token or nil, address, name]`: the user's name and grants; nil: there are no users.

        Without a token it is the user of that name: what is told of a connection that was passed on (`peer_of`).
        """
        token, address, name = arguments.blob_or_nil("token"), arguments.text("address"), arguments.text_or_nil("name")
        arguments.end()
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise BadRequest(f"whose: the address is none: {address!r}") from None
        if self._users is None:
            return None
        user = self._known[self.named(name or ANONYMOUS_NAME)] if token is None else self._users.by_token(token)
        return self._refuse_token(address) if user is None else [user.name, [str(grant) for grant in user.grants]]

    def peer_of(self, caller: Caller) -> GatewayPeer:
        """Who asks, for whoever serves that connection from now on."""
        user = self._known[caller.user]
        return GatewayPeer(shown(caller.address), ANONYMOUS_NAME if user is None else user.name)

    def _refuse_token(self, address: str) -> DeferredResult:
        """Refuse a token that is nobody's, at once or after a pause."""
        self.note_refused(address, "auth")
        refusal = Unauthorized("this token is nobody's")
        if not self._throttle.wrong(address, self._now()):
            raise refusal

        async def refuse_later() -> Never:
            if self._paused >= MAX_PAUSED:
                raise Overloaded("too many wrong tokens are to be refused; try again later", {"limit": MAX_PAUSED})
            self._paused += 1
            try:
                await trio.sleep(PAUSE_S)
            finally:
                self._paused -= 1
            raise refusal

        return DeferredResult(refuse_later)


def access_of(config: Config) -> Access:
    """What the settings say of it.  It blocks.

    Raises:
        ConfigError: the users file cannot be read, or is none; or there are others, who could not prove to be nodes.
    """
    if config.users is not None and config.join and config.key_ring is None and config.tls_peers is None:
        where = config.origin("users")
        raise ConfigError(
            f"{where}: with users nodes are to prove to each other that they are some; "
            "make keys (`gossipkv keys new`, key_ring), or certificates (`gossipkv certificates new`, tls_peers)",
            {"setting": "key_ring", "where": where},
        )
    return Access(
        None if config.users is None else users_file.read(config.users),
        proves=config.tls_peers is not None or (config.key_ring is not None and Seal(config.seal) is Seal.REQUIRE),
        now=trio.current_time,
    )


def shown(address: int) -> str:
    """An address of which that is what it counts as (`_addresses.pxd`): of IPv6 the first of the network's."""
    return str(ipaddress.IPv4Address(address) if address < 1 << 32 else ipaddress.IPv6Address(address << 64))


def _bits(bits: Sequence[bool]) -> bytes:
    """Bit d of the bytes is the d-th, the lowest first."""
    return sum(1 << place for place, bit in enumerate(bits) if bit).to_bytes(len(bits) // 8 + 1, "little")
