"""MessagePack-RPC clients of other projects read from a real node: Neovim's built-in client and pynvim's."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from tests.ci.cluster.node_process import NodeProcess, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS = {b"": b"of the empty key", b"empty": b"", b"k": b"v", b"\xc3\xa9": b"\xc3\xbc", b"\xff\x01": b"\x00\xfe"}
PATIENCE_S = 60

# Each program prints one line of JSON, with every string in an answer as hexadecimal bytes.
IN_LUA = r"""
local answers = {}
local function hex(value)
    if type(value) == 'string' then
        return (value:gsub('.', function(byte) return string.format('%02x', byte:byte()) end))
    end
    if type(value) ~= 'table' then return value end
    local copy = (value[1] ~= nil or next(value) == nil) and {} or vim.empty_dict()
    for name, item in pairs(value) do copy[name] = hex(item) end
    return copy
end
local node = vim.fn.sockconnect('tcp', vim.env.NODE_ADDRESS, {rpc = true})
local function ask(...)
    local done, result = pcall(vim.rpcrequest, node, ...)
    table.insert(answers, {done, done and hex(result) or vim.NIL})
    return result
end
ask('ping')
for _, key in ipairs({'k', 'none', 'empty', '', '\195\169', '\255\1'}) do ask('get', 'geo', key) end
ask('get_many', 'geo', {'k', 'none', 'empty'})
local page = ask('scan', 'geo', {limit = 3})
ask('scan', 'geo', {limit = 3, cursor = page[2]})
ask('info')
ask('nope')
ask('get', 'nowhere', 'k')
ask('get', 'geo', 'k', {versoin = '1'})
vim.fn.rpcnotify(node, 'note', 'nobody asked')
ask('ping')
table.insert(answers, {true, hex(vim.api.nvim_eval('rpcrequest(' .. node .. ", 'get', 'geo', 'k')"))})
table.insert(answers, {true, hex(vim.api.nvim_eval('rpcrequest(' .. node .. ", 'get', 'geo', 0zc3a9)"))})
vim.fn.writefile({vim.fn.json_encode(answers)}, vim.env.ANSWERS)
"""
IN_PYTHON = r"""
import json, sys
from pynvim import msgpack_rpc

def hexadecimal(value):
    if isinstance(value, dict):
        return {hexadecimal(name): hexadecimal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [hexadecimal(item) for item in value]
    value = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return value.hex() if isinstance(value, bytes) else value

host, _, port = sys.argv[1].rpartition(":")
node = msgpack_rpc.tcp_session(host, int(port))
answers = []

def ask(*asked):
    try:
        result = node.request(*asked)
    except Exception as error:
        answers.append([False, str(error)])
    else:
        answers.append([True, hexadecimal(result)])
        return result

ask("ping")
for key in ("k", "none", b"empty", "", "\u00e9", b"\xff\x01"):
    ask("get", "geo", key)
ask("get_many", "geo", ["k", b"none", "empty"])
page = ask("scan", "geo", {"limit": 3})
ask("scan", "geo", {"limit": 3, "cursor": page[1]})
ask("info")
ask("nope")
ask("get", "nowhere", "k")
ask("get", "geo", "k", {"versoin": "1"})
node.request("note", "nobody asked", async_=True)
ask("ping")
node.close()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve RECORDS from a node and return its address."""
    place = tmp_path_factory.mktemp("foreign")
    version = place / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0.tsv").write_bytes(b"".join(b"%s\t%s\n" % record for record in RECORDS.items()))
    with NodeProcess(place, source=place / "source") as node:
        node.ready()
        wait_for(node.address, "geo", "1")
        yield node.address


def pair(value: bytes | None) -> list[object]:
    """Return the answer of `get` as the clients print it."""
    return [True, [None if value is None else value.hex(), b"1".hex()]]


def check_reads(answers: list[list[object]]) -> None:
    """Check the first ten answers: a ping, reads and two pages of a scan."""
    pong, *reads, many, first, second = answers[:10]
    assert pong == [True, b"pong".hex()]
    assert reads == [pair(RECORDS.get(key)) for key in (b"k", b"none", b"empty", b"", b"\xc3\xa9", b"\xff\x01")]
    assert many == [True, [[b"v".hex(), None, ""], b"1".hex()]]
    records, cursor, _ = first[1]
    following, nothing, version = second[1]
    assert records + following == [[key.hex(), RECORDS[key].hex()] for key in sorted(RECORDS)]
    assert (len(records), bool(cursor), nothing, bytes.fromhex(version)) == (3, True, None, b"1")


def notifications(address: str) -> int:
    with blocking.connect(address, timeout_ms=1000 * PATIENCE_S) as client:
        return client.info()["counters"]["notifications_ignored"]


@pytest.mark.skipif(shutil.which("nvim") is None, reason="neovim is not installed")
def test_neovim_reads_from_a_node(address: str, tmp_path: Path) -> None:
    """The built-in client reads present and absent keys, errors and a notification, from Lua and from Vimscript."""
    script, answered = tmp_path / "client.lua", tmp_path / "answers.json"
    script.write_text(IN_LUA)
    before = notifications(address)
    places = {f"XDG_{kind}_HOME": str(tmp_path) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    process = subprocess.run(
        ["nvim", "--headless", "--clean", "-n", "-i", "NONE", "-c", f"luafile {script}", "-c", "qa!"],
        env={**os.environ, **places, "HOME": str(tmp_path), "NODE_ADDRESS": address, "ANSWERS": str(answered)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert answered.exists(), process.stderr
    answers = json.loads(answered.read_text())
    check_reads(answers)
    (done, info), *refused = answers[10:14]
    assert done
    assert bytes.fromhex(info["name"]) == b"gossipkv"
    assert [done for done, _ in refused] == [False, False, False]
    assert answers[14:] == [[True, b"pong".hex()], pair(b"v"), pair(RECORDS[b"\xc3\xa9"])]
    assert notifications(address) == before + 1


@pytest.mark.skipif(importlib.util.find_spec("pynvim") is None, reason="pynvim is not installed")
def test_pynvim_reads_from_a_node(address: str) -> None:
    """The client reads values and errors; its notifications at the connection are ignored and counted."""
    before = notifications(address)
    process = subprocess.run(
        [sys.executable, "-c", IN_PYTHON, address],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    answers = json.loads(process.stdout)
    check_reads(answers)
    (done, info), *refused = answers[10:14]
    assert done
    assert bytes.fromhex(info[b"name".hex()]) == b"gossipkv"
    assert refused == [
        [False, "this node has no method nope"],
        [False, "no database nowhere here"],
        [False, "get: unknown option versoin; did you mean version?"],
    ]
    assert answers[14:] == [[True, b"pong".hex()]]
    assert notifications(address) == before + 2
