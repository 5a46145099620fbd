"""Run a command with the system calls and address families of a unit; any other call kills the process.

    python confined.py UNIT COMMAND...

`systemd-analyze` lists the calls of systemd's sets, and the kernel enforces them by libseccomp.
"""

from __future__ import annotations

import configparser
import ctypes
import os
import socket
import subprocess
import sys

KILL, ALLOW, EQUAL = 0x80000000, 0x7FFF0000, 4  # seccomp.h
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1


class Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class Lines(dict[str, str]):
    """The settings of a section; a repeated setting adds a line to its value."""

    def __setitem__(self, name: str, value: str) -> None:
        if isinstance(value, list) and name in self:
            value = self[name] + value
        super().__setitem__(name, value)


def unit(path: str) -> configparser.RawConfigParser:
    """Return the settings of a unit; a repeated setting has all its values, a line each."""
    parser = configparser.RawConfigParser(strict=False, dict_type=Lines, interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read(path)
    return parser


def calls(names: list[str]) -> set[str]:
    """Return the system calls that these names stand for: some are sets."""
    found = set()
    for name in names:
        if name.startswith("@"):
            said = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, stdout=-1, text=True).stdout
            found |= calls([line.strip() for line in said.splitlines()[1:] if line.strip()[:1] not in {"", "#"}])
        else:
            found.add(name)
    return found


def allow(names: set[str], families: list[str]) -> None:
    """Kill processes that make any other call, from now on."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(KILL)))
    for name in sorted(names - {"socket"}):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # The call may belong to other architectures.
            assert library.seccomp_rule_add_array(rules, ctypes.c_uint32(ALLOW), number, 0, None) == 0
    number = library.seccomp_syscall_resolve_name(b"socket")
    for family in families:
        is_that = Comparison(0, EQUAL, getattr(socket, family), 0)
        assert library.seccomp_rule_add_array(rules, ctypes.c_uint32(ALLOW), number, 1, ctypes.byref(is_that)) == 0
    assert library.seccomp_load(rules) == 0


def main() -> None:
    path, *command = sys.argv[1:]
    service = unit(path)["Service"]
    wanted, unwanted = [], []
    for line in service["SystemCallFilter"].splitlines():
        (unwanted if line.startswith("~") else wanted).extend(line.removeprefix("~").split())
    if service.getboolean("MemoryDenyWriteExecute"):
        ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)  # Kernels before 6.3 lack this call.
    allow(calls(wanted) - calls(unwanted), service["RestrictAddressFamilies"].split())
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
