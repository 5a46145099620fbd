"""Names follow the glossary, and docstrings begin with their subject or a verb."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.ci.tidy.source import ROOT, sources

# The names that terms of `docs/glossary.md` have replaced.
REPLACED = frozenset(
    {
        "Accepting",
        "Aside",
        "Collecting",
        "Copy",
        "Deciding",
        "Feed",
        "Holding",
        "Intake",
        "Known",
        "Lane",
        "Levels",
        "Line",
        "Moving",
        "Owed",
        "Owing",
        "Refounding",
        "Said",
        "Settling",
        "Splitting",
        "Stepping",
        "Taking",
        "Telling",
        "Told",
        "Upkeep",
        "Works",
    }
)
# The blocking client has the classes of the Trio client; two packages ask nodes.
TWICE = frozenset({"Client", "Dataset", "Table", "AskNode"})
CLASS = re.compile(r"^\s*(?:cdef )?(?:final )?class (\w+)\b", re.MULTILINE)
OPENING = re.compile(r'(?:"""|(?<![#\w])#)\s*(?:What|Who|Whoever|Whether|Have|Of|As|That)\b')
OLD_LIMIT = re.compile(r"\bMOST_\w+")
QUESTIONS = frozenset({"what", "who", "whoever", "whose", "whom"})
MAX_QUESTIONS = 4.0  # The unit is per 1,000 words of docstrings and comments.


def texts() -> dict[str, str]:
    """Return the text of each module of the package by its path."""
    return {source.where: source.text for source in sources(ROOT, "gossipkv", "src_ext/gossipkv")}


def check_names(modules: dict[str, str]) -> list[str]:
    """Report classes with replaced or repeated names, and constants that begin with MOST."""
    found = [(name, where) for where, text in modules.items() if is_own(where) for name in CLASS.findall(text)]
    counts = Counter(name for name, _ in found)
    wrong = [f"{where}: {name} is a replaced name" for name, where in found if name in REPLACED]
    wrong += [f"{where}: {name} stands twice" for name, where in found if counts[name] > 1 and name not in TWICE]
    return wrong + [f"{where}: {name}" for where, text in modules.items() for name in OLD_LIMIT.findall(text)]


def is_own(where: str) -> bool:
    """True for Python modules; an extension's classes are private to it."""
    return where.endswith(".py")


def questions(modules: dict[str, str]) -> float:
    """Return the question words in each 1,000 words of docstrings and comments."""
    docstrings = [found for text in modules.values() for found in re.findall(r'"""(.*?)"""', text, re.DOTALL)]
    comments = [found for text in modules.values() for found in re.findall(r"#\s(.*)", text)]
    words = re.findall(r"[a-z']+", " ".join(docstrings + comments).lower())
    return 1000 * sum(word in QUESTIONS for word in words) / len(words)


def test_names_follow_the_glossary() -> None:
    """No class has a replaced name or the name of another class, and limits are MAX_."""
    assert check_names(texts()) == []


def test_docstrings_and_comments_begin_with_a_subject_or_a_verb() -> None:
    """Prose has few question words as well: they mark sentences that name nothing."""
    modules = texts()
    # The tests of the tree plant wrong sentences.
    tests = {one.where: one.text for one in sources(ROOT, "tests") if not one.where.startswith("tests/ci/tidy")}
    assert [where for where, text in {**modules, **tests}.items() if OPENING.search(text)] == []
    assert questions(modules) <= MAX_QUESTIONS


@pytest.mark.parametrize("text", ["class Lane:\n", "class A:\n    pass\n\n\nclass A:\n", "MOST_ROWS = 3\n"])
def test_wrong_names_are_found(text: str) -> None:
    assert check_names({"a.py": text}) != []


def test_question_words_are_counted() -> None:
    """Question words in docstrings and comments count, and those in code do not."""
    assert questions({"a.py": '"""What is asked."""\nwhat = 1  # Who asks\n'}) == 400.0


@pytest.mark.parametrize("text", ['"""Of what is asked."""', "a = 1  # Of a row.", "    # That is late.\n"])
def test_wrong_openings_are_found(text: str) -> None:
    assert OPENING.search(text)
