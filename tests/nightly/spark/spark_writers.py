"""Writes a Parquet file's rows with a local Spark in several ways: PATH of the file, DIRECTORY."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

TIMES = "spark.sql.parquet.outputTimestampType"
# Else Spark drops space, and writes a backslash before quotes but not before itself.
CSV = {"escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
# The name of a directory: the format, the columns that are left out, options, and settings of the session.
WAYS = {
    "parquet": ("parquet", "", {}, {TIMES: "TIMESTAMP_MICROS"}),
    "gzip": ("parquet", "", {"compression": "gzip", "parquet.page.size": "1000"}, {TIMES: "TIMESTAMP_MICROS"}),
    "version 2": ("parquet", "", {"compression": "zstd", "parquet.writer.version": "PARQUET_2_0"}, {}),
    "legacy": ("parquet", "", {}, {TIMES: "INT96", "spark.sql.parquet.writeLegacyFormat": "true"}),
    "milliseconds": ("parquet", "at far pair", {}, {TIMES: "TIMESTAMP_MILLIS"}),
    "orc": ("orc", "at far pair", {}, {}),
    "zlib": ("orc", "at far pair", {"compression": "zlib"}, {}),
    "json": ("json", "single small big price tiny at far when raw pair code", {}, {}),
    "csv": ("csv", "single small big price tiny day at far when raw tags pair code", {"header": "true", **CSV}, {}),
    "tsv": ("csv", "single small big price tiny day at far when raw tags pair code", {"sep": "\t", **CSV}, {}),
}


def main(path: str, directory: str) -> None:
    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(path).coalesce(1)
    for name, (form, without, options, settings) in WAYS.items():
        for setting, value in {"spark.sql.parquet.writeLegacyFormat": "false", **settings}.items():
            spark.conf.set(setting, value)
        frame.drop(*without.split()).write.options(**options).format(form).save(f"{directory}/{name}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
