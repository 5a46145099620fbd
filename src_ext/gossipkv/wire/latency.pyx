"""The histogram as Python sees it.  What a bucket is stands in `latency.pxd`.

`tests/oracle/histogram.py` keeps every duration and sorts; the tests hold the two together.
"""

cimport cython
from libc.math cimport ceil
from libc.stdint cimport uint64_t
from libc.string cimport memset

RANGE_NS = <uint64_t>1 << HISTOGRAM_RANGE_BITS

cdef tuple SHARES = (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999))
NS_IN_US = 1000.0


cdef uint64_t middle_of(int bucket) noexcept nogil:
    """What stands for all durations of a bucket."""
    cdef int shift
    if bucket < HISTOGRAM_STEPS:
        return <uint64_t>bucket
    shift = bucket // HISTOGRAM_STEPS - 1
    return (<uint64_t>(bucket - shift * HISTOGRAM_STEPS) << shift) + (<uint64_t>1 << shift) // 2


@cython.final
cdef class LatencyHistogram:
    """How long things took: a count for each step of a sixteenth of a power of two.

    A quantile is off by at most 1/32 of itself, for durations below `RANGE_NS`; longer ones are counted as that.
    """

    def __cinit__(self):
        memset(&self.histogram, 0, sizeof(Histogram))

    def record(self, uint64_t ns, uint64_t count=1):
        """Count one duration, or `count` equal ones.

        Raises:
            OverflowError: one of them is negative, or has more than 64 bits.
        """
        histogram_record(&self.histogram, ns, count)

    def add(self, LatencyHistogram other not None):
        """Count all that the other one has counted, too."""
        cdef int i
        for i in range(HISTOGRAM_BUCKETS):
            self.histogram.buckets[i] += other.histogram.buckets[i]
        self.histogram.count += other.histogram.count
        self.histogram.total_ns += other.histogram.total_ns
        self.histogram.maximum_ns = max(self.histogram.maximum_ns, other.histogram.maximum_ns)

    @property
    def count(self):
        """How many there were."""
        return self.histogram.count

    @property
    def maximum(self):
        """The longest, in nanoseconds, exactly; 0 when there was none."""
        return self.histogram.maximum_ns

    @property
    def mean(self):
        """Nanoseconds; 0 when there was none."""
        return self.histogram.total_ns / <double>self.histogram.count if self.histogram.count > 0 else 0.0

    @property
    def total(self):
        """Nanoseconds of all of them, rounded as a float is."""
        return self.histogram.total_ns

    def quantile(self, double share):
        """The shortest time, in nanoseconds, in which this share of all was done; 0 when there was none.

        Raises:
            ValueError: the share is not from 0 to 1.
        """
        cdef uint64_t rank
        cdef uint64_t seen = 0
        cdef int i
        if not 0 <= share <= 1:
            raise ValueError(f"a share is from 0 to 1, got {share}")
        rank = max(<uint64_t>1, <uint64_t>ceil(share * <double>self.histogram.count))
        if rank >= self.histogram.count:
            return self.histogram.maximum_ns
        for i in range(HISTOGRAM_BUCKETS):
            seen += self.histogram.buckets[i]
            if seen >= rank:
                break
        return min(middle_of(i), self.histogram.maximum_ns)

    def buckets(self):
        """How many were shorter than each bound: `[(microseconds, count), ...]`, the same bounds in every histogram."""
        cdef list told = []
        cdef uint64_t below = 0
        cdef int bucket = 0
        cdef int bits
        for bits in range(HISTOGRAM_FIRST_BOUND_BITS, HISTOGRAM_LAST_BOUND_BITS + 1):
            while bucket < histogram_buckets_below(bits):
                below += self.histogram.buckets[bucket]
                bucket += 1
            told.append((<double>(<uint64_t>1 << bits) / NS_IN_US, below))
        return told

    def to_map(self):
        """`count`, and microseconds: `mean_us`, `p50_us`, `p90_us`, `p99_us`, `p999_us`, `max_us`."""
        answer = {"count": self.count, "mean_us": self.mean / NS_IN_US}
        for name, share in SHARES:
            answer[name] = self.quantile(share) / NS_IN_US
        answer["max_us"] = self.maximum / NS_IN_US
        return answer
