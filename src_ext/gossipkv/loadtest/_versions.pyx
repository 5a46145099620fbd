"""Which versions one server answered from, and how often: so that a step back shows.

Versions are ordered as strings.  An answer is a step back if it is from an older version than the newest that this
server had answered with when the request was sent: answers that were on their way together may come in any order.  An
answer that names no version is counted under the empty name, and is no step.  More than 64 versions, or a name that is
too long for any, are counted under the name "other", and are no steps either.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    NAMELESS = 0
    OTHER = 1


@cython.final
cdef class VersionTable:
    """The versions of one server in one run."""

    def __cinit__(self):
        memset(self.versions, 0, sizeof(self.versions))
        memcpy(self.versions[OTHER].name, b"other", 5)
        self.versions[OTHER].size = 5
        self.count = 2
        self.newest = -1

    cdef int32_t find(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """The number of a version, which is taken into the table."""
        cdef int32_t at = self.last
        if size == 0:
            return NAMELESS
        if at > OTHER and self.versions[at].size == size and memcmp(self.versions[at].name, name, size) == 0:
            return at
        for at in range(OTHER + 1, self.count):
            if self.versions[at].size == size and memcmp(self.versions[at].name, name, size) == 0:
                self.last = at
                return at
        if self.count == VERSIONS or size > VERSION_BYTES:
            return OTHER
        at = self.count
        memcpy(self.versions[at].name, name, size)
        self.versions[at].size = size
        self.count += 1
        self.last = at
        return at

    cdef bint is_older(self, int32_t one, int32_t other) noexcept nogil:
        """Whether the one comes before the other, both of them known."""
        cdef const Version* first = self.versions + one
        cdef const Version* second = self.versions + other
        cdef int found
        if one == other or one <= OTHER or other <= OTHER:
            return False
        found = memcmp(first.name, second.name, min(first.size, second.size))
        return found < 0 or (found == 0 and first.size < second.size)

    cdef int32_t note(self, const uint8_t* name, Py_ssize_t size, uint64_t wrong, uint64_t untold) noexcept nogil:
        """Count an answer, its wrong values, and those of which nothing is known; the number of its version."""
        cdef int32_t at = self.find(name, size)
        self.versions[at].requests += 1
        self.versions[at].wrong += wrong
        self.versions[at].untold += untold
        if at > OTHER and (self.newest < 0 or self.is_older(self.newest, at)):
            self.newest = at
        return at

    def counted(self):
        """Requests, wrong values, and values of which nothing was known, of each version that answered."""
        found = {}
        for i in range(self.count):
            if self.versions[i].requests > 0:
                name = self.versions[i].name[:self.versions[i].size].decode("utf-8", "backslashreplace")
                counted = self.versions[i].requests, self.versions[i].wrong, self.versions[i].untold
                found[name] = tuple(map(sum, zip(counted, found.get(name, (0, 0, 0)), strict=True)))
        return found
