"""An environment that has Spark."""

from __future__ import annotations

import shutil

import pytest

from tests.nightly import environments


@pytest.fixture(scope="session", name="python")
def python_with_spark(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    # Its programs import modules of tests, which import what tests need.
    place = tmp_path_factory.mktemp("spark")
    return environments.make(place, "pyspark>=4.1,<5", "pandas>=2.2", extras=("bench", "test"))
