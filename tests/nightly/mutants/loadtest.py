"""Bugs planted in the load test: what may not go by uncounted, what may not be measured too kindly."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

LOADTEST = "gossipkv.loadtest"
TESTS = "tests/unit/loadtest"
NEWEST = "for version in source.versions(name).names[-NEWEST_VERSIONS:]:"


MUTANTS_OF_THE_LOAD_TEST = (
    planted(
        "what an open loop took counts from when it was sent",
        f"{LOADTEST}._generator:Generator.ask",
        "slot.due_ns = due_ns",
        "slot.due_ns = now",
        f"{TESTS}/test_generator.py",
    ),
    planted(
        "a connection that comes again has no free slots in an open loop",
        f"{LOADTEST}._generator:Generator.come_up",
        "while self.is_open and link.lined_up < self.in_flight:",
        "while False:",
        f"{TESTS}/test_generator.py",
    ),
    planted(
        "what TLS has read ahead waits for more to come",
        f"{LOADTEST}._generator:Generator.serve",
        "while link.fd >= 0 and self.receive(link):",
        "while link.fd >= 0 and self.receive(link) and False:",
        f"{TESTS}/test_secured.py",
    ),
    planted(
        "a certificate of another host is taken by the load test",
        "gossipkv.serving._tls:TlsClient.dial",
        "if openssl.set_fd(tls, fd) != 1 or openssl.set_host(tls, self.host_text) != 1:",
        "if openssl.set_fd(tls, fd) != 1:",
        f"{TESTS}/test_secured.py",
    ),
    planted(
        "whoever has signed is trusted by the load test",
        "gossipkv.serving._tls:TlsClient.__cinit__",
        "openssl.set_verify(self.context, VERIFY_PEER, NULL)",
        "pass",
        f"{TESTS}/test_secured.py",
    ),
    planted(
        "a token that is refused is taken for one that is not",
        f"{LOADTEST}._rpc:RpcDialect.take_greeting",
        "return COMPLETE if take_response(&cursor, &id) and take_nil(&cursor) else GARBAGE",
        "return COMPLETE",
        f"{TESTS}/test_secured.py",
    ),
    planted(
        "all stages are counted in the first",
        f"{LOADTEST}._generator:Generator.ask",
        "slot.stage = self.schedule.at",
        "slot.stage = 0",
        f"{TESTS}/test_generator.py",
    ),
    planted(
        "a step back is one from what is newest when the answer comes",
        f"{LOADTEST}._ledger:Ledger.count",
        "if not reply.is_error and is_older(versions, note_version(versions, reply), slot.floor):",
        "if not reply.is_error and is_older(versions, note_version(versions, reply), versions.newest):",
        f"{TESTS}/test_truth_of_versions.py",
    ),
    planted(
        "every version is compared with the first one",
        f"{LOADTEST}._records:Records.table_of",
        "return self.tables[self.fallback] if self.fallback >= 0 else NULL",
        "return self.tables[0]",
        f"{TESTS}/test_truth_of_versions.py",
    ),
    planted(
        "a record that a scan left out is not missed",
        f"{LOADTEST}._dialect:Dialect.scan_record",
        "reply_wrong(reply, self.truth.ordered[scan.place - 1], NULL, 0)  # It was left out.",
        "pass",
        f"{TESTS}/test_truth_of_versions.py",
    ),
    planted(
        "zipf's places are taken without refusing any",
        f"{LOADTEST}._keys:KeyChooser.zipf",
        "if k - x <= self.near or area >= self.area(k + 0.5) - exp(-self.theta * log(k)):",
        "if True:",
        f"{TESTS}/test_keys.py",
    ),
    planted(
        "processes that share a rate all begin with its first request",
        f"{LOADTEST}._schedule:Schedule.__cinit__",
        "stage.offset_ns = 1e9 * turn / <double>rate",
        "stage.offset_ns = 0",
        f"{TESTS}/test_schedule.py",
    ),
    planted(
        "an end that HTTP told is not heeded",
        f"{LOADTEST}._http:HttpDialect.take",
        "reply.is_last = head.is_last",
        "reply.is_last = False",
        f"{TESTS}/test_http.py",
    ),
    planted(
        "chunks are not put together",
        f"{LOADTEST}._http:HttpDialect.take_chunks",
        "body[0] = Blob(self.body.data, self.body.end)",
        "body[0] = Blob(at, 0)",
        f"{TESTS}/test_http.py",
    ),
    planted(
        "what follows a value of Redis is not looked at",
        f"{LOADTEST}._redis:RedisDialect.take_value",
        "if line.at[line.number] != CR or line.at[line.number + 1] != LF:",
        "if False:",
        f"{TESTS}/test_redis.py",
    ),
    planted(
        "the longest time of several processes is that of the last",
        f"{LOADTEST}.histograms:Counts.take",
        "self.maximum_ns = max(self.maximum_ns, maximum_ns)",
        "self.maximum_ns = maximum_ns",
        f"{TESTS}/test_histograms.py",
    ),
    planted(
        "what a version does not have is unknown",
        f"{LOADTEST}.truth:read_truth",
        "beside: list[Expected] = [None if is_whole else ...] * (len(keys) - told)",
        "beside: list[Expected] = [...] * (len(keys) - told)",
        f"{TESTS}/test_truth.py",
    ),
    planted(
        "of many versions of a source the oldest are compared with",
        f"{LOADTEST}.truth:_tables",
        NEWEST,
        NEWEST.replace("-NEWEST_VERSIONS:", ":NEWEST_VERSIONS"),
        f"{TESTS}/test_truth.py",
    ),
    planted(
        "all versions of a source are read, however many",
        f"{LOADTEST}.truth:_tables",
        NEWEST,
        NEWEST.replace("[-NEWEST_VERSIONS:]", ""),
        f"{TESTS}/test_truth.py",
    ),
    planted(
        "every node is believed about members",
        f"{LOADTEST}.watch:View.hear_members",
        "if number != min((at for at, answers in self._answers.items() if answers), default=number):",
        "if False:",
        f"{TESTS}/test_watch.py",
    ),
    planted(
        "all that was still to come is unsent after a stop",
        f"{LOADTEST}._generator:Generator.stop",
        "self.wanted = min(self.wanted, self.schedule.due_by(now - self.begun_ns)) if self.is_open else self.sent",
        "self.wanted = self.schedule.limit if self.is_open else self.sent",
        f"{TESTS}/test_generator.py",
    ),
    planted(
        "records of a scan may come in any order",
        f"{LOADTEST}._dialect:Dialect.scan_record",
        "if before > 0 or (before == 0 and not scan.is_first):",
        "if False:",
        f"{TESTS}/test_truth_of_versions.py",
    ),
    planted(
        "records of a scan over HTTP are not compared",
        f"{LOADTEST}._http:HttpDialect.judge_line",
        "self.scan_record(scan, &key, &value, reply)",
        "reply.unchecked += 1",
        f"{TESTS}/test_http.py",
    ),
    planted(
        "a version that comes later is always taken for whole",
        f"{LOADTEST}._records:Records.prepare",
        "late.whole = strangers == 0",
        "late.whole = True",
        f"{TESTS}/test_truth_of_versions.py",
    ),
    planted(
        "versions that come later are not asked for",
        f"{LOADTEST}.run:Conductor._hear",
        "for version in unknown_versions(said.value):",
        "for version in set[str]():",
        "tests/ci/unit/loadtest/test_run.py",
    ),
    planted(
        "a server that began anew goes on with what the one before had taken",
        f"{LOADTEST}.server_cpu:between",
        "if name in after and after[name].by == spent.by and after[name].cpu_s >= spent.cpu_s",
        "if name in after and after[name].cpu_s >= spent.cpu_s",
        f"{TESTS}/test_server_cpu.py",
    ),
)
