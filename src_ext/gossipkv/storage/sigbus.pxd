from libc.stdint cimport uint64_t


cdef extern from *:
    """
    typedef struct gkv_map gkv_map;
    """
    ctypedef struct Map "gkv_map":
        pass


cdef Map* map_add(const void* start, size_t size) noexcept
cdef void map_remove(Map* map) noexcept
cdef bint map_is_lost(const Map* map) noexcept nogil
cdef uint64_t map_lose(Map* map, uint64_t offset) noexcept nogil
