"""Tests over real processes, sockets, threads or time; `test_memtable.py` has the others."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.oracle.memtable import VALUE, encode, internal
from tests.unit.storage.engine.test_memtable import ORDERS, check, in_order, made


def test_without_memory_nothing_is_lost() -> None:
    """A put without memory fails at any place in the tree, and earlier puts stay."""
    program = """
        import resource
        from gossipkv.storage.engine._engine import Memtable
        from tests.oracle.memtable import VALUE, encode, internal
        import random
        numbers = random.Random(5)
        records = [(numbers.randbytes(12), numbers.randbytes(40)) for _ in range(60_000)]
        batches = [encode([(VALUE, 1, *record)]) for record in records]
        failed = set()
        for kib in range(0, 2048, 64):
            memtable = Memtable(1 << 16)
            memtable.apply(encode([(VALUE, 0, b"", bytes(kib * 37))]))  # So that chunks end elsewhere in the tree.
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + kib * 1024, resource.RLIM_INFINITY))
            try:
                for number, batch in enumerate(batches):
                    memtable.apply(batch)
            except MemoryError:
                failed.add(number)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            put = {internal(1, key): b"\\1" + value for key, value in records[:number]}
            assert memtable.list_records(internal(1, b"")) == sorted(put.items())
            assert memtable.records == len(put) + 1
            memtable.apply(batches[number])
            key, value = records[number]
            assert memtable.find_record(internal(1, key)) == b"\\1" + value
            del memtable
        assert len(failed) > 1, failed
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


SHAPES = {
    "hexadecimal": lambda number: b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64),
    "decimal": lambda number: b"%016d" % number,
    "a long common beginning": lambda number: b"/users/of/the/region/" * 4 + b"%d" % number,
    "zeros behind": lambda number: b"%03d" % (number % 700) + bytes(number // 700),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_tree_of_several_levels(shape, order: str) -> None:
    """Each key is put again with another value."""
    numbers = in_order(order, 6_000)
    batches = [
        encode((VALUE, number % 3, shape(number), b"%s %d" % (text, number)) for number in numbers)
        for text in (b"first", b"second and longer")
    ]
    memtable, expected = made(*batches)
    near = [internal(number % 4, shape(number)[: number % 20] + b"\0") for number in range(0, 6_000, 1_500)]
    check(memtable, expected, near)
