"""Fixtures that the tests of the simulated world share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.world.__main__ import simulate


@pytest.fixture
def run():
    """Return a function that runs `python -m tests.world` in this process and returns its status and output."""

    def command(*arguments):
        result = CliRunner().invoke(simulate, [str(argument) for argument in arguments], catch_exceptions=False)
        return SimpleNamespace(status=result.exit_code, out=result.stdout, err=result.stderr)

    return command
