from __future__ import annotations

from typing import TYPE_CHECKING

from tests.ci.tidy.log_events import PAGE, explained, written
from tests.ci.tidy.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_every_event_is_explained_to_operators() -> None:
    """The table of the log has what the package can write, at that level, and nothing else."""
    assert written(ROOT) == explained(ROOT)


def test_an_event_without_a_row_is_seen(tmp_path: Path) -> None:
    """Whichever way it is written; a row of another level is not its row."""
    package, page = tmp_path / "gossipkv", tmp_path / PAGE
    package.mkdir()
    page.parent.mkdir(parents=True)
    (package / "a.py").write_text(
        'self._log.error("burnt", reason=why)\nnode.log.info("lit")\nlog.info("lit")\n'
        'self._warnings.say("smoke", line)\nprint("no event")\nmath.log("no event")\n',
        encoding="utf-8",
    )
    page.write_text(
        "| event | level | means |\n|---|---|---|\n| `lit` | info | a |\n| `smoke` | error | b |\n", "utf-8"
    )
    assert written(tmp_path) - explained(tmp_path) == {("burnt", "error"), ("smoke", "warning")}
    assert explained(tmp_path) - written(tmp_path) == {("smoke", "error")}
