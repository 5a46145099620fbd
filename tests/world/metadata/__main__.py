"""One run by its seed: `python -m tests.world.metadata SEED`; its status says whether a promise was broken."""

from __future__ import annotations

import sys

from tests.world.metadata.world import run

if __name__ == "__main__":
    outcome = run(int(sys.argv[1]))
    for name, count in sorted(outcome.counts.items()):
        sys.stdout.write(f"{count:8} {name}\n")
    for violation in outcome.violations:
        sys.stdout.write(f"{violation}\n")
    sys.exit(bool(outcome.violations))
