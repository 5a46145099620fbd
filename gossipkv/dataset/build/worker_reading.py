"""What a lane's reading is told and returns, as text that goes from process to process."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from gossipkv.dataset.build.reading_in import Rule, Taken
from gossipkv.dataset.build.recognition import Claim
from gossipkv.dataset.local.manifest import stray_from_json, stray_to_json

if TYPE_CHECKING:
    from gossipkv.dataset.build.job import BuildJob
    from gossipkv.storage.document import Json


def reading_of(job: BuildJob, rule: Rule) -> str:
    """What `LaneTask.reading` says."""
    return json.dumps([job.to_json(), asdict(rule)])


def job_and_rule(reading: str) -> tuple[str, Rule]:
    """Back from `reading_of`: the job's JSON, and the rule."""
    job, fields = json.loads(reading)
    claims = tuple(Claim(claim["function"], tuple(claim["partitions"])) for claim in fields["claims"])
    return job, Rule(fields["function"], claims, fields["relies"])


def counters_of(taken: Taken) -> Json:
    """What a lane returns."""
    return [taken.records, list(taken.strays), stray_to_json(taken.first_stray)]


def taken_from(counters: str) -> Taken:
    """Back from `counters_of`, through JSON."""
    records, strays, stray = json.loads(counters)
    return Taken(records, tuple(strays), stray_from_json(stray, "a lane's counters"))
