"""The reading of a lane: what `intake` is told and returns, as text that goes from process to process."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from gossipkv.dataset.build_job import BuildJob
from gossipkv.dataset.intake import Rule, Taken, take_in
from gossipkv.dataset.manifest import Stray
from gossipkv.dataset.recognition import Claim
from gossipkv.dataset.remote import files_of
from gossipkv.environment import RealFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.errors import Detail
    from gossipkv.storage.builder import LaneBuilder


def reading_of(job: BuildJob, rule: Rule) -> str:
    """What `LaneTask.reading` says."""
    return json.dumps([job.to_json(), asdict(rule)])


def read_files(
    reading: str, which: range, builder: LaneBuilder, *, pace: Callable[[int], None], on_records: Callable[[int], None]
) -> Detail:
    """`take_in` for some files of a job (`build_lane.ReadFiles`)."""
    line, fields = json.loads(reading)
    job = BuildJob.from_json(line)
    claims = tuple(Claim(claim["function"], tuple(claim["partitions"])) for claim in fields["claims"])
    rule = Rule(fields["function"], claims, fields["relies"])
    origin = files_of(job.remote, RealFiles())
    taken = take_in(job, which, rule, builder, origin, pace=pace, on_records=on_records)
    stray = taken.first_stray
    first_stray: Detail = None if stray is None else [stray.key.hex(), stray.file, stray.offset]
    return [taken.records, list(taken.strays), first_stray, taken.skipped_files]


def taken_from(counters: str) -> Taken:
    """What a lane's `read_files` has returned, out of `LaneResult.counters`."""
    records, strays, stray, skipped_files = json.loads(counters)
    first_stray = None if stray is None else Stray(bytes.fromhex(stray[0]), stray[1], stray[2])
    return Taken(records, tuple(strays), first_stray, skipped_files)
