# The due times of a run's requests; `schedule.pyx` has the rules.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline int64_t real_now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef struct Stage:
    int64_t begin_ns  # The time counts from the start of the run.
    int64_t end_ns
    double period_ns  # The time between two due requests; 0: closed.
    double offset_ns  # The offset of the first request.
    uint64_t first  # The number of the first request, among all of the run.
    uint64_t end

cdef class Schedule:
    cdef Stage* stages
    cdef readonly uint32_t count
    cdef readonly bint is_open
    cdef readonly uint64_t limit  # The number of requests.
    cdef readonly int64_t duration_ns
    cdef uint32_t at

    cdef int64_t due(self, uint64_t number) noexcept nogil
    cdef uint64_t due_by(self, int64_t passed_ns) noexcept nogil
    cdef uint32_t stage_at(self, int64_t passed_ns) noexcept nogil
    cdef int64_t last_due(self) noexcept nogil
