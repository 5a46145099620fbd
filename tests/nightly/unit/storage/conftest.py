"""What these tests share with the units that every run has."""

from __future__ import annotations

from tests.unit.storage.conftest import way

__all__ = ["way"]
