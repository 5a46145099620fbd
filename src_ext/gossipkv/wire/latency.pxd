"""A log-linear histogram of nanoseconds: its buckets, and the two calls that need no GIL.

A bucket is a sixteenth of its power of two wide, below 32 ns one nanosecond:

    ns        16 .. 31   32 .. 63   64 .. 127  ...  2^41 .. 2^42 - 1
    width     1          2          4               2^37
    buckets   16 .. 31   32 .. 47   48 .. 63        608 .. 623

The middle of a bucket is off by at most half its width, so a quantile by at most 1/32 of itself. Durations of 73
minutes or more (2^42 ns) count in the last bucket; only `maximum_ns` and `total_ns` have their true length.

Exported buckets are coarser, and equal on all nodes: counts of durations below 2^13, 2^14, ... 2^34 ns (8 us to 17 s).
Each bound is an edge of the buckets here, so those counts are exact.

The histogram takes 5 KB without allocation, and can be embedded, zeroed, in any struct or object.
"""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline int gkv_highest_bit(unsigned long long value) {
        unsigned long at;
        _BitScanReverse64(&at, value);
        return (int)at;
    }
    #else
    static inline int gkv_highest_bit(unsigned long long value) { return 63 - __builtin_clzll(value); }
    #endif
    """
    int gkv_highest_bit(uint64_t value) nogil  # Requires: not 0.

cdef enum:
    HISTOGRAM_STEP_BITS = 4  # sixteen buckets for each power of two
    HISTOGRAM_STEPS = 16
    HISTOGRAM_RANGE_BITS = 42
    HISTOGRAM_BUCKETS = 624  # (42 - 4) * 16 and the first sixteen
    # Exponents of the first and the last exported bound.
    HISTOGRAM_FIRST_BOUND_BITS = 13
    HISTOGRAM_LAST_BOUND_BITS = 34

cdef struct Histogram:
    uint64_t count
    uint64_t maximum_ns
    double total_ns  # 64 bits would overflow after three days of 65,536 constantly waiting requests
    uint64_t buckets[HISTOGRAM_BUCKETS]


cdef inline int histogram_bucket(uint64_t ns) noexcept nogil:
    """Return the bucket of a duration."""
    cdef int shift
    if ns < HISTOGRAM_STEPS:
        return <int>ns
    shift = gkv_highest_bit(ns) - HISTOGRAM_STEP_BITS
    if shift >= HISTOGRAM_RANGE_BITS - HISTOGRAM_STEP_BITS:
        return HISTOGRAM_BUCKETS - 1
    return shift * HISTOGRAM_STEPS + <int>(ns >> shift)


cdef inline int histogram_buckets_below(int bits) noexcept nogil:
    """Return how many buckets lie below that power of two. Requires: it is at least the fifth."""
    return (bits - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS


cdef inline void histogram_record(Histogram* histogram, uint64_t ns, uint64_t count) noexcept nogil:
    """Count `count` requests that took `ns` each."""
    if count == 0:
        return
    histogram.count += count
    histogram.total_ns += <double>ns * <double>count
    if ns > histogram.maximum_ns:
        histogram.maximum_ns = ns
    histogram.buckets[histogram_bucket(ns)] += count


cdef class LatencyHistogram:
    cdef Histogram histogram
