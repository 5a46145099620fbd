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
from gossipkv.client import blocking, scan, sessions, trio_client
from gossipkv.wire import rpc

# Methods by which our own modules talk to each other.
INTERNAL = {
    "abandon", "allowed_ms", "answer", "ask", "ask_all", "ask_steps", "begin_within", "checkpoint", "deadline", "end",
    "now", "saw", "saw_version", "scanned", "set_alarm", "submit", "tokens", "version", "wake", "want_link",
}  # fmt: skip


def show(one: type) -> None:
    """Give a class the members of its bases, and hide what is not for its users."""
    for base in one.__mro__[-2::-1]:
        for name, member in vars(base).items():
            if name in INTERNAL or name == "__init__":
                (getattr(member, "fget", None) or member).__doc__ = "@private"
            elif not name.startswith("_"):
                setattr(one, name, member)


def build(directory: Path) -> None:
    """Write a page for each module that users import, and `index.html`, which leads to the first."""
    # Whatever a message can hold (docs/users/wire.md): pdoc would spell out each time what it is.
    rpc.Value = errors.Detail = type("Value", (), {"__module__": "builtins"})
    Address.__module__ = "builtins"  # HOST:PORT as text, to whom it is shown.
    classes = trio_client.Client, trio_client.Dataset, trio_client.Table, scan.Scan, sessions.Session
    for one in (*classes, blocking.Client, blocking.Dataset):
        show(one)
    under_trio = trio_client.connect, *classes
    for one in under_trio:
        setattr(gossipkv, one.__name__, one)
    gossipkv.__all__ = [*(one.__name__ for one in under_trio), "blocking", "errors", "launcher"]
    sys.modules["gossipkv.blocking"] = blocking
    blocking.__name__ = "gossipkv.blocking"
    for one in (blocking.Client, blocking.Dataset):
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
