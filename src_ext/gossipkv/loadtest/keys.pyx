"""The choice of keys for a load: places among all keys, drawn in one of five ways, and some absent keys.

    uniform     every place as often
    zipf        place k, counted from 1, in proportion to 1 / k^theta
    hot         a share of the requests goes to the first places, the others to the rest; both uniformly
    latest      the newest place, and by Zipf's law places that are older
    sequential  one after the other, repeatedly

The same seed gives the same keys (splitmix64).  Places stand for records in the order of a population, which `shuffled`
can shuffle.  Zipf's law is drawn exactly and without a table, by rejection-inversion: W. Hörmann, G. Derflinger, ACM
TOMACS 6 (1996), p. 169.
"""

cimport cython
from libc.math cimport exp, expm1, fabs, log, log1p
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc


cdef enum KeyShape:
    UNIFORM = 0
    ZIPF = 1
    HOT = 2
    SEQUENTIAL = 3
    LATEST = 4

SHAPE_NAMES = ("uniform", "zipf", "hot", "sequential", "latest")


cdef inline double over(double numerator, double x) noexcept nogil:
    """Return `numerator / x`, or the limit 1 where both go to zero."""
    return numerator / x if fabs(x) > 1e-12 else 1.0


cdef uint64_t share_of(double share):
    """Return a share as a bound of 64-bit numbers; 1 is the highest one."""
    return <uint64_t>min(share * 18446744073709551616.0, 18446744073709549568.0)


@cython.final
cdef class KeyChooser:
    """Chooses numbers of records, one after the other."""

    cdef int shape
    cdef uint64_t random
    cdef uint32_t* population  # The numbers of records; NULL stands for the first `size` records.
    cdef uint64_t size
    cdef uint64_t absent_first
    cdef uint64_t absent_count
    cdef bint always_absent
    cdef uint64_t absent_below  # The unit is 2^-64.
    # New keys: the places behind the first `size`, in a ring with those.
    cdef uint64_t places
    cdef uint64_t newest  # The newest one that is there.
    cdef uint64_t inserted
    # The state of the sequential shape.
    cdef uint64_t next_place
    cdef uint64_t stride
    # The hot set.
    cdef uint64_t hot_below
    cdef uint64_t hot_size
    # The constants of Zipf's law.
    cdef double theta
    cdef double lowest
    cdef double span
    cdef double near

    def __cinit__(self, shape, uint64_t size, *, uint64_t seed, population=None, double theta=0.99,
                  double hot_requests=0.9, double hot_keys=0.1, uint64_t first=0, uint64_t stride=1, uint64_t new=0,
                  uint64_t absent_first=0, uint64_t absent_count=0, double misses=0):
        cdef uint64_t at
        if not 0 < size <= 0xFFFFFFFF or stride < 1 or (misses > 0 and absent_count < 1):
            raise ValueError("a chooser needs a key, a stride, and absent keys if misses are requested")
        self.shape = SHAPE_NAMES.index(shape)
        self.random = seed
        self.size = size
        self.next_place = first % size
        self.stride = stride % size
        self.absent_first = absent_first
        self.absent_count = absent_count
        self.always_absent = misses >= 1
        self.absent_below = share_of(misses)
        self.hot_below = share_of(hot_requests)
        self.hot_size = min(size, max(<uint64_t>1, <uint64_t>(hot_keys * <double>size + 0.5)))
        self.theta = theta
        self.lowest = self.area(1.5) - 1.0
        self.span = self.area(<double>size + 0.5) - self.lowest
        self.near = 2.0 - self.area_inverse(self.area(2.5) - exp(-theta * log(2.0)))
        self.places = size + new
        self.newest = self.inserted = size - 1
        if population is not None:
            if <uint64_t>len(population) != self.places:
                raise ValueError(f"the population has {len(population)} keys for {self.places} places")
            self.population = <uint32_t*>malloc(self.places * sizeof(uint32_t))
            if self.population == NULL:
                raise MemoryError
            for at in range(self.places):
                self.population[at] = population[at]

    def __dealloc__(self):
        free(self.population)

    def draws(self, Py_ssize_t count):
        """Return the next `count` numbers."""
        return [self.draw() for _ in range(count)]

    cdef uint32_t draw(self) noexcept nogil:
        if self.absent_below > 0 and (self.always_absent or mixed(&self.random) < self.absent_below):
            return <uint32_t>(self.absent_first + below(&self.random, self.absent_count))
        return self.number_at(self.place())

    cdef inline uint32_t number_at(self, uint64_t place) noexcept nogil:
        return self.population[place] if self.population != NULL else <uint32_t>place

    cdef uint32_t insert(self) noexcept nogil:
        """Return the next new key; behind the last one, the first ones come again."""
        self.inserted = (self.inserted + 1) % self.places
        return self.number_at(self.inserted)

    cdef void grow(self) noexcept nogil:
        """Note that a new key is there."""
        self.newest = (self.newest + 1) % self.places

    cdef uint64_t place(self) noexcept nogil:
        cdef uint64_t place
        if self.shape == UNIFORM:
            return below(&self.random, self.size)
        if self.shape == ZIPF:
            return self.zipf() - 1
        if self.shape == HOT:
            if mixed(&self.random) < self.hot_below or self.hot_size == self.size:
                return below(&self.random, self.hot_size)
            return self.hot_size + below(&self.random, self.size - self.hot_size)
        if self.shape == LATEST:
            return (self.newest + self.places - (self.zipf() - 1)) % self.places
        place = self.next_place
        self.next_place = (place + self.stride) % self.size
        return place

    cdef uint64_t zipf(self) noexcept nogil:
        cdef double area
        cdef double x
        cdef double k
        while True:
            area = self.lowest + <double>(mixed(&self.random) >> 11) * (1.0 / 9007199254740992.0) * self.span
            x = self.area_inverse(area)
            k = max(1.0, min(<double>self.size, <double><uint64_t>(x + 0.5)))
            if k - x <= self.near or area >= self.area(k + 0.5) - exp(-self.theta * log(k)):
                return <uint64_t>k

    cdef double area(self, double x) noexcept nogil:
        """Return the area under 1 / x^theta from 1 to x: (x^(1 - theta) - 1) / (1 - theta), or log x if theta is 1."""
        cdef double grown = (1.0 - self.theta) * log(x)
        return over(expm1(grown), grown) * log(x)

    cdef double area_inverse(self, double area) noexcept nogil:
        cdef double grown = max(-1.0, (1.0 - self.theta) * area)
        return exp(over(log1p(grown), grown) * area)


@cython.final
cdef class KeysAhead:
    """Draws keys before they are needed, so that memory delivers their records meanwhile."""

    def __cinit__(self, KeyChooser chooser not None, Dialect dialect not None):
        self.chooser = chooser
        self.dialect = dialect
        for _ in range(AHEAD):
            self.draw()

    def draws(self, Py_ssize_t count):
        """Return the next `count` keys."""
        return [self.draw() for _ in range(count)]

    cdef uint32_t draw(self) noexcept nogil:
        """Return the next key; records of later keys are fetched while earlier ones are written."""
        cdef uint32_t at = self.at
        cdef uint32_t drawn = self.ahead[at]
        cdef uint32_t halfway = self.ahead[(at + AHEAD // 2) % AHEAD]
        self.ahead[at] = (<KeyChooser>self.chooser).draw()
        self.at = (at + 1) % AHEAD
        gkv_fetch(self.dialect.records + self.ahead[at])
        gkv_fetch(self.dialect.records[halfway].key)
        gkv_fetch(self.dialect.records[halfway].key + 64)
        return drawn


@cython.final
cdef class KindChooser:
    """Chooses kinds, by their weights; those left out have none."""

    def __cinit__(self, weights, *, uint64_t seed):
        cdef list given = [*weights, *[0] * (KINDS - len(weights))]
        cdef double total = sum(given)
        cdef double so_far = 0
        cdef int kind
        if len(given) != KINDS or min(given) < 0 or not total > 0:
            raise ValueError(f"a mix needs weights of {', '.join(KIND_NAMES)}, and one that is more than 0")
        self.random = seed ^ 0x6B696E6473ULL  # The kinds must not use the random numbers of the keys.
        self.only = -1
        for kind in range(KINDS):
            so_far += given[kind]
            self.bounds[kind] = share_of(so_far / total)
            if given[kind] == total:
                self.only = kind

    def draws(self, Py_ssize_t count):
        """Return the numbers of the next `count` kinds."""
        return [self.draw() for _ in range(count)]

    cdef int draw(self) noexcept nogil:
        cdef uint64_t drawn
        cdef int kind
        if self.only >= 0:
            return self.only
        drawn = mixed(&self.random)
        for kind in range(KINDS - 1):
            if drawn < self.bounds[kind]:
                return kind
        return KINDS - 1


def shuffled(numbers, uint64_t seed):
    """Return the numbers shuffled by the seed, each order equally likely (Fisher and Yates)."""
    cdef list found = list(numbers)
    cdef uint64_t state = seed
    cdef Py_ssize_t at
    cdef Py_ssize_t other
    for at in range(len(found) - 1, 0, -1):
        other = below(&state, <uint64_t>at + 1)
        found[at], found[other] = found[other], found[at]
    return found
