"""Recognising the function that made the files, from their first keys."""

import itertools
import random

import pytest

from gossipkv.dataset.build.recognition import SAMPLE_KEYS, Claim, Recognition, recognise
from gossipkv.keyspace.partitioner import FUNCTIONS
from tests.oracle import hashing as oracle

WORDS = [f"{chr(97 + n % 26)}{n * 7919:x}" for n in range(4_000)]
ASCII = [word.encode() for word in WORDS]
# A letter that is not ASCII: unsigned bytes, signed bytes and UTF-16 units all differ.
ACCENTED = [f"{word[: n % 4]}é{word}{'ø' * (n % 3)}".encode() for n, word in enumerate(WORDS)]


def files(function, keys, count):
    """Return the keys in files as that function's job would write them, file i with partition i."""
    found = [[] for _ in range(count)]
    for key in keys:
        found[oracle.partition(function, key, count)].append(key)
    return found


def samples(whole):
    return [keys[:SAMPLE_KEYS] for keys in whole]


def fits(function, whole, count):
    """True if every file is of one partition, and no two of the same."""
    held = [{oracle.partition(function, key, count) for key in keys} for keys in whole]
    return all(len(one) == 1 for one in held) and len(set.union(*held)) == count


def functions(recognition):
    return [claim.function for claim in recognition.claims]


@pytest.mark.parametrize("count", [2, 5, 12])
@pytest.mark.parametrize("function", ["sequins", "text", "string", "spark", "cascading"])
def test_the_function_that_made_the_files_is_recognised(function, count):
    """The function is first of all that fit, unless an earlier one puts every file in its place as well."""
    whole = files(function, ACCENTED, count)
    found = recognise(samples(whole), count)
    fitting = [other for other in FUNCTIONS if fits(other, whole, count)]
    in_place = [
        other for other in fitting
        if all(oracle.partition(other, keys[0], count) == place for place, keys in enumerate(whole))
    ]  # fmt: skip
    if function == "cascading":
        assert functions(found)[0] == fitting[0] == "string", "the same files, by other numbers"
    else:
        assert functions(found)[0] == in_place[0]
        assert in_place[0] == function or (function, in_place[0]) == ("spark", "string")
    assert set(fitting) <= set(functions(found)), "every function that fits all keys fits the first"


def test_the_string_forms_at_a_power_of_two_are_one_class():
    """At a power of two no key tells them apart; for ASCII keys Sequins' own function fits too, and is first."""
    found = recognise(samples(files("spark", ASCII, 8)), 8)
    assert functions(found) == ["sequins", "string", "spark", "cascading"]
    assert functions(recognise(samples(files("spark", ACCENTED, 8)), 8))[:2] == ["string", "spark"]


def test_a_file_belongs_to_the_partition_of_its_keys_and_not_of_its_number():
    """Shuffled files are recognised, each with its partition."""
    whole = files("text", ASCII, 7)
    order = [3, 0, 6, 1, 5, 2, 4]
    found = recognise(samples([whole[place] for place in order]), 7)
    assert found.claims == (Claim("text", tuple(order)),)


def test_cascading_is_read_by_the_function_of_sequins_while_no_key_forbids_it():
    """The files fit both functions; only a key at which adding 31 changes the sign decides."""
    whole = files("cascading", ASCII, 5)
    assert functions(recognise(samples(whole), 5)) == ["sequins", "string", "cascading"]
    telling = next(key for key in map(str.encode, telling_keys()) if oracle.sequins(key) > 2**31 - 32)
    whole[oracle.partition("cascading", telling, 5)].insert(0, telling)
    assert functions(recognise(samples(whole), 5)) == ["cascading"]


def telling_keys():
    """Yield texts whose hashes are in the last 31 before the sign changes: all endings of a few beginnings."""
    for begin in ("polygenelubricants"[:-2], "aaaaaa", "zzzzzzz"):
        h = oracle.sequins(begin.encode())
        for first in range(32, 127):
            for second in range(32, 127):
                for third in range(32, 127):
                    if oracle.signed(((h * 31 + first) * 31 + second) * 31 + third) > 2**31 - 32:
                        yield begin + chr(first) + chr(second) + chr(third)


def test_files_in_their_places_tell_text_from_sequins_at_two_partitions():
    """The hashes of an even and an odd beginning differ by an odd number, so the files fit both functions."""
    assert functions(recognise(samples(files("text", ASCII, 2)), 2))[0] == "text"
    assert functions(recognise(samples(files("sequins", ASCII, 2)), 2))[0] == "sequins"
    assert functions(recognise(samples(files("text", ASCII, 2)[::-1]), 2))[0] == "sequins"


def test_a_declared_function_goes_first_if_it_fits():
    """A declared function that does not fit has no effect."""
    whole = samples(files("sequins", ASCII, 5))
    assert functions(recognise(whole, 5, prefer="cascading"))[0] == "cascading"
    assert functions(recognise(whole, 5, prefer="text"))[0] == "sequins"


@pytest.mark.parametrize("prefer", [None, "cascading", "string"])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_who_finds_strays_and_who_is_told_choose_alike(count, prefer):
    """The order of refutations makes no difference, and the same rule orders the remaining functions."""
    found = recognise(samples(files("spark", ASCII, count)), count, prefer=prefer)
    assert found.without(()) is found
    for refuted in itertools.permutations(FUNCTIONS, 2):
        one_by_one = found.without(refuted[:1]).without(refuted)
        at_once = found.without(refuted)
        assert one_by_one.claims == at_once.claims
        assert not set(functions(at_once)) & set(refuted)
        assert set(functions(at_once)) == set(functions(found)) - set(refuted)
        if prefer in functions(at_once):
            assert functions(at_once)[0] == prefer


def test_the_choice_is_made_anew_when_a_function_is_refuted():
    """Places of files decide again; without a fitting function the former first one nearly fits."""
    whole = samples(files("text", ASCII, 2))
    found = recognise(whole, 2)
    assert functions(found)[0] == "text"
    rest = found.without({"text"})
    assert functions(rest) == [function for function in FUNCTIONS if function in functions(found)[1:]]
    moved = Claim("sequins", (1, 0)), Claim("string", (0, 1)), Claim("cascading", (0, 1))
    left = Recognition((Claim("text", (0, 1)), *moved)).without({"text"})
    assert functions(left) == ["string", "sequins", "cascading"]
    nothing = found.without(FUNCTIONS)
    assert (nothing.claims, nothing.nearly) == ((), found.claims[0])
    assert nothing.without(FUNCTIONS) is nothing


def test_slices_fit_nothing():
    """Contiguous slices of the input fit no function."""
    slices = [ASCII[at::3] for at in range(3)]
    assert recognise(samples(slices), 3).claims == ()
    assert recognise(samples(slices), 3).nearly is None


def test_another_number_of_partitions_than_files_is_never_recognised():
    """A file cannot be a partition then."""
    assert recognise(samples(files("text", ASCII, 4)), 5).claims == ()


def test_a_stray_among_the_samples_leaves_the_function_that_nearly_fits():
    """The function that nearly fits is kept to name the stray."""
    whole = files("text", ASCII, 4)
    whole[2].insert(10, whole[0][0])
    found = recognise(samples(whole), 4)
    assert found.claims == ()
    assert found.nearly == Claim("text", (0, 1, 2, 3))


def test_two_files_of_one_partition_fit_nothing():
    """The number of partitions was not that of the files."""
    whole = files("text", ASCII, 4)
    half = len(whole[0]) // 2
    split = [whole[0][:half], whole[0][half:], whole[1], whole[2]]
    found = recognise(samples(split), 4)
    assert (found.claims, found.nearly) == ((), None)


def test_empty_files_fit_everything():
    """A file without keys is no evidence; without any keys all functions fit and the first is taken."""
    whole = files("text", ASCII, 5)
    whole[3] = []
    assert recognise(samples(whole), 5).claims == (Claim("text", (0, 1, 2, None, 4)),)
    assert functions(recognise([[], [], []], 3))[0] == "sequins"
    assert len(recognise([[], [], []], 3).claims) == 5


def test_keys_that_are_no_text_leave_the_functions_over_text_out():
    """Functions over text have no hash for such keys."""
    noise = random.Random(1)
    keys = [b"\xff" + noise.randbytes(6) for _ in range(1_000)]
    assert functions(recognise(samples(files("sequins", keys, 5)), 5)) == ["sequins"]
    one = functions(recognise([keys], 1))
    assert one == ["sequins", "text"]
