"""The gate between serving loops, which read records of a store, and the thread that changes these records.

Trio's thread applies synced batches to the memtable, and replaces the view after a merge. The first serving loop has
the same thread. Each further loop reads within the gate, for some 30 lookups at once: the gate is one read-write lock,
and whoever changes records writes. A large batch is applied in slices, so that no loop waits for all of it. A store
that only one loop reads takes no lock.

A sorted file has one reader at a time, so each further loop has a view of its own, over twins of the files; memtables
are shared. All views change at one moment.

Rules for editors:

* Pointers from a view are valid within the gate only.
* Within the gate a loop never waits for the GIL: the writer may hold it while it waits.
* A writer goes before readers that come later. Otherwise busy loops could keep it waiting.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <pthread.h>
    static int gkv_gate_init(pthread_rwlock_t* lock)
    {
        pthread_rwlockattr_t attributes;
        int failed;
        if (pthread_rwlockattr_init(&attributes) != 0)
            return -1;
    #ifdef __GLIBC__  /* Others let a writer go before. */
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    #endif
        failed = pthread_rwlock_init(lock, &attributes);
        pthread_rwlockattr_destroy(&attributes);
        return failed;
    }
    """
    int gate_init "gkv_gate_init"(pthread_rwlock_t* lock)

cdef enum:
    SLICE_RECORDS = 256         # Records applied at once: some 50 µs.


@cython.final
@cython.no_gc_clear             # `shown` points to the views.
cdef class ReadGate:
    """The records of a store for serving loops; at first one loop may read."""

    def __cinit__(self):
        if gate_init(&self.lock) != 0:
            raise MemoryError
        self.guards = []
        self.views = []
        self.set_views([])

    def __dealloc__(self):
        free(self.shown)
        pthread_rwlock_destroy(&self.lock)

    cdef int begin_change(self) except -1:
        """Keep all loops but the first from reading, until `end_change`."""
        if pthread_rwlock_trywrlock(&self.lock) != 0:
            with nogil:
                pthread_rwlock_wrlock(&self.lock)
        return 0

    def serve(self, guards):
        """Let further loops read, each with its guard: `MappedFile.twin_for`. Nothing is shown until `show`."""
        self.hide()
        self.guards = list(guards)

    def show(self, memtables, runs):
        """Show memtables and runs to all loops; return the view of the first loop's thread. Raises as `View`."""
        cdef list views = [View(memtables, runs)]
        for guard in self.guards:
            views.append(View(memtables, [[(first, file.twin_for(guard)) for first, file in run] for run in runs]))
        self.set_views(views)
        return views[0]

    def hide(self):
        """Show nothing until the next `show`."""
        self.set_views([])

    cdef int set_views(self, list views) except -1:
        cdef PyObject** shown = <PyObject**> calloc(len(views) + 1, sizeof(PyObject*))
        cdef PyObject** before = self.shown
        cdef list old = self.views
        cdef int i
        if shown == NULL:
            raise MemoryError
        for i in range(<int> len(views)):
            shown[i] = <PyObject*> views[i]
        self.begin_change()
        self.shown, self.views, self.loops = shown, views, <int> len(views)
        end_change(self)
        free(before)
        old.clear()             # No loop reads them any more.
        return 0

    def apply(self, Memtable memtable not None, Batch batch not None):
        """Apply a batch to a memtable that loops may read. Raises as `Memtable.apply_batch`."""
        if self.guards:
            self.apply_slices(memtable, batch)
        else:
            memtable.apply_batch(batch)

    cdef int apply_slices(self, Memtable memtable, Batch batch) except -1:
        cdef const uint8_t* at = batch.data
        cdef const uint8_t* end = at + batch.used
        cdef const uint8_t* slice_end
        cdef Operation operation
        cdef int records, result
        while at < end:
            slice_end = at
            records = 0
            while slice_end != NULL and slice_end < end and records < SLICE_RECORDS:
                slice_end = next_operation(slice_end, end, &operation)
                records += 1
            if slice_end == NULL:
                return memtable.applied(NO_OPERATION)
            self.begin_change()
            result = memtable.apply_operations(at, slice_end - at)
            end_change(self)
            memtable.applied(result)
            at = slice_end
        return 0
