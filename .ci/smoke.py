"""Try an installed GossipKV: what it is, that its parts load, that it builds a file and reads it, and the demo.

Run with the environment's own Python, in an empty directory, so that no source tree stands in the way.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


def run(*command: str) -> str:
    """Run one of the environment's commands and give back what it printed.

    Raises:
        SystemExit: when it fails, with what it said.
    """
    done = subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Everything in order, stopping at the first fault."""
    version = importlib.metadata.version("gossipkv")
    files = importlib.metadata.files("gossipkv") or []
    compiled = [str(file) for file in files if file.suffix in {".so", ".pyd"}]
    for file in compiled:
        module = importlib.import_module(file.split(".")[0].replace("/", "."))
        if Path(str(module.__file__)).resolve().is_relative_to(Path.cwd()):
            sys.exit(f"{module.__name__} was imported from the current directory")
    if not compiled:
        sys.exit("no compiled part is installed")

    printed = run("gossipkv", "--version").strip()
    if version not in printed:
        sys.exit(f"gossipkv --version says {printed!r}, the package is {version}")
    rendering = importlib.import_module("gossipkv.http.page.rendering")
    if b"page.css" not in rendering.failure(404, "none", "none"):
        sys.exit("the status page does not come out of its templates")
    source = Path("source/capitals/1")
    source.mkdir(parents=True)
    (source / "part-0").write_bytes(b"peru\tLima\nfrance\tParis\n")
    run("gossipkv", "build", str(source), "built")
    run("gossipkv", "verify", "built")
    demo = run("gossipkv", "demo")
    here = f"Python {sys.version.split()[0]}"
    print(f"{printed} on {here}: {len(compiled)} extensions, build, verify")
    print(*demo.splitlines()[-3:], sep="\n")


if __name__ == "__main__":
    main()
