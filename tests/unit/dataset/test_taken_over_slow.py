"""Adoption by a node; the fast tests are in `test_taken_over.py`."""

from gossipkv.dataset import finish_version, partition_of, write_partition
from tests.unit.dataset.sources import MEMORY_BYTES
from tests.unit.dataset.world import active, get, until

RECORDS = {b"key %05d" % n: b"value %d" % n * 5 for n in range(3000)}


def write(place, partitions=3, function="sequins", records=RECORDS, **options):
    for partition in range(partitions):
        held = [record for record in records.items() if partition_of(record[0], partitions, function) == partition]
        write_partition(place, partition, partitions, held, function=function, memory_bytes=MEMORY_BYTES, **options)
    finish_version(place, partitions)


async def test_a_node_serves_what_tasks_have_sorted(world):
    """A version of sorted files follows one of text; a damaged version changes nothing."""
    world.put("v1", b"key 00001\told\n")
    async with world.node() as library:
        await active(library, "v1")
        write(world.source / "db/v2", function="text", partitions=4)
        library.refresh()
        await active(library, "v2")
        assert get(library, b"key 00001") == b"value 1" * 5
        assert get(library, b"nothing") is None
        write(world.source / "db/v3")
        damaged = world.source / "db/v3/part-00000.gkv"
        damaged.write_bytes(damaged.read_bytes()[:-1])
        library.refresh()
        await until(lambda: library.status()["db"]["versions"].get("v3", {}).get("state") == "ERROR")
        error = library.status()["db"]["versions"]["v3"]["error"]
        assert error["file"] == str(damaged)
        assert "the footer is missing" in error["message"]
        assert get(library, b"key 00001") == b"value 1" * 5
