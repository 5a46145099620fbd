"""Patched extensions: the span of a definition in Cython, and a build in another directory."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parents[3]


def source_of(module):
    """Return the source of a module of the package: Python, or Cython, where `_name` may be a part's name."""
    place = Path(*module.split("."))
    python = ROOT / place.with_suffix(".py")
    whole = ROOT / "src_ext" / place.with_suffix(".pyx")
    part = whole.with_name(whole.name.removeprefix("_"))
    return next(path for path in (python, part, whole) if path.exists())


def extension_of(module):
    """Return the extension that is made from this Cython: the includer of the part, or the module itself."""
    source = source_of(module)
    if source.name.startswith("_"):
        return module
    (whole,) = (
        path
        for above in source.parents
        for path in above.glob("_*.pyx")
        if f'include "{source.relative_to(above)}"\n' in path.read_text()
    )
    return ".".join(whole.relative_to(ROOT / "src_ext").with_suffix("").parts)


def span(text, names):
    """Return the lines, from zero, of the definition of that qualified name in Cython, by its indentation.

    Raises:
        ValueError: The definition does not exist.
    """
    lines = text.splitlines()
    begin, end = 0, len(lines)
    for name in names:
        head = re.compile(rf"\s*(cdef|cpdef|def|class)\b[^=]*\b{name}\s*[(:]")
        at = next((at for at in range(begin, end) if head.match(lines[at])), None)
        if at is None:
            raise ValueError(f"there is no {'.'.join(names)}")
        deeper = indent(lines[at])
        begin = at + 1
        end = next((at for at in range(begin, end) if ends(lines[at], deeper)), end)
    return begin, end


def indent(line):
    return len(line) - len(line.lstrip())


def ends(line, head):
    """True if a line lies behind a definition whose head has that indentation; closing parentheses do not count."""
    return bool(line.strip()) and indent(line) <= head and not line.lstrip().startswith(")")


def build(module, text, aside):
    """Return the path of an extension of `text`, built in the directory `aside` with fast flags."""
    made = runpy.run_path(str(ROOT / "setup.py"))
    sources = shutil.copytree(ROOT / "src_ext", aside / "src_ext")
    (sources / source_of(module).relative_to(ROOT / "src_ext")).write_text(text)
    whole = extension_of(module)
    options = {"include_dirs": [str(sources)], "extra_compile_args": [*made["COMPILE_ARGS"], "-O0"]}
    extensions = cythonize(
        [
            Extension(
                whole,
                [str(sources.joinpath(*whole.split(".")).with_suffix(".pyx"))],
                extra_link_args=made["LINK_ARGS"],
                **options,
            )
        ],
        include_path=[str(sources)],
        compiler_directives=made["DIRECTIVES"],
        quiet=True,
    )
    command = build_ext(Distribution({"ext_modules": extensions}))
    command.build_lib, command.build_temp = str(aside / "lib"), str(aside / "temp")
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(whole))
