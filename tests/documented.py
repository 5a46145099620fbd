"""The fields of answers that the reference names, for tests that compare them with answers of nodes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

FIELDS: Final = Path(__file__).parent.parent / "docs" / "answers.toml"


def fields_of(answer: str) -> frozenset[str]:
    """Return the names of the fields of an answer."""
    documented = tomllib.loads(FIELDS.read_text(encoding="utf-8"))[answer]
    return frozenset(name for names in documented for name in names.split(", "))
