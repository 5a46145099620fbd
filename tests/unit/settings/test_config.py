"""Settings have units, sources in a fixed order, and clear errors."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import Address, parse_address
from gossipkv.errors import ConfigError
from gossipkv.settings import quantity
from gossipkv.settings.config import SETTINGS, Config, load
from gossipkv.settings.node_variables import APART

UNITS = {"duration": quantity.DURATION, "size": quantity.SIZE, "rate": quantity.RATE}
BY_NAME = {setting.name: setting for setting in SETTINGS}
# A legal value of each setting that is not its default, as text and as the program sees it.
OTHERS = {
    "source": ("/srv/data", "/srv/data"), "data": ("/var/lib/g", Path("/var/lib/g")),
    "listen": ("[::1]:0", Address("::1", 0)), "cluster": ("east", "east"), "node": ("n-1", "n-1"),
    "advertise": ("10.1.2.3:0", Address("10.1.2.3", 0)), "advertise_address": ("fd00::1", "fd00::1"),
    "profile": ("wan", "wan"), "shard_id": ("7", 7),
    "join": ("a:1, [::1]:2,a:1", (Address("a", 1), Address("::1", 2))), "time_to_converge": ("2s", 2000),
    "expected_members": ("3", 3),
    "key_ring": ("/etc/g/keys", Path("/etc/g/keys")), "seal": ("send", "send"),
    "insecure_gossip": ("true", True), "max_members": ("64", 64),
    "max_entry": ("1KiB", 1024), "max_branch": ("64KiB", 65_536), "max_tree": ("1MiB", 1 << 20),
    "refresh_period": ("off", 0), "retire_after": ("1.5h", 5_400_000), "max_parallel_loads": ("7", 7),
    "throttle_loads": ("20MiB/s", 20 << 20), "require_success_file": ("true", True), "build_lanes": ("3", 3),
    "min_records": ("1000", 1000), "min_ratio": ("0.25", 250), "allow_empty": ("true", True),
    "scrub_period": ("2d", 172_800_000), "residency": ("paged", "paged"),
    "build_memory": ("1GiB", 1 << 30), "build_priority": ("low", "low"),
    "table_log": ("2GiB", 2 << 30), "table_segment": ("1MiB", 1 << 20), "table_merge_memory": ("64MiB", 64 << 20),
    "isolation_group": ("rack-7", "rack-7"), "weight": ("3", 3), "max_moves": ("7", 7),
    "table_transfer": ("1MiB/s", 1 << 20), "split_bytes": ("off", 0), "split_rows": ("off", 0),
    "metadata_copies": ("3", 3), "relay_after": ("1s", 1000), "max_clock_skew": ("2s", 2000),
    "move_stall": ("2s", 2000), "max_token": ("8KiB", 8 << 10), "max_feeds": ("9", 9), "planner": ("off", "off"),
    "smear": ("off", "off"),
    "presharded": ("declared", "declared"), "compression": ("lz4", "lz4"), "max_frame": ("64KiB", 65_536),
    "max_key": ("100B", 100),
    "max_connections": ("5", 5), "max_in_flight": ("1", 1),
    "max_depth": ("4", 4), "max_elements": ("12288", 12288), "max_value": ("1KiB", 1024),
    "max_connections_per_address": ("off", 0), "max_in_flight_total": ("10", 10),
    "max_queued_total": ("1GiB", 1 << 30), "output_timeout": ("2s", 2000), "busy_poll": ("off", "off"),
    "pumps": ("3", 3),
    "max_queued": ("1MiB", 1 << 20), "frame_timeout": ("500ms", 500), "idle_timeout": ("off", 0),
    "drain_timeout": ("0s", 0), "scan_limit": ("10", 10), "log_level": ("debug", "debug"),
    "log_format": ("json", "json"), "replication": ("3", 3), "min_replication": ("2", 2),
    "switch_patience": ("30s", 30_000), "reassign_after": ("5m", 300_000),
    "repair_after": ("10m", 600_000),
    "retire_max": ("2h", 7_200_000), "proxy_timeout": ("1s", 1000),
    "proxy_stage_timeout": ("20ms", 20), "http_listen": ("[::1]:8080", Address("::1", 8080)),
    "content_type": ("text/plain; charset=utf-8", "text/plain; charset=utf-8"), "http_max_connections": ("9", 9),
    "http_hosts": ("db.example.org, N1", ("db.example.org", "N1")),
    "backup_roots": ("/b,s3://b/x/", ("/b", "s3://b/x")), "backup_abandon_after": ("2h", 7_200_000),
    "users": ("/etc/g/users", Path("/etc/g/users")), "tls_certificate": ("/etc/g/n.pem", Path("/etc/g/n.pem")),
    "tls_listeners": ("resp_listen, listen", ("resp_listen", "listen")),
    "tls_key": ("/etc/g/n.key", Path("/etc/g/n.key")), "tls_clients": ("/etc/g/ca.pem", Path("/etc/g/ca.pem")),
    "tls_peers": ("/etc/g/ca.pem", Path("/etc/g/ca.pem")),
    "resp_listen": ("0.0.0.0:6379", Address("0.0.0.0", 6379)), "resp_databases": ("geo, carts", ("geo", "carts")),
}  # fmt: skip


def toml_of(name: str, text: str) -> str:
    """Return the line of a TOML file that sets `name`."""
    bare = BY_NAME[name].kind == "bool" or (BY_NAME[name].kind == "count" and text.isdigit())
    value = text if bare else json.dumps(text)
    return f"{name} = {value}\n"


@given(st.integers(0, 10**15), st.sampled_from(list(UNITS.values())))
def test_a_quantity_survives_being_shown(value, units):
    """`parse(show(x)) == x` for every value and unit family."""
    assert quantity.parse(quantity.show(value, units), units) == value


@pytest.mark.parametrize(("text", "value"), [
    ("500ms", 500), ("10s", 10_000), ("10 m", 600_000), ("1h", 3_600_000), ("0.25s", 250), (" 1d ", 86_400_000),
    ("0ms", 0),
])  # fmt: skip
def test_durations(text, value):
    assert quantity.parse(text, quantity.DURATION) == value


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-1s", "1e3s", "0.5ms", "1 s s", "1S", "1KiB", "1\u0661s", "1" * 30 + "s"]
)
def test_what_is_no_duration(text):
    """A missing or wrong unit, a fraction of a millisecond and odd digits are refused."""
    with pytest.raises(ValueError, match="expected"):
        quantity.parse(text, quantity.DURATION)


@pytest.mark.parametrize(("text", "address"), [
    ("127.0.0.1:7070", Address("127.0.0.1", 7070)), ("[::1]:7070", Address("::1", 7070)),
    ("host:0", Address("host", 0)),
    ("a.b-c:65535", Address("a.b-c", 65_535)),
])  # fmt: skip
def test_addresses(text, address):
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", [
    "", ":", "host", "host:", ":70", "::1:70", "[::1]", "[::1:70", "[]:70", "h:65536", "h:-1", "h:\u0663", "a b:1",
    "h\0:1",
    "http://h:1", "h:1/", "h:99999999999",
])  # fmt: skip
def test_what_is_no_address(text):
    """The error has the expected form."""
    with pytest.raises(ValueError, match="expected"):
        parse_address(text)


@given(st.text(max_size=20))
def test_no_text_surprises_the_address_parser(text):
    """Any text is an address or a `ValueError`, and a valid address survives being written."""
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address


def test_the_list_is_the_dataclass():
    """Every field but the tables and the origins is a setting, described in full, its default within its range."""
    fields = [field.name for field in dataclasses.fields(Config)]
    tables = {"databases", "storage_options", "storage", "origins"}
    assert [*BY_NAME] == [name for name in fields if name not in tables]
    assert tables < set(fields)
    for setting in SETTINGS:
        assert setting.meaning
        assert setting.why
        assert setting.allowed
        value = getattr(Config(), setting.name)
        if value is not None:
            assert setting.parse(setting.show(value)) == value
        if setting.kind not in {"path", "text"}:
            assert setting.parse(setting.default) == value
    assert set(OTHERS) == set(BY_NAME)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().listen = None


@pytest.mark.parametrize("name", BY_NAME)
def test_every_setting_from_every_source(name, tmp_path):
    """File, environment and flag work, and the origin names the source."""
    text, value = OTHERS[name]
    setting = BY_NAME[name]
    file = tmp_path / "gossipkv.toml"
    file.write_text(f"# A comment.\n{toml_of(name, text)}")
    cases = {
        f"{file}:2": load(file),
        f"environment {setting.variable}": load(environ={setting.variable: text}),
        f"flag {setting.flag}": load(flags={name: text}),
    }
    for origin, found in cases.items():
        assert getattr(found, name) == value != getattr(Config(), name)
        assert type(getattr(found, name)) is type(value)
        assert found.origin(name) == origin
        assert [other for other in BY_NAME if found.origin(other) != "default"] == [name]


@pytest.mark.parametrize("winner", ["file", "environment", "flag"])
def test_the_later_source_wins(winner, tmp_path):
    """A file gives way to the environment, and that to a flag."""
    file = tmp_path / "gossipkv.toml"
    file.write_text('cluster = "file"\n')
    environ = {"GOSSIPKV_CONFIG": str(file)}
    if winner != "file":
        environ["GOSSIPKV_CLUSTER"] = "environment"
    flags = {"cluster": "flag"} if winner == "flag" else {}
    found = load(None, environ, flags)
    assert found.cluster == winner
    assert found.origin("cluster").startswith(str(file) if winner == "file" else winner)


@pytest.mark.parametrize(("name", "number", "meant"), [
    ("refresh_period", "60", "60s"), ("retire_after", "0.5", "0.5s"), ("max_frame", "1048576", "1048576B"),
    ("max_frame", "1.5", "1.5KiB"), ("throttle_loads", "1048576", "1048576B/s"),
])  # fmt: skip
def test_a_bare_number_is_told_the_unit_that_it_lacks(name, number, meant, tmp_path):
    """The error suggests a valid form with the number and a unit."""
    file = tmp_path / "gossipkv.toml"
    file.write_text(f"{name} = {number}\n")
    setting = BY_NAME[name]
    sources = {f"{file}:1": {"file": file}, "environment": {"environ": {setting.variable: number}}}
    for where, told in {**sources, "flag": {"flags": {name: number}}}.items():
        with pytest.raises(
            ConfigError, match=f"^{re.escape(where)}.*{name} = '{number}'.*such as \"{meant}\""
        ) as caught:
            load(**told)
        assert f"allowed: {setting.allowed}" in str(caught.value)
    assert quantity.parse(meant, UNITS[setting.kind]) > 0


def test_members_to_join_as_an_array(tmp_path):
    """A TOML array or one string works; an array of other values is refused."""
    file = tmp_path / "gossipkv.toml"
    for line in ('join = ["a:1", "[::1]:2"]', 'join = "a:1,[::1]:2"'):
        file.write_text(line)
        assert load(file).join == (Address("a", 1), Address("::1", 2))
    file.write_text("join = [7070]")
    with pytest.raises(ConfigError, match=r":1: join = \[7070\]: expected a string or an array of strings"):
        load(file)


def test_the_named_file_goes_before_the_one_of_the_environment(tmp_path):
    """`--config` replaces `GOSSIPKV_CONFIG`; both are not read."""
    (tmp_path / "a.toml").write_text('cluster = "a"\n')
    (tmp_path / "b.toml").write_text("nonsense = 1\n")
    found = load(tmp_path / "a.toml", {"GOSSIPKV_CONFIG": str(tmp_path / "b.toml")})
    assert found.cluster == "a"
    assert load(None, {"GOSSIPKV_CONFIG": ""}) == Config()


def test_reserved_names_are_not_settings():
    """`GOSSIPKV_NODE` is the client commands' address; this node's own name is `GOSSIPKV_NODE_NAME`."""
    found = load(
        environ={
            "GOSSIPKV_NODE": "10.0.0.1:7070",
            "GOSSIPKV_DEBUG": "1",
            "GOSSIPKV_SANITIZE": "a",
            "PATH": "/bin",
            "GOSSIPKV": "x",
        }
    )
    assert found == Config()
    assert load(environ={"GOSSIPKV_NODE_NAME": "n1"}).node == "n1"


SERVICES = [
    f"GOSSIPKV{service}_{name}"
    for service in ("", "_HTTP", "_LISTEN", "_A_B2")
    for name in (
        "SERVICE_HOST=10.0.0.7", "SERVICE_PORT=7070", "SERVICE_PORT_RPC=7070", "PORT=tcp://10.0.0.7:7070",
        "PORT_7070_TCP=tcp://10.0.0.7:7070", "PORT_7070_TCP_PROTO=tcp", "PORT_7070_UDP_PORT=7070",
        "PORT_7070_SCTP_ADDR=10.0.0.7",
    )
]  # fmt: skip


@pytest.mark.parametrize("injected", SERVICES)
def test_what_kubernetes_says_of_a_service_is_no_setting(injected):
    """Variables of a service with the node's name are ignored; similar names are errors."""
    name, _, value = injected.partition("=")
    assert load(environ={name: value}) == load()
    for other in (f"{name}-S", name.replace("SERVICE_", "SERVICES_").replace("PORT", "PRT")):
        with pytest.raises(ConfigError, match=f"unknown setting {other}"):
            load(environ={other: value})


def test_a_port_is_no_setting():
    """Users may expect such a name, and Kubernetes variables look like it."""
    for name in ("GOSSIPKV_PORT", "GOSSIPKV_HTTP_PORT"):
        with pytest.raises(ConfigError, match=f"unknown setting {name}"):
            load(environ={name: "7070"})


def test_a_user_without_a_home_names_the_directory(monkeypatch, tmp_path):
    """With a directory no home is needed."""

    def refuse(*_given, **_named):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_data_path", refuse)
    assert load(flags={"data": str(tmp_path)}).data == tmp_path
    with pytest.raises(ConfigError, match=r"has no home directory.*--data"):
        load()


@pytest.mark.parametrize(("environ", "said"), [
    ({"GOSSIPKV_NODE": "n1"}, "environment GOSSIPKV_NODE: expected HOST:PORT, for example 127.0.0.1:7070, got 'n1'; "),
    ({"GOSSIPKV_NODE_NAME": "10.0.0.1:7070"}, "environment GOSSIPKV_NODE_NAME: "),
    ({"GOSSIPKV_NODE": "a:1", "GOSSIPKV_NODE_NAME": "b:2"}, "environment GOSSIPKV_NODE_NAME: node = 'b:2': an address"),
])  # fmt: skip
def test_the_two_node_variables_are_told_apart(environ, said):
    """A value that belongs to the other variable yields an error that explains both."""
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert str(caught.value).startswith(said)
    assert f"; {APART}" in str(caught.value)


@pytest.mark.parametrize(("source", "name", "near"), [
    ("file", "refresh_periode", "refresh_period"), ("file", "refresh-period", "refresh_period"),
    ("environment", "GOSSIPKV_LISTN", "GOSSIPKV_LISTEN"), ("environment", "GOSSIPKV_MAXFRAME", "GOSSIPKV_MAX_FRAME"),
    ("flags", "max_conections", "max_connections"),
])  # fmt: skip
def test_an_unknown_name_names_the_nearest(source, name, near, tmp_path):
    """The error has the nearest name and the place."""
    file = tmp_path / "gossipkv.toml"
    file.write_text(f'log_level = "debug"\n\n{name} = 1\n' if source == "file" else "")
    with pytest.raises(ConfigError, match=f"unknown setting {name}; the nearest known setting is {near} ") as caught:
        load(file, {name: "1"} if source == "environment" else {}, {name: "1"} if source == "flags" else {})
    assert str(caught.value).startswith(f"{file}:3" if source == "file" else source)


@pytest.mark.parametrize(("name", "text", "said"), [
    ("refresh_period", "10", "unit"), ("refresh_period", "1ms", "100ms to 7d, or off"), ("retire_after", "off", "unit"),
    ("max_frame", "1B", "64KiB to 17MiB"), ("max_frame", "64KB", "such as"), ("throttle_loads", "1MiB", "MiB/s"),
    ("max_parallel_loads", "0", "1 to 64"), ("max_parallel_loads", "two", "whole number"),
    ("max_parallel_loads", "9" * 99, "1 to 64"),
    ("log_level", "inof", "the nearest is info"),
    ("compression", "zip", "none or lz4"), ("listen", "7070", "HOST:PORT"),
    ("require_success_file", "maybe", "true or false"), ("cluster", "a b", "1 to 64"), ("cluster", "", "1 to 64"),
    ("join", "a", "HOST:PORT"), ("join", "a:1,b:0", "port other than 0"), ("advertise", "0.0.0.0:1", "can reach"),
    ("advertise_address", "n1.nodes", "IPv6 address"), ("advertise_address", "::", "can reach"),
    ("shard_id", "0.5", "whole number"), ("seal", "maybe", "accept or send or require"),
    ("isolation_group", "a b", "a name, or none"), ("weight", "0", "1 to 1000"),
    ("metadata_copies", "4", "1 or 3 or 5"), ("metadata_copies", "03", "not an allowed number"),
    ("data", "", "path"), ("source", "~nobody-of-that-name/x", "home"),
])  # fmt: skip
def test_a_wrong_value_says_what_where_and_what_is_allowed(name, text, said):
    """From environment and flag the error has setting, origin, value and the allowed values."""
    setting = BY_NAME[name]
    for found in (lambda: load(environ={setting.variable: text}), lambda: load(flags={name: text})):
        with pytest.raises(ConfigError) as caught:
            found()
        message = str(caught.value)
        assert name in message
        assert repr(text) in message
        assert said in message
        assert f"allowed: {setting.allowed}" in message
        assert setting.variable in message or setting.flag in message


@pytest.mark.parametrize(("line", "said"), [
    ("max_frame = 65536", 'such as "65536B"'), ("max_parallel_loads = '2'", "expected a number"),
    ("require_success_file = 'true'", "expected true or false"), ("require_success_file = 1", "expected true or false"),
    ("refresh_period = 1.5", 'such as "1.5s"'), ("cluster = ['a']", "expected a string"),
    ("[cluster]", "expected a string"), ("max_parallel_loads = true", "expected a number"),
    ("max_parallel_loads = -1", "whole number"), ("log_level = 1979-05-27", "expected a string"),
])  # fmt: skip
def test_a_wrong_type_in_the_file_names_the_line(line, said, tmp_path):
    """TOML's own types must fit the setting; the error names file and line."""
    file = tmp_path / "gossipkv.toml"
    file.write_text(f"\n\n\n{line}\n")
    with pytest.raises(ConfigError, match=said) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:4: ")


def test_zero_needs_no_unit_in_a_file(tmp_path):
    """`refresh_period = 0` is off."""
    file = tmp_path / "gossipkv.toml"
    file.write_text("refresh_period = 0\n")
    assert load(file).refresh_period == 0


@pytest.mark.parametrize(("content", "said"), [
    (b"cluster = \n", ":1: the file is not TOML"), (b"a = 1\na = 2\n", ":2: the file is not TOML"),
    (b"\xff", "not UTF-8"),
])  # fmt: skip
def test_a_file_that_is_no_toml(content, said, tmp_path):
    """The error names the file, and the line if it is known."""
    file = tmp_path / "gossipkv.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load(file)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="directory"):
        load(tmp_path)
    with pytest.raises(
        ConfigError, match=r"^/dev/zero: the settings file has more than 1,048,576 bytes, which is the limit$"
    ):
        load(Path("/dev/zero"))


def test_a_wrong_value_is_found_although_it_is_overridden():
    """The overridden value would fail later, when the other source goes."""
    with pytest.raises(ConfigError, match="GOSSIPKV_MAX_FRAME"):
        load(environ={"GOSSIPKV_MAX_FRAME": "huge"}, flags={"max_frame": "1MiB"})


def test_the_home_directory_is_expanded(monkeypatch):
    """`~` in a path is this user's home."""
    monkeypatch.setenv("HOME", "/home/someone")
    assert load(flags={"data": "~/g"}).data == Path("/home/someone/g")


@pytest.mark.parametrize("wrong", ["plain", "text/", "text/plain\r\nX: y", "text/plain; café", "a b/c", ""])
def test_a_content_type_is_a_media_type(wrong):
    """Texts that would begin another header, or are no type, are refused."""
    with pytest.raises(ConfigError, match="expected a media type"):
        load(flags={"content_type": wrong})


def test_http_is_off_unless_it_is_said_where():
    """`off` overrides the environment."""
    assert load().http_listen is None
    said = {"GOSSIPKV_HTTP_LISTEN": "127.0.0.1:8080"}
    assert load(environ=said).http_listen == Address("127.0.0.1", 8080)
    assert load(environ=said, flags={"http_listen": "off"}).http_listen is None


@pytest.mark.parametrize(("flags", "words"), [
    ({"min_replication": "3"}, "flag --min-replication: min_replication = 3 is above replication = 2"),
    ({"replication": "1", "min_replication": "2"}, "min_replication = 2 is above replication = 1"),
    ({"proxy_stage_timeout": "34ms"}, "proxy_timeout = 100ms is shorter than replication + 1 = 3 stages of 34ms"),
])  # fmt: skip
def test_settings_that_contradict_each_other(flags, words):
    """Values that contradict each other are refused, with both names and the place."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(flags=flags)


def test_the_stage_of_a_forwarded_read():
    """All replicas and one more look fit into the timeout; an explicit value wins."""
    assert load().stage_timeout == 33
    assert load(flags={"proxy_timeout": "10ms", "replication": "64"}).stage_timeout == 1
    assert load(flags={"proxy_stage_timeout": "5ms"}).stage_timeout == 5


def test_hosts_are_asked_for_without_users_only():
    """A list of the file, an environment variable; own names are in, in lower case, and `*` stands for any."""
    flags = {"listen": "[::1]:7070", "advertise": "N1.Example.org.:7070", "http_listen": "n1:8080"}
    config = load(None, {"GOSSIPKV_HTTP_HOSTS": "DB.example.org., n1"}, flags)
    assert config.expected_hosts == "localhost ::1 n1.example.org n1 db.example.org"
    assert load(None, {}, {"users": "/etc/g/users"}).expected_hosts == ""
    assert load(None, {}, {"http_hosts": "n1,*"}).expected_hosts == ""
    assert load(None, {}, {"listen": "*:7070"}).expected_hosts == "localhost *", "`*` there is no word for any"


def test_hosts_are_a_list_in_the_file(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text('http_hosts = ["db.example.org", "gossipkv"]\n')
    assert load(path, {}, {}).http_hosts == ("db.example.org", "gossipkv")


@pytest.mark.parametrize("text", ["n1:8080", "[::1]", "http://n1", "a..b", "*.example.org", "n1,,n2", "ü"])
def test_what_is_no_host(text):
    with pytest.raises(ConfigError, match="names of hosts without ports"):
        load(None, {}, {"http_hosts": text})
