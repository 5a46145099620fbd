"""The records of a tab-separated file, in five lines."""


def records(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the records; raises ValueError with the number of the first line that is none."""
    found = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line and b"\t" not in line:
            raise ValueError(number)
        found += [(line[: line.index(b"\t")], line[line.index(b"\t") + 1 :])] if line else []
    return found
