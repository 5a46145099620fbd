"""The permitted behaviour of a possibly damaged file: refuse and name the place, or answer everything as before.

Each kind of question gets a freshly opened file, since pages that one question has checked are not checked again for
the next.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Record = tuple[bytes, bytes]
NAME = "examined.gkv"

BATCH = 6  # Small: a question that checks the index page would hide unchecked reads by the rest of the batch.

REFUSED = "refused at opening"
MET = "met while reading"
UNHARMED = "answered as before"


class WrongAnswer(AssertionError):
    """A damaged file gave a wrong answer, or an error without its place."""


def nested(key: bytes, value: bytes, copies: int) -> Record:
    """Return a record whose value holds fake records of the same key, at places where a record could begin.

    A place in the index that is off by a little leads to a fake record, which only a checksum can tell.
    """
    fakes = oracle.encode(key, b"FAKE" + value) * copies
    for padding in range(8):
        whole = bytes(padding) + fakes + value
        if oracle.encode(key, whole).index(fakes) % 8 == 0:
            return key, whole
    raise AssertionError("one of eight fits")


def place_of(error: Corrupt | UnsupportedFormat, size: int) -> int:
    """Return the offset that an error names; every error must name the file and a place in it."""
    offset = error.details["offset"]
    if error.details["file"] != NAME or not str(error).startswith(NAME) or not 0 <= offset <= size:
        raise WrongAnswer(f"an error that does not name its place in {size} bytes: {error!r} {error.details}")
    return offset


class Examination:
    """Questions to one file, with their answers before the damage; hits come first, then misses."""

    def __init__(self, records: Sequence[Record], misses: Sequence[bytes], metadata: bytes) -> None:
        self.in_order = sorted(dict(records).items())
        self.asked = [key for key, _ in self.in_order] + list(misses)
        self.answers = [value for _, value in self.in_order] + [None] * len(misses)
        self.metadata = metadata
        # The index leads to bounds that are keys, the anchors to bounds between keys.
        bounds = [key + end for key, _ in self.in_order[:: len(self.in_order) // 3] for end in (b"", b"\0")]
        self.walks = [
            (
                bound,
                oracle.select(self.in_order, start=bound, limit=2),
                oracle.select(self.in_order, end=bound, reverse=True, limit=2),
            )
            for bound in bounds
        ]
        self.questions: Counter[str] = Counter()  # Outcomes of single questions, over all files.

    def __call__(self, image: bytes) -> str:
        """Return the outcome for a file of these bytes; raise `WrongAnswer` if the file may not behave so."""
        try:
            file = SortedFile(image, name=NAME)
        except (Corrupt, UnsupportedFormat) as error:
            place_of(error, len(image))
            return REFUSED
        met = 0
        for key, expected in zip(self.asked, self.answers, strict=True):
            met += self._ask(file, file.get, key, expected)
        for question, expected in (
            (lambda file: file.get_many(self.asked), self.answers),
            (lambda file: list(file.scan()), self.in_order),
            (lambda file: list(file.scan(reverse=True)), self.in_order[::-1]),
            (lambda file: file.metadata, self.metadata),
        ):
            file = SortedFile(image, name=NAME)
            met += self._ask(file, question, file, expected)
        for key, forwards, backwards in self.walks:
            for question, expected in (
                (lambda file, key=key: list(file.scan(start=key, limit=2)), forwards),
                (lambda file, key=key: list(file.scan(end=key, limit=2, reverse=True)), backwards),
            ):
                file = SortedFile(image, name=NAME)
                met += self._ask(file, question, file, expected)
        for start in range(0, len(self.asked), BATCH):
            keys, expected = self.asked[start : start + BATCH], self.answers[start : start + BATCH]
            file = SortedFile(image, name=NAME)
            met += self._ask(file, file.get_many, keys, expected)
        self.questions[MET] += met
        self.questions[UNHARMED] += len(self.asked) + 4 + 2 * len(self.walks) + -(-len(self.asked) // BATCH) - met
        return MET if met else UNHARMED

    @staticmethod
    def _ask(file: SortedFile, question: Callable[[object], object], about: object, expected: object) -> bool:
        try:
            found = question(about)
        except Corrupt as error:
            place_of(error, file.size_bytes)
            return True
        if found != expected:
            raise WrongAnswer(f"{about!r}: expected {expected!r:.200}, got {found!r:.200}")
        return False
