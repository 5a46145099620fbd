"""Check commit messages: `area: imperative subject` of at most 72 characters, then an empty line and the reason.

Called with the file of one message, as a commit-msg hook; or with `--since REVISION`, for all commits after it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_SUBJECT = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_./-]*(, ?[a-z][a-z0-9_./-]*)*: [A-Za-z0-9`].*[^.\s]")
NO_IMPERATIVE = re.compile(  # Forms of the usual verbs that are none.
    r": (add|allow|change|delete|drop|fix|keep|make|mak|mov|move|remov|remove|renam|rename|test|updat|update|us|use)"
    r"(s|es|d|ed|ing) "
)
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def faults(message: str) -> list[str]:
    """Return the rules that a message breaks."""
    subject, *rest = [line for line in message.splitlines() if not line.startswith("#")] or [""]
    if subject.startswith(GENERATED):
        return []
    found = []
    if len(subject) > MAX_SUBJECT:
        found.append(f"the subject has {len(subject)} characters, at most {MAX_SUBJECT} are allowed")
    if not SUBJECT.fullmatch(subject):
        found.append("the subject is not `area: imperative subject` without a full stop")
    elif NO_IMPERATIVE.search(subject):
        found.append("the subject does not begin with an imperative, such as `add`")
    if rest and rest[0].strip():
        found.append("an empty line must follow the subject")
    return found


def main() -> int:
    """Print what is wrong with each message; 1 if anything is."""
    if sys.argv[1:2] == ["--since"]:
        log = ["git", "log", "--no-merges", "-z", "--format=%B", f"{sys.argv[2]}..HEAD"]
        done = subprocess.run(log, check=True, capture_output=True, text=True)
        messages = [message for message in done.stdout.split("\0") if message.strip()]
    else:
        messages = [Path(path).read_text(encoding="utf-8") for path in sys.argv[1:]]
    wrong = [(message.partition("\n")[0], fault) for message in messages for fault in faults(message)]
    for subject, fault in wrong:
        print(f"{subject!r}: {fault}")
    return min(1, len(wrong))


if __name__ == "__main__":
    sys.exit(main())
