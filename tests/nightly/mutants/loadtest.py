"""Bugs planted in the load test: what may not go by uncounted, what may not be measured too kindly."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant

LOADTEST = "gossipkv.loadtest"
TESTS = "tests/unit/loadtest"
NEWEST = "for version in source.versions(name).names[-NEWEST_VERSIONS:]:"


def planted(name: str, edit: Edit, test: str, by: str = "property") -> Mutant:
    """Return a mutant of one line that one file of tests must see."""
    return Mutant(name, (edit,), (f"{TESTS}/{test}",), by)


MUTANTS_OF_THE_LOAD_TEST = (
    planted(
        "what an open loop took counts from when it was sent",
        Edit(f"{LOADTEST}._generator:Generator.ask", "slot.due_ns = due_ns", "slot.due_ns = now"),
        "test_generator.py",
    ),
    planted(
        "a connection that comes again has no free slots in an open loop",
        Edit(f"{LOADTEST}._generator:Generator.meet", "while link.lined_up < self.in_flight:", "while False:"),
        "test_generator.py",
    ),
    planted(
        "all stages are counted in the first",
        Edit(f"{LOADTEST}._generator:Generator.ask", "slot.stage = self.schedule.at", "slot.stage = 0"),
        "test_generator.py",
    ),
    planted(
        "a step back is one from what is newest when the answer comes",
        Edit(
            f"{LOADTEST}._ledger:Ledger.count",
            "if not reply.is_error and is_older(versions, note_version(versions, reply), slot.floor):",
            "if not reply.is_error and is_older(versions, note_version(versions, reply), versions.newest):",
        ),
        "test_truth_of_versions.py",
    ),
    planted(
        "every version is compared with the first one",
        Edit(
            f"{LOADTEST}._records:Records.table_of",
            "return self.tables[self.fallback] if self.fallback >= 0 else NULL",
            "return self.tables[0]",
        ),
        "test_truth_of_versions.py",
    ),
    planted(
        "a record that a scan left out is not missed",
        Edit(
            f"{LOADTEST}._dialect:Dialect.scan_record",
            "reply_wrong(reply, self.truth.ordered[scan.place - 1], NULL, 0)  # It was left out.",
            "pass",
        ),
        "test_truth_of_versions.py",
    ),
    planted(
        "zipf's places are taken without refusing any",
        Edit(
            f"{LOADTEST}._keys:KeyChooser.zipf",
            "if k - x <= self.near or area >= self.area(k + 0.5) - exp(-self.theta * log(k)):",
            "if True:",
        ),
        "test_keys.py",
    ),
    planted(
        "processes that share a rate all begin with its first request",
        Edit(
            f"{LOADTEST}._schedule:Schedule.__cinit__",
            "stage.offset_ns = 1e9 * turn / <double>rate",
            "stage.offset_ns = 0",
        ),
        "test_schedule.py",
    ),
    planted(
        "an end that HTTP told is not heeded",
        Edit(f"{LOADTEST}._http:HttpDialect.take", "reply.is_last = head.is_last", "reply.is_last = False"),
        "test_http.py",
    ),
    planted(
        "chunks are not put together",
        Edit(
            f"{LOADTEST}._http:HttpDialect.take_chunks",
            "body[0] = Blob(self.body.data, self.body.end)",
            "body[0] = Blob(at, 0)",
        ),
        "test_http.py",
    ),
    planted(
        "what follows a value of Redis is not looked at",
        Edit(
            f"{LOADTEST}._redis:RedisDialect.take_value",
            "if line.at[line.number] != CR or line.at[line.number + 1] != LF:",
            "if False:",
        ),
        "test_redis.py",
    ),
    planted(
        "the longest time of several processes is that of the last",
        Edit(
            f"{LOADTEST}.histograms:Counts.take",
            "self.maximum_ns = max(self.maximum_ns, maximum_ns)",
            "self.maximum_ns = maximum_ns",
        ),
        "test_histograms.py",
    ),
    planted(
        "what a version does not have is unknown",
        Edit(
            f"{LOADTEST}.truth:read_truth",
            "beside: list[Expected] = [None if is_whole else ...] * (len(keys) - told)",
            "beside: list[Expected] = [...] * (len(keys) - told)",
        ),
        "test_truth.py",
    ),
    planted(
        "of many versions of a source the oldest are compared with",
        Edit(f"{LOADTEST}.truth:_tables", NEWEST, NEWEST.replace("-NEWEST_VERSIONS:", ":NEWEST_VERSIONS")),
        "test_truth.py",
    ),
    planted(
        "all versions of a source are read, however many",
        Edit(f"{LOADTEST}.truth:_tables", NEWEST, NEWEST.replace("[-NEWEST_VERSIONS:]", "")),
        "test_truth.py",
    ),
    planted(
        "every node is believed about members",
        Edit(
            f"{LOADTEST}.watch:View.hear_members",
            "if number != min((at for at, answers in self._answers.items() if answers), default=number):",
            "if False:",
        ),
        "test_watch.py",
    ),
    planted(
        "all that was still to come is unsent after a stop",
        Edit(
            f"{LOADTEST}._generator:Generator.stop",
            "self.wanted = min(self.wanted, self.schedule.due_by(now - self.begun_ns)) if self.is_open else self.sent",
            "self.wanted = self.schedule.limit if self.is_open else self.sent",
        ),
        "test_generator.py",
    ),
    planted(
        "records of a scan may come in any order",
        Edit(
            f"{LOADTEST}._dialect:Dialect.scan_record",
            "if before > 0 or (before == 0 and not scan.is_first):",
            "if False:",
        ),
        "test_truth_of_versions.py",
    ),
    planted(
        "records of a scan over HTTP are not compared",
        Edit(
            f"{LOADTEST}._http:HttpDialect.judge_line",
            "self.scan_record(scan, &key, &value, reply)",
            "reply.unchecked += 1",
        ),
        "test_http.py",
    ),
    planted(
        "a version that comes later is always taken for whole",
        Edit(f"{LOADTEST}._records:Records.prepare", "late.whole = strangers == 0", "late.whole = True"),
        "test_truth_of_versions.py",
    ),
    Mutant(
        "versions that come later are not asked for",
        (
            Edit(
                f"{LOADTEST}.run:Conductor._hear",
                "for version in unknown_versions(said.value):",
                "for version in set[str]():",
            ),
        ),
        ("tests/ci/unit/loadtest/test_run.py",),
        "property",
    ),
    planted(
        "a server that began anew goes on with what the one before had taken",
        Edit(
            f"{LOADTEST}.server_cpu:between",
            "if name in after and after[name].by == spent.by and after[name].cpu_s >= spent.cpu_s",
            "if name in after and after[name].cpu_s >= spent.cpu_s",
        ),
        "test_server_cpu.py",
    ),
)
