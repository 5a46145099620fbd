"""A source of verdicts for tests of other subjects."""

from __future__ import annotations

from gossipkv.status.judging.judge import judge
from gossipkv.status.verdict import MemberReports


class NoVerdicts:
    """A source by which all is well."""

    async def report(self):
        return {"databases": {}}

    def __init__(self):
        self.outdated = 0

    def outdate(self):
        self.outdated += 1

    async def make(self, *, fresh_s=0.5):
        """Return a verdict that names its freshness."""
        return judge(MemberReports(f"for {fresh_s}", {}, {}, {}))
