"""The methods of operators: requests to an asked node, with the documented answer and its effect at another node.

Names in braces differ in each run: `{made}` is a new range table, and `{host}`, `{guest}`, `{acceptor}` and `{spare}`
are nodes that have or have not its first range or its register; `{hash}` is a new hash table, `{me}` the asked node,
`{other}` a third one, `{backups}` a directory for backups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.ci.matrix.doors import Refused
from tests.ci.matrix.rows import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BAD, UNKNOWN, CONFLICT, AWAY = "BAD_REQUEST", "UNKNOWN_DATABASE", "CONFLICT", "UNAVAILABLE"
NOTHING_TO_CHANGE = "the asked cluster stays as it is, for all other rows; tests/ci/cluster/test_moves.py moves nodes"
# Sizes and kinds that have no row.
SENSELESS = {
    "backup": "any number of records; tests/ci/cluster/test_backups.py has large ones",
    "create_table": "131,072 partitions take minutes on two cores; tests/nightly has many tables",
    "remove_node": NOTHING_TO_CHANGE,
    "replace_node": NOTHING_TO_CHANGE,
    "metadata_force": "it needs lost acceptors, as tests/ci/cluster/test_refounding.py has",
    "force_join": "it needs lost hosts, as tests/ci/cluster/test_lost_maps.py has",
}
NAMES = {"days", *KINDS[1:]}


class Step(NamedTuple):
    """A request with its documented answer: the code of a refusal, or a check of the result."""

    params: tuple[object, ...]
    answer: str | Callable[[object], object]
    method: str = ""  # Another one than that of the row: it prepares, or looks at the effect at another node.
    is_elsewhere: bool = False


def at_other(method: str, *params: object, holds: Callable[[object], object]) -> Step:
    return Step(params, holds, method, is_elsewhere=True)


def first(method: str, *params: object) -> Step:
    return Step(params, lambda _: True, method)


def of_tables(*more: object) -> list[Step]:
    """Return the refusals of a dataset and of an unknown name."""
    return [Step((name, *more), UNKNOWN) for name in ("days", "nosuch")]


def said(**fields: object) -> Callable[[object], bool]:
    return lambda result: all(result[name] == value for name, value in fields.items())


def hosts(result: object) -> set[str]:
    return {assignment["node"] for part in result["partitions"] for assignment in part["assignments"]}


def acceptors(result: object) -> set[str]:
    (register,) = result
    return {acceptor["node"] for acceptor in register["new"]}


RANGE = first("create_table", "{made}", {"kind": "range", "replication": 2})
SHARDS = first("create_table", "{hash}", {"kind": "hash", "partitions": 4, "replication": 2})
RECORD = first("put", "{made}", b"a", b"1")
BACKUP = [RANGE, RECORD, first("backup", "{backups}", {"tables": ["{made}"]})]

# Other nodes show a changed register half a minute later, so the asked node shows the effect on acceptors.
METHODS: dict[str, list[Step]] = {
    "cancel": [Step((7,), lambda result: result is None)],
    "ping": [Step((), lambda result: result == "pong")],
    "auth": [Step(("any",), lambda result: result == "anonymous")],
    "databases": [Step((), lambda result: {one["name"] for one in result} >= NAMES)],
    "status": [
        *(Step(({"database": name},), lambda result, name=name: result[name]["nodes"]) for name in sorted(NAMES)),
        Step(({"database": "nosuch"},), UNKNOWN),
        Step(({"local": True},), lambda result: result.keys() >= NAMES),
    ],
    "refresh": [Step(("days",), lambda result: result == {"days": ["1"]}), *of_tables()[1:], Step(("hash",), UNKNOWN),
                Step((None,), lambda result: result == {"days": ["1"]})],
    "hold": [
        Step(("days", "1"), said(hold="1")),
        at_other("status", {"database": "days"}, holds=lambda result: result["days"]["hold"] == "1"),
        first("release", "days"),
        Step(("days", "9"), "UNKNOWN_VERSION"), Step(("hash", "1"), BAD), Step(("nosuch", "1"), UNKNOWN),
    ],
    "release": [
        first("hold", "days", "1"),
        Step(("days",), said(hold=None)),
        at_other("status", {"database": "days"}, holds=lambda result: result["days"]["hold"] is None),
        Step(("hash",), BAD), Step(("nosuch",), UNKNOWN),
    ],
    "backup": [RANGE, RECORD, Step(("{backups}", {"tables": ["{made}"]}), said(records=1)),
               at_other("backup_list", "{backups}", holds=len), Step(("{backups}", {"tables": ["nosuch"]}), UNKNOWN)],
    "restore": [
        *BACKUP, Step(("{backups}", {"as": "{made}-2"}), said(records=1)),
        at_other("get", "{made}-2", b"a", holds=lambda result: result[0] == b"1"),
        Step(("{backups}",), CONFLICT), Step(("{backups}/none",), BAD),
    ],
    "backup_list": [*BACKUP, Step(("{backups}",), lambda result: len(result) == 1), Step(("{backups}/none",), lambda
                                                                                    result: result == [])],
    "backup_verify": [*BACKUP, Step(("{backups}",), said(state="done")), Step(("{backups}/none",), BAD)],
    "backup_expire": [*BACKUP, Step(("{backups}", {"keep": 1}), said(expired=[])), Step(("{backups}",), BAD)],
    "info": [Step((), lambda result: result["version"])],
    "verdict": [Step((), lambda result: result["level"]), Step(({"database": "nosuch"},), UNKNOWN),
                *(Step(({"database": name},), lambda result: result["text"]) for name in sorted(NAMES))],
    "members": [Step((), lambda result: [one["state"] for one in result] == ["alive"] * 4)],
    "children": [Step(("",), lambda result: {"databases", "nodes"} <= {*result}), Step(("nosuch",), lambda r: r == []),
                 Step(("nodes",), lambda result: len(result) == 4)],
    "entries": [Step(("nosuch",), lambda result: result == []), Step(("nodes/n1", {"all": True}), lambda _: True)],
    "create_table": [
        Step(("{made}", {"kind": "range", "replication": 2}), lambda result: len(result["table"]) == 32),
        at_other("put", "{made}", b"a", b"1", holds=lambda _: True),
        Step(("{made}", {"kind": "hash"}), CONFLICT), Step(("days", {"kind": "hash"}), CONFLICT),
        Step(("{hash}", {"kind": "hash", "partitions": 0}), BAD),
        Step(("{hash}", {"kind": "hash", "partitions": 131_073}), BAD),
        Step(("{hash}", {"kind": "hash", "partitions": 1, "replication": 1}), lambda result: result["config"]),
        Step(("n" * 256, {"kind": "hash"}), BAD),
    ],
    "drop_table": [RANGE, Step(("{made}",), lambda result: not result["before"]), *of_tables(),
                   at_other("databases", holds=lambda result: result)],
    "partition_map": [
        *(Step((kind,), lambda result: len(hosts(result)) == 2) for kind in KINDS[1:]),
        Step(("days",), said(partitions=4)), Step(("nosuch",), UNKNOWN),
    ],
    "partitions": [*(Step((kind,), lambda result: result["partitions"][0]["hosts"]) for kind in KINDS[1:]),
                   *of_tables()],
    "verify_table": [RANGE, RECORD, Step(("{made}",), said(verdict="equal")), *of_tables()],
    "split": [
        RANGE, Step(("{made}", b"m"), lambda result: len(result["partitions"]) == 2),
        at_other("partition_map", "{made}", holds=lambda result: len(result["partitions"]) == 2),
        Step(("{made}", b"m"), CONFLICT), Step(("hash", b"m"), BAD), Step(("{made}", b""), BAD),
        Step(("{made}", b"k" * 255), lambda result: len(result["partitions"]) == 2), Step(("{made}", b"k" * 256), BAD),
        *of_tables(b"m"),
    ],
    "join": [
        RANGE, RECORD, Step(("{made}", b"a", "{guest}"), said(changed=True)),
        at_other("get", "{made}", b"a", holds=lambda result: result[0] == b"1"),
        Step(("hash", b"a", "{me}"), BAD), *of_tables(b"a", "{me}"),
    ],
    "leave": [
        RANGE, RECORD, Step(("{made}", b"a", "{host}"), said(changed=True)),
        at_other("get", "{made}", b"a", holds=lambda result: result[0] == b"1"),
        Step(("hash", b"a", "{me}"), BAD), *of_tables(b"a", "{me}"),
    ],
    "force_join": [RANGE, Step(("{made}", b"a", "{me}"), CONFLICT), Step(("hash", b"a", "{me}"), CONFLICT),
                   Step(("hash", b"\xff\0\0\0", "{me}", {"shard": True}), BAD), *of_tables(b"a", "{me}")],
    "reshard": [
        SHARDS, Step(("{hash}", 2), said(changed=True)), Step(("{hash}", 0), said(changed=True)),
        Step(("{hash}", 5), BAD), Step(("range", 0), BAD), *of_tables(0),
    ],
    "plan": [Step((None,), lambda result: {one["table"] for one in result} >= NAMES - {"days"}),
             Step(("hash",), lambda result: result[0]["table"] == "hash"), *of_tables()],
    "placement_nodes": [Step((), lambda result: len(result["nodes"]) == 4)],
    "add_node": [Step(("{other}",), said(changed=False)), Step(("nosuch",), AWAY)],
    "remove_node": [Step(("{other}", {"force": True}), CONFLICT), Step(("nosuch",), BAD)],
    "replace_node": [Step(("nosuch", "{other}"), BAD)],
    "set_weight": [Step(("{other}", 1), said(changed=False)), Step(("{other}", 0), BAD),
                   Step(("{other}", 1_001), BAD), Step(("nosuch", 1), BAD)],
    "quarantine_list": [Step((), lambda result: result == []), Step(({"node": "{other}"},), lambda r: r == [])],
    "quarantine_drop": [Step(("{other}", "nosuch"), BAD), Step(("nosuch", "nosuch"), AWAY)],
    "metadata_status": [Step((None,), lambda result: len(result) >= len(NAMES)),
                        *(Step((kind,), lambda result: len(acceptors(result)) == 3) for kind in KINDS[1:]),
                        *of_tables()],
    "metadata_join": [RANGE, Step(("{made}", "{spare}"), lambda _: True), Step(("{made}", "nosuch"), AWAY),
                      Step(("{made}",), lambda result: len(acceptors(result)) == 4, "metadata_status")],
    "metadata_leave": [RANGE, Step(("{made}", "{acceptor}"), lambda _: True), Step(("{made}", "nosuch"), AWAY),
                       Step(("{made}",), lambda result: len(acceptors(result)) == 2, "metadata_status")],
    "metadata_replace": [RANGE, Step(("{made}", "{acceptor}", "{spare}"), said(replaced=True)),
                         Step(("{made}",), lambda result: len(acceptors(result)) == 3, "metadata_status")],
    "metadata_force": [RANGE, Step(("{made}", ["{me}"]), CONFLICT)],
}  # fmt: skip


def filled(value: object, names: Mapping[str, str]) -> object:
    """Return a value with the names in braces replaced."""
    match value:
        case str():
            return value.format_map(names) if "{" in value else value
        case tuple() | list():
            return type(value)(filled(part, names) for part in value)
        case dict():
            return {key: filled(part, names) for key, part in value.items()}
    return value


def differs(step: Step, ask: Callable[[], object]) -> str | None:
    """Return how an answer differs from the documented one."""
    try:
        result = ask()
    except Refused as refused:
        return None if refused.code == step.answer else str(refused)
    if isinstance(step.answer, str):
        return f"{result!r:.300}; documented is {step.answer}"
    return None if step.answer(result) else f"{result!r:.300}"
