"""Delta tables of the tests: what `deltalake` writes, and parts of a log that it does not write."""

import base64
import json
import uuid
import zlib

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def actions(root, number):
    """Return the actions of a commit."""
    text = (root / "_delta_log" / f"{number:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def commit(root, *of_commit):
    """Write the next commit."""
    number = len(list((root / "_delta_log").glob("[0-9]*.json")))
    info = {"commitInfo": {"timestamp": 1_700_000_000_000 + number}}
    text = "".join(json.dumps(action) + "\n" for action in (info, *of_commit))
    (root / "_delta_log" / f"{number:020}.json").write_text(text)
    return number


def evolve(root, rename, features):
    """Commit a schema in which columns have other names than in files, and return the commit's number."""
    metadata = next(action["metaData"] for action in actions(root, 0) if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"]):
        field["metadata"] |= {"delta.columnMapping.physicalName": field["name"], "delta.columnMapping.id": number + 1}
        field["name"] = rename.get(field["name"], field["name"])
    metadata |= {
        "schemaString": json.dumps(schema),
        "configuration": {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
        "partitionColumns": [rename.get(name, name) for name in metadata["partitionColumns"]],
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    return commit(root, {"protocol": protocol}, {"metaData": metadata})


def z85(data):
    return base64.b85encode(data).decode().translate(str.maketrans(B85, Z85))


def vector(rows):
    from pyroaring import BitMap64  # noqa: PLC0415  # Only slow tests have it.

    return (1_681_511_377).to_bytes(4, "little") + BitMap64(rows).serialize()


def inline_vector(*rows):
    """Return a deletion vector within the log; its bytes are padded to a multiple of four by an unused container."""
    data = vector(rows)
    return {"storageType": "i", "pathOrInlineDv": z85(data + bytes(-len(data) % 4)), "sizeInBytes": len(data),
            "cardinality": len(rows)}  # fmt: skip


def vector_in_file(root, *rows):
    """Write a deletion vector behind another one in a file."""
    data = vector(rows)
    number = uuid.UUID(int=7)
    framed = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    (root / "ab").mkdir(exist_ok=True)
    (root / "ab" / f"deletion_vector_{number}.bin").write_bytes(b"\1" + b"other" + framed)
    return {"storageType": "u", "pathOrInlineDv": f"ab{z85(number.bytes)}", "offset": 6, "sizeInBytes": len(data),
            "cardinality": len(rows)}  # fmt: skip
