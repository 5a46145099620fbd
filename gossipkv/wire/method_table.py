"""The methods that clients and operators may call, for docs/reference/methods.md, which `make reference` writes.

The handlers check parameters themselves; tests compare names, options and fields of answers here with a real node.
`gossipkv.access.rights` has the right that each method needs, and the methods between nodes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class WireMethod(NamedTuple):
    """One method as shown to people; option names are words separated by spaces."""

    name: str
    parameters: str
    option_names: str
    effect: str
    result: str
    errors: str = ""  # Codes with the reasons, separated by semicolons.

    @property
    def options(self) -> tuple[str, ...]:
        """Return the names of its options."""
        return tuple(self.option_names.split())


class WireOption(NamedTuple):
    """Options of one meaning: their names, separated by commas, and their type, perhaps with a default."""

    names: str
    kind: str
    meaning: str


# fmt: off

METHODS: Final[Mapping[str, tuple[WireMethod, ...]]] = MappingProxyType({
    "Connections": (
        WireMethod("ping", "", "", "Test if the node answers.", '`"pong"`'),
        WireMethod(
            "auth", "token", "",
            "Set the [user](../operators/security.md#users) of this connection; later requests wait for it. A node "
            "without users accepts any token.",
            "the user's name",
            "UNAUTHORIZED: the token is invalid, and nothing changed. From the sixth failure of one address on, "
            "each takes a second",
        ),
        WireMethod(
            "cancel", "request id", "",
            "End the wait of an earlier request of this connection, which is answered at once, with UNKNOWN: a write "
            "that has begun goes on. If no request of that id waits, nothing is done.",
            "nil",
        ),
    ),
    "Read records": (
        WireMethod(
            "get", "database, key", "version min_version timeout_ms local explain token wait_ms config",
            "Read one value.",
            '`[value or nil, version]`, with `explain` `[value or nil, version, {"node": name}]`. A table returns '
            "its token in place of the version",
            "NOT_READY; UNKNOWN_VERSION; TIMEOUT; NOT_SERVED: with `local`, the partition is not on this node",
        ),
        WireMethod(
            "get_many", "database, [key, …]", "version min_version timeout_ms local token wait_ms config",
            "Read several values. Those of a dataset are all of one version; those of a table may be of different "
            "moments.",
            "`[[value or nil, …], version]`, in the order of the keys",
            "as `get`; TOO_LARGE: the answer exceeds `max_frame`",
        ),
        WireMethod(
            "scan", "database",
            "version min_version timeout_ms local start end prefix reverse limit cursor token wait_ms config partial",
            "Read a page of records in key order. A page has at most 1 MiB of keys and values, but at least one "
            "record. It may be shorter than `limit`. With `partial`, for tables, it leaves out partitions that cannot "
            "be read.",
            "`[[[key, value], …], cursor or nil, version]`. Only a nil cursor ends the scan. Any node accepts the "
            "cursor. With `partial`, a fourth element: `[[{shard} or {start, end}, reason], …]` left out here",
            "as `get`; UNKNOWN_VERSION: the version was retired between two pages; OVERLOADED or UNAVAILABLE: "
            "owners of partitions fail",
        ),
    ),
    "Follow changes of tables": (
        WireMethod(
            "changes", "table", "token prefix start limit wait_ms",
            "[Follow the changes](../users/tables.md#follow-changes) of a table: those after `token`; without a token, "
            "begin now, or with `start` = `snapshot` with all present records. A poll without changes waits for "
            "`wait_ms`. Call again with the returned token. With `limit` = 0 the answer is only the token of the "
            "beginning.",
            "`[[[key, value or nil, expires_at or nil], …], token]`. Any node accepts the token",
            "TOO_OLD: the nodes do not keep the changes since that token any more, its key was removed from their key "
            "ring, or the table was dropped and made "
            "again; OVERLOADED: as many feeds wait on this node as `max_feeds` allows, or half of `max_in_flight` on "
            "the connection; UNAVAILABLE: a partition has too few replicas, or the node is about to end; BAD_REQUEST: "
            "the token is empty, damaged, or of another prefix",
        ),
    ),
    "Write records of tables": (
        WireMethod(
            "put", "table, key, value", "level smear ttl_ms expires_at token wait_ms config timeout_ms",
            "Write a record.",
            'a token; for a smeared put the map `{"accepted": true}`',
            "UNKNOWN: the write may be applied on some replicas; UNAVAILABLE: too few replicas; BAD_REQUEST: the "
            "name is a dataset",
        ),
        WireMethod(
            "delete", "table, key", "level smear token wait_ms config timeout_ms", "Delete a record.",
            "a token, even if the key was absent", "as `put`",
        ),
        WireMethod(
            "put_many", "table, [[key, value], …]", "level smear ttl_ms expires_at token wait_ms config timeout_ms",
            "Write several records. This is not atomic. A row may have its own `expires_at` behind the value.",
            "a token",
            "as `put`",
        ),
        WireMethod(
            "delete_many", "table, [key, …]", "level smear token wait_ms config timeout_ms",
            "Delete several records. This is not atomic.", "a token, even if keys were absent", "as `put`",
        ),
        WireMethod(
            "delete_range", "table, {start, end, prefix}", "level cursor token wait_ms config timeout_ms",
            "Delete a page of some thousand records with `start` <= key < `end` and `prefix`, within half of "
            "`timeout_ms`. Repeat with the cursor until it is nil.",
            "`[deleted, cursor or nil, token]`; `deleted` counts records that existed",
            "UNKNOWN: its details have `deleted` and `cursor`; BAD_REQUEST: no bounds, or a cursor of other bounds",
        ),
    ),
    "Datasets and versions": (
        WireMethod("databases", "", "", "List datasets and tables.", "a list of [maps](#fields-of-databases), by name"),
        WireMethod(
            "status", "", "local database bitmaps",
            "Show versions and their owners, of all datasets and tables or of `database`. `local`: only this node's "
            "part. `bitmaps`: all nodes are named, and a set of partitions is a `count` and a `bitmap` (bit p & 7 "
            "of byte p >> 3 is partition p) instead of `runs`.",
            "a map of databases to [maps](#fields-of-status)",
            "UNKNOWN_DATABASE",
        ),
        WireMethod(
            "refresh", "database or nil", "", "Look at the source now. Builds follow later.",
            "a map of databases to the versions seen", "NOT_READY: the node is `silent`",
        ),
        WireMethod(
            "hold", "database, version", "local",
            "Serve this version on all nodes until it is "
            "[released](../operators/life-of-a-version.md#holding-a-version-the-way-back-from-a-bad-one). `local`: "
            "only on the asked node.",
            "a map: `database`, `hold` (the version held here now, or nil), `before`",
            "UNKNOWN_VERSION: neither a node nor the source has it; CONFLICT: the settings file of the asked node "
            "holds another; NOT_READY: the node is `silent`",
        ),
        WireMethod("release", "database", "local", "End a hold.", "as `hold`", "NOT_READY: the node is `silent`"),
    ),
    "Backups of tables": (
        WireMethod(
            "backup", "destination", "tables since take_over partial operation wait_ms cancel",
            "[Back up](../operators/backups.md) `tables`, or all, to a directory of the node or a URL; with `since`, "
            "only the changes after that backup; with `partial`, without partitions that cannot be copied.",
            "a map: `state` (`done`), `backup`, `began`, `cluster`, `node`, `since`, `tables`, `records`, `bytes`, "
            "`new_bytes`, `missing` (tables to lists of `{shard}` or `{start, end}`); or the "
            "[progress](#options-of-backups)",
            "UNAVAILABLE: a partition has too few replicas, or the destination refuses; CONFLICT: the destination "
            "is another cluster's; OVERLOADED: too many backups and restores run here",
        ),
        WireMethod(
            "restore", "destination or one of its backups", "tables as operation wait_ms cancel",
            "Load `tables` of a backup, or all, into the cluster; `as` is another name for the only table.",
            "a map: `state` (`done`), `backup`, `tables` (new names to old ones), `records`, `bytes`, `holds` "
            "(datasets to nil, or to the reason why they are not held), `fewer` (tables with fewer replicas than "
            "wanted, to maps of `wanted`, `replicas`, `left_out`); or the progress",
            "CONFLICT: a table or a dataset has the name; CORRUPT: a file is damaged; others as `backup`",
        ),
        WireMethod(
            "backup_list", "destination", "", "List the complete and the damaged backups, the oldest first.",
            "a list of maps with the fields of `backup`, except `state` and `records`; of a damaged one `backup` and "
            "`damaged`, the reason", "UNAVAILABLE",
        ),
        WireMethod(
            "backup_verify", "destination or one of its backups", "newest operation wait_ms cancel",
            "Read every byte of a backup, or of all.",
            "a map: `state` (`done`), `backups`, `damaged` (backups to the reasons), `files`, `bytes`; or the progress",
            "UNAVAILABLE",
        ),
        WireMethod(
            "backup_expire", "destination", "backups keep take_over",
            "Remove `backups`, or all but the newest `keep`. Files that other backups share stay.",
            "a map: `expired`, `bytes`, `damaged` (backups that cannot be read; what they may need stays)",
            "UNAVAILABLE; CONFLICT: the destination is another cluster's",
        ),
    ),
    "State of nodes": (
        WireMethod("info", "", "", "Show the state and the counters of the asked node.", "a [map](#fields-of-info)"),
        WireMethod(
            "verdict", "", "database last",
            "Judge the overall health, or that of `database`. The node asks all members, for at most a second. "
            "`last`: the latest verdict, if it is at most ten seconds old.",
            "a [map](#fields-of-a-verdict)", "UNKNOWN_DATABASE",
        ),
        WireMethod(
            "members", "", "", "List the members of the cluster.",
            "a list of maps, by name: `node`, `address`, `state` (`alive`, `suspect`, `dead`, `left`, or `silent` "
            "for a node that hides itself), `epoch`, `incarnation`, `claimed_twice` (two nodes have this name), "
            "`protocol` (the oldest and the newest version that it announces), `misfit` (nil, or why it shares no "
            "protocol version with the asked node); then addresses that are no members, of the state `misfit`",
        ),
        WireMethod(
            "children", "path", "all",
            "List the names below a path of the [tree](../operators/gossip.md#the-tree) that live nodes publish. "
            "`all`: those of all nodes.",
            "a sorted list of names",
        ),
        WireMethod(
            "entries", "path", "all", "List the entries below a path; `all` as in `children`.",
            "a list of maps, by name and owner: `name`, `owner`, `value`, `age_s` (since the owner was last heard), "
            "`state` (of the owner)",
        ),
    ),
    "Tables and partitions": (
        WireMethod(
            "create_table", "table",
            "kind partitions partitioner replication bounds time_key smear ttl_ms retention_ms operation timeout_ms",
            "Create a table.",
            "a map: `table` (its id, 32 hexadecimal digits, never used again), `config`, `replication` (the wanted "
            "replicas), `replicas` (of each partition), `partition_count`, `left_out` (members without a replica)",
            "CONFLICT: a table or a known dataset has that name, or the operation id was used for another request; "
            "UNAVAILABLE: the time is over, and nothing was done; UNKNOWN: the time is over, and the table may "
            "appear",
        ),
        WireMethod(
            "drop_table", "table", "table operation timeout_ms",
            "Drop a table with its records. With its id in the option `table`, a newer table of that name is safe.",
            "a map: `table`, `config`, `before` (true: another request dropped it)",
            "as `create_table`; UNKNOWN_DATABASE",
        ),
        WireMethod(
            "partition_map", "database", "start limit", "Return the map by which a client finds the owner of a key.",
            "a [map](#fields-of-a-partition-map)", "UNKNOWN_DATABASE; NOT_READY: the map is not here yet",
        ),
        WireMethod(
            "partitions", "table", "start limit", "List partitions with size and load: at most 512 from `start` on.",
            "a map: `table`, `kind`, `partitions`, `next` (the next `start`, or nil). A partition has `id`, "
            "`start`, `end` (nil for a shard and for the last range), `hosts` (maps of `node`, `slot`, `state`), "
            "and, nil if no host tells, `bytes` and `rows` of the largest replica and `rate` (requests a second at "
            "all hosts)",
            "UNKNOWN_DATABASE",
        ),
        WireMethod(
            "verify_table", "table", "start timeout_ms",
            "Compare the live records of all replicas of the first partition from `start` on. A busy partition is "
            "tried again until `timeout_ms` (10 s).",
            "a map: `partition`, `verdict` (`equal`, `different`, `not compared`), `why`, `copies` (maps of `node` "
            "with `records` and `digest`, or `error`), `next` (the next `start`, or nil)",
            "UNKNOWN_DATABASE",
        ),
        WireMethod(
            "split", "table, key", "timeout_ms", "Divide the range of the key. The second half begins at the key.",
            "a map: `table`, `partition` (the former id), `partitions` (two maps of `id`, `start`)",
            "CONFLICT: the range moves, or too many former assignments are unsettled, or a range begins there "
            "already (`details` is the map, with `partition` nil); BAD_REQUEST: a hash table, or a key that is "
            "empty or over 255 bytes",
        ),
        WireMethod(
            "join", "table, key, node", "timeout_ms", "Move a slot of the key's range to the node.",
            "a map: `table`, `partition`, `slot`, `from` (or nil), `to`, `changed` (false: done before, or under "
            "way)",
            "CONFLICT: another slot of the range moves; UNAVAILABLE: the node is down; BAD_REQUEST: a hash table, "
            "or a node without tables",
        ),
        WireMethod(
            "leave", "table, key, node", "timeout_ms",
            "Move the node's slot to a node of GossipKV's choice, or call back a move to the node.", "as `join`",
            "CONFLICT: another slot moves, there is no other node, or the node has no slot (`details` is the map, "
            "with `slot` and `to` nil)",
        ),
        WireMethod(
            "force_join", "table, key, node", "copy shard timeout_ms",
            "[Re-create the range or shard](../operators/placement.md#table-force-join) of the key at the node after "
            "all hosts are lost for good. `shard`: the key is a shard's number, 4 bytes as in `partitions`. "
            "`copy` names a quarantined replica there; empty: start empty; absent: the only replica "
            "there, or empty.",
            "a map: `table`, `partition` (new id), `node`, `copy` (or nil), `bytes`, `may_be_lost` (a text), "
            "`changed`",
            "CONFLICT: a host may be alive, or the replica is ambiguous; BAD_REQUEST: an unknown shard or "
            "replica, or a node that is down, removed, or in another group than the shard",
        ),
        WireMethod(
            "reshard", "table, groups", "timeout_ms",
            "Divide the nodes into groups, and put shard s on the nodes of group s modulo their number. 0: no "
            "groups.",
            "a map: `table`, `changed`, `groups` (lists of names)",
            "BAD_REQUEST: a group would have fewer nodes than replicas, or fewer than two",
        ),
        WireMethod(
            "plan", "table or nil", "local",
            "List moves that are planned and have not begun. It changes nothing. The node that starts the moves of "
            "a range table answers, unless `local` is true.",
            "a list of [maps](#fields-of-a-plan), one for each table", "UNKNOWN_DATABASE",
        ),
    ),
    "Nodes of tables": (
        WireMethod(
            "placement_nodes", "", "", "List the nodes of tables. It changes nothing.",
            "a map: `nodes` (maps of `node`, `uuid`, `member`, `isolation_group`, `weight`, `alive`) and "
            "`waits_for` (nodes of weight 0 that are down and still have partitions). Weight 0: holds nothing; nil: "
            "gone for good",
        ),
        WireMethod(
            "add_node", "node", "isolation_group weight timeout_ms",
            "Place partitions on the member. Defaults are the node's own settings, or its present values.",
            "as `placement_nodes`, with `node` and `changed` (false: nothing to do)",
            "UNAVAILABLE: the node is no live member",
        ),
        WireMethod(
            "remove_node", "node", "force timeout_ms",
            "Move all partitions off the node, and let other nodes decide in its place. `force`: it is gone for good.",
            "as `add_node`, with `decides_on` (the registers of which the node is an acceptor after ten seconds)",
            "CONFLICT: too few nodes remain, or `force` names a live node",
        ),
        WireMethod(
            "replace_node", "old node, new node", "force isolation_group weight timeout_ms",
            "Give the old node's place and weight to the new one. `force`: the old one is gone for good.",
            "as `add_node`", "as `remove_node`",
        ),
        WireMethod("set_weight", "node, weight", "timeout_ms", "Change the node's share: 1 to 1,000.", "as `add_node`"),
        WireMethod(
            "quarantine_list", "", "node", "List quarantined replicas of one or all live nodes.",
            "a list of maps: `node`, `copy` (its name there), `table` (name, or the id of a dropped table), "
            "`partition`, `assignment`, `bytes` (nil: unreadable), `why`; for a node that does not answer `node` "
            "and `error`",
        ),
        WireMethod(
            "quarantine_drop", "node, copy", "", "Delete a quarantined replica for good.", "a map: `node`, `copy`",
        ),
    ),
    "Acceptors": (
        WireMethod(
            "metadata_status", "table or nil", "timeout_ms",
            "Show the registers: the table's, or for nil all. After `timeout_ms` (4 s) the answer is the asked "
            "node's knowledge.",
            "a list of [maps](#fields-of-a-register)", "UNKNOWN_DATABASE",
        ),
        WireMethod(
            "metadata_join", "table or nil, node", "",
            "Add an acceptor to a register; nil: the catalogue. It is idempotent.", "the register",
            "UNAVAILABLE: too few acceptors answer",
        ),
        WireMethod(
            "metadata_leave", "table or nil, node", "", "Remove an acceptor. It is idempotent.", "the register",
            "BAD_REQUEST: it is the last one",
        ),
        WireMethod(
            "metadata_replace", "table or nil, old node, new node", "",
            "Replace an acceptor. Twice the same name: renew one with a new store.",
            "a map: `table`, `replaced`, `nodes` (the acceptors)",
            "UNAVAILABLE; an error with `register` in its details concerns that register alone",
        ),
        WireMethod(
            "metadata_force", "table or nil, [node, …]", "",
            "Make the named nodes the only acceptors after a majority is lost for good.",
            "the register, and `lost` (the possible loss)",
            "CONFLICT: a majority of the old ones answers, or a named node does not",
        ),
    ),
})

OPTIONS: Final[Mapping[str, tuple[WireOption, ...]]] = MappingProxyType({
    "Options of reads": (
        WireOption("version", "string", "exactly this version of a dataset"),
        WireOption(
            "min_version", "string",
            "the active version if it is this or newer (versions compare as strings), else the oldest newer one "
            "that is readable here or active elsewhere",
        ),
        WireOption(
            "timeout_ms", "integer", "time allowed, at most 2^40; 1 s by default, or `proxy_timeout` if that is longer",
        ),
        WireOption("local", "boolean", "ask no other node"),
        WireOption(
            "explain", "boolean",
            "name the node that answered, and tell the `expires_at` of a table's record that expires",
        ),
        WireOption(
            "start, end", "bytes", "first key, and the key before which to stop; in key order also for a reverse scan",
        ),
        WireOption("prefix", "bytes", "only keys that begin with it"),
        WireOption("reverse", "boolean", "last key first"),
        WireOption("limit", "integer", "records in this answer, at most `scan_limit`"),
        WireOption("cursor", "bytes", "continue behind the answer with this cursor; repeat the other options"),
    ),
    "Options of tables": (
        WireOption(
            "level", "string", "replicas that have the write before the answer: `one`, `majority` (default), `all`",
        ),
        WireOption(
            "token", "bytes",
            "from an earlier answer: continue its [session](../users/tables.md#sessions). Tokens of concurrent "
            "answers may be concatenated",
        ),
        WireOption(
            "wait_ms", "integer",
            "time for a replica to catch up with the session before the next one is asked; 0 by default. Then "
            "NOT_READY, with `waits_for` in its details: `records`, or a newer `map`",
        ),
        WireOption(
            "smear", "boolean",
            "a `put` to a table with a [time key](../users/tables.md#time-series) may be "
            "[smeared](../users/tables.md#smeared-puts); true by default. A put with `level` or `token` is never "
            "smeared",
        ),
        WireOption(
            "ttl_ms", "0 to 2^42",
            "the record [expires](../users/tables.md#records-that-expire) so many milliseconds after the write; 0: "
            "never. By default as the table says",
        ),
        WireOption("expires_at", "integer", "the record expires at this time, in milliseconds since 1970"),
        WireOption(
            "config", "integer",
            "config id of the client's [map](#fields-of-a-partition-map). STALE_CONFIG if the key's partition, or "
            "for a scan any, has changed since. A node with an older map looks for the newer one for `wait_ms`",
        ),
    ),
    "Options of backups": (
        WireOption("tables", "list of strings", "names of tables; all by default"),
        WireOption("since", "string", "an earlier backup of the same destination"),
        WireOption("take_over", "bool", "true: the destination becomes this cluster's"),
        WireOption("newest", "bool", "true: only the newest backup"),
        WireOption(
            "operation", "20 random bytes",
            "the id of this operation: repeat the request to hear of its progress. Without requests for 30 seconds, "
            "the operation is cancelled",
        ),
        WireOption(
            "wait_ms", "integer",
            "answer after this time even if the operation goes on: a map of `state` (`running`), `table`, `done` and "
            "`total` (partitions or files), `records`, `bytes`. Without limit by default",
        ),
        WireOption("cancel", "boolean", "end the operation, and remove what it has written"),
    ),
    "Options of create_table": (
        WireOption("kind", "`hash` or `range`", "how keys are partitioned"),
        WireOption("partitions", "1 to 131,072; 64", "of a hash table; a range table has one more than bounds"),
        WireOption(
            "partitioner", "`murmur3` or `sha1`; `murmur3`",
            "of a hash table: the shard is the key's hash modulo `partitions`; a `sha1` digest counts as a "
            "big-endian number",
        ),
        WireOption("replication", "1 to 9; three, or the number of members", "replicas of each partition"),
        WireOption(
            "bounds", "list of bytes",
            "of a range table: the starts of all partitions but the first; at most 10,000 ascending keys of 1 to "
            "255 bytes",
        ),
        WireOption(
            "time_key", "`[offset, width, unit]`",
            "of a range table: where each key has its [time](../users/tables.md#time-series); fixed for good. The "
            "time is an unsigned big-endian number of 1 to 8 bytes in `s`, `ms`, `us` or `ns`, or 10, 13, 16 or 19 "
            "characters of ISO 8601 in `iso`",
        ),
        WireOption("smear", "boolean; true with a time key", "puts may be smeared; never without a time key"),
        WireOption("ttl_ms", "0 to 2^42; 0", "lifetime of records whose put names none; 0: endless"),
        WireOption("retention_ms", "0 to 2^42; 0", "with a time key: ranges of older times are dropped; 0: never"),
        WireOption(
            "operation", "20 bytes", "random id of the request: a repeated request gets the outcome of the first one",
        ),
        WireOption("timeout_ms", "1 to 60,000; 10,000", "time allowed, also for other methods that change tables"),
    ),
})
# fmt: on
