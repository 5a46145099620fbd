"""Writes and reads versions through a local Spark, with tasks that are killed: ROOT, the number of rows."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pyspark.errors
from pyspark import TaskContext
from pyspark.sql import SparkSession

import gossipkv.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def killed_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on; the first attempt at two tasks is killed behind its first batch."""
    context = TaskContext.get()
    for batch in batches:
        yield batch
        if context.attemptNumber() == 0 and context.partitionId() in {1, 3}:
            os.kill(os.getpid(), signal.SIGKILL)


def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("planted")


def save(frame, path, mode="append"):
    options = {"path": path, "key": "k", "value": "v", "partitions": "5", "memory": "32MiB"}
    frame.write.format("gossipkv").options(**options).mode(mode).save()


def refused(write, word):
    try:
        write()
    except pyspark.errors.PySparkException as error:
        assert word in str(error), error
    else:
        raise AssertionError(word)


def main(root: str, rows: int) -> None:
    """Write by both ways, and compare what is read back."""
    spark = SparkSession.builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    gossipkv.spark.register(spark)
    frame = spark.range(0, rows, 1, 6).selectExpr("concat('key ', id) AS k", "concat('value ', id) AS v")
    unlucky = frame.mapInArrow(killed_once, frame.schema)
    report = gossipkv.spark.write(unlucky, f"{root}/written/1", key="k", value="v", partitions=7)
    assert (report.partitions, report.records, report.duplicates) == (7, rows, 0), report
    save(unlucky, f"{root}/saved/1")
    expected = frame.selectExpr("k AS key", "v AS value")
    for path in ("written/1", "saved/1"):
        found = spark.read.format("gossipkv").schema("key string, value string").load(f"{root}/{path}")
        assert found.count() == rows
        assert expected.exceptAll(found).count() == 0
        assert not [name for name in os.listdir(f"{root}/{path}") if name.startswith("_attempt")]
    assert (
        spark.read.format("gossipkv").load(f"{root}/saved/1").schema.simpleString() == "struct<key:binary,value:binary>"
    )
    gossipkv.spark.write(frame.limit(1), f"{root}/whole/1", key="k", value="*", partitions=2)
    (row,) = spark.read.format("gossipkv").load(f"{root}/whole/1").collect()
    assert (bytes(row.key), bytes(row.value)) == (b"key 0", b'{"k":"key 0","v":"value 0"}')
    refused(lambda: save(frame, f"{root}/failed/1", "overwrite"), "a version cannot change")
    refused(lambda: save(frame, f"{root}/saved/1"), "the version is finished")
    refused(lambda: save(frame.mapInArrow(fail, frame.schema), f"{root}/failed/1"), "planted")
    assert os.listdir(f"{root}/failed/1") == []
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
