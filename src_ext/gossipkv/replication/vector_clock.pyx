"""Packed clocks: the progress of each assignment's writes, as sorted bytes.

A *dot* (assignment id, counter) names a write: the id of its origin's assignment in the partition, and the number of
the write, which counts that origin's writes from 1. A clock holds, for each assignment, the counter up to which all
writes are known. Its bytes are [assignment][counter] of eight bytes each, big-endian, ascending, each assignment once.
They are stored and sent as they are, so nothing is decoded, and two clocks are compared in one pass.

An absent assignment equals one at 0 in all comparisons; `named` makes such clocks equal as bytes. `check_clock`
validates received bytes once; the debug build asserts that in every other function.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.errors import ProtocolError

cdef extern from "gossipkv/storage/bits.h" nogil:
    bint same "gkv_same64"(const void* one, const void* other)  # true if STRIDE entries are equal, as most are

EQUAL = <int>EQUAL_CLOCKS
BEFORE = <int>BEFORE_OTHER
AFTER = <int>AFTER_OTHER
CONCURRENT = <int>CONCURRENT_CLOCKS

cdef enum:
    STRIDE = 4  # Entries compared at once where both clocks have the same assignments: 64 bytes (`same`).

ctypedef Py_ssize_t (*Join)(
    const unsigned char*, Py_ssize_t, const unsigned char*, Py_ssize_t, unsigned char*
) noexcept nogil


cdef inline const unsigned char* end_of(const unsigned char* clock, Py_ssize_t size) noexcept nogil:
    """Return the position behind the last whole entry."""
    return clock + size // ENTRY_BYTES * ENTRY_BYTES


cdef inline bint alike(const unsigned char* one, const unsigned char* other) noexcept nogil:
    """True if the next STRIDE entries have the same assignments."""
    cdef uint64_t differ = 0
    cdef int number
    for number in range(STRIDE):
        differ |= load_word(one + number * ENTRY_BYTES) ^ load_word(other + number * ENTRY_BYTES)
    return differ == 0


cdef inline int order(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size, int enough
) noexcept nogil:
    """Do `clock_compare`, but stop once all bits of `enough` are found."""
    cdef const unsigned char* one_end = end_of(one, one_size)
    cdef const unsigned char* other_end = end_of(other, other_size)
    cdef uint64_t left
    cdef uint64_t right
    cdef int behind = 0
    cdef int ahead = 0
    cdef int number
    while one < one_end and other < other_end:
        if one_end - one >= STRIDE * ENTRY_BYTES <= other_end - other:
            if same(one, other):
                one += STRIDE * ENTRY_BYTES
                other += STRIDE * ENTRY_BYTES
                continue
            if alike(one, other):
                for number in range(STRIDE):
                    left = load_number(one + number * ENTRY_BYTES + NUMBER_BYTES)
                    right = load_number(other + number * ENTRY_BYTES + NUMBER_BYTES)
                    behind |= left < right
                    ahead |= left > right
                if (behind * BEFORE_OTHER | ahead * AFTER_OTHER) & enough == enough:
                    return enough
                one += STRIDE * ENTRY_BYTES
                other += STRIDE * ENTRY_BYTES
                continue
        left = load_number(one)
        right = load_number(other)
        behind |= right <= left and load_number(other + NUMBER_BYTES) > counter_if(left == right, one)
        ahead |= left <= right and load_number(one + NUMBER_BYTES) > counter_if(left == right, other)
        one += ENTRY_BYTES if left <= right else 0
        other += ENTRY_BYTES if right <= left else 0
    while one < one_end:
        ahead |= load_number(one + NUMBER_BYTES) > 0
        one += ENTRY_BYTES
    while other < other_end:
        behind |= load_number(other + NUMBER_BYTES) > 0
        other += ENTRY_BYTES
    return behind * BEFORE_OTHER | ahead * AFTER_OTHER


cdef Order clock_compare(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size
) noexcept nogil:
    return <Order>order(one, one_size, other, other_size, CONCURRENT_CLOCKS)


cdef bint clock_covers(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size
) noexcept nogil:
    return not order(one, one_size, other, other_size, BEFORE_OTHER) & BEFORE_OTHER


cdef inline uint64_t counter_if(bint present, const unsigned char* entry) noexcept nogil:
    """Return the counter of an entry, or 0 if the assignment is absent."""
    return load_number(entry + NUMBER_BYTES) if present else 0


cdef inline void join_entry(
    const unsigned char* one, const unsigned char* other, unsigned char* into, bint greater
) noexcept nogil:
    """Join two entries of one assignment, without a branch: no predictor can know which is ahead."""
    cdef uint64_t left = load_number(one + NUMBER_BYTES)
    cdef uint64_t right = load_number(other + NUMBER_BYTES)
    memcpy(into, one, NUMBER_BYTES)
    store_number(into + NUMBER_BYTES, max(left, right) if greater else min(left, right))


cdef inline Py_ssize_t join(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into, bint greater,
) noexcept nogil:
    """Do `clock_merge` if `greater`, else `clock_least`."""
    cdef const unsigned char* one_end = end_of(one, one_size)
    cdef const unsigned char* other_end = end_of(other, other_size)
    cdef unsigned char* start = into
    cdef uint64_t left
    cdef uint64_t right
    cdef Py_ssize_t place
    cdef bint is_same
    cdef int number
    while one < one_end and other < other_end:
        if one_end - one >= STRIDE * ENTRY_BYTES <= other_end - other:
            is_same = same(one, other)
            if is_same or alike(one, other):
                if is_same:
                    memcpy(into, one, STRIDE * ENTRY_BYTES)
                else:
                    for number in range(STRIDE):
                        place = number * ENTRY_BYTES
                        join_entry(one + place, other + place, into + place, greater)
                one += STRIDE * ENTRY_BYTES
                other += STRIDE * ENTRY_BYTES
                into += STRIDE * ENTRY_BYTES
                continue
        left = load_number(one)
        right = load_number(other)
        if left == right:
            join_entry(one, other, into, greater)
        elif greater:
            memcpy(into, one if left < right else other, ENTRY_BYTES)
        into += ENTRY_BYTES if greater or left == right else 0
        one += ENTRY_BYTES if left <= right else 0
        other += ENTRY_BYTES if right <= left else 0
    if greater:
        memcpy(into, one, one_end - one)
        into += one_end - one
        memcpy(into, other, other_end - other)
        into += other_end - other
    return into - start


cdef Py_ssize_t clock_merge(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into,
) noexcept nogil:
    return join(one, one_size, other, other_size, into, True)


cdef Py_ssize_t clock_least(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into,
) noexcept nogil:
    return join(one, one_size, other, other_size, into, False)


cdef Py_ssize_t clock_place(const unsigned char* clock, Py_ssize_t size, uint64_t assignment) noexcept nogil:
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = size // ENTRY_BYTES
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if load_number(clock + middle * ENTRY_BYTES) < assignment:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_BYTES


cdef uint64_t clock_counter(const unsigned char* clock, Py_ssize_t size, uint64_t assignment) noexcept nogil:
    cdef const unsigned char* at = clock + clock_place(clock, size, assignment)
    if at < end_of(clock, size) and load_number(at) == assignment:
        return load_number(at + NUMBER_BYTES)
    return 0


cdef Py_ssize_t clock_fault(const unsigned char* clock, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t whole = size // ENTRY_BYTES * ENTRY_BYTES
    cdef Py_ssize_t at = ENTRY_BYTES
    while at < whole:
        if load_number(clock + at - ENTRY_BYTES) >= load_number(clock + at):
            return at
        at += ENTRY_BYTES
    return -1 if whole == size else whole


cdef inline const unsigned char* bytes_of(bytes clock) noexcept:
    return <const unsigned char*>PyBytes_AS_STRING(clock)


cdef inline bint is_clock(bytes clock) noexcept:
    return clock_fault(bytes_of(clock), PyBytes_GET_SIZE(clock)) < 0


cdef inline bint reaches(object one, object other) noexcept:
    """`covers`, for packed clocks that are known to be bytes."""
    return clock_covers(
        bytes_of(<bytes>one), PyBytes_GET_SIZE(one), bytes_of(<bytes>other), PyBytes_GET_SIZE(other)
    )


def compare(bytes one not None, bytes other not None, /):
    """Return the order of two clocks: EQUAL, BEFORE, AFTER or CONCURRENT."""
    assert is_clock(one) and is_clock(other), "packed clocks"
    return <int>clock_compare(bytes_of(one), PyBytes_GET_SIZE(one), bytes_of(other), PyBytes_GET_SIZE(other))


def covers(bytes one not None, bytes other not None, /):
    """Return True if `one` is at least as far as `other` in every assignment."""
    assert is_clock(one) and is_clock(other), "packed clocks"
    return clock_covers(bytes_of(one), PyBytes_GET_SIZE(one), bytes_of(other), PyBytes_GET_SIZE(other))


def merge(bytes one not None, bytes other not None, /):
    """Return the greater counter of each assignment that either clock has."""
    return joined(one, other, clock_merge)


def least(bytes one not None, bytes other not None, /):
    """Return the lesser counter of each common assignment: the writes that both clocks know."""
    return joined(one, other, clock_least)


cdef inline bint is_of(bytes clock, const unsigned char* data, Py_ssize_t size) noexcept:
    return PyBytes_GET_SIZE(clock) == size and memcmp(bytes_of(clock), data, size) == 0


cdef bytes joined(bytes one, bytes other, Join how):
    """Join two clocks. Return one of the two if the bytes are equal, so that equal clocks share memory.

    Small results are built on the stack, since the final size is known only afterwards.
    """
    assert is_clock(one) and is_clock(other), "packed clocks"
    cdef unsigned char few[4096]
    cdef unsigned char* into = few
    cdef Py_ssize_t most = PyBytes_GET_SIZE(one) + PyBytes_GET_SIZE(other)
    cdef bytes room = None
    if most > <Py_ssize_t>sizeof(few):
        room = PyBytes_FromStringAndSize(NULL, most)
        into = <unsigned char*>PyBytes_AS_STRING(room)
    most = how(bytes_of(one), PyBytes_GET_SIZE(one), bytes_of(other), PyBytes_GET_SIZE(other), into)
    if is_of(one, into, most):
        return one
    if is_of(other, into, most):
        return other
    return PyBytes_FromStringAndSize(<const char*>into, most)


def counter(bytes clock not None, uint64_t assignment, /):
    """Return the counter of this assignment; 0 if absent."""
    assert is_clock(clock), "a packed clock"
    return clock_counter(bytes_of(clock), PyBytes_GET_SIZE(clock), assignment)


def ahead(bytes one not None, bytes other not None, /):
    """Return the assignments in which `one` is ahead of `other`, ascending."""
    assert is_clock(one) and is_clock(other), "packed clocks"
    cdef const unsigned char* at = bytes_of(one)
    cdef const unsigned char* end = end_of(at, PyBytes_GET_SIZE(one))
    cdef list found = []
    while at < end:
        if load_number(at + NUMBER_BYTES) > clock_counter(bytes_of(other), PyBytes_GET_SIZE(other), load_number(at)):
            found.append(load_number(at))
        at += ENTRY_BYTES
    return tuple(found)


def raised(bytes clock not None, uint64_t assignment, uint64_t counter, /):
    """Return the clock with this counter for the assignment. Requires: the counter is not lowered."""
    assert is_clock(clock), "a packed clock"
    cdef Py_ssize_t size = PyBytes_GET_SIZE(clock)
    cdef Py_ssize_t place = clock_place(bytes_of(clock), size, assignment)
    cdef Py_ssize_t after = place
    if place < size and load_number(bytes_of(clock) + place) == assignment:
        after += ENTRY_BYTES
    assert counter >= clock_counter(bytes_of(clock), size, assignment), "a counter never goes back"
    cdef bytes changed = PyBytes_FromStringAndSize(NULL, place + ENTRY_BYTES + size - after)
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(changed)
    memcpy(at, bytes_of(clock), place)
    store_number(at + place, assignment)
    store_number(at + place + NUMBER_BYTES, counter)
    memcpy(at + place + ENTRY_BYTES, bytes_of(clock) + after, size - after)
    return changed


cdef bint names(bytes clock, object assignments) except -1:
    """True if a clock has exactly these assignments, and they are in order, as they mostly are."""
    cdef const unsigned char* at = bytes_of(clock)
    if not isinstance(assignments, tuple) or len(<tuple>assignments) * ENTRY_BYTES != PyBytes_GET_SIZE(clock):
        return False
    for assignment in <tuple>assignments:
        if load_number(at) != <uint64_t>assignment:
            return False
        at += ENTRY_BYTES
    return True


def named(bytes clock not None, assignments, /):
    """Return the counters of exactly these assignments, 0 if absent, so that equal clocks are equal as bytes."""
    assert is_clock(clock), "a packed clock"
    cdef uint64_t assignment
    cdef list found = []
    if names(clock, assignments):
        return clock
    for assignment in assignments:
        found.append((assignment, clock_counter(bytes_of(clock), PyBytes_GET_SIZE(clock), assignment)))
    return of(found)


def of(entries, /):
    """Return the clock of these (assignment, counter), in any order; each assignment once.

    Raises:
        OverflowError: a number is negative, or has more than 64 bits.
    """
    cdef list ordered = sorted(entries)
    cdef bytes clock = PyBytes_FromStringAndSize(NULL, len(ordered) * ENTRY_BYTES)
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(clock)
    for assignment, counter in ordered:
        store_number(at, assignment)
        store_number(at + NUMBER_BYTES, counter)
        at += ENTRY_BYTES
    assert is_clock(clock), "each assignment once"
    return clock


def entries(bytes clock not None, /):
    """Return the (assignment, counter) of a clock, ascending."""
    assert is_clock(clock), "a packed clock"
    cdef const unsigned char* at = bytes_of(clock)
    cdef const unsigned char* end = end_of(at, PyBytes_GET_SIZE(clock))
    cdef list found = []
    while at < end:
        found.append((load_number(at), load_number(at + NUMBER_BYTES)))
        at += ENTRY_BYTES
    return found


def check_clock(bytes data not None, /):
    """Validate the bytes of a packed clock.

    Raises:
        ProtocolError: the bytes end within an entry, or the assignments do not ascend.
    """
    cdef Py_ssize_t at = clock_fault(bytes_of(data), PyBytes_GET_SIZE(data))
    if at >= 0:
        cut = PyBytes_GET_SIZE(data) - at < ENTRY_BYTES
        why = "ends within an entry" if cut else "has assignments that do not ascend"
        raise ProtocolError(f"a packed clock {why} at byte {at} of {len(data)}", {"offset": at, "size": len(data)})
