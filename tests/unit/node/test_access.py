"""Access: every method and command with every right, identities, and delays for wrong tokens."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import msgpack
import pytest
import trio

from gossipkv.access.rights import COMMANDS, METHODS, Right
from gossipkv.access.users import FREE, Users, digest_of, parse
from gossipkv.errors import BadRequest, ConfigError, Overloaded, Unauthorized
from gossipkv.http.order import GatewayPeer
from gossipkv.node.access import ANONYMOUS, MAX_PAUSED, PAUSE_S, PROVEN, Access, access_of, shown
from gossipkv.node.methods import Handlers
from gossipkv.serving.loop import Caller, Refusal
from gossipkv.settings.config import load
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import DeferredResult, ProvenUser
from tests.unit.access.callers import LOCALHOST, STRANGER

if TYPE_CHECKING:
    from collections.abc import Sequence

GRANTS = {Right.READ: "read:db", Right.WRITE: "write:db", Right.OPERATE: "operate", Right.SEE: "see"}
NAMES = ["db", "dba", "d", "other", *(f"db{number}" for number in range(20))]


def users(**may: Sequence[str]) -> Users:
    """Return users, each with the token `token-NAME`; `anonymous` has none."""
    return parse(
        "".join(
            f"[{name}]\nmay = {[*grants]}\n"
            + (f'token = "sha256:{digest_of(f"token-{name}".encode()).hex()}"\n' if name != "anonymous" else "")
            for name, grants in may.items()
        ),
        "users",
    )


def access(known: Users | None, *, proves: bool = True) -> Access:
    return Access(known, proves=proves, now=trio.current_time if known else lambda: 0.0)


def caller(user: int, address: int = LOCALHOST) -> Caller:
    return Caller(1 << 32, 0, user, address)


def number_of(of: Access, name: str) -> int:
    """Return the number of the user with this name's token."""
    known = of.prove(f"token-{name}".encode(), STRANGER)
    assert isinstance(known, ProvenUser)
    return known.user


def handlers(of: Access) -> Handlers:
    """Return handlers in which every method does nothing."""
    methods = dict.fromkeys(METHODS, lambda _arguments: "done")
    of_callers = {b"auth": of.auth, b"status": lambda _arguments, _caller: "done"}
    return Handlers(methods, of_callers, of, MagicMock(), Random(1), writer=MagicMock())


def is_refused(answer: object) -> bool:
    """Return True if the answer is a well-formed UNAUTHORIZED."""
    if not isinstance(answer, Refusal):
        return False
    code, message, details = msgpack.unpackb(answer.error)
    assert (code, "db" in message, set(details) - {"auth"}) == ("UNAUTHORIZED", False, set()), message
    return True


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {b"auth", b"hello", b"resp"}))
async def test_every_method_with_every_right(method):
    """A method needs one of its rights, for that database; a node may call any method."""
    of = access(users(**{right.name.lower(): [grant] for right, grant in GRANTS.items()}, all=[*GRANTS.values()]))
    served = handlers(of)
    params = msgpack.packb(["db", b"k"])
    near = [msgpack.packb([name, b"k"]) for name in NAMES[1:]]
    for right in GRANTS:
        asking = caller(number_of(of, right.name.lower()))
        may = METHODS[method] == Right.NONE or right in METHODS[method]
        assert is_refused(served.answer(method, params, asking)) != may, right
        may_elsewhere = METHODS[method] == Right.NONE or (
            right in METHODS[method] and right in Right.OPERATE | Right.SEE
        )
        assert {is_refused(served.answer(method, other, asking)) for other in near} == {not may_elsewhere}, right
    everything = caller(number_of(of, "all"))
    assert is_refused(served.answer(method, params, everything)) == (METHODS[method] == Right.PEER)
    assert is_refused(served.answer(method, params, STRANGER)) == (METHODS[method] != Right.NONE)
    assert not is_refused(served.answer(method, params, caller(PROVEN)))


@pytest.mark.parametrize("command", sorted(COMMANDS))
async def test_every_command_with_every_right(command):
    """A command needs one of its rights, for that database."""
    of = access(users(**{right.name.lower(): [grant] for right, grant in GRANTS.items()}))
    for right in GRANTS:
        number = number_of(of, right.name.lower())
        for database in NAMES[:2]:
            holds = right in COMMANDS[command] and (database == "db" or right == Right.SEE)
            if holds or COMMANDS[command] == Right.NONE:
                of.judge_command(command, caller(number), database)
            else:
                with pytest.raises(Unauthorized):
                    of.judge_command(command, caller(number), database)


async def test_who_is_told_what_errors_show_of_a_database():
    """Readers of the database see an error's details, and all callers if there are no users; a gateway does not."""
    of = access(users(ana=["read:db", "see"], bo=["see"], all=["read:*"]))
    asking = {name: number_of(of, name) for name in ("ana", "bo", "all")} | {"": ANONYMOUS, "gateway": PROVEN}
    assert {name for name, number in asking.items() if of.is_reader(number, "db")} == {"ana", "all"}
    assert {name for name, number in asking.items() if of.is_reader(number, "other")} == {"all"}
    assert access(None).is_reader(ANONYMOUS, "db")


async def test_what_is_refused_is_neither_done_nor_counted():
    """The check comes before any other use of the request."""
    of, done = access(users(ana=["read:db"])), []
    served = handlers(of)
    served._methods[b"get"] = done.append
    for asking, database in ((STRANGER, "db"), (caller(number_of(of, "ana")), "dba")):
        assert is_refused(served.answer(b"get", msgpack.packb([database, b"k"]), asking))
    assert done == []
    assert served.errors == {"UNAUTHORIZED": 2}


@pytest.mark.parametrize("proves", [True, False])
def test_without_users_only_what_nodes_ask_is_closed(proves):
    """Methods of nodes are closed only if nodes can prove themselves."""
    served = handlers(access(None, proves=proves))
    for method in METHODS.keys() - {b"auth", b"hello", b"resp"}:
        expected = proves and METHODS[method] == Right.PEER
        assert is_refused(served.answer(method, msgpack.packb(["db"]), STRANGER)) == expected, method
        assert not is_refused(served.answer(method, msgpack.packb(["db"]), caller(PROVEN)))
    assert msgpack.unpackb(served.answer(b"gett", b"\x90", STRANGER).error)[0] == "UNKNOWN_METHOD"


async def test_what_is_unknown_or_wrong_is_said_before_rights():
    """A misspelt method must not look forbidden."""
    served = handlers(access(users(ana=["see"])))
    assert msgpack.unpackb(served.answer(b"gett", b"\x90", STRANGER).error)[0] == "UNKNOWN_METHOD"
    assert msgpack.unpackb(served.answer(b"get", b"\x90", STRANGER).error)[0] == "BAD_REQUEST"


async def test_a_user_has_its_own_rights_alone():
    """A user does not have anonymous's rights, and vice versa."""
    of = access(users(ana=["read:a"], anonymous=["read:b"]))
    ana = number_of(of, "ana")
    assert [of.may_read(user, name) for user in (ana, ANONYMOUS) for name in "ab"] == [True, False, False, True]


async def test_bits_are_what_may_be_read():
    """The bitmaps cover each user and database; a proven node may read all."""
    of = access(users(ana=["read:db*", "write:other"], bob=["read:*"], eve=[], anonymous=["read:d"]))
    bitmaps = of.bitmaps(NAMES)
    assert bitmaps[PROVEN] is None
    for number, bitmap in enumerate(bitmaps):
        if bitmap is not None:
            bits = [bool(bitmap[place // 8] >> place % 8 & 1) for place in range(len(NAMES))]
            assert bits == [of.may_read(number, name) for name in NAMES]
            assert any(bits) == (number != number_of(of, "eve"))
    assert of.bitmaps(NAMES[:1]) != bitmaps
    assert access(None).bitmaps(NAMES) == []


async def test_a_number_is_nobody_else_s():
    """Rights may change; a user with a new token is a new number, and old numbers lose all rights."""
    of = access(users(ana=["read:a"], bob=["read:b"]))
    ana, bob = number_of(of, "ana"), number_of(of, "bob")
    assert of.use(users(ana=["read:c"], bob=["read:b"])) == []
    assert (number_of(of, "ana"), of.may_read(ana, "c"), of.may_read(ana, "a")) == (ana, True, False)
    changed = parse(f'[ana]\nmay=["read:c"]\ntoken="sha256:{digest_of(b"new").hex()}"\n', "users")
    assert of.use(changed) == [ana, bob]
    for gone in (ana, bob):
        assert not any(of.may_read(gone, name) for name in "abc")
        assert is_refused(handlers(of).answer(b"get", msgpack.packb(["c", b"k"]), caller(gone)))
    with pytest.raises(Unauthorized):
        number_of(of, "ana")
    assert of.use(users(ana=["read:a"], bob=["read:b"])) == [bob + 1]
    assert {number_of(of, "ana"), number_of(of, "bob")}.isdisjoint({ana, bob, bob + 1})


async def test_auth_says_who_it_is():
    """`auth` returns the user of a token and refuses unknown tokens; without users all are anonymous."""
    of = access(users(ana=[]))
    for token in (b"token-ana", "token-ana"):
        told = of.auth(Arguments(b"auth", msgpack.packb([token])), STRANGER)
        assert isinstance(told, ProvenUser)
        assert told.result == "ana"
    for wrong in ([], [None], [1], [b"token-ana", 1]):
        with pytest.raises(BadRequest):
            of.auth(Arguments(b"auth", msgpack.packb(wrong)), STRANGER)
    for token in (b"", b"token-an", b"token-anaa", b"x" * (1 << 20), b"\xff", b"anonymous"):
        with pytest.raises(Unauthorized, match=r"^no user has this token$"):
            access(users(ana=[])).prove(token, STRANGER)
    assert access(None).prove(b"anything", STRANGER) == ProvenUser(ANONYMOUS, "anonymous")
    with pytest.raises(Unauthorized):
        Access(users(ana=[]), proves=True, now=trio.current_time).prove(b"", STRANGER)


async def test_a_certificate_is_of_who_has_its_name():
    """A certificate works with and without a token; a new token makes a new number."""
    both = '[ana]\nmay = []\ntoken = "sha256:%064x"\n[probe]\nmay = ["see"]\n[anonymous]\nmay = ["see"]\n'
    of = access(parse(both % 1, "users"))
    ana, probe = of.named("ana"), of.named("probe")
    assert len({ana, probe, ANONYMOUS, PROVEN}) == 4
    assert (of.named("anonymous"), of.named("bob")) == (ANONYMOUS, ANONYMOUS)
    assert [of.peer_of(caller(number)).user for number in (ANONYMOUS, ana, probe)] == ["anonymous", "ana", "probe"]
    assert of.use(parse(both % 2, "users")) == [ana]
    assert (of.named("ana") not in {ana, probe}, of.named("probe")) == (True, probe)
    assert of.peer_of(caller(ana, 0x0A000001)) == GatewayPeer("10.0.0.1", "anonymous")
    assert (access(None).named("ana"), access(None).peer_of(STRANGER).user) == (ANONYMOUS, "anonymous")


async def test_the_gateway_asks_whose_a_token_is(autojump_clock):
    """The gateway gets the user and rights, or anonymous's; the pause applies to the client's address."""
    of = access(users(ana=["read:a", "see"], anonymous=["read:b"]))

    def whose(*params: object) -> object:
        return of.whose(Arguments(b"whose", msgpack.packb(params)))

    assert whose(b"token-ana", "10.0.0.1") == ["ana", ["read:a", "see"]]
    assert whose(None, "10.0.0.1") == ["anonymous", ["read:b"]]
    for _ in range(FREE):
        with pytest.raises(Unauthorized):
            whose(b"s" * 64, "10.0.0.1")
    refused = whose(b"s" * 64, "10.0.0.1")
    assert isinstance(refused, DeferredResult)
    with pytest.raises(Unauthorized):
        await refused.result()
    with pytest.raises(Unauthorized):
        whose(b"s" * 64, "::1")
    assert whose(b"token-ana", "10.0.0.1") == ["ana", ["read:a", "see"]]
    assert whose(None, "10.0.0.1") == ["anonymous", ["read:b"]]
    assert whose(None, "10.0.0.1", "ana") == ["ana", ["read:a", "see"]]
    assert whose(b"token-ana", "::1", "anonymous") == ["ana", ["read:a", "see"]]
    assert whose(None, "10.0.0.1", "nobody") == ["anonymous", ["read:b"]]
    for wrong in ([], [1, "::1"], [None], [None, "here"], [None, "::1", 1]):
        with pytest.raises(BadRequest):
            whose(*wrong)
    assert access(None).whose(Arguments(b"whose", msgpack.packb([b"x", "::1"]))) is None


async def test_after_five_wrong_tokens_each_refusal_waits(autojump_clock):
    """Right tokens of that address and other addresses do not wait."""
    of = access(users(ana=[]))
    for _ in range(FREE):
        with pytest.raises(Unauthorized):
            of.prove(b"wrong", STRANGER)
    with pytest.raises(Unauthorized):
        of.prove(b"wrong", caller(ANONYMOUS, LOCALHOST + 1))
    began = trio.current_time()
    for _ in range(2):
        told = of.prove(b"wrong", STRANGER)
        assert isinstance(told, DeferredResult)
        assert of.prove(b"token-ana", STRANGER) == ProvenUser(PROVEN + 1, "ana")
        with pytest.raises(Unauthorized):
            await told.result()
    assert trio.current_time() - began == 2 * PAUSE_S


async def test_few_refusals_wait_at_once(autojump_clock):
    """Each waiting refusal takes a task, so further ones get OVERLOADED; right tokens still work."""
    of, overloaded = access(users(ana=[])), []
    for _ in range(FREE):
        with pytest.raises(Unauthorized):
            of.prove(b"wrong", STRANGER)

    async def wait() -> None:
        told = of.prove(b"wrong", STRANGER)
        assert isinstance(told, DeferredResult)
        try:
            await told.result()
        except Overloaded as error:
            overloaded.append(error)

    with trio.move_on_after(PAUSE_S / 2):
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_PAUSED + 7):
                nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert of.prove(b"token-ana", STRANGER) == ProvenUser(PROVEN + 1, "ana")
    assert len(overloaded) == 7


async def test_a_refusal_has_its_line_but_one_a_second(autojump_clock, caplog):
    """The limit is per address; the line has neither token nor database."""
    caplog.set_level(logging.INFO)
    of = access(users(ana=["see"]))
    served = handlers(of)
    for address in (LOCALHOST, LOCALHOST, 0x20010DB8 << 32):
        assert is_refused(served.answer(b"get", msgpack.packb(["secrets", b"k"]), caller(ANONYMOUS, address)))
    with pytest.raises(Unauthorized):
        of.prove(b"gkv-wrong", caller(ANONYMOUS, 0x0A000001))
    await trio.sleep(1)
    assert is_refused(served.answer(b"put", msgpack.packb(["secrets", b"k", b"v"]), caller(number_of(of, "ana"))))
    told = [(record.msg, record.fields) for record in caplog.records]
    assert told == [
        ("refused", {"address": "127.0.0.1", "user": "anonymous", "method": "get"}),
        ("refused", {"address": "2001:db8::", "user": "anonymous", "method": "get"}),
        ("refused", {"address": "10.0.0.1", "user": "nobody", "method": "auth"}),
        ("refused", {"address": "127.0.0.1", "user": "ana", "method": "put"}),
    ]
    assert shown(0) == "0.0.0.0"


def test_users_among_others_need_keys(tmp_path):
    """With keys nodes prove themselves to each other; a lone node needs none."""
    path = tmp_path / "users"
    path.write_text("[ana]\nmay = []\n")
    path.chmod(0o600)
    assert access_of(load(flags={"users": str(path)})).may(ANONYMOUS, Right.NONE)
    with pytest.raises(ConfigError, match="with users, nodes must prove their identity to each other"):
        access_of(load(flags={"users": str(path), "join": "10.0.0.1:7070"}))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        access_of(load(flags={"users": str(path)}))
