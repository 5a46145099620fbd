"""What is asked for a page, and of whom."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from gossipkv.http.page.links import Links

from gossipkv.errors import GossipKVError, TimedOut, UnknownDatabase
from gossipkv.http.page.survey import AT_ONCE, is_waiting, status_of, take_survey, together
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.http.page.nodes import ToldNode, as_told, told


async def surveyed(node, database=None):
    """One survey."""
    links = Links(node.reach)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        (found,) = await together([lambda: take_survey(node, links, 12.0, database)])
        nursery.cancel_scope.cancel()
    if isinstance(found, GossipKVError):
        raise found
    return found


async def test_a_calm_cluster_is_asked_through_one_node():
    """Whole sets of partitions, a database at a time; no member is asked where nothing is waited for."""
    node = ToldNode(told("calm"))
    found = await surveyed(node)
    assert (found.said, found.silent, found.node, found.taken_s) == ({}, {}, "n1", 12.0)
    assert found.status == node.said["status"]
    statuses = [options for method, options in node.asked if method == "status"]
    assert sorted(options["database"] for options in statuses) == ["carts-by-day", "geo", "words"]
    assert all(options["bitmaps"] is True for options in statuses)


async def test_where_a_version_waits_every_live_member_is_asked():
    """For those databases alone; the node that was asked first has already said its part."""
    found = await surveyed(ToldNode(told("upgrade")))
    assert found.said.keys() == {"n1", "n2", "n3", "n4"}
    assert all(entries.keys() == {"geo", "words"} for entries in found.said.values())
    assert found.said["n3"]["geo"]["versions"]["2026-11-21"]["progress"]["done"] == 0.338


async def test_who_does_not_answer_is_known_with_the_reason():
    """It is still believed to live, and nobody could reach it; who is dead is not asked."""
    said = told("suspected")
    assert [member["state"] for member in said["members"] if member["node"] == "n3"] != ["dead"]
    found = await surveyed(ToldNode(said))
    assert found.silent == {"n3": "no node could be reached: connection refused"}
    found = await surveyed(ToldNode(told("killed")))
    assert found.silent == {}


async def test_one_database_is_asked_for_alone():
    """What others there are does not matter."""
    node = ToldNode(told("upgrade"))
    found = await surveyed(node, "geo")
    assert found.status.keys() == {"geo"}
    assert "databases" not in {method for method, _ in node.asked}
    with pytest.raises(UnknownDatabase):
        await surveyed(node, "nowhere")


async def test_a_database_that_goes_meanwhile_is_left_out():
    """It was listed, and is not known a moment later."""
    said = told("calm")
    said["databases"].append({"name": "gone"})
    assert (await status_of(ToldNode(said), None, bitmaps=True)).keys() == {"carts-by-day", "geo", "words"}


async def test_a_node_that_does_not_answer_is_an_error():
    """Whatever was asked of it."""
    node = ToldNode(told("calm"))
    node.failure = TimedOut("too late")
    with pytest.raises(TimedOut):
        await surveyed(node)
    with pytest.raises(TimedOut):
        await status_of(node, None, bitmaps=False)


async def test_a_member_that_does_not_know_a_database_has_answered():
    """It has come to know the cluster a moment ago."""
    said = told("upgrade")
    del said["local"]["n4"]["geo"]
    found = await surveyed(ToldNode(said))
    assert found.said["n4"]["geo"] == {}
    assert "n4" not in found.silent


def test_what_is_built_beside_what_serves_is_waited_for():
    """A copy that is repaired, but not one that a dead node once built."""
    entry = told("calm")["status"]["geo"]
    assert not is_waiting("geo", entry)
    owner = entry["versions"]["2026-11-20"]["owners"][1]
    owner["building"] = as_told(PartitionSet.of(8, [3]))
    assert is_waiting("geo", entry)
    owner["state"] = "dead"
    assert not is_waiting("geo", entry)


async def test_no_more_questions_than_allowed_are_open():
    """A node is not flooded, however many databases there are; answers keep their places."""
    open_now, most = 0, 0

    async def ask(number):
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await trio.lowlevel.checkpoint()
        open_now -= 1
        if number == 7:
            raise TimedOut("seven")
        return number

    answers = await together([lambda number=number: ask(number) for number in range(50)])
    assert most == AT_ONCE
    assert [answer for answer in answers if not isinstance(answer, TimedOut)] == [n for n in range(50) if n != 7]
