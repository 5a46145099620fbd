"""Make the reference of the Python API from its docstrings: `make docs`, or `python docs/reference.py DIRECTORY`.

pdoc shows what is public where users name it (`gossipkv.Client`), whichever file it is written in.
"""

import sys
from pathlib import Path

from pdoc import render
from pdoc.doc import Module

import gossipkv
from gossipkv import errors, launcher
from gossipkv.address import Address
from gossipkv.client import blocking, sessions, trio_client, trio_scan, trio_table
from gossipkv.wire import rpc

# What its methods return is public, though nobody makes one by its name.
UNDER_TRIO = (
    trio_client.connect, trio_client.Client, trio_client.Dataset, trio_table.Table, trio_scan.Scan, sessions.Session,
)  # fmt: skip
# Methods by which our own modules talk to each other, and constructors that only they call.
INTERNAL = {
    trio_client.Client: (
        "__init__", "deadline", "allowed_ms", "ask", "ask_unless_cancelled", "ask_in_parts", "submit", "answer",
        "abandon", "wake", "want_link", "set_alarm",
    ),
    blocking.Client: ("__init__", "deadline", "allowed_ms", "ask", "ask_in_parts", "records", "ask_all"),
    trio_client.Dataset: ("__init__",),
    trio_table.Table: ("__init__",),
    trio_scan.Scan: ("__init__",),
    blocking.Dataset: ("__init__",),
    blocking.Table: ("__init__",),
    sessions.Session: ("tokens", "saw", "version", "saw_version"),
}  # fmt: skip


def build(directory: Path) -> None:
    """Write a page for each module that users import, and `index.html`, which leads to the first."""
    for place, names in INTERNAL.items():
        for name in names:
            member = getattr(place, name)
            member = getattr(member, "fget", member)
            member.__doc__ = f"{member.__doc__}\n@private"
    # Whatever a message can hold (docs/users/wire.md): pdoc would spell out each time what it is.
    rpc.Value = errors.Detail = type("Value", (), {"__module__": "builtins"})
    Address.__module__ = "builtins"  # HOST:PORT as text, to whom it is shown.
    for one in UNDER_TRIO:
        setattr(gossipkv, one.__name__, one)
    gossipkv.__all__ = [*(one.__name__ for one in UNDER_TRIO), "blocking", "errors", "launcher"]
    sys.modules["gossipkv.blocking"] = blocking
    blocking.__name__ = "gossipkv.blocking"
    for one in (blocking.Client, blocking.Dataset, blocking.Table):
        one.__module__ = blocking.__name__
    errors.__all__ = [
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)
    ]
    footer = f"GossipKV {gossipkv.__version__}"
    render.configure(docformat="google", show_source=False, search=False, footer_text=footer)
    modules = {module.__name__: Module(module) for module in (gossipkv, blocking, errors, launcher)}
    for name, module in modules.items():
        page = directory.joinpath(*name.split(".")).with_suffix(".html")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render.html_module(module, modules), encoding="utf-8")
    (directory / "index.html").write_text(render.html_index(modules), encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
