"""The command as a process: pipes, signals, terminals, and its imports."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.ports import HOST, quiet_ports
from tests.unit.cli.asked_node import AskedNode
from tests.unit.client.fake_node import Connection, FakeNode, store

COMMAND = [sys.executable, "-m", "gossipkv"]
MANY = {f"key{number:06}".encode(): b"x" * 100 for number in range(20_000)}


def environment(node: FakeNode | None = None, **more: str) -> dict[str, str]:
    return {**os.environ, **({"GOSSIPKV_NODE": node.address} if node else {}), **more}


def test_a_reader_that_goes_away_is_no_error():
    """`gossipkv scan | head` gives status 141 and nothing on standard error."""
    with FakeNode(store(MANY, page=2000)) as node:
        process = subprocess.Popen(
            [*COMMAND, "scan", "geo", "--timeout", "60s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(node),
        )
        assert process.stdout.readline() == b"key000000\t" + b"x" * 100 + b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(60) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_is_an_error():
    with FakeNode(store(MANY, page=2000)) as node, open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "scan", "geo", "--timeout", "60s"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(node),
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == b"gossipkv: No space left on device\n"


def test_an_interrupt_is_status_130():
    """Ctrl-C leaves no traceback."""
    with FakeNode(Connection.ignore) as node:
        process = subprocess.Popen(
            [*COMMAND, "get", "geo", "k", "--timeout", "60s"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(node),
        )  # fmt: skip
        while not node.accepted:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


INTERRUPT_AMID = """
import os, runpy, signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.argv[0] = "/usr/bin/gossipkv"
sys.meta_path.insert(0, Interrupt)
runpy.run_module("gossipkv", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module",
    [
        "gossipkv.errors",
        "typing",
        "gossipkv.unbuilt",
        "gossipkv.garbage",
        "gossipkv.cli",
        "click",
        "gossipkv.cli.reads",
        "gossipkv.client.blocking",
    ],
)
def test_an_interrupt_while_modules_load(module):
    """Ctrl-C during any import gives status 130 and no output."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AMID, module, "get", "geo", "k"], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_nothing_is_loaded_before_an_interrupt_is_looked_after():
    """Ctrl-C during any earlier import would end in a traceback."""
    program = [sys.executable, "-S", "-X", "importtime", "-c", "import os, gossipkv"]
    done = subprocess.run(program, capture_output=True, check=True, timeout=60)
    loaded = [line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()]
    assert loaded[loaded.index(b"os") + 1] == b"gossipkv.interrupt"


INTERRUPT_A_DESTRUCTOR = """
import signal, time
from gossipkv import interrupt

class Connection:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

interrupt.repeat_dropped()
try:
    Connection()
    while True:
        time.sleep(0.01)  # A signal just before one sleep is handled after it.
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_in_a_destructor_is_not_lost():
    """Python drops exceptions of destructors: `cluster up` then went on after Ctrl-C."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT_A_DESTRUCTOR], capture_output=True, timeout=60, check=False, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


WAYS = ["{0}>&-", "{0}>/dev/full", "{0}</dev/null"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 3, b"gossipkv 0"),
        (["--help"], 3, b"Usage: "),
        (["config"], 3, b"setting "),
        (["nosuch"], 2, b""),
    ],
)
def test_streams_that_take_nothing(way, arguments, status, said):
    """A command with output fails in one line without standard output, and succeeds without standard error.

    The stream is closed, full, or read-only: there is no traceback and no status of Python's own.
    """
    for descriptors, expected, kept in [
        ("1", status, "stderr"),
        ("2", 2 if status == 2 else 0, "stdout"),
        ("12", status, ""),
    ]:
        redirected = " ".join(way.format(one) for one in descriptors)
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {redirected}', "sh", *COMMAND, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == expected, (descriptors, done)
        if kept == "stderr":
            assert done.stderr.startswith(b"gossipkv: ")
            assert done.stderr.count(b"\n") == 1
        elif kept == "stdout":
            assert done.stdout.startswith(said)


@pytest.mark.parametrize("way", WAYS)
def test_a_node_without_standard_streams(tmp_path, way):
    """The node serves, and no log line lands in a file that it opened under a standard descriptor."""
    address = f"{HOST}:{quiet_ports(1)[0]}"
    serve = [*COMMAND, "serve", "--data", str(tmp_path), "--listen", address]
    redirected = " ".join(way.format(one) for one in "012")
    with subprocess.Popen(["sh", "-c", f'exec "$@" {redirected}', "sh", *serve]) as node:
        try:
            ping = [*COMMAND, "ping", "--node", address, "--timeout", "60s"]
            while subprocess.run(ping, capture_output=True, check=False).returncode != 0:
                assert node.poll() is None
            node.send_signal(signal.SIGTERM)
            assert node.wait(60) == 0
        finally:
            node.kill()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"[info" in path.read_bytes()]


@pytest.mark.parametrize("variables", [
    {"PYTHONIOENCODING": "iso8859-1"}, {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "xx_XX"},
])  # fmt: skip
def test_text_that_a_terminal_does_not_know(variables):
    """A replacement character stands for each such letter."""
    for arguments, status in (
        (["nosuch-\u20ac"], 2),
        (["get", "geo", "k", "--node", "127.0.0.1:1", "--timeout", "1s"], 3),
    ):
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, env=environment(**variables), timeout=60, check=False
        )
        assert done.returncode == status
        assert done.stderr.startswith(b"gossipkv: ")
        assert done.stderr.count(b"\n") == 1
    with AskedNode(status=lambda *_: STATUS, info=dict, verdict=lambda *_: {}, members=list) as node:
        done = subprocess.run(
            [*COMMAND, "status", "--timeout", "60s"],
            capture_output=True, env=environment(node, **variables), timeout=60, check=False,
        )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert b"1" in done.stdout


STATUS = {"g\u20ac\u00f6": {"kind": "dataset", "active": "1", "versions": {"1": {"state": "ACTIVE"}}}}


def test_keys_may_be_any_bytes():
    """A key that is not UTF-8 goes to the node and back unchanged."""
    with FakeNode(store({b"\xff\xfe": b"\x00\x80"})) as node:
        done = subprocess.run(
            [*COMMAND, "get", "geo", b"\xff\xfe", "--timeout", "60s"],
            capture_output=True,
            env=environment(node, LC_ALL="C"),
            check=True,
            timeout=60,
        )
    assert done.stdout == b"\x00\x80"


HEAVY = {
    "trio", "tomllib", "asyncio", "pyarrow", "fsspec", "prometheus_client", "h11", "jinja2", "cryptography", "numpy",
    "gossipkv.settings.config", "gossipkv.storage", "gossipkv.node", "gossipkv.dataset", "gossipkv.http",
    "gossipkv.loadtest", "gossipkv.launcher",
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "module", "more"), [
    (["get", "geo", "k", "--timeout", "60s"], "gossipkv.cli.reads", {"rich"}),
    (["--help"], "gossipkv.cli", {"rich", "gossipkv.client", "msgpack"}),
    (["status", "--timeout", "60s"], "gossipkv.cli.status", set()),
])  # fmt: skip
def test_a_command_loads_what_it_needs(arguments, module, more):
    """Commands on the common paths load no Trio, settings, node or storage; this bounds their CPU time."""
    program = (
        "import sys\nfrom gossipkv import cli\nstatus = cli.run(sys.argv[1:])\n"
        "print('', status, *sorted(sys.modules), sep='\\n')"
    )
    told = {"geo": {"kind": "dataset", "active": "1", "versions": {"1": {"state": "ACTIVE"}}}}
    methods = {
        "status": lambda *_: told,
        "info": dict,
        "verdict": lambda *_: {},
        "members": list,
        "get": lambda *_: [b"v", "1"],
    }
    with AskedNode(**methods) as node:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True, text=True, env=environment(node), check=True, timeout=60,
        )  # fmt: skip
    _, _, modules = done.stdout.partition("\n0\n")
    assert module in modules.split()
    assert not (HEAVY | more) & {*modules.split()}


# Packages, then our own rooms, that a node without tables, gateway or remote source does not need.
NOT_SERVED_WITH = {
    "rich", "pygments", "asyncio", "jinja2", "prometheus_client", "h11", "fsspec", "pyarrow", "cryptography", "cramjam",
    "isal", "backports.zstd",
    "gossipkv.client", "gossipkv.cli.screen", "gossipkv.cli.options", "tests.world", "gossipkv.launcher",
    "gossipkv.dataset.build.steps", "gossipkv.dataset.build.build_child", "gossipkv.dataset.formats.detect",
    "gossipkv.http.gateway", "gossipkv.http.page",
}  # fmt: skip


def test_a_node_loads_what_it_serves_with(tmp_path):
    """`gossipkv serve` loads nothing that draws, builds, or is for HTTP; all else before it is ready."""
    version = tmp_path / "source" / "geo" / "1"
    version.mkdir(parents=True)
    (version / "part-0").write_bytes(b"paris\tFrance\n")
    serve = ["serve", "--source", str(tmp_path / "source"), "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with open(tmp_path / "told", "w+b") as told:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "gossipkv", *serve], stdout=subprocess.PIPE, stderr=told
        )
        assert process.stdout.readline().startswith(b"ready ")
        process.kill()
        process.communicate(timeout=60)
        told.seek(0)
        lines = [line.decode() for line in told if line.startswith(b"import time:")]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert {"trio", "click", "gossipkv.node.wiring", "gossipkv.dataset.build.parent"} <= loaded
    assert not NOT_SERVED_WITH & {".".join(name.split(".")[:end]) for name in loaded for end in range(1, 6)}


@pytest.mark.parametrize(("loading", "told"), [("__main__", "False True True"), ("cli", "True True False")])
def test_no_garbage_is_collected_while_a_command_loads(loading, told):
    """Collection is off until the command begins, and loaded modules are frozen."""
    program = (
        f"import gc\nfrom gossipkv import {loading}\nbefore = gc.isenabled()\nfrom gossipkv import cli\n"
        "cli.run(['ping', '--node', '127.0.0.1:1', '--timeout', '1ms'])\n"
        "print(before, gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == told


def plain_environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}} | more


def on_a_terminal(arguments: list[str], **environ: str) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=follower, stderr=follower, env=plain_environment(**environ)
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 65_536)
            except OSError:  # Linux signals in this way that the other end is closed.
                break
            if not part:
                break
            shown += part
        os.close(leader)
        assert process.wait(60) == 0
    return shown.decode()


def test_colours_are_for_terminals_that_want_them():
    """A terminal gets colours, unless NO_COLOR is set, and a line feed after a value."""
    coloured = on_a_terminal(["config"], TERM="xterm-256color")
    plain = on_a_terminal(["config"], TERM="xterm-256color", NO_COLOR="1")
    assert "\x1b[36m" in coloured
    assert "\x1b[36m" not in plain
    with FakeNode(store({b"k": b"v"})) as node:
        assert on_a_terminal(["get", "geo", "k", "--node", node.address, "--timeout", "60s"]) == "v\r\n"
