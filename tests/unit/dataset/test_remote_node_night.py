"""Many small objects in S3, with moto as the server."""

import resource
import time
from concurrent.futures import ThreadPoolExecutor

from tests.unit.dataset.sources import lines
from tests.unit.dataset.test_remote_node_slow import Bucket, server  # noqa: F401  # A fixture.
from tests.unit.dataset.world import active

# Each object becomes a partition, which takes two descriptors before Python 3.13.
OBJECTS = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - 200)
BOUND_S = 120


async def test_ten_thousand_objects_are_served_within_two_minutes(server, world):  # noqa: F811  # The fixture.
    bucket = Bucket(server, "many")
    with ThreadPoolExecutor(10) as puts:
        for number in range(OBJECTS):
            puts.submit(bucket.put, f"db/v1/part-{number:05}", lines(**{f"k{number}": "v" * 1010}))
    begin_s = time.monotonic()
    async with world.node(**bucket.settings()) as library:
        await active(library, "v1")
        taken_s = time.monotonic() - begin_s
        assert library.active("db").records == OBJECTS
    bucket.close()
    assert taken_s < BOUND_S, f"{taken_s:.0f} s for {OBJECTS:,} objects"
