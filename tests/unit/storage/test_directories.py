"""`make_directory` makes directories durable, even those that an earlier, killed process made and left unsynced."""

from __future__ import annotations

import itertools
from pathlib import PurePosixPath

import pytest

from gossipkv.storage.directories import make_directory
from tests.world.faulty_files import Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

PATH = PurePosixPath("/data/tables/log")


def test_the_names_that_another_left_unsynced_are_synced():
    """A process is killed at any operation; the next one makes the directory survive any loss of power."""
    for at in itertools.count():
        files = SimulatedFiles()
        killed = FaultyFiles(files, Fault(at, Action.CRASH_BEFORE))
        try:
            make_directory(killed, PATH)
        except Crash:
            make_directory(files, PATH)
        for survivor in files.power_loss_states():
            assert survivor.stat(PATH).kind == "directory", at
        if not killed.struck:
            break
    assert at > 5


def test_a_directory_of_somebody_else():
    """An existing directory is not synced; a new one is, or the error is raised."""

    class Foreign(SimulatedFiles):
        def sync_directory(self, path):
            raise PermissionError(path)

    files = Foreign()
    files.make_directory("/data")
    make_directory(files, PurePosixPath("/data"))
    with pytest.raises(PermissionError):
        make_directory(files, PurePosixPath("/data/more"))
