from gossipkv.dataset.formats._lines cimport Lines


cdef class TabSeparatedLines(Lines):
    pass
