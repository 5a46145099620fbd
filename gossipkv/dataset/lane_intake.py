"""What a lane's reading is told and returns, as text that goes from process to process."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from gossipkv.dataset.intake import Rule, Taken
from gossipkv.dataset.manifest import Stray
from gossipkv.dataset.recognition import Claim

if TYPE_CHECKING:
    from gossipkv.dataset.build_job import BuildJob
    from gossipkv.errors import Detail


def reading_of(job: BuildJob, rule: Rule) -> str:
    """What `LaneTask.reading` says."""
    return json.dumps([job.to_json(), asdict(rule)])


def job_and_rule(reading: str) -> tuple[str, Rule]:
    """Back from `reading_of`: the job's JSON, and the rule."""
    job, fields = json.loads(reading)
    claims = tuple(Claim(claim["function"], tuple(claim["partitions"])) for claim in fields["claims"])
    return job, Rule(fields["function"], claims, fields["relies"])


def counters_of(taken: Taken) -> Detail:
    """What a lane returns."""
    stray = taken.first_stray
    first_stray: Detail = None if stray is None else [stray.key.hex(), stray.file, stray.offset]
    return [taken.records, list(taken.strays), first_stray, taken.skipped_files]


def taken_from(counters: str) -> Taken:
    """Back from `counters_of`, through JSON."""
    records, strays, stray, skipped_files = json.loads(counters)
    first_stray = None if stray is None else Stray(bytes.fromhex(stray[0]), stray[1], stray[2])
    return Taken(records, tuple(strays), first_stray, skipped_files)
