"""The chain check accepts correct histories and names each planted violation."""

from __future__ import annotations

import random

import pytest

from tests.world.register.chain import Asked, Written, check_chain

WRITTEN = [Written("a", None), Written("b", "a", (1,)), Written("c", "b", (2, 3)), Written("d", "c"), Written("x", "b")]
COMMITTED = ["a", "d", "b"]
ASKED = [
    Asked(1, 0, 10, "b"),
    Asked(2, 5),
    Asked(3, 20, 30, "c"),
    Asked(4, 20),
    Asked(None, 40, 50, "c"),
    Asked(5, 20, 30, "c", is_refused=True),
    Asked(6, 20, 30, is_refused=True),
]


def test_what_is_right_is_right():
    """Losing values, values that were not seen committed, unknown and refused operations are accepted."""
    assert check_chain(WRITTEN, COMMITTED, ASKED) == []
    assert check_chain([], [], []) == []


@pytest.mark.parametrize(
    ("what", "written", "committed", "asked"),
    [
        ("a fork", [], ["x"], []),
        ("a fork", [Written("other", None)], ["other"], []),
        ("a fork", [Written("y", "x")], ["y"], []),
        ("a hole", [Written("z", "nobody")], ["z"], []),
        ("a hole", [], ["nobody"], []),
        ("a hole", [Written("p", "q"), Written("q", "p")], ["p"], []),
        ("two values", [Written("c", "b", (2,))], [], []),
        ("two values", [Written("x", "a")], [], []),
        ("twice", [Written("e", "d", (2,))], ["e"], []),
        ("unheard of", [Written("e", "d", (9,))], ["e"], []),
        ("unheard of", [Written("e", "d", (6,))], ["e"], []),
        ("lost", [], [], [Asked(7, 60, 70, "d")]),
        ("lost", [], [], [Asked(None, 60, 70, "x")]),
        ("lost", [Written("e", "d", (7,))], ["e"], [Asked(7, 60, 70, "d")]),
        ("against time", [], [], [Asked(None, 60, 70, "b")]),
        ("against time", [], [], [Asked(8, 60, 70, "b", is_refused=True)]),
        ("against time", [Written("e", "d", (7,))], ["e"], [Asked(None, 60, 70, "e"), Asked(7, 80, 90, "e")]),
        ("against time", [Written("e", "d", (7,))], ["e"], [Asked(None, 60, 70, "e"), Asked(7, 80)]),
        ("against time", [Written("e", "d", (7,))], ["e"], [Asked(7, 20), Asked(None, 30, 35, "e")]),
    ],
)
def test_what_is_planted_is_named(what, written, committed, asked):
    """Each violation is named, in whatever order the facts are given."""
    chance = random.Random(what)
    for _ in range(5):
        everything = [*WRITTEN, *written], [*COMMITTED, *committed], [*ASKED, *asked]
        for some in everything:
            chance.shuffle(some)
        found = check_chain(*everything)
        assert found
        assert all(one.startswith(what) for one in found), found


def test_what_is_at_once_is_in_either_order():
    """A read that ends in the moment in which another begins says nothing about their order."""
    early, late = Asked(None, 60, 70, "b"), Asked(None, 50, 60, "c")
    asked = [Asked(1, 0, 10, "b"), Asked(2, 5), Asked(3, 20)]
    assert check_chain(WRITTEN, COMMITTED, [*asked, late, early]) == []
    assert check_chain(WRITTEN, COMMITTED, [*asked, late, early._replace(invoked_us=61)]) != []


def test_long_chains_are_checked():
    """Thousands of values with losers between them are accepted; a fork or a swap in time is found."""
    chance = random.Random(1)
    written, asked = [Written(0, None)], []
    for number in range(1, 5000):
        written.append(Written(number, number - 1, (number,)))
        asked.append(Asked(number, 10 * number - chance.randrange(40), 10 * number + chance.randrange(40), number))
        if not number % 3:
            written.append(Written(-number, number - 1, (-number,)))
            asked.append(Asked(-number, 10 * number))
    chance.shuffle(written)
    assert check_chain(written, [4999], asked) == []
    assert check_chain(written, [4999, -3000], asked)[0].startswith("a fork")
    late = [one._replace(invoked_us=0) if one.operation == 4000 else one for one in asked]
    assert check_chain(written, [4999], late) == []
    early = [one._replace(invoked_us=1, completed_us=2) if one.operation == 4000 else one for one in asked]
    assert check_chain(written, [4999], early)[0].startswith("against time")
