"""A minimal binding of tinycdb: one call into the library and one `bytes` for each hit."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

import os

cdef extern from "cdb.h" nogil:
    cdef struct cdb:
        pass
    cdef struct cdb_make:
        pass
    int cdb_init(cdb*, int)
    void cdb_free(cdb*)
    int cdb_find(cdb*, const void*, unsigned)
    const void* cdb_get(cdb*, unsigned, unsigned)
    unsigned cdb_datalen(cdb*)
    unsigned cdb_datapos(cdb*)
    int cdb_make_start(cdb_make*, int)
    int cdb_make_add(cdb_make*, const void*, unsigned, const void*, unsigned)
    int cdb_make_finish(cdb_make*)


cdef class Reader:
    """A mapped cdb file."""

    cdef cdb _cdb
    cdef int _descriptor

    def __cinit__(self, path):
        self._descriptor = os.open(path, os.O_RDONLY)
        if cdb_init(&self._cdb, self._descriptor) != 0:
            raise OSError(f"{path}: not a cdb file")

    def get(self, bytes key not None):
        """Return the value, or None."""
        if cdb_find(&self._cdb, PyBytes_AS_STRING(key), <unsigned> PyBytes_GET_SIZE(key)) <= 0:
            return None
        cdef unsigned size = cdb_datalen(&self._cdb)
        return PyBytes_FromStringAndSize(<const char*> cdb_get(&self._cdb, size, cdb_datapos(&self._cdb)), size)

    def close(self):
        """Unmap the file."""
        cdb_free(&self._cdb)
        os.close(self._descriptor)


def build(path, list records not None):
    """Write the records in the order given."""
    cdef cdb_make maker
    cdef bytes key, value
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        cdb_make_start(&maker, descriptor)
        for key, value in records:
            if cdb_make_add(
                &maker,
                PyBytes_AS_STRING(key),
                <unsigned> PyBytes_GET_SIZE(key),
                PyBytes_AS_STRING(value),
                <unsigned> PyBytes_GET_SIZE(value),
            ):
                raise OSError(f"{path}: cannot be written")
        if cdb_make_finish(&maker):
            raise OSError(f"{path}: cannot be written")
    finally:
        os.close(descriptor)
