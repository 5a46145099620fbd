"""Bugs planted in the life of a version: the machine finds each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from gossipkv.dataset import database
from gossipkv.dataset.cluster.view import DatabaseView
from gossipkv.dataset.lifecycle import copy_states, decisions, switching, version_build, version_states
from gossipkv.dataset.lifecycle.version_states import VersionState
from gossipkv.dataset.local import store
from gossipkv.dataset.source import reader
from tests.unit.dataset.test_life_machine import Life


def goes_back_by_itself(monkeypatch):
    """Allow a switch to any version that is here."""
    monkeypatch.setattr(version_states.Life, "switchable", lambda self, active, hold: (
        self.state in {VersionState.KNOWN, VersionState.RETIRING} and self.name != active and hold in {None, self.name}
    ))  # fmt: skip


def builds_the_oldest(monkeypatch):
    replace_decision(monkeypatch, lambda lives, told, hold: {
        "build": told.build and min(life.name for life in lives if life.buildable(10**9) and hold in {None, life.name}),
    })  # fmt: skip


def builds_what_is_held_out(monkeypatch):
    """Let a hold decide the switch but not the build."""
    real = decisions.decide

    def decide(lives, verdicts, *, hold, **rest):
        lives = tuple(lives)
        return replace(
            real(lives, verdicts, hold=hold, **rest), build=real(lives, verdicts, hold=None, **rest).build, stop=None
        )

    monkeypatch.setattr(database, "decide", decide)


def finishes_what_is_held_out(monkeypatch):
    """Let a build continue although another version is held."""
    replace_decision(monkeypatch, lambda lives, told, hold: {"stop": None})


def builds_again_what_is_wrong(monkeypatch):
    real = copy_states.VersionCopy.fail
    monkeypatch.setattr(copy_states.VersionCopy, "fail", lambda self, trouble, now_ms: (
        real(self, replace(trouble, lasting=False), now_ms)
    ))  # fmt: skip


def forgets_what_was_active(monkeypatch):
    monkeypatch.setattr(store.VersionStore, "active", lambda self, name: None)


def forgets_the_hold(monkeypatch):
    real = database.Database.run

    async def run(self, **options):
        self.settings = replace(self.settings, hold=None)
        await real(self, **options)

    monkeypatch.setattr(database.Database, "run", run)


def forgets_what_a_hold_left_behind(monkeypatch):
    """Let a withdrawn version come back after a restart."""
    real = store.VersionStore.set_active
    monkeypatch.setattr(store.VersionStore, "set_active", lambda self, name, active: (
        real(self, name, replace(active, newest=active.version))
    ))  # fmt: skip


def brings_back_what_was_withdrawn(monkeypatch):
    """Bring a version back after the hold, whatever the source shows."""
    monkeypatch.setattr(version_states.Life, "switchable", lambda self, active, hold: (
        self.state in {VersionState.KNOWN, VersionState.RETIRING}
        and (self.name == hold if hold else active is None or self.name >= active)
    ))  # fmt: skip


def never_leads_back(monkeypatch):
    real = version_states.Life.switchable
    monkeypatch.setattr(version_states.Life, "switchable", lambda self, active, hold: (
        real(self, active, hold) and (active is None or self.name >= active)
    ))  # fmt: skip


def removes_what_is_asked_for(monkeypatch):
    monkeypatch.setattr(switching.Switching, "count_requests", lambda self: None)


def removes_nothing(monkeypatch):
    replace_decision(monkeypatch, lambda lives, told, hold: {"remove": ()})


def removes_at_once(monkeypatch):
    real = decisions.decide
    monkeypatch.setattr(DatabaseView, "may_retire", lambda self, version: True)
    monkeypatch.setattr(database, "decide", lambda lives, verdicts, *, retire_after_ms, **rest: (
        real(lives, verdicts, retire_after_ms=retire_after_ms - 250, **rest)
    ))  # fmt: skip


def removes_what_has_vanished(monkeypatch):
    """Remove a version when the source loses it."""
    replace_decision(monkeypatch, lambda lives, told, hold: {
        "remove": tuple(
            life.name for life in lives
            if life.state is VersionState.RETIRING and (life.source is None or life.name in told.remove)
        )
    })  # fmt: skip


def serves_before_it_is_written_down(monkeypatch):
    real = switching.Switching.switch

    async def switch(self, name, hold):
        self.active, before = name, self.active
        self._shared.on_change()
        await trio.lowlevel.checkpoint()
        self.active = before
        return await real(self, name, hold)

    monkeypatch.setattr(switching.Switching, "switch", switch)


def publishes_without_sync(monkeypatch):
    monkeypatch.setattr(
        store.VersionStore, "_move", lambda self, source, target: self.files.rename(source, target)
    )  # fmt: skip


def removes_before_it_switches(monkeypatch):
    real = store.VersionStore.set_active

    def set_active(self, name, active):
        for other in self.versions(name):
            if other != active.version:
                self.remove_version(name, other)
        real(self, name, active)

    monkeypatch.setattr(store.VersionStore, "set_active", set_active)


def takes_what_changed_meanwhile(monkeypatch):
    """Accept a build whose source changed."""
    monkeypatch.setattr(reader, "_check_unchanged", lambda files, file: None)

    async def check(self, order):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(version_build.VersionBuilder, "_check_source", check)


def builds_again_at_a_restart(monkeypatch):
    monkeypatch.setattr(store.VersionStore, "versions", lambda self, name: [])


def replace_decision(monkeypatch, change):
    real = decisions.decide

    def decide(lives, verdicts, **rest):
        lives = tuple(lives)
        told = real(lives, verdicts, **rest)
        return replace(told, **change(lives, told, rest["hold"]))

    monkeypatch.setattr(database, "decide", decide)


PLANTED = [
    goes_back_by_itself, builds_the_oldest, builds_what_is_held_out, finishes_what_is_held_out,
    builds_again_what_is_wrong, forgets_what_was_active, forgets_the_hold, forgets_what_a_hold_left_behind,
    brings_back_what_was_withdrawn, never_leads_back, removes_what_is_asked_for, removes_nothing, removes_at_once,
    removes_what_has_vanished, serves_before_it_is_written_down, publishes_without_sync, removes_before_it_switches,
    takes_what_changed_meanwhile, builds_again_at_a_restart,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant, monkeypatch):
    """The machine finds no fault in the unchanged program."""
    plant(monkeypatch)
    # The search ends with the bug, so many examples cost nothing; some bugs take two hundred on average.
    chosen = settings(settings.get_profile("planted"), max_examples=10_000, stateful_step_count=40, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Life, settings=chosen)
