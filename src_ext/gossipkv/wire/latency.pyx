"""The histogram for Python; `latency.pxd` explains its buckets.

`tests/oracle/histogram.py` keeps and sorts every duration; the tests compare both.
"""

cimport cython
from libc.math cimport ceil
from libc.stdint cimport uint64_t
from libc.string cimport memset

RANGE_NS = <uint64_t>1 << HISTOGRAM_RANGE_BITS

cdef tuple SHARES = (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999))
NS_IN_US = 1000.0


cdef uint64_t middle_of(int bucket) noexcept nogil:
    """Return the value that represents all durations of a bucket."""
    cdef int shift
    if bucket < HISTOGRAM_STEPS:
        return <uint64_t>bucket
    shift = bucket // HISTOGRAM_STEPS - 1
    return (<uint64_t>(bucket - shift * HISTOGRAM_STEPS) << shift) + (<uint64_t>1 << shift) // 2


@cython.final
cdef class LatencyHistogram:
    """Counts of durations, in steps of a sixteenth of a power of two.

    A quantile is off by at most 1/32 of itself, for durations below `RANGE_NS`; longer ones are counted as that.
    """

    def __cinit__(self):
        memset(&self.histogram, 0, sizeof(Histogram))

    def record(self, uint64_t ns, uint64_t count=1):
        """Count one duration, or `count` equal ones.

        Raises:
            OverflowError: an argument is negative, or has more than 64 bits.
        """
        histogram_record(&self.histogram, ns, count)

    def add(self, LatencyHistogram other not None):
        """Add the counts of another histogram."""
        cdef int i
        for i in range(HISTOGRAM_BUCKETS):
            self.histogram.buckets[i] += other.histogram.buckets[i]
        self.histogram.count += other.histogram.count
        self.histogram.total_ns += other.histogram.total_ns
        self.histogram.maximum_ns = max(self.histogram.maximum_ns, other.histogram.maximum_ns)

    @property
    def count(self):
        """The number of durations."""
        return self.histogram.count

    @property
    def maximum(self):
        """The longest duration, exact, in nanoseconds; 0 if there is none."""
        return self.histogram.maximum_ns

    @property
    def mean(self):
        """The mean, in nanoseconds; 0 if there is none."""
        return self.histogram.total_ns / <double>self.histogram.count if self.histogram.count > 0 else 0.0

    @property
    def total(self):
        """The sum in nanoseconds, rounded to a float."""
        return self.histogram.total_ns

    def quantile(self, double share):
        """Return the shortest duration, in nanoseconds, that this share of all did not exceed; 0 if there is none.

        Raises:
            ValueError: the share is not from 0 to 1.
        """
        cdef uint64_t rank
        cdef uint64_t seen = 0
        cdef int i
        if not 0 <= share <= 1:
            raise ValueError(f"a share must be 0 to 1, got {share}")
        rank = max(<uint64_t>1, <uint64_t>ceil(share * <double>self.histogram.count))
        if rank >= self.histogram.count:
            return self.histogram.maximum_ns
        for i in range(HISTOGRAM_BUCKETS):
            seen += self.histogram.buckets[i]
            if seen >= rank:
                break
        return min(middle_of(i), self.histogram.maximum_ns)

    def buckets(self):
        """Return the counts below each bound: `[(microseconds, count), ...]`; all histograms have the same bounds."""
        cdef list counts = []
        cdef uint64_t below = 0
        cdef int bucket = 0
        cdef int bits
        for bits in range(HISTOGRAM_FIRST_BOUND_BITS, HISTOGRAM_LAST_BOUND_BITS + 1):
            while bucket < histogram_buckets_below(bits):
                below += self.histogram.buckets[bucket]
                bucket += 1
            counts.append((<double>(<uint64_t>1 << bits) / NS_IN_US, below))
        return counts

    def to_map(self):
        """Return `count`, and microseconds: `mean_us`, `p50_us`, `p90_us`, `p99_us`, `p999_us`, `max_us`."""
        answer = {"count": self.count, "mean_us": self.mean / NS_IN_US}
        for name, share in SHARES:
            answer[name] = self.quantile(share) / NS_IN_US
        answer["max_us"] = self.maximum / NS_IN_US
        return answer
