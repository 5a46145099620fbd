"""Sentences describe a node and its versions."""

from __future__ import annotations

import pytest

from gossipkv.status import sentences
from gossipkv.status.codec import decode
from gossipkv.status.reports import InfoReport, VersionStatus


def test_remarks_leave_out_what_stands_elsewhere():
    """Functions that fit as well have a column of their own on the page."""
    told = {"state": "BUILDING", "function": "a", "alike": ["a", "b"], "waited_s": 61, "progress": {"done": 0.5}}
    version = decode(VersionStatus, told)
    assert sentences.remarks(version, is_held=False) == "waiting 1 min 1 s; partitioned by b as well"
    assert sentences.remarks(version, "half", is_held=True, alike=False) == "held; half; waiting 1 min 1 s"
    assert sentences.progress_text(version) == "50%"


@pytest.mark.parametrize(("told", "line"), [
    ({}, "3.0 GiB mapped, all resident: room for 4.5 GiB by memory.max of /a"),
    ({"resident": "none"}, "3.0 GiB mapped, paged: room for 4.5 GiB by memory.max of /a"),
    (
        {"resident": "active", "room_bytes": 0},
        "3.0 GiB mapped, the active versions resident, the others paged: room for 0 B by memory.max of /a",
    ),
    (
        {"residency": "paged", "resident": "none", "room_bytes": None, "limit": None},
        "3.0 GiB mapped, paged by the setting: no limit is known",
    ),
    (
        {"mapped_bytes": 0, "compressed_bytes": 1 << 20},
        "0 B mapped, all resident: room for 4.5 GiB by memory.max of /a; beside that 1.0 MiB compressed, paged",
    ),
])  # fmt: skip
def test_what_is_resident(told, line):
    """The line has the resident versions, sizes, the limit and the room."""
    memory = {
        "residency": "auto", "resident": "all", "mapped_bytes": 3 << 30, "active_bytes": 1 << 30,
        "compressed_bytes": 0, "room_bytes": 9 << 29, "limit": "memory.max of /a",
    }  # fmt: skip
    assert sentences.of_memory(decode(InfoReport, {"memory": memory | told})) == f"memory: {line}"


@pytest.mark.parametrize("info", [{}, {"memory": None}, {"memory": {"mapped_bytes": 0, "compressed_bytes": 0}}])
def test_nothing_is_mapped(info):
    """There is no line, neither for a node without memory facts."""
    assert sentences.of_memory(decode(InfoReport, info)) is None


def test_until_when_a_certificate_holds():
    ends, never = ({"certificate_expires_s": expires_s} for expires_s in (86_400, None))
    assert sentences.of_certificate(decode(InfoReport, ends)) == "certificate: expires at 1970-01-02 00:00 UTC"
    assert sentences.of_certificate(decode(InfoReport, never)) is None
    assert sentences.of_certificate(decode(InfoReport, {})) is None


def test_how_the_store_of_the_tables_stands():
    """An open store has one line with its counters; without one, or a closed one, there is none."""
    counters = {
        "batches": 12_000, "user_bytes": 1000, "log_bytes": 1200, "merged_bytes": 2300, "memtable_bytes": 64 << 20,
        "young_runs": 3, "debt_bytes": 0, "log_kept_bytes": 1 << 30, "run_bytes": 5 << 30, "syncs": 9,
    }  # fmt: skip
    opened = {"state": "open", "why": None, "store": "ab", "life": 4, "counters": counters}
    assert sentences.of_tables(decode(InfoReport, {"tables": opened})) == (
        "tables: open, life 4, 12,000 batches, 64.0 MiB in memory, 3 young runs, 5.0 GiB in runs, 1.0 GiB of log, "
        "0 B to be merged, 3.5 bytes written for each that came"
    )
    assert sentences.of_tables(decode(InfoReport, {"tables": {**opened, "counters": {}}})) == "tables: open, life 4"
    counters["user_bytes"] = 0
    assert "bytes written" not in str(sentences.of_tables(decode(InfoReport, {"tables": opened})))
    for told in ({}, {"tables": None}, {"tables": {"state": "none"}}, {"tables": {**opened, "state": "closed"}}):
        assert sentences.of_tables(decode(InfoReport, told)) is None
