"""The state machine finds each bug that is planted in the connection core."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.serving.connection_machine import LIMITS, Connections, Real, use_tables


@pytest.fixture(autouse=True)
def _tables(tmp_path, monkeypatch):
    use_tables(tmp_path, monkeypatch)


def plant(monkeypatch, name, change):
    """Replace a method of `Real` by `change(real method, self, arguments)`."""
    real = getattr(Real, name)
    monkeypatch.setattr(Real, name, lambda self, *arguments: change(real, self, *arguments))


def plant_limit(monkeypatch, **changed):
    """Give the core other limits than the model's."""
    plant(monkeypatch, "limits", lambda real, self: {**real(self), **changed})


def frames_of(data):
    """Return the complete answers in `data`, and the rest."""
    unpacker, at, frames = msgpack.Unpacker(raw=True), 0, []
    unpacker.feed(data)
    for _ in unpacker:
        frames.append(data[at : unpacker.tell()])
        at = unpacker.tell()
    return frames, data[at:]


def plant_in_answers(monkeypatch, change):
    """Change the answers that a peer reads, if they are several."""

    def take(real, self, *arguments):
        frames, rest = frames_of(real(self, *arguments))
        return b"".join(change(frames) if len(frames) > 1 else frames) + rest

    plant(monkeypatch, "take_output", take)


def loses_an_answer(monkeypatch):
    plant_in_answers(monkeypatch, lambda frames: frames[1:])


def answers_twice(monkeypatch):
    plant_in_answers(monkeypatch, lambda frames: [*frames, frames[-1]])


def reorders_answers(monkeypatch):
    plant_in_answers(monkeypatch, lambda frames: frames[::-1])


def loses_bytes_at_a_partial_write(monkeypatch):
    """Lose a byte when the peer takes only a part."""

    def take(real, self, handle, limit, now_ms):
        data = real(self, handle, limit, now_ms)
        if len(data) == limit == 10:
            real(self, handle, 1, now_ms)
        return data

    plant(monkeypatch, "take_output", take)


def loses_bytes_at_a_split(monkeypatch):
    """Lose the last byte of a receive that ends within a message."""

    def feed(real, self, handle, data, now_ms):
        return real(self, handle, data[:-1] if data and frames_of(data)[1] else data, now_ms)

    plant(monkeypatch, "feed", feed)


def answers_another_connection(monkeypatch):
    """Give a late reply to the connection that opened last in the slot."""

    def open_(real, self, *arguments):
        handle = real(self, *arguments)
        if handle is not None:
            self.slots = {**getattr(self, "slots", {}), handle & 0xFFFFFFFF: handle}
        return handle

    def reply(real, self, handle, msgid, frame):
        return real(self, self.slots[handle & 0xFFFFFFFF], msgid, frame)

    plant(monkeypatch, "open", open_)
    plant(monkeypatch, "reply", reply)


def takes_a_second_reply(monkeypatch):
    plant(monkeypatch, "reply", lambda real, self, *arguments: real(self, *arguments) or True)


def forgets_a_reply(monkeypatch):
    """Drop the fifth reply."""

    def reply(real, self, *arguments):
        self.replies = getattr(self, "replies", 0) + 1
        return self.replies == 5 or real(self, *arguments)

    plant(monkeypatch, "reply", reply)


def loses_a_hand_off(monkeypatch):
    plant(monkeypatch, "feed", lambda real, self, *arguments: real(self, *arguments)[:2])


def hands_off_twice(monkeypatch):
    """Repeat the first of the held-back hand-offs."""

    def run(real, self, now_ms):
        hand_offs = real(self, now_ms)
        return [*hand_offs[:1], *hand_offs]

    plant(monkeypatch, "run", run)


def leaves_held_input_alone(monkeypatch):
    plant(monkeypatch, "run", lambda real, self, now_ms: [])


def confuses_ids(monkeypatch):
    plant(monkeypatch, "feed", lambda real, self, *arguments: [
        (handle, msgid & 0xFFFF, *rest) for handle, msgid, *rest in real(self, *arguments)
    ])  # fmt: skip


def opens_too_many(monkeypatch):
    plant_limit(monkeypatch, max_connections=LIMITS["max_connections"] + 1)


def opens_too_many_of_one_address(monkeypatch):
    plant_limit(monkeypatch, max_connections_per_address=LIMITS["max_connections_per_address"] + 1)


def hands_off_too_many_in_all(monkeypatch):
    plant_limit(monkeypatch, max_in_flight_total=LIMITS["max_in_flight_total"] + 1)


def hands_off_too_many(monkeypatch):
    plant_limit(monkeypatch, max_in_flight=LIMITS["max_in_flight"] + 1)


def queues_too_much(monkeypatch):
    plant_limit(monkeypatch, max_queued=LIMITS["max_queued"] + 10)


def holds_too_much(monkeypatch):
    plant_limit(monkeypatch, max_held=LIMITS["max_held"] + 30)


def reads_too_large_frames(monkeypatch):
    plant_limit(monkeypatch, max_frame=LIMITS["max_frame"] * 11 // 10)


def reads_too_deep_frames(monkeypatch):
    plant_limit(monkeypatch, max_depth=LIMITS["max_depth"] + 1)


def waits_too_long_for_frames(monkeypatch):
    plant_limit(monkeypatch, frame_timeout_ms=LIMITS["frame_timeout_ms"] + 1)


def waits_too_long_for_readers(monkeypatch):
    plant_limit(monkeypatch, output_timeout_ms=LIMITS["output_timeout_ms"] + 1)


def ends_idle_ones_early(monkeypatch):
    plant_limit(monkeypatch, idle_timeout_ms=LIMITS["idle_timeout_ms"] * 9 // 10)


def forgets_time(monkeypatch):
    plant(monkeypatch, "expire", lambda real, self, now_ms: None)


def starts_the_time_again_with_each_byte(monkeypatch):
    """Deliver a message with its last byte only, so that each byte extends the timeout."""

    def feed(real, self, handle, data, now_ms):
        late = self.__dict__.setdefault("late", {})
        data = late.pop(handle, b"") + data
        frames, rest = frames_of(data) if data[:1] in {b"\x93", b"\x94"} else ([data], b"")
        if rest and len(rest) < 5:
            late[handle] = rest
            data = b"".join(frames)
        return real(self, handle, data, now_ms) if data else []

    plant(monkeypatch, "feed", feed)


def cuts_off_what_was_asked(monkeypatch):
    def state(real, self, handle):
        reads, over = real(self, handle)
        return reads, over or not reads

    plant(monkeypatch, "state", state)


def never_ends(monkeypatch):
    plant(monkeypatch, "state", lambda real, self, handle: (real(self, handle)[0], False))


def reads_when_it_should_not(monkeypatch):
    plant(monkeypatch, "state", lambda real, self, handle: (not real(self, handle)[1], real(self, handle)[1]))


def answers_a_peer_that_does_not_read(monkeypatch):
    plant(monkeypatch, "may_reply", lambda real, self, handle: True)


def keeps_what_should_go(monkeypatch):
    """Keep a connection that holds too much."""
    plant(monkeypatch, "drop", lambda real, self, handle: None)


def serves_the_old_table(monkeypatch):
    plant(monkeypatch, "publish", lambda real, self, which: real(self, 0))


def plant_in_counters(monkeypatch, name, change):
    def counters(real, self):
        counted = real(self)
        return {**counted, name: change(counted)}

    plant(monkeypatch, "counters", counters)


def counts_a_close_twice(monkeypatch):
    plant_in_counters(monkeypatch, "closed_idle", lambda counted: 2 * counted["closed_idle"])


def forgets_what_was_in_flight(monkeypatch):
    plant_in_counters(monkeypatch, "in_flight", lambda counted: (
        counted["handed_off"] - counted["replies"]
    ))  # fmt: skip


def leaks_held_bytes(monkeypatch):
    plant_in_counters(monkeypatch, "held_bytes", lambda counted: (
        counted["held_bytes"] + counted["closed_frame_timeout"]
    ))  # fmt: skip


PLANTED = [
    loses_an_answer, answers_twice, reorders_answers, loses_bytes_at_a_partial_write, loses_bytes_at_a_split,
    answers_another_connection, takes_a_second_reply, forgets_a_reply, loses_a_hand_off, hands_off_twice,
    leaves_held_input_alone, confuses_ids, opens_too_many, opens_too_many_of_one_address,
    hands_off_too_many_in_all, hands_off_too_many, queues_too_much, holds_too_much, reads_too_large_frames,
    reads_too_deep_frames, waits_too_long_for_frames, waits_too_long_for_readers, ends_idle_ones_early,
    forgets_time, starts_the_time_again_with_each_byte, cuts_off_what_was_asked, never_ends,
    reads_when_it_should_not, answers_a_peer_that_does_not_read, keeps_what_should_go,
    serves_the_old_table, counts_a_close_twice, forgets_what_was_in_flight, leaks_held_bytes,
]  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_is_found(planted, monkeypatch):
    planted(monkeypatch)
    # The search ends with the bug, so many examples cost nothing; some bugs take two hundred on average.
    chosen = settings(settings.get_profile("planted"), max_examples=10_000, stateful_step_count=60, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Connections, settings=chosen)
