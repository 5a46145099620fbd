"""Who makes verdicts, for tests of what is about something else."""

from __future__ import annotations

from gossipkv.status.judging.judge import judge
from gossipkv.status.verdict import MemberReports


class NoVerdicts:
    """All is well, whatever is asked."""

    async def report(self):
        return {"databases": {}}

    async def make(self, *, fresh_s=0.5):
        """A verdict that says for how long it is fresh."""
        return judge(MemberReports(f"for {fresh_s}", {}, {}, {}))
