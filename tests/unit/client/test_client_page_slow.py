"""Slow tests of the client's page; the fast ones are in `test_client_page.py`."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError, URLError

import celery

from tests.ports import quiet_ports
from tests.unit.client.certificates import Authority
from tests.unit.client.fake_node import FakeNode, store

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "users" / "client.md").read_text(encoding="utf-8")
RECORDS = {b"france": b"Paris", b"peru": b"Lima", b"portugal": b"Lisbon", b"x": b""}
GUNICORN = [sys.executable, "-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:PORT"]
# Programs that other pages have in full, or that this page describes in a sentence.
FASTAPI = """
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

import gossipkv


@asynccontextmanager
async def lifespan(app):
    async with gossipkv.aio.connect("127.0.0.1:7070") as client:
        app.state.capitals = client.dataset("capitals")
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/capitals/{country}")
async def capital(country: str, request: Request):
    value = await request.app.state.capitals.get(country)
    if value is None:
        raise HTTPException(404, f"there is no {country}")
    return {"capital": value.decode()}
"""
CELERY = """
from celery import Celery

import gossipkv

app = Celery("tasks", broker="amqp://localhost")
client = gossipkv.blocking.connect("127.0.0.1:7070")
capitals = client.dataset("capitals")


@app.task
def capital(country):
    value = capitals.get(country)
    return None if value is None else value.decode()
"""
CELL = """
# A cell; the client stays open for later cells, until: await client.aclose()
import gossipkv

client = await gossipkv.aio.connect("127.0.0.1:7070")
capitals = client.dataset("capitals")
{key: value async for key, value in capitals.scan(prefix="p")}
"""
FASTAPI_ANSWERS = [(200, {"capital": "Lima"}), (404, {"detail": "there is no atlantis"})] * 300


def run_program(program: str, directory: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), program


def run_for_spark(program: str, directory: Path) -> None:
    run_program(
        program + "assert list(enrich([b'peru', b'atlantis'])) == [(b'peru', b'Lima'), (b'atlantis', None)]\n",
        directory,
    )


def run_fastapi(program: str, directory: Path) -> None:
    """The service answers all requests of several threads, and ends without a complaint."""
    (directory / "service.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "uvicorn", "service:app", "--log-level", "warning", "--port", "PORT"]
    answers, said = answers_of(command, directory)
    assert answers == FASTAPI_ANSWERS
    assert said == ""
    answers, said = answers_of([*GUNICORN, "--worker-class", "asgi", "service:app"], directory)
    assert answers == FASTAPI_ANSWERS
    assert "Traceback" not in said


def answers_of(command: list[str], directory: Path) -> tuple[list[tuple[int, object]], str]:
    """Return the answers of a service to the requests of several threads, and the text of its standard error."""
    (port,) = quiet_ports(1)

    def get(country: str) -> tuple[int, object]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/capitals/{country}", timeout=30) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                is_json = error.headers.get_content_type() == "application/json"
                return error.code, json.load(error) if is_json else None

    environment = os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
    with (
        subprocess.Popen(
            [each.replace("PORT", str(port)) for each in command], env=environment, stderr=subprocess.PIPE, text=True
        ) as service,
        ThreadPoolExecutor(16) as threads,
    ):
        while service.poll() is None:
            try:
                get("peru")
                break
            except URLError:  # It does not listen yet.
                time.sleep(0.05)
        answers = list(threads.map(get, ["peru", "atlantis"] * 300))
        service.send_signal(signal.SIGTERM)
        _, said = service.communicate(timeout=60)
    return answers, said


def run_flask(program: str, directory: Path) -> None:
    """The service answers all requests, each in a thread; also in processes forked from one that has the client."""
    (directory / "flask_service.py").write_text(program, encoding="utf-8")
    for command in (
        [sys.executable, "-m", "flask", "--app", "flask_service", "run", "--port", "PORT"],
        [*GUNICORN, "--threads", "16", "--preload", "flask_service:app"],
    ):
        answers, said = answers_of(command, directory)
        assert answers == [(200, {"capital": "Lima"}), (404, None)] * 300
        assert "Traceback" not in said


def run_celery(program: str, directory: Path) -> None:
    """The forked workers do all tasks with the client that they inherited; the broker is a directory."""
    place = directory / "broker"
    place.mkdir()
    folders = dict.fromkeys(("data_folder_in", "data_folder_out"), str(place)) | {"control_folder": str(place)}
    settings = {
        "broker_url": "filesystem://",
        "broker_transport_options": folders,
        "result_backend": f"file://{place}",
        "worker_prefetch_multiplier": 1,
    }
    (directory / "tasks.py").write_text(f"{program}\napp.conf.update({settings!r})\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "celery",
        "--app",
        "tasks",
        "worker",
        "--concurrency",
        "2",
        "--loglevel",
        "warning",
    ]
    app = celery.Celery("tasks")
    app.conf.update(settings)
    environment = os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as worker:
        asked = [app.send_task("tasks.capital", [country]) for country in ["peru", "atlantis"] * 20]
        try:
            found = [each.get(timeout=60) for each in asked]
        finally:
            worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=60)
    assert found == ["Lima", None] * 20
    assert "Traceback" not in said


def run_cell(program: str, directory: Path) -> None:
    """The cell runs in a loop that is busy with the notebook, and shows the records."""

    async def notebook() -> object:
        *before, last = ast.parse(program).body
        names: dict[str, object] = {}
        for kind, node in (("exec", ast.Module(before, [])), ("eval", ast.Expression(last.value))):
            cell = eval(compile(node, "cell", kind, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            shown = await cell
        await names["client"].aclose()
        return shown

    assert asyncio.run(notebook()) == {key: RECORDS[key] for key in (b"peru", b"portugal")}


# How a program runs that holds a word; others run by themselves.
RUNNERS = {
    "FastAPI": run_fastapi,
    "Flask": run_flask,
    "Celery": run_celery,
    "# A cell": run_cell,
    "def enrich": run_for_spark,
}


def test_every_example_runs(tmp_path):
    """Each block of Python is a whole program, as are the others; only addresses and certificates are replaced."""
    authority = Authority(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 6
    secured = FakeNode(store(RECORDS), tls=authority.node("127.0.0.1", asks=True))
    with FakeNode(store(RECORDS)) as plain, secured:
        for block in (*blocks, FASTAPI, CELERY, CELL):
            node = secured if "tls=" in block else plain
            program = re.sub(r"(127\.0\.0\.1|10\.0\.0\.1):7070", node.address, block)
            program = program.replace("/etc/gossipkv/certificates/ca.pem", str(authority.file))
            pair = str(authority.pair("ana"))
            program = re.sub(r"/etc/gossipkv/certificates/ana\.(pem|key)", pair, program)
            assert program.count(node.address) > 0
            before = plain.accepted, secured.accepted
            run = next((run for word, run in RUNNERS.items() if word in block), run_program)
            run(program, tmp_path)
            assert (plain.accepted, secured.accepted) != before
