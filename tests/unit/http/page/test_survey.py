"""The survey of a page: its questions and the nodes that are asked."""

from __future__ import annotations

import pytest
import trio.lowlevel

from gossipkv.errors import TimedOut, UnknownDatabase
from gossipkv.http.page.survey import AT_ONCE, status_of, take_survey, together
from gossipkv.status.reports import status_report
from tests.unit.http.page.nodes import ToldNode, judged, told, with_table


async def test_a_cluster_is_asked_through_one_node():
    """The survey asks one node for the verdict and, database by database, for whole sets of partitions."""
    node = ToldNode(told("upgrade"))
    found = await take_survey(node, 12.0)
    assert (found.verdict, found.partitions) == (judged(node.said), ())
    assert (found.node, found.taken_s, found.status) == ("n1", 12.0, status_report(node.said["status"]))
    statuses = [options for method, options in node.asked if method == "status"]
    assert sorted(options["database"] for options in statuses) == ["carts-by-day", "geo", "words"]
    assert all(options["bitmaps"] is True for options in statuses)
    assert sorted(method for method, _ in node.asked if method != "status") == [
        "databases", "info", "members", "verdict",
    ]  # fmt: skip


async def test_one_database_is_asked_for_alone():
    """Other databases are not asked for, and the verdict speaks of this one alone."""
    node = ToldNode(told("upgrade"))
    found = await take_survey(node, 12.0, "geo")
    assert found.status.datasets.keys() == found.verdict.coming.keys() == {"geo"}
    assert ("verdict", {"database": "geo"}) in node.asked
    assert not {"databases", "partition_map"} & {method for method, _ in node.asked}
    with pytest.raises(UnknownDatabase):
        await take_survey(node, 12.0, "nowhere")


async def test_a_table_of_its_own_page_has_its_whole_map():
    """The map is read page by page; an error leaves the table without a map."""
    node = ToldNode(with_table(told("calm")))
    found = await take_survey(node, 12.0, "carts")
    assert [[*partition.assignments] for partition in found.partitions] == node.said["assigned"]["carts"]
    assert [method for method, _ in node.asked].count("partition_map") == 3
    call = node.call

    async def without_map(method, *params, **options):
        if method == "partition_map":
            raise TimedOut("too late")
        return await call(method, *params, **options)

    node.call = without_map
    assert (await take_survey(node, 12.0, "carts")).partitions == ()


async def test_ranges_are_asked_for_their_sizes():
    """Sizes and hosts of ranges are read page by page."""
    node = ToldNode(with_table(told("calm")))
    node.said["status"]["carts"]["kind"] = "range"
    rows = node.said["assigned"]["carts"]
    node.said["measured"] = [(100, 1.5), (0, 0), (None, None), (7, 2), (1 << 40, 9.0)]
    found = await take_survey(node, 12.0, "carts")
    assert [[*partition.hosts] for partition in found.partitions] == rows
    assert [(partition.bytes_, partition.rate) for partition in found.partitions] == node.said["measured"]
    assert [method for method, _ in node.asked].count("partitions") == 3
    assert "partition_map" not in {method for method, _ in node.asked}


async def test_a_database_that_goes_meanwhile_is_left_out():
    """The database was listed and is unknown a moment later."""
    said = told("calm")
    said["databases"].append({"name": "gone"})
    assert (await status_of(ToldNode(said), None, bitmaps=True)).keys() == {"carts-by-day", "geo", "words"}


async def test_a_node_that_does_not_answer_is_an_error():
    node = ToldNode(told("calm"))
    node.failure = TimedOut("too late")
    with pytest.raises(TimedOut):
        await take_survey(node, 12.0)
    with pytest.raises(TimedOut):
        await status_of(node, None, bitmaps=False)


async def test_no_more_questions_than_allowed_are_open():
    """At most `AT_ONCE` questions are open, and answers keep their order."""
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
