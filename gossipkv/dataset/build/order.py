"""What a node tells the process that builds, of which it knows no more: all that builds is loaded there alone."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gossipkv.dataset.build.job import BuildJob


@dataclass(frozen=True, slots=True)
class Order:
    """What the node tells its child."""

    job: BuildJob
    memory_bytes: int  # for the whole process
    bytes_per_second: int  # 0: as fast as it goes
    leash: int  # The descriptor of the program's.
    most_lanes: int = 1

    def to_line(self) -> bytes:
        """One line of JSON."""
        order = [self.job.to_json(), self.memory_bytes, self.bytes_per_second, self.leash, self.most_lanes]
        return json.dumps(order).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        """Return what `to_line` was called on."""
        job, *means = json.loads(line)
        return cls(BuildJob.from_json(job), *means)
