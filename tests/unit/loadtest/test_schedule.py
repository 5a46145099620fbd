"""The due times of requests, compared with fractions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest._loadtest import Schedule
from tests.oracle import load_schedule as oracle

MS = 1_000_000
STAGES = st.lists(
    st.tuples(st.integers(1, 5000) | st.floats(0.5, 5000), st.integers(1, 200).map(lambda ms: ms * MS)),
    min_size=1, max_size=5,
)  # fmt: skip


@given(STAGES, st.integers(1, 5), st.data())
def test_each_request_is_due_when_the_oracle_says(
    stages: list[tuple[float, int]], share: int, data: st.DataObject
) -> None:
    """The due times of each sharer are exact within two nanoseconds, over all stages."""
    turn = data.draw(st.integers(0, share - 1))
    schedule = Schedule(stages, turn=turn, share=share)
    expected = oracle.dues(stages, turn, share)
    assert schedule.limit == len(expected)
    for number, (_, due_ns) in enumerate(expected):
        assert abs(schedule.due_ns(number) - due_ns) <= 2


@given(STAGES, st.integers(1, 5))
def test_all_together_send_what_one_would(stages: list[tuple[float, int]], share: int) -> None:
    """The sharers of a rate together send as many requests as a single sender."""
    assert sum(Schedule(stages, turn=turn, share=share).limit for turn in range(share)) == Schedule(stages).limit


def test_a_number_of_requests_ends_it_before_its_time() -> None:
    """The earlier of time and number ends a run."""
    assert Schedule([(1000, 10 * MS)], requests=3).limit == 3
    assert Schedule([(1000, 10 * MS)], requests=30).limit == 10
    assert Schedule([(1000, 0)], requests=30).limit == 30


@given(STAGES, st.integers(1, 4), st.integers(0, 2**33), st.integers(0, 50), st.data())
def test_what_has_fallen_due_is_that_of_the_fractions(
    stages: list[tuple[float, int]], share: int, passed_ns: int, requests: int, data: st.DataObject
) -> None:
    """`fallen_due` agrees with `due_ns` at any time, also before the start and at due times."""
    turn = data.draw(st.integers(0, share - 1))
    schedule = Schedule(stages, requests=requests, turn=turn, share=share)
    dues = [Schedule(stages, turn=turn, share=share).due_ns(number) for number in range(schedule.limit)]
    for moment in {passed_ns, -1, *data.draw(st.lists(st.sampled_from(dues or [0]), max_size=3))}:
        assert schedule.fallen_due(moment) == sum(due <= moment for due in dues)
    assert schedule.fallen_due(2**62) == schedule.limit


def test_a_closed_loop_has_no_number() -> None:
    """A closed loop ends after its time."""
    schedule = Schedule([(0, 10 * MS), (0, 5 * MS)])
    assert not schedule.is_open
    assert (schedule.count, schedule.duration_ns) == (2, 15 * MS)
    assert schedule.limit > 2**62


@pytest.mark.parametrize(
    ("stages", "more"),
    [([], {}), ([(1, 0)], {}), ([(-1, 1)], {}), ([(1, -1)], {}), ([(1, 1), (0, 1)], {}),
     ([(1, 0), (1, 1)], {"requests": 1}),
     ([(1, 1)], {"turn": 1})],
)  # fmt: skip
def test_what_has_no_end_or_no_sense_is_refused(stages: list[tuple[float, int]], more: dict[str, int]) -> None:
    """No stage, no end, negative values, mixed loops and an impossible share are refused."""
    with pytest.raises(ValueError, match="a run"):
        Schedule(stages, **more)
