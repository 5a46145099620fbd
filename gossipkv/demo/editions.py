"""The data of the demo: the Unicode character database, in the two versions that are inside this Python.

They are 3.2.0 (kept for internationalised host names) and the current one.  The key is a character's name; the value is
the character and its properties in that version.  Ideographs and syllables that are named by rule are left out.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, final

from gossipkv.keyspace.partitioner import partition

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

FILES: Final = 8  # Files of a version, and so its partitions.
PLANES: Final = range(0x20000), range(0x2F800, 0x30000), range(0xE0000, 0xE1000)  # The rest is named by rule.
NAMED_BY_RULE: Final = ("CJK UNIFIED IDEOGRAPH-", "HANGUL SYLLABLE ", "TANGUT IDEOGRAPH-")

Records = dict[bytes, bytes]


@final
@dataclass(frozen=True, slots=True)
class Edition:
    """One version of the dataset: the truth that answers are compared with."""

    unicode_version: str
    records: Records

    @property
    def version(self) -> str:
        """Name as a version; versions are ordered as strings, hence the two digits."""
        major, minor, patch = self.unicode_version.split(".")
        return f"{int(major):02}-{minor}-{patch}"

    def write(self, directory: Path) -> None:
        """Write the source files, spread over them as the job of an existing engine would."""
        directory.mkdir(parents=True)
        lines: list[list[bytes]] = [[] for _ in range(FILES)]
        for key, value in self.records.items():
            assert not {b"\t", b"\n"} & {key[index : index + 1] for index in range(len(key))}, key
            assert b"\n" not in value, value
            lines[partition("sequins", key, FILES)].append(b"%b\t%b\n" % (key, value))
        for number, part in enumerate(lines):
            (directory / f"part-{number:05}.tsv").write_bytes(b"".join(part))


def editions() -> tuple[Edition, Edition]:
    """Return the two versions that are inside this Python, the older one first."""
    old = unicodedata.ucd_3_2_0
    return (
        Edition(old.unidata_version, _records(old)),
        Edition(unicodedata.unidata_version, _records(unicodedata)),
    )


def _records(database: unicodedata.UCD | ModuleType) -> Records:
    """Return by name: character, category, bidirectional class, mirrored, width; separated by tabs."""
    named = ((database.name(character, ""), character) for character in map(chr, chain(*PLANES)))
    return {
        name.encode(): "\t".join(
            (
                character,
                database.category(character),
                database.bidirectional(character),
                str(database.mirrored(character)),
                database.east_asian_width(character),
            )
        ).encode()
        for name, character in named
        if name and not name.startswith(NAMED_BY_RULE)
    }
