"""The order of a build, its progress and its estimate of disk space."""

from __future__ import annotations

import dataclasses

import pytest

from gossipkv.dataset.build.job import BuildJob, BuildProgress, space_needed_bytes
from gossipkv.dataset.source.files import SourceFile
from gossipkv.processes.program import order_line, read_order


def test_progress_of_nothing_is_no_division():
    """An empty source counts as read."""
    assert BuildProgress(0, 0, 0, 0).done == pytest.approx(2 / 3)


def test_a_job_survives_its_trip_to_the_child(job):
    """The job is one line, file names that are not UTF-8 included."""
    one = dataclasses.replace(job([b""]), refuted=("sequins", "string"), wanted=(0,))
    again = read_order(order_line(one), BuildJob)
    assert again == one
    assert order_line(one).count(b"\n") == 1


def test_the_room_that_a_build_needs():
    """Sorted files are copied; for all others the sorted runs lie beside the result for a while."""

    def needed(*names, **options):
        files = tuple(SourceFile(name, f"/x/{name}", 10**6, 0) for name in names)
        return space_needed_bytes(BuildJob("db", "v", "", files, "/d", len(files), **options)) // 10**6

    assert needed("part-0", "part-1") == 4
    assert needed("part-0.gkv", "part-1.gkv") == needed("part-0", "part-1", format="sorted") == 2
    assert needed("part-0.gkv", "part-1") == needed("part-0.gkv", "part-1.gkv", format="tsv") == 4
