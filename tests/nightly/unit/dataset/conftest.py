"""What these tests share with the units that every run has."""

from __future__ import annotations

from tests.unit.dataset.conftest import job, put, world

__all__ = ["job", "put", "world"]
