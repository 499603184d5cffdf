"""Libraries that need hashes or sorted sets: what their users see is the name of the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

CELERY = """
from celery import Celery

app = Celery("test", broker="redis://127.0.0.1:{port}/0")
app.conf.broker_connection_retry_on_startup = False


@app.task(name="add")
def add(x, y):
    return x + y
"""


def unknown(name: str) -> str:
    return rf"unknown command '{name}'.*a stream server"


def test_rq_cannot_enqueue_a_job(server: AnabranchServer) -> None:
    rq = required("rq")
    with redis.Redis(port=server.port) as client:
        queue = rq.Queue(connection=client)
        with pytest.raises(redis.ResponseError, match=unknown("HSET")):
            queue.enqueue("os.getpid")


@in_a_loop_of_its_own
async def test_arq_cannot_enqueue_a_job(server: AnabranchServer) -> None:
    arq = required("arq")
    connections = required("arq.connections")
    pool = await arq.create_pool(connections.RedisSettings(port=server.port))
    try:
        with pytest.raises(redis.ResponseError, match=unknown("ZADD")):
            await pool.enqueue_job("task")
    finally:
        await pool.aclose()


def test_a_worker_of_celery_ends_with_the_reason(server: AnabranchServer, tmp_path: Path) -> None:
    required("celery")
    (tmp_path / "application.py").write_text(CELERY.format(port=server.port))
    worker = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "celery", "-A", "application", "worker"),
            *("--pool", "solo", "--without-gossip", "--without-mingle"),
        ],
        cwd=tmp_path,
        env={**os.environ, "C_FORCE_ROOT": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert worker.returncode != 0
    assert "unknown command 'ZRANGE'" in worker.stdout + worker.stderr
    assert "Anabranch is a stream server and has no sorted sets" in worker.stdout + worker.stderr


def test_kombu_cannot_take_a_message(server: AnabranchServer) -> None:
    kombu = required("kombu")
    with kombu.Connection(f"redis://127.0.0.1:{server.port}/0") as connection:
        queue = connection.SimpleQueue("mail")
        queue.put({"to": "ann"})
        with pytest.raises(redis.ResponseError, match=unknown("ZADD")):
            queue.get(timeout=30)


def test_huey_queues_a_task_and_cannot_do_it(server: AnabranchServer) -> None:
    application = required("huey").RedisHuey("mail", port=server.port)
    send = application.task()(lambda to: to)
    send("ann")
    with pytest.raises(redis.ResponseError, match=unknown("HMGET")):
        application.execute(application.dequeue())


@pytest.mark.parametrize(("library", "name"), [("bullmq", "HGET"), ("bull", "HMSET")])
def test_a_queue_of_node_takes_no_job(
    node_project: Path, server: AnabranchServer, library: str, name: str
) -> None:
    done = subprocess.run(
        ["node", "queues.mjs", str(server.port), library],
        cwd=node_project,
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    reason = f"called from script: '{name}' (Anabranch is a stream server and has no hashes"
    assert reason in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda client: client.hset("k", "f", "v"), "HSET"),
        (lambda client: client.zadd("k", {"m": 1}), "ZADD"),
        (lambda client: client.geoadd("k", (0, 0, "m")), "GEOADD"),
        (lambda client: client.setbit("k", 0, 1), "SETBIT"),
        (lambda client: client.pfadd("k", "m"), "PFADD"),
        (lambda client: client.sort("k"), "SORT"),
        (lambda client: client.json().set("k", "$", 1), "JSON.SET"),
        (lambda client: client.ft("i").search("q"), "FT.SEARCH"),
        (lambda client: client.ts().add("k", 1, 1), "TS.ADD"),
        (lambda client: client.bf().add("k", "m"), "BF.ADD"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_redis_py_names_the_command(
    server: AnabranchServer, use: Callable[[Any], object], name: str
) -> None:
    with (
        redis.Redis(port=server.port) as client,
        pytest.raises(redis.ResponseError, match=unknown(name)),
    ):
        use(client)
