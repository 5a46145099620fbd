"""Jobs outlive the requests that ask for them, but not the client's interest."""

import pytest
import trio

from gossipkv.backup.jobs import LEASE_S, MAX_JOBS, MAX_KEPT, Jobs, Progress, Work
from gossipkv.errors import Conflict, Overloaded, Unavailable, Unknown

RUNNING = {"state": "running", "table": "", "done": 0, "total": 0, "records": 0, "bytes": 0}


@pytest.fixture
async def jobs(nursery, autojump_clock):
    jobs = Jobs()
    await nursery.start(jobs.run)
    return jobs


def work(seconds=0.0, error=None):
    """Return a work that takes so long; it notes its begin and its end."""

    async def run():
        run.begun += 1
        try:
            await trio.sleep(seconds)
        finally:
            run.ended += 1
        if error is not None:
            raise error
        return {"backup": "b"}

    run.begun = run.ended = 0
    return run


def job(run, progress=None, key=None):
    """Return the work of a job; that of a key that no other job has, unless given."""
    return Work(key or (object(),), progress or Progress(), run)


async def test_the_first_request_starts_it_and_each_one_waits(jobs, autojump_clock):
    progress, slow = Progress(), work(2.5)
    assert await jobs.ask(b"1", 1.0, job(slow, progress)) == RUNNING
    progress.done = 7
    assert await jobs.ask(b"1", 1.0, job(work())) == {**RUNNING, "done": 7}
    assert trio.current_time() == pytest.approx(2.0)
    assert await jobs.ask(b"1", 9.0, job(work())) == {"state": "done", "backup": "b"}
    assert trio.current_time() == pytest.approx(2.5)
    assert (slow.begun, slow.ended) == (1, 1)
    assert await jobs.ask(b"1", 9.0, job(work(error=Conflict("x")))) == {"state": "done", "backup": "b"}


async def test_several_wait_for_the_same_end(jobs, nursery, autojump_clock):
    answers, slow = [], work(2)

    async def ask():
        answers.append(await jobs.ask(b"1", 9.0, job(slow)))

    for _ in range(3):
        nursery.start_soon(ask)
    await trio.sleep(3)
    assert answers == [{"state": "done", "backup": "b"}] * 3
    assert slow.begun == 1


@pytest.mark.parametrize("error", [Conflict("taken"), ExceptionGroup("", [ExceptionGroup("", [Conflict("taken")])])])
async def test_its_error_is_that_of_each_request(jobs, autojump_clock, error):
    for _ in range(2):
        with pytest.raises(Conflict, match="taken"):
            await jobs.ask(b"1", 9.0, job(work(1, error)))


async def test_a_defect_ends_the_job_and_not_the_node(jobs, autojump_clock, caplog):
    with pytest.raises(Unknown, match="a defect of the node ended the job"):
        await jobs.ask(b"1", 9.0, job(work(1, ZeroDivisionError())))
    assert "job_failed" in caplog.text
    assert await jobs.ask(b"2", 9.0, job(work())) == {"state": "done", "backup": "b"}


async def test_a_job_for_which_nobody_asks_is_cancelled(jobs, autojump_clock):
    """A request that waits keeps it, however long."""
    slow = work(10 * LEASE_S)
    await jobs.ask(b"1", 3 * LEASE_S, job(slow))
    await trio.sleep(LEASE_S * 0.9)
    await jobs.ask(b"1", 0.0, job(slow))
    await trio.sleep(LEASE_S * 0.9)
    assert (slow.ended, jobs.runs()) == (0, 1)
    await trio.sleep(LEASE_S * 0.3)
    assert (slow.ended, jobs.runs()) == (1, 0)
    with pytest.raises(Unknown, match="the job was cancelled"):
        await jobs.ask(b"1", 1.0, job(slow))


async def test_a_cancelled_job_ends(jobs, autojump_clock):
    slow = work(99)
    await jobs.ask(b"1", 1.0, job(slow))
    jobs.cancel(b"1")
    jobs.cancel(b"2")
    with pytest.raises(Unknown, match="the job was cancelled"):
        await jobs.ask(b"1", 1.0, job(slow))
    assert slow.ended == 1


async def test_only_some_run_at_once_and_old_results_go(jobs, autojump_clock):
    for number in range(MAX_JOBS):
        await jobs.ask(b"%d" % number, 0.0, job(work(5)))
    with pytest.raises(Overloaded, match="wait until one ends"):
        await jobs.ask(b"more", 0.0, job(work()))
    await trio.sleep(6)
    for number in range(3 * MAX_KEPT):
        await jobs.ask(b"next %d" % number, 1.0, job(work()))
    assert len(jobs._jobs) <= MAX_KEPT + 1


async def test_without_a_running_node():
    with pytest.raises(Unavailable):
        await Jobs().ask(b"1", 0.0, job(work()))


async def test_the_same_work_goes_on(jobs, autojump_clock):
    """A client that was killed asks again, under another id; what was heard, or is no longer so, is made anew."""
    still, slow = [True], work(2)
    same = Work(("restore", "/b"), Progress(), slow, lambda: still[0])
    assert (await jobs.ask(b"1", 1.0, same))["state"] == "running"
    assert (await jobs.ask(b"2", 0.0, same))["state"] == "running"
    await trio.sleep(5)
    assert jobs.runs() == 0
    assert (await jobs.ask(b"3", 9.0, same))["state"] == "done"
    assert slow.begun == 1
    await jobs.ask(b"4", 0.0, same)
    await trio.sleep(5)
    still[0] = False
    await jobs.ask(b"5", 9.0, same)
    assert slow.begun == 3
