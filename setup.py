"""Build the extensions: every `src_ext/<package>/_name.pyx` becomes `<package>._name`, with the parts that it includes.

Those of `tests` are built in place, and elsewhere where `GOSSIPKV_TEST_EXTENSIONS=1` asks for them: they are no part of
what is installed.

All compiler flags and Cython directives stand here and nowhere else.  `GOSSIPKV_DEBUG=1` flips one build to checks,
line tracing, annotated C and `GOSSIPKV_SANITIZE` (`undefined`, `address`, `thread`); nothing else distinguishes it.
The two builds keep their C and their objects apart (`build/release`, `build/debug`), so neither is mistaken for the
other.

The version of Python is checked here and not left to `requires-python`, which an installer reads only after this
file has run.
"""

from __future__ import annotations

import gc
import os
import platform
import sys
import sysconfig
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

SOURCE_ROOT = Path("src_ext")
DEBUG = os.environ.get("GOSSIPKV_DEBUG") == "1"
TEST_EXTENSIONS = os.environ.get("GOSSIPKV_TEST_EXTENSIONS") == "1"
SANITIZERS = os.environ.get("GOSSIPKV_SANITIZE", "") if DEBUG else ""
BUILD_ROOT = "build/debug" if DEBUG else "build/release"
CORES = os.cpu_count() or 1

DIRECTIVES: dict[str, object] = {
    "language_level": "3",
    "auto_pickle": False,  # A pickled pointer is a wild pointer.
    "autotestdict": False,  # `__test__` would show in every stub.
    "binding": False,  # Plain methods are less C, and are called with less work.
    "embedsignature": False,
    "wraparound": False,  # Negative indices into buffers are bugs, not a feature.
    "cdivision": True,  # C's division; a divisor that came from outside is checked where it enters.
    "initializedcheck": True,
    "boundscheck": True,  # Raw reads go through checked cursors; nothing turns this off for a module.
    "linetrace": DEBUG,
    "emit_code_comments": DEBUG,  # They are a quarter of the C, for people who read it.
    "warn.unused": True,
    "warn.multiple_declarators": True,
}

if sys.platform == "win32":
    COMPILE_ARGS = ["/O2", "/DCYTHON_WITHOUT_ASSERTIONS"]
elif DEBUG:
    COMPILE_ARGS = ["-O0", "-g", "-DGKV_CHECKS=1", "-fno-strict-aliasing"]
    # What traces writes where it is from every thread.
    COMPILE_ARGS += ["-DCYTHON_PROFILE=0"] if "thread" in SANITIZERS else ["-DCYTHON_TRACE=1"]
else:
    # No -march=native: a wheel must run on every x86-64 and aarch64; faster instructions are found at run time.
    # What assertions alone use is unused here.  Python's own -g would be a third of the compiler's time.
    COMPILE_ARGS = ["-g0", "-DCYTHON_WITHOUT_ASSERTIONS", "-Wno-unused", "-fno-strict-aliasing", "-fno-plt"]
LINK_ARGS: list[str] = []

# The longest name that fits counts.  Serving is one large unit, where gcc stops inlining: pipelined gets would take 8 %
# more instructions.  With -O1 and these, a lookup in a sorted file, a build and a client's get take as many as at -O2,
# within 0.6 %, and the compiler a third less time.
QUICK = (
    "-O1 -finline-functions -finline-small-functions -fpartial-inlining -findirect-inlining -foptimize-sibling-calls"
    " -freorder-blocks-and-partition -fcaller-saves -fpeephole2 -fschedule-insns2 -ftree-switch-conversion"
    " -falign-functions -falign-jumps -falign-loops"
)
OPTIMISED = {
    "gossipkv": QUICK if sys.platform == "linux" else "-O2",  # Clang knows few of them.
    "gossipkv.serving._serving": "-O3 --param large-unit-insns=1000000",
    "tests": "-O1",  # Of simulations.
}
if SANITIZERS:
    COMPILE_ARGS += [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
    LINK_ARGS += [f"-fsanitize={SANITIZERS}"]

# A client needs these packages' extensions and runs anywhere; a node needs them all, and Linux under them.
CLIENT_PACKAGES = ("gossipkv.client", "gossipkv.keyspace", "gossipkv.wire")
RUNS_A_NODE = sys.platform.startswith("linux") and platform.machine() in {"x86_64", "aarch64"}

WHAT_A_BUILD_NEEDS = """
GossipKV compiles its extensions while it is installed: it needs a C compiler and the headers of this Python.
    Debian, Ubuntu: apt install gcc python3-dev
    Fedora: dnf install gcc python3-devel
    macOS: xcode-select --install
"""


class BuildExtensions(build_ext):
    """The usual build, but its failure says what to install, and in place it lays down the kind that was asked for."""

    def run(self) -> None:
        """Translate and build, an editable installation too where `make build` will look for what is up to date."""
        self.parallel = self.parallel or CORES  # Here, since an editable installation forgets what `setup` is told.
        if self.editable_mode:
            here = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
            self.build_lib = f"{BUILD_ROOT}/lib.{here}"
            self.build_temp = f"{BUILD_ROOT}/temp.{here}"
        if not (self.inplace or self.editable_mode or TEST_EXTENSIONS):
            self.extensions = [extension for extension in self.extensions if not extension.name.startswith("tests.")]
        before_s = sum(os.times()[:4])
        translate(self.extensions)
        super().run()
        # The CPU time of Cython and the C compiler, which `.ci/costs.py` prints.
        Path(BUILD_ROOT, "compiled_s").write_text(f"{sum(os.times()[:4]) - before_s:.1f}", encoding="ascii")

    def build_extension(self, ext: Extension) -> None:
        """Compile one extension.

        Raises:
            CompileError: with the compiler's complaint and what a build needs.
        """
        try:
            super().build_extension(ext)
        except (CompileError, LinkError) as error:
            message = f"{ext.name}: {error}\n{WHAT_A_BUILD_NEEDS}"
            raise CompileError(message) from error

    def copy_extensions_to_source(self) -> None:
        """Copy beside the Python modules, whatever lies there: a debug build is younger than the fast one."""
        self.force = True
        super().copy_extensions_to_source()


def extensions() -> list[Extension]:
    """One extension for each .pyx below `src_ext` that this machine can use, named by its path."""
    headers = [str(header) for header in sorted(SOURCE_ROOT.rglob("*.h"))]
    found = []
    for path in sorted(SOURCE_ROOT.rglob("_*.pyx")):
        name = ".".join(path.relative_to(SOURCE_ROOT).with_suffix("").parts)
        if not RUNS_A_NODE and not name.startswith(CLIENT_PACKAGES):
            continue
        found.append(
            Extension(
                name,
                [str(path)],
                include_dirs=[str(SOURCE_ROOT)],
                depends=[*headers, "setup.py"],
                extra_compile_args=[*optimised(name), *COMPILE_ARGS],
                extra_link_args=LINK_ARGS,
            )
        )
    return found


def optimised(name: str) -> list[str]:
    """What the compiler is told of the extension of that name alone."""
    if DEBUG or sys.platform == "win32":
        return []
    return OPTIMISED[max((prefix for prefix in OPTIMISED if f"{name}.".startswith(f"{prefix}.")), key=len)].split()


def is_up_to_date(in_c: Path, sources_s: float) -> bool:
    """Whether this Cython wrote this C after the last change of any source, at `sources_s` since 1970."""
    if not in_c.exists() or in_c.stat().st_mtime < sources_s:
        return False
    with in_c.open(encoding="utf-8") as lines:
        return lines.readline() == f"/* Generated by Cython {Cython.__version__} */\n"


def translate(found: list[Extension]) -> None:
    """Put C in the place of each extension's Cython, and the longest first: what is left at the end is short."""
    generated = Path(BUILD_ROOT, "cython")
    places = [Path(generated, *extension.sources).with_suffix(".c") for extension in found]
    setup_s = Path("setup.py").stat().st_mtime
    sources_s = max(setup_s, *(path.stat().st_mtime for path in SOURCE_ROOT.rglob("*.p[xy][xd]")))
    # Cython compares with the declarations that it was installed with, too: an isolated one is always new.
    stale = [extension for extension, in_c in zip(found, places, strict=True) if not is_up_to_date(in_c, sources_s)]
    if stale:
        gc.disable()  # Cython's trees live until the end: looking for garbage among them is 40 % of its time.
        cythonize(
            stale,
            include_path=[str(SOURCE_ROOT)],
            build_dir=str(generated),
            compiler_directives=DIRECTIVES,
            force=any(in_c.exists() and in_c.stat().st_mtime < setup_s for in_c in places),  # Other directives, maybe.
            nthreads=CORES,
            annotate=DEBUG,
            emit_linenums=DEBUG,
            show_all_warnings=False,
        )
    for extension, in_c in zip(found, places, strict=True):
        extension.sources = [str(in_c)]
    found.sort(key=lambda extension: Path(extension.sources[0]).stat().st_size, reverse=True)


def main() -> None:
    """Refuse an old Python, then hand over to setuptools."""
    if sys.version_info < (3, 11):  # noqa: UP036  # An installer runs this before it looks at requires-python.
        sys.exit(
            f"GossipKV needs Python 3.11 or newer; this is {platform.python_version()} ({sys.executable}).\n"
            "Name a newer one when you make the environment, such as: python3.11 -m venv .venv"
        )
    setup(
        cmdclass={"build_ext": BuildExtensions},
        options={"build": {"build_base": BUILD_ROOT}},
        ext_modules=extensions(),
    )


if __name__ == "__main__":
    main()
