"""What these tests share with the units that every run has."""

from __future__ import annotations

from tests.unit.cli.conftest import run

__all__ = ["run"]
