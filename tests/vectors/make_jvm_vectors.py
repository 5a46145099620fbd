"""Make `jvm_hashes.json`: what the JVM's own classes answer for the keys below.

Nothing in it comes from our code: the tests hold that code to these answers.  Run by hand, in an environment of its
own, when a key or a column is added; no test runs it.  It needs a JDK (17 was used):

    python3 -m venv .venv-spark
    .venv-spark/bin/pip install pyspark==3.5.6 mmh3==5.3.1
    .venv-spark/bin/python tests/vectors/make_jvm_vectors.py
    (cd tests/vectors && sha256sum jvm_hashes.json > vectors.sha256)

Whose answer each column is:

    sequins         java.lang.String.hashCode of the key read as ISO 8859-1, so that a byte is a char: this is how
                    Sequins' own test made its expectations
    text            org.apache.hadoop.io.Text.hashCode, required to equal org.apache.hadoop.io.BytesWritable's
    string          java.lang.String.hashCode of the key read as UTF-8; null where a reporting decoder refuses it
    cascading       java.util.List.of(string).hashCode(); the contract of List is letter for letter the loop that
                    cascading.tuple.Tuple.hashCode was until 2.7, and pyspark ships no Cascading
    murmur3         Guava's murmur3_32, required to equal Scala's MurmurHash3.bytesHash and mmh3; for two seeds
    sha1            java.security.MessageDigest
    partitions      org.apache.hadoop.mapreduce.lib.partition.HashPartitioner, for each of the counts; spark's from
                    org.apache.spark.HashPartitioner, required to equal org.apache.spark.util.Utils.nonNegativeMod
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import mmh3
import pyspark

COUNTS = (2, 5, 12, 20, 31, 4096, 2**31 - 1)
SEEDS = (0, 0x9747B28C)
OUTPUT = Path(__file__).with_name("jvm_hashes.json")

WORDS = (
    "bar", "fol", "foo bar baz", "foobarbaz", "The quick brown fox jumped over the lazy dog", "1881/boy", "a\0b",
    "\t\n", "polygenelubricants", "naïve", "Ελληνικά", "עברית", "हिन्दी", "ไทย", "日本語", "한국어", "𝄞", "𐐷x𐐷", "🇨🇭🇺🇳",
    "nai\u0308ve", "e\u0301\u0323", "\u1112\u1161\u11ab", "\U0001f469\u200d\U0001f469\u200d\U0001f467",
)  # fmt: skip
# The last and first character of each width in UTF-8, around the surrogates, and two that decoders like to eat.
EDGES = (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFF, 0x10000, 0x103FF, 0x10400, 0x10FFFF)
# Overlong, surrogates, over U+10FFFF, cut short, a continuation alone, bytes that never occur.
NOT_TEXT = (
    "c080", "c1bf", "e08080", "e09fbf", "f0808080", "f08fbfbf", "eda080", "edbfbf", "eda080edb080", "f4908080",
    "f5808080", "f888808080", "c3", "c328", "e2", "e282", "e28228", "f09d", "f09d84", "f09d8428", "61c3", "6162c328",
    "e282ac80", "616263e282", "616263646580", "fe", "ff61",
)  # fmt: skip

JAVA = r"""
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.*;
import java.security.MessageDigest;
import java.util.*;
import com.google.common.hash.Hashing;
import org.apache.hadoop.io.*;

public class JvmHashes {
    static void require(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    static String hadoop(Object key, int[] counts) {
        var partitioner = new org.apache.hadoop.mapreduce.lib.partition.HashPartitioner<Object, Object>();
        var row = new ArrayList<Integer>();
        for (int count : counts) row.add(partitioner.getPartition(key, null, count));
        return row.toString();
    }

    static String spark(String key, int[] counts) {
        var row = new ArrayList<Integer>();
        for (int count : counts) {
            int found = new org.apache.spark.HashPartitioner(count).getPartition(key);
            require(found == org.apache.spark.util.Utils.nonNegativeMod(key.hashCode(), count), "floor-mod");
            row.add(found);
        }
        return row.toString();
    }

    static String decoded(byte[] key) {
        try {
            return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT).decode(ByteBuffer.wrap(key)).toString();
        } catch (CharacterCodingException refused) {
            return null;
        }
    }

    public static void main(String[] args) throws Exception {
        int[] counts = Arrays.stream(args[0].split(",")).mapToInt(Integer::parseInt).toArray();
        int[] seeds = Arrays.stream(args[1].split(",")).mapToInt(Integer::parseUnsignedInt).toArray();
        System.out.println(System.getProperty("java.vm.name") + " " + System.getProperty("java.version"));
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            byte[] key = HexFormat.of().parseHex(line);
            String bytes = new String(key, StandardCharsets.ISO_8859_1);
            Text text = new Text(key);
            BytesWritable writable = new BytesWritable(key);
            require(text.hashCode() == writable.hashCode(), "Text and BytesWritable");
            String string = decoded(key);
            List<String> tuple = string == null ? null : List.of(string);
            var murmur3 = new ArrayList<Long>();
            for (int seed : seeds) {
                int found = Hashing.murmur3_32(seed).hashBytes(key).asInt();
                require(found == scala.util.hashing.MurmurHash3$.MODULE$.bytesHash(key, seed), "Guava and Scala");
                murmur3.add(Integer.toUnsignedLong(found));
            }
            String partitions = String.format(
                "{\"sequins\":%s,\"text\":%s,\"string\":%s,\"spark\":%s,\"cascading\":%s}",
                hadoop(bytes, counts), hadoop(text, counts), string == null ? null : hadoop(string, counts),
                string == null ? null : spark(string, counts), string == null ? null : hadoop(tuple, counts));
            System.out.println(String.format(
                "{\"key\":\"%s\",\"sequins\":%d,\"text\":%d,\"string\":%s,\"cascading\":%s,"
                + "\"murmur3\":%s,\"sha1\":\"%s\",\"partitions\":%s}",
                line, bytes.hashCode(), text.hashCode(), string == null ? null : string.hashCode(),
                string == null ? null : tuple.hashCode(), murmur3,
                HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(key)), partitions
            ).replace(" ", ""));
        }
    }
}
"""


def with_hash(number: int) -> bytes:
    """Seven ASCII letters whose String.hashCode is `number`: its digits to base 31, each from 64 up."""
    least = 64 * (31**7 - 1) // 30
    rest = (number - least) % 2**32
    letters = []
    for _ in range(7):
        rest, digit = divmod(rest, 31)
        letters.append(64 + digit)
    return bytes(reversed(letters))


def keys() -> list[bytes]:
    chosen = random.Random(1995)
    text = [
        *WORDS,
        *(f"{before}{chr(edge)}{after}" for before, after in (("", ""), ("ab", "cdefg")) for edge in EDGES),
        *("abcdefghijklmnopqrstuvwxyz0123456789ABCD"[:size] for size in range(2, 41)),
        *("abcdefghijklé日"[at:] for at in range(14)),
        *("x" * 1000, "ü𝒳日" * 50),
    ]
    turning = (-(2**31), -(2**31) + 1, *range(-34, 34), *range(2**31 - 36, 2**31))
    sizes = (*range(2, 34), 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 300, 1024)
    found = [
        b"",
        *(bytes([byte]) for byte in range(256)),
        bytes(range(256)),
        bytes(reversed(range(256))),
        bytes.fromhex("7017ad788c5e85f14327f867"),
        *(part.encode() for part in text),
        *(bytes.fromhex(part) for part in NOT_TEXT),
        *(with_hash(number) for number in turning),
        *(chosen.randbytes(size) for size in sizes),
    ]
    return list(dict.fromkeys(found))


def main() -> None:
    """Ask the JVM, compare with mmh3, write the file."""
    jars = Path(pyspark.__file__).with_name("jars")
    asked = keys()
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "JvmHashes.java")
        source.write_text(JAVA)
        java, *answered = subprocess.run(
            ["java", "-cp", f"{jars}/*", str(source), ",".join(map(str, COUNTS)), ",".join(map(str, SEEDS))],
            input="".join(f"{key.hex()}\n" for key in asked),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.splitlines()
    for key, row in zip(asked, map(json.loads, answered), strict=True):
        if row["key"] != key.hex() or row["murmur3"] != [mmh3.hash(key, seed, signed=False) for seed in SEEDS]:
            raise SystemExit(f"mmh3 and the JVM disagree on {key!r}")
    head = {
        "made_by": Path(__file__).name,
        "with": {"java": java, "pyspark": version("pyspark"), "mmh3": version("mmh3")},
        "seeds": SEEDS,
        "counts": COUNTS,
    }
    lines = ",\n".join(answered)
    OUTPUT.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n')
    print(f"{len(answered)} keys, {OUTPUT.stat().st_size} bytes: {OUTPUT}")  # noqa: T201 (a script's report)


if __name__ == "__main__":
    main()
