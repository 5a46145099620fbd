"""What a run counts, by stage and target: a tally for each of both, and the versions of each target.

A request counts in the stage in which it was due, whenever its answer comes.  What belongs to a connection and to no
request (its bytes, its end) counts in the stage that is sent at that moment.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.loadtest._dialect cimport Reply, Slot, Window
from gossipkv.loadtest._tally cimport Tally
from gossipkv.loadtest._versions cimport VersionTable


@cython.final
cdef class Ledger:
    """Tallies of so many stages of these targets, each named by its dialect."""

    def __cinit__(self, uint32_t stages, list dialects not None):
        cdef uint32_t i
        self.stages = stages
        self.targets = <uint32_t>len(dialects)
        if stages < 1 or not dialects:
            raise ValueError("a ledger has a stage and a target")
        self.tallies = [Tally(dialect) for _ in range(stages) for dialect in dialects]
        self.versions = [VersionTable() for _ in dialects]
        self.tally_of = <PyObject**>calloc(<size_t>stages * self.targets, sizeof(PyObject*))
        self.versions_of = <PyObject**>calloc(self.targets, sizeof(PyObject*))
        if self.tally_of == NULL or self.versions_of == NULL:
            raise MemoryError
        for i in range(stages * self.targets):
            self.tally_of[i] = <PyObject*>self.tallies[i]
        for i in range(self.targets):
            self.versions_of[i] = <PyObject*>self.versions[i]

    def __dealloc__(self):
        free(self.tally_of)
        free(self.versions_of)

    def tally_at(self, uint32_t stage, uint32_t target):
        """What was counted of one target in one stage."""
        if stage >= self.stages or target >= self.targets:
            raise IndexError(f"stage {stage} of {self.stages}, target {target} of {self.targets}")
        return self.tallies[stage * self.targets + target]

    def versions_at(self, uint32_t target):
        """Requests, wrong values and those of which nothing was known, of each version that a target answered from."""
        return self.versions[target].counted()

    def touched(self):
        """Stage and target of each tally in which something was counted since its `news` were taken."""
        return [
            (i // self.targets, i % self.targets)
            for i in range(self.stages * self.targets)
            if (<Tally>self.tally_of[i]).is_touched
        ]

    cdef PyObject* at(self, uint32_t stage, uint32_t target) noexcept nogil:
        return self.tally_of[stage * self.targets + target]

    cdef uint64_t ended(self) noexcept:
        """Requests that were answered, refused or lost."""
        cdef uint64_t found = 0
        cdef Tally tally
        for tally in self.tallies:
            found += tally.answered + tally.refused + tally.lost
        return found

    cdef int32_t newest_version(self, uint32_t target) noexcept nogil:
        """Newest version that a target answered from so far; -1: none."""
        return (<VersionTable>self.versions_of[target]).newest

    cdef void count_sent(self, uint32_t stage, uint32_t target, int64_t late_ns) noexcept nogil:
        (<Tally>self.at(stage, target)).count_sent(late_ns)

    cdef void count_bytes(self, uint32_t stage, uint32_t target, Py_ssize_t sent, Py_ssize_t received) noexcept nogil:
        (<Tally>self.at(stage, target)).count_bytes(sent, received)

    cdef void count_reconnect(self, uint32_t stage, uint32_t target) noexcept nogil:
        (<Tally>self.at(stage, target)).count_reconnect()

    cdef void count_broken(self, uint32_t stage, uint32_t target, int reason, const Window* window) noexcept nogil:
        """A connection ended, and what it had in flight is lost."""
        cdef uint32_t i
        (<Tally>self.at(stage, target)).count_broken(reason)
        for i in range(window.capacity):
            if window.slots[i].busy:
                (<Tally>self.at(window.slots[i].stage, target)).count_lost(1)

    cdef void count(self, uint32_t target, const Slot* slot, const Reply* reply, int64_t now) noexcept nogil:
        """An answer came."""
        cdef int32_t version
        (<Tally>self.at(slot.stage, target)).count(reply, slot.kind, <uint64_t>max(<int64_t>0, now - slot.due_ns))
        if reply.is_error:
            return
        version = (<VersionTable>self.versions_of[target]).note(
            reply.version, reply.version_size, reply.wrong, reply.untold
        )
        if slot.floor >= 0 and (<VersionTable>self.versions_of[target]).is_older(version, slot.floor):
            (<Tally>self.at(slot.stage, target)).count_step_back()
