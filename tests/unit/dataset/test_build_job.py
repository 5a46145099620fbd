"""What a build is told, and how far it says that it is."""

from __future__ import annotations

import pytest

from gossipkv.dataset.build_job import BuildJob, Progress


def test_progress_of_nothing_is_no_division():
    """An empty source is read at once."""
    assert Progress(0, 0, 0, 0).done == pytest.approx(2 / 3)


def test_a_job_survives_its_trip_to_the_child(job):
    """As one line of JSON, names that are no UTF-8 included."""
    one = job([b""])
    again = BuildJob.from_json(one.to_json())
    assert again == one
    assert "\n" not in one.to_json()
