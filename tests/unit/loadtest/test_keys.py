"""Drawn keys and kinds agree with the oracle, and Zipf's law holds."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest._loadtest import KeyChooser, KeysAhead, KindChooser, RpcDialect, shuffled
from tests.oracle import load_keys as oracle

SEEDS = st.integers(0, 2**64 - 1)
SHARES = st.floats(0.01, 0.99)


@given(
    shape=st.sampled_from(["uniform", "hot", "sequential"]),
    size=st.integers(1, 5000),
    seed=SEEDS,
    hot_requests=SHARES,
    hot_keys=SHARES,
    misses=st.floats(0, 1),
)
def test_draws_are_those_of_the_oracle(
    *, shape: str, size: int, seed: int, hot_requests: float, hot_keys: float, misses: float
) -> None:
    """Uniform, hot and ordered keys with a share of absent ones follow from the seed."""
    chooser = KeyChooser(
        shape, size, seed=seed, hot_requests=hot_requests, hot_keys=hot_keys,
        first=seed % 7, stride=3, absent_first=size, absent_count=11, misses=misses,
    )  # fmt: skip
    absent = range(size, size + 11)
    assert chooser.draws(200) == oracle.draws(
        shape, size, 200, seed=seed, hot_requests=hot_requests, hot_keys=hot_keys,
        first=seed % 7, stride=3, absent=absent, misses=misses,
    )  # fmt: skip


@pytest.mark.parametrize("theta", [0.2, 0.5, 0.99, 1.0, 1.0000001, 1.5, 3.0])
@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
def test_zipf_is_the_law(size: int, theta: float) -> None:
    """A chi-square test compares the frequency of each place with the law."""
    count = 50_000
    found = Counter(KeyChooser("zipf", size, seed=11, theta=theta).draws(count))
    assert set(found) <= set(range(size))
    error, cells, rest, rest_found = 0.0, 0, 0.0, 0
    for place, share in enumerate(oracle.zipf_shares(size, theta)):
        if share * count >= 10:
            error += (found[place] - share * count) ** 2 / (share * count)
            cells += 1
        else:
            rest, rest_found = rest + share * count, rest_found + found[place]
    if rest >= 10:
        error, cells = error + (rest_found - rest) ** 2 / rest, cells + 1
    assert error < cells + 5 * (2 * cells) ** 0.5  # The bound is five standard deviations above the expected value.


def test_zipf_over_many_keys_begins_as_the_law_says() -> None:
    """The first of a hundred million keys have their shares, without a table of all."""
    size, theta, count = 100_000_000, 0.99, 100_000
    found = Counter(KeyChooser("zipf", size, seed=5, theta=theta).draws(count))
    total = sum(place**-theta for place in range(1, 10_000)) + (size ** (1 - theta) - 9999.5 ** (1 - theta)) / (
        1 - theta
    )
    for place in range(5):
        expected = count * (place + 1) ** -theta / total
        assert abs(found[place] - expected) < 5 * expected**0.5
    assert max(found) > size // 2


def test_processes_share_what_is_in_order() -> None:
    """Each of three processes takes every third key, and together they take all once a lap."""
    drawn = [KeyChooser("sequential", 30, seed=1, first=turn, stride=3).draws(10) for turn in range(3)]
    assert sorted(chain.from_iterable(drawn)) == list(range(30))
    assert KeyChooser("sequential", 3, seed=1).draws(7) == [0, 1, 2, 0, 1, 2, 0]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50), SEEDS)
def test_a_population_stands_for_the_places(population: list[int], seed: int) -> None:
    """A drawn place selects the population's number at that place."""
    places = KeyChooser("uniform", len(population), seed=seed).draws(50)
    drawn = KeyChooser("uniform", len(population), seed=seed, population=population).draws(50)
    assert drawn == [population[place] for place in places]


@given(st.integers(0, 300), SEEDS)
def test_a_shuffle_is_a_permutation(size: int, seed: int) -> None:
    """Everything is there once, in an order that depends on the seed."""
    found = shuffled(range(size), seed)
    assert sorted(found) == list(range(size))
    assert found == shuffled(range(size), seed)


def test_shuffles_are_as_likely() -> None:
    """Each of the six orders of three elements is about equally frequent."""
    found = Counter(tuple(shuffled(range(3), seed)) for seed in range(6000))
    assert len(found) == 6
    assert all(800 < count < 1200 for count in found.values())


@given(st.lists(st.sampled_from([0.0, 1.0, 0.5, 10.0]), min_size=3, max_size=3).filter(any), SEEDS)
def test_kinds_are_those_of_the_oracle(weights: list[float], seed: int) -> None:
    """The mix follows from the seed; a kind without weight is never drawn."""
    drawn = KindChooser(weights, seed=seed).draws(100)
    assert drawn == oracle.kinds(weights, 100, seed=seed)
    assert all(weights[kind] > 0 for kind in drawn)


def test_keys_drawn_ahead_come_in_order() -> None:
    """No key is lost or doubled between drawing and asking."""
    dialect = RpcDialect("db", [(b"%d" % number, b"") for number in range(100)])
    ahead = KeysAhead(KeyChooser("uniform", 100, seed=3), dialect)
    assert ahead.draws(200) == KeyChooser("uniform", 100, seed=3).draws(200)


@pytest.mark.parametrize(
    ("shape", "size", "more"),
    [("uniform", 0, {}), ("odd", 1, {}), ("uniform", 1, {"misses": 0.5}), ("uniform", 2, {"population": [1]}),
     ("sequential", 1, {"stride": 0})],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(shape: str, size: int, more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"chooser|population|not in"):
        KeyChooser(shape, size, seed=1, **more)


@pytest.mark.parametrize("weights", [(0, 0, 0), (1, -1, 1), (1,) * 9])
def test_a_mix_of_nothing_is_refused(weights: tuple[float, ...]) -> None:
    """A mix needs a weight, none negative, and no more than there are kinds."""
    with pytest.raises(ValueError, match="a mix needs weights"):
        KindChooser(weights, seed=1)
