"""Marks for tests that need the debug build, which alone checks invariants, or its absence."""

from __future__ import annotations

import pytest

from tests.unit.serving.driven import make_core
from tests.world._world import Driver

NOT_IN_DEBUG_BUILD = pytest.mark.skipif(Driver(make_core()).checks, reason="the debug build traces each line")
ONLY_DEBUG_BUILD = pytest.mark.skipif(not Driver(make_core()).checks, reason="only the debug build checks invariants")
