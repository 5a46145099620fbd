"""The decision to poll for the next event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.serving._serving import PollPolicy
from gossipkv.serving.pumps import polls
from tests.oracle import busy_poll

GAPS = st.one_of(st.sampled_from([1, 20_000, 99_999, 100_000, 100_001, 10**9]), st.integers(0, 200_000))


@given(st.lists(st.one_of(st.just(busy_poll.HIT), st.just(busy_poll.MISS), GAPS), max_size=60))
def test_any_history_is_decided_as_by_the_oracle(history: list[str | int]) -> None:
    """The decision agrees with the oracle after any hits, misses and sleeps."""
    policy = PollPolicy()
    for at, event in enumerate(history):
        assert policy.pays() is busy_poll.pays(history[:at])
        if event == busy_poll.HIT:
            policy.hit()
        elif event == busy_poll.MISS:
            policy.missed()
        else:
            assert isinstance(event, int)
            policy.slept(event)
    assert policy.pays() is busy_poll.pays(history)


def test_what_the_decision_amounts_to() -> None:
    """Polling begins after four short sleeps, survives one miss in five, and ends after two misses or a long sleep."""
    policy = PollPolicy()
    begun = [policy.pays()]
    for _ in range(4):
        policy.slept(50_000)
        begun.append(policy.pays())
    assert begun == [False, False, False, False, True]
    for _ in range(100):
        for _ in range(4):
            policy.hit()
        policy.missed()
        assert policy.pays()
    policy.missed()
    assert not policy.pays()
    for _ in range(20):
        policy.hit()
    policy.slept(1_000_000)
    assert not policy.pays()


def test_when_a_node_may_look_out() -> None:
    """`auto` needs a second core."""
    assert [polls("auto", 1), polls("auto", 2)] == [False, True]
    assert [polls("on", 1), polls("off", 8)] == [True, False]
