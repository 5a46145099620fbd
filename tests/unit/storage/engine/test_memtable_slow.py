"""Tests over real processes, sockets, threads or time; `test_memtable.py` has the others."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_without_memory_nothing_is_lost() -> None:
    """A put that finds none fails, wherever in the tree it is, and all that was put before is found."""
    program = """
        import resource
        from gossipkv.storage.engine._memtable import Memtable
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
