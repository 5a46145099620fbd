"""A node reports its own state, asks members for verdicts, and limits how often."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.lowlevel

from gossipkv.errors import Unavailable, Unknown
from gossipkv.gossip.member import MemberState
from gossipkv.node.verdicts import (
    CERTIFICATE_CLOSE_S,
    FRESH_S,
    LAST_S,
    MEMBER_S,
    SUSPECT_S,
    NodeVerdicts,
    VerdictReport,
)
from gossipkv.status.words import time_text

CALM = {"databases": {}}


def member(name, state=MemberState.ALIVE):
    return SimpleNamespace(name=name, uuid=name.encode(), state=state)


class Threads:
    """Threads that run their call at once."""

    async def run(self, do, *arguments):
        return do(*arguments)


class Made:
    """A node `n1` with these members and their answers."""

    def __init__(self, *members, conditions=None, **answers) -> None:
        self.asked: list[str] = []
        self.answers = answers
        members = (member("n1"), *members)
        self.cluster = SimpleNamespace(
            members_known=lambda: members, isolated=lambda: False, silence=None, publish_error=lambda: None,
            claimed_twice=list, misfits=dict,
        )  # fmt: skip
        tables = SimpleNamespace(conditions=self.no_tables, acceptors=lambda: ["n1"], removed=dict, copies_aside=int)
        self.store = SimpleNamespace(trouble="EIO", is_lost=False, log_damage=None)
        self.report = VerdictReport(
            node="n1",
            has_source=True,
            datasets=SimpleNamespace(conditions=lambda **_: conditions or {}, trouble=lambda: None),
            tables=tables,
            names=SimpleNamespace(with_disputes=dict),
            store=self.store,
            cluster=self.cluster,
            unreached=lambda: self.unreached,
            unreadable=list,
            draining=lambda: True,
            certificate=lambda: self.expires_s,
            clock=self,
        )
        self.expires_s: int | None = None
        self.unreached: dict[str, str] = {}
        self.verdicts = NodeVerdicts(self.report, self.ask, Threads())

    def wall_ms(self):
        return int(trio.current_time() * 1000)

    async def no_tables(self):
        return {}

    async def ask(self, uuid, method, params, timeout_s):
        assert (method, params) == ("report", [])
        assert timeout_s == (SUSPECT_S if uuid == b"n3" else MEMBER_S)
        self.asked.append(uuid.decode())
        await trio.lowlevel.checkpoint()
        answer = self.answers.get(uuid.decode(), CALM)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await trio.sleep_forever()
        return answer


async def test_a_report_has_only_what_is_so():
    """Normal states are left out, since many nodes ask for the report."""
    made = Made(member("n2", MemberState.SUSPECT), member("n3", MemberState.LEFT), conditions={"geo": {"active": "1"}})
    assert await made.report.make() == {
        "away": {"n2": "suspect"},
        "acceptors": ["n1"],
        "tables_closed": "EIO",
        "draining": True,
        "databases": {"geo": {"active": "1"}},
    }
    made.unreached, made.store.trouble, made.store.is_lost = {"n2": "no answer"}, "damaged", True
    told = await made.report.make()
    assert (told["unreached"], told["tables_lost"], told.get("tables_closed")) == ({"n2": "no answer"}, "damaged", None)


async def test_a_report_says_until_when_a_certificate_holds(autojump_clock):
    """From a fortnight before, the report announces the coming end, and later the end itself."""
    made = Made()
    await trio.sleep(5000)
    now_s = made.wall_ms() // 1000
    for left_s, key in (
        (CERTIFICATE_CLOSE_S, None), (CERTIFICATE_CLOSE_S - 1, "certificate_close"), (1, "certificate_close"),
        (0, "certificate_over"), (-1000, "certificate_over"),
    ):  # fmt: skip
        made.expires_s = now_s + left_s
        told = await made.report.make()
        assert told.pop("certificate_expires_s") == made.expires_s
        assert [name for name in told if name.startswith("certificate")] == [key] * (key is not None)
        if key is not None:
            assert told[key] == time_text(made.expires_s)


async def test_all_members_are_asked_that_may_live(autojump_clock):
    """All members are asked at once, for a second at most; one without an answer is named with the reason."""
    made = Made(
        member("n2"), member("n3", MemberState.SUSPECT), member("n4", MemberState.DEAD),
        member("n5", MemberState.LEFT), member("n6"),
        n2=Unavailable("n2 cannot be reached"), n3=Unknown("n3 did not answer"), n6=None,
    )  # fmt: skip
    began = trio.current_time()
    verdict = await made.verdicts.make()
    assert trio.current_time() - began == pytest.approx(MEMBER_S)
    assert sorted(made.asked) == ["n2", "n3", "n6"]
    assert verdict.silent == {
        "n2": "n2 cannot be reached",
        "n3": "n3 did not answer",
        "n6": f"no answer within {MEMBER_S:g} s",
    }
    assert "5 members, 1 dead, 1 suspect" in verdict.text


async def test_what_was_judged_for_one_is_told_to_others(autojump_clock):
    """A verdict is shared for half a second, or for as long as the caller says; nothing is asked by itself."""
    made = Made(member("n2"))
    await trio.sleep(100)
    assert made.asked == []
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(made.verdicts.make)
        await trio.sleep(FRESH_S / 2)
        assert made.asked == ["n2"]
        await made.verdicts.make()
        assert made.asked == ["n2"]
    await trio.sleep(FRESH_S)
    await made.verdicts.make()
    assert made.asked == ["n2"] * 2
    await trio.sleep(LAST_S - 1)
    await made.verdicts.make(fresh_s=LAST_S)
    assert made.asked == ["n2"] * 2
    await trio.sleep(1)
    await made.verdicts.make(fresh_s=LAST_S)
    assert made.asked == ["n2"] * 3


async def test_an_outdated_verdict_is_made_anew(autojump_clock):
    """Also if it was outdated while it was made."""
    made = Made(member("n2"))
    await made.verdicts.make()
    made.verdicts.outdate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.verdicts.make)
        await trio.testing.wait_all_tasks_blocked()
        made.verdicts.outdate()
    await made.verdicts.make()
    await made.verdicts.make()
    assert made.asked == ["n2"] * 3
