from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci.tidy.requirements import private, unbounded, unpinned
from tests.ci.tidy.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HASH = f"--hash=sha256:{64 * 'a'}"
PROJECT = """
[build-system]
requires = ["wheel"]
[project]
name = "house"
dependencies = ["trio>=1", "lz4<5"]
[project.optional-dependencies]
test = ["house[more]", "backports.zstd>=2"]
"""


def test_what_is_used_privately_is_bounded() -> None:
    """A new version of such a package comes when somebody has looked at it, not when it appears."""
    assert unbounded(ROOT) == set()


@pytest.mark.parametrize(
    "text",
    [
        "import trio._core",
        "from trio._core import run",
        "import trio as t\nt.lowlevel._run",
        "from trio.testing import Clock\nclass Mine(Clock):\n    def _tick(self): ...",
        "import_module('trio._core._run')",
    ],
)
def test_private_use_is_seen(text: str) -> None:
    """However it is reached; what is public, or is ours, is not meant."""
    assert private(text, {"trio", "lz4"}) == {"trio"}
    assert (
        private("import trio\ntrio.run(main)\nself._trio\ntrio.__version__\nfrom house import _trio", {"trio"}) == set()
    )


def test_an_unbounded_requirement_is_seen(tmp_path: Path) -> None:
    """One that is used privately and has no upper bound; a bound of another does not count."""
    (tmp_path / "gossipkv").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "gossipkv" / "a.py").write_text("import lz4._v, trio._core", encoding="utf-8")
    assert unbounded(tmp_path) == {"trio"}


def test_all_that_development_uses_is_pinned() -> None:
    """Every requirement has its pin, which it allows, with a hash, and no index is named."""
    assert unpinned(ROOT) == set()
    assert "://" not in (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")


def test_a_lost_pin_is_seen(tmp_path: Path) -> None:
    """One without a hash, one that is too old, one that is missing."""
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    pins = f"trio==1.0 ; python_version < '4' \\\n    {HASH}\nlz4==4.0\nbackports-zstd==1.0 \\\n    {HASH}\n"
    (tmp_path / "requirements").mkdir(exist_ok=True)
    (tmp_path / "requirements/dev.txt").write_text(pins, encoding="utf-8")
    assert unpinned(tmp_path) == {"lz4", "backports.zstd", "wheel"}
