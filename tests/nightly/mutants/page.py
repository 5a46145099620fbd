"""Bugs planted in the status page."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

PAGE = "gossipkv.http.page"
TESTS = "tests/unit/http/page"

MUTANTS_OF_THE_PAGE: tuple[Mutant, ...] = (
    planted(
        "a band shows the best of its partitions",
        f"{PAGE}.placement_map:_cell",
        "for letter, digits in drawn:",
        "for letter, digits in reversed(drawn):",
        f"{TESTS}/test_placement_map.py",
    ),
    planted(
        "a band that is ready in part is shown as ready",
        f"{PAGE}.placement_map:_cell",
        'return PART if letter == READY and digits.count("1", first, end) < end - first else letter',
        "return letter",
        f"{TESTS}/test_placement_map.py",
    ),
    planted(
        "what a dead node has is shown as ready",
        f"{PAGE}.placement_map:placement_map",
        'if state == "dead":',
        'if state == "left":',
        f"{TESTS}/test_placement_map.py",
    ),
    planted(
        "the last partitions are in no band",
        f"{PAGE}.placement_map:bands_of",
        "band = -(-partitions // MOST_CELLS)",
        "band = max(1, partitions // MOST_CELLS)",
        f"{TESTS}/test_placement_map.py",
    ),
    planted(
        "a percentile is of all requests since the start",
        f"{PAGE}.history:_latency",
        "grown = [(bound_us, reached - before.get(bound_us, 0)) for bound_us, reached in two.buckets]",
        "grown = list(two.buckets)",
        f"{TESTS}/test_history.py",
    ),
    planted(
        "samples are kept for ever",
        f"{PAGE}.history:History.__init__",
        "self._samples: deque[Sample] = deque(maxlen=KEPT)",
        "self._samples = deque()",
        f"{TESTS}/test_history.py",
    ),
    planted(
        "a restart of the node is taken for traffic",
        f"{PAGE}.history:History.add",
        "if self._samples and not _follows(self._samples[-1], taken):",
        "if False:",
        f"{TESTS}/test_history.py",
    ),
    planted(
        "a name is not escaped",
        f"{PAGE}.rendering:_with_code",
        "return escape(line)",
        "return Markup(line)",
        f"{TESTS}/test_view.py",
    ),
    planted(
        "the node is sampled while nobody looks",
        f"{PAGE}.pages:Pages.run",
        "while trio.current_time() - self._looked_s < LOOKED_S:",
        "while True:",
        f"{TESTS}/test_pages.py",
    ),
    planted(
        "every viewer has the node asked",
        f"{PAGE}.pages:Pages._survey",
        "if database not in fresh:",
        "if True:",
        f"{TESTS}/test_pages.py",
    ),
)
