"""The ends of rows in CSV, so that a library gets whole rows only.

A field is quoted if it begins with a quote. Within quotes a doubled quote, or what follows the escape, is a character;
elsewhere quotes are. A row ends with LF, CR or both outside of quotes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t


def end_of_rows(bytes data not None, int delimiter, int quote, int escape, bint first=False):
    """Return the size of the whole rows, or of the first, at the beginning of the data; a character below 0 is none.

    A row that ends with the data counts as whole only with its LF, since another one might follow a CR.
    """
    cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), i = 0, end = 0
    cdef bint quoted = False, begins = True
    cdef int byte
    with nogil:
        while i < size:
            byte = at[i]
            i += 1
            if byte == escape:
                i += 1
                begins = False
            elif quoted:
                if byte == quote:
                    if escape < 0 and i < size and at[i] == quote:
                        i += 1
                    else:
                        quoted = False
            elif byte == quote and begins:
                quoted = True
                begins = False
            elif byte == 10 or (byte == 13 and i < size and at[i] != 10):
                end = i
                begins = True
                if first:
                    break
            else:
                begins = byte == delimiter
    return end
