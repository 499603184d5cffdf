"""`docs/clients.md`, made from the list of clients below and from the tests of each."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.programs import names_of_checks
from tests.support.servers import REPOSITORY

__all__ = ["BROKEN", "CLIENTS", "CLIENT_TESTS", "clients_page", "count_tests"]

CLIENT_TESTS = REPOSITORY / "tests" / "clients"


@dataclass(frozen=True)
class Client:
    """A row of the page."""

    package: str
    source: str
    """`python` and `node` are pinned in this repository; else who gives the version."""
    files: str
    """In tests/clients: modules without `test_`, or the source of a program in another language."""
    tried: str
    region: str
    """What of it works on a region of several."""
    notes: str = ""


CLIENTS = (
    Client(
        "redis",
        "python",
        "redis_py redis_py_asyncio redis_py_multidb redis_py_suite",
        "redis-py, sync and asyncio, RESP2 and RESP3: groups, blocking reads, transactions, "
        "pipelines, pools, messages, failover among regions; and the tests that redis-py itself "
        "has of streams, `Lock` and scripts",
        "streams, groups, messages, transactions, failover, `Lock` (also after a fail-over), "
        "scripts",
        "its tests are in its source archive, which is downloaded from PyPI; locks and scripts "
        "need `anabranch[lua]`",
    ),
    Client(
        "coredis",
        "python",
        "coredis",
        "groups, its `GroupConsumer`, pipelines, scripts",
        "groups, `GroupConsumer`",
        "RESP3 only",
    ),
    Client(
        "valkey-glide",
        "python",
        "valkey_glide",
        "RESP2 and RESP3: groups, blocking reads, transactions, scripts",
        "groups, blocking reads",
        "its core is in Rust",
    ),
    Client(
        "taskiq-redis",
        "python",
        "taskiq",
        "the stream broker and the result back end with worker processes; a worker that is killed "
        "with `kill -9` leaves tasks, another worker does them",
        "yes, where one region runs the workers; also after a fail-over",
        "needs `anabranch[lua]`; this broker looks for such tasks after it got a new one",
    ),
    Client(
        "faststream",
        "python",
        "faststream",
        "subscribers with and without a group, batches, entries of a dead consumer by "
        "`min_idle_time` (XAUTOCLAIM) and `claim_min_idle_time` (XREADGROUP CLAIM)",
        "yes",
    ),
    Client(
        "walrus",
        "python",
        "walrus",
        "streams, groups, time series, locks, rate limits, counters, cache, lists, sets",
        "streams, groups, locks, limits, lists, sets",
        "scripts need `anabranch[lua]`; `Hash`, `ZSet`, `BitField` and what is made of them do not "
        "work",
    ),
    Client(
        "pottery",
        "python",
        "script_users",
        "its `Redlock` on three servers",
        "`Redlock` with one region, also after a fail-over, `RedisSet`, `RedisList`; three regions "
        "of one cluster are no three masters",
        "needs `anabranch[lua]`",
    ),
    Client(
        "limits",
        "python",
        "script_users",
        "three strategies of rate limits, by several processes at once",
        "yes, also after a fail-over",
        "needs `anabranch[lua]`; `RedisStorage(..., retry=...)` repeats a hit whose connection "
        "was lost",
    ),
    Client(
        "python-redis-lock",
        "python",
        "python_redis_lock",
        "lock, a waiter that is woken, extend",
        "yes, also after a fail-over",
        "needs `anabranch[lua]`",
    ),
    Client(
        "cashews",
        "python",
        "cashews",
        "cache, counter, lock, keys by pattern",
        "yes, also after a fail-over",
        "its lock needs `anabranch[lua]`",
    ),
    Client(
        "broadcaster",
        "python",
        "broadcaster",
        "the back end `redis-stream://`",
        "yes",
    ),
    Client(
        "aiocache",
        "python",
        "aiocache",
        "`RedisCache` with `RedLock` and `OptimisticLock`",
        "yes",
        "needs `anabranch[lua]`",
    ),
    Client(
        "celery",
        "python",
        "celery",
        "with another broker: results, groups, chords",
        "not tried",
        'chords need `result_backend_transport_options = {"result_chord_ordered": False}` and '
        "`anabranch[lua]`; as a broker: below",
    ),
    Client(
        "django-redis",
        "python",
        "django_redis",
        "Django's cache, counters, keys by pattern, lock",
        "yes",
        "its lock needs `anabranch[lua]`",
    ),
    Client(
        "python-socketio",
        "python",
        "python_socketio",
        "a room hears what another process says, by `AsyncRedisManager` and `RedisManager`",
        "yes",
    ),
    Client(
        "pytest-redis",
        "python",
        "pytest_redis",
        "`--redis-exec=anabranch-server`, its fixtures `redisdb` and `redisdb_async`",
        "it starts servers of its own",
        "for new suites see [testing your application](testing-your-application.md)",
    ),
    Client(
        "ioredis",
        "node",
        "node/ioredis.mjs",
        "RESP2 and RESP3: groups, blocking reads, transactions, pipelines, messages",
        "streams, groups, messages",
    ),
    Client(
        "redis",
        "node",
        "node/node_redis.mjs",
        "node-redis, RESP2 and RESP3: groups, blocking reads, transactions, messages",
        "streams, groups, messages",
    ),
    Client(
        "rate-limiter-flexible",
        "node",
        "node/rate_limiter_flexible.mjs",
        "`RateLimiterRedis` over ioredis: limits, several processes, points given back",
        "yes, also after a fail-over",
        "needs `anabranch[lua]`",
    ),
    Client(
        "redlock",
        "node",
        "node/redlock.mjs",
        "over ioredis, with one server: lock, extend, unlock, who waits",
        "yes, also after a fail-over",
        "needs `anabranch[lua]`",
    ),
    Client(
        "@socket.io/redis-streams-adapter",
        "node",
        "node/socketio.mjs",
        "socket.io over node-redis: a room hears another process, a connection is recovered",
        "yes, also after a fail-over",
    ),
    Client(
        "connect-redis",
        "node",
        "node/connect_redis.mjs",
        "sessions of Express over node-redis: kept, touched, listed, removed",
        "yes",
    ),
    Client(
        "redigo",
        "Debian 12: 1.8.3",
        "go/redigo.go",
        "Go: groups, blocking reads, transactions, pipelines, scripts, messages, time-outs",
        "streams, groups, messages",
    ),
    Client(
        "go-redis",
        "Debian 12: 5.2.9",
        "leases",
        "Go: workers of a group with a lease, beside those of ioredis, redis-py, taskiq and "
        "faststream: one is killed, one takes long, one task always fails",
        "streams, groups",
        "newer versions are in no registry that CI reaches",
    ),
    Client(
        "phpredis",
        "Debian 12: 5.3.7",
        "php/phpredis.php",
        "PHP: ranges, groups, transactions, pipelines, scripts, sessions with locks",
        "streams, groups, messages; not sessions",
        "scripts and locks of sessions need `anabranch[lua]`",
    ),
    Client(
        "redis-rb",
        "Debian 12: 4.8.0",
        "ruby/redis_rb.rb",
        "Ruby: ranges, groups, blocking reads, transactions, pipelines, scripts, messages",
        "streams, groups, messages",
    ),
    Client(
        "redis-cli",
        "Debian 12 or Redis: 7.0.15",
        "redis_cli",
        "RESP2 and RESP3: commands, scripts, terminal with hints, `--stat`, `--bigkeys`, "
        "`--memkeys`, `--latency`, `--pipe`, `--scan`, MONITOR, messages",
        "yes, with streams",
        "`--rdb` ends with an error that names `anabranch export`; `--hotkeys` needs LFU, which "
        "is not here",
    ),
    Client(
        "redis-benchmark",
        "Debian 12 or Redis: 7.0.15",
        "redis_benchmark",
        "its tests of strings, lists and sets, pipelined and in RESP3; XADD as a command of "
        "the user",
        "XADD; its tests of other types end with the reason",
        "`-t hset`, `zadd` and `zpopmin` end with the reason",
    ),
    Client(
        "redis_exporter",
        "Debian 12: 1.45.0",
        "redis_exporter",
        "the program, in Go with redigo: streams, groups, keys, commands, memory",
        "yes, with streams",
        "its requests are compared with a Redis in `tests/system/test_exporter.py`",
    ),
    Client(
        "Redis Insight",
        "sequences of 2.x",
        "redis_insight",
        "connection, overview, browser of keys, views of a stream and its groups, profiler, slow "
        "log, replayed and compared with a Redis",
        "streams, if it lets the server choose IDs",
        "the program itself is not started",
    ),
)

BROKEN = (
    (
        "rq",
        "hashes",
        "`enqueue` raises `unknown command 'HSET'`",
        "test_rq_cannot_enqueue_a_job",
    ),
    (
        "arq",
        "sorted sets",
        "`enqueue_job` raises `unknown command 'ZADD'`",
        "test_arq_cannot_enqueue_a_job",
    ),
    (
        "celery, kombu",
        "sorted sets",
        "the worker ends with `unknown command 'ZRANGE'`; sending a task works",
        "test_a_worker_of_celery_ends_with_the_reason",
    ),
    (
        "kombu's `SimpleQueue`",
        "sorted sets",
        "sending works; taking a message raises `unknown command 'ZADD'`",
        "test_kombu_cannot_take_a_message",
    ),
    (
        "huey",
        "hashes",
        "a task is queued; carrying it out raises `unknown command 'HMGET'`",
        "test_huey_queues_a_task_and_cannot_do_it",
    ),
    (
        "BullMQ, Bull (n8n)",
        "hashes, sorted sets",
        "`add` raises `Unknown Redis command called from script: 'HGET'`, in Bull `'HMSET'`",
        "test_a_queue_of_node_takes_no_job",
    ),
    (
        "any client",
        "hashes, sorted sets, geospatial indexes, bitmaps, HyperLogLogs, JSON, search, time series",
        "`unknown command 'HSET', with args beginning with: ...`, and behind these words of Redis "
        "that this is a stream server",
        "test_redis_py_names_the_command",
    ),
)

BY_HAND = (
    # Package, where it is from, what was tried, on a server, on a region.
    (
        "ioredis 4.31.0 and 5.11.1",
        "npm",
        "groups, blocked reads, messages, MULTI",
        "yes",
        "streams",
    ),
    (
        "redis 3.1.2, 4.7.1, 5.12.1",
        "npm",
        "groups, blocked reads, messages, MULTI",
        "yes",
        "streams",
    ),
    ("channels-redis 4.3.0, pubsub", "PyPI", "a message to a group", "yes", "yes"),
    ("Redis 2.000 for Perl", "Debian 12", "adding, ranges, groups", "yes", "yes"),
    ("Predis 1.1.10 for PHP", "Debian 12", "XADD, pipelines, transactions", "yes", "streams"),
    ("lua-redis 2.0.5", "Debian 12", "XADD, XRANGE, strings, transactions", "yes", "streams"),
    ("redis-sentinel 7.0.15", "Debian 12", "watching: up or down", "yes", "yes"),
    ("zabbix-agent2 6.0.14", "Debian 12", "ping, slow log, configuration", "yes", "yes"),
    (
        "collectd 5.12.0",
        "Debian 12",
        "its plugin redis, a query of its own with XLEN",
        "yes",
        "yes",
    ),
    ("rsyslog 8.2302.0", "Debian 12", "omhiredis: `queue`, `publish`", "yes", "`publish`"),
    ("twemproxy 0.5.0", "Debian 12", "strings, sets, lists; it knows no streams", "yes", "yes"),
    ("replayrail 0.2.0", "PyPI", "publishing, replaying", "yes", "yes"),
    ("redis-streams 0.3.0", "PyPI", "a consumer, its monitor", "yes", "yes"),
    ("redqueue 0.14.0, plain tasks", "PyPI", "both back ends: stream and list", "yes", "stream"),
    ("telstar 1.1.3", "PyPI", "a producer, a consumer of a group", "yes", "yes"),
    ("atomic-redis-streams 0.1.0", "PyPI", "a handler without state", "yes", "yes"),
    ("redisaq 0.1.5", "PyPI", "a producer, a consumer of a group", "yes", "yes"),
    ("redis-semaphore 5.8.0", "npm", "`Mutex`", "yes", "yes"),
    ("node-resque 9.7.1", "npm", "adding to a queue", "yes", "yes"),
    ("redis-semaphore 5.8.0", "npm", "`Semaphore`", "no: ZREMRANGEBYSCORE", "no"),
    ("bee-queue 2.0.0", "npm", "adding a job", "no: HEXISTS", "no"),
    ("Symfony Messenger 5.4.53", "Debian 12", "taking a message", "no: ZCOUNT", "no"),
    ("redis-fifo-lock 0.3.2", "PyPI", "taking the lock", "no: ZSCORE", "no"),
    ("redqueue 0.14.0, delayed tasks", "PyPI", "delaying a task", "no: ZADD", "no"),
    ("atomic-redis-streams 0.1.0", "PyPI", "a handler with state", "no: HGETALL", "no"),
    ("dramatiq 2.2.1", "PyPI", "sending a message", "no: ZADD", "no"),
    ("saq 0.26.4", "PyPI", "adding a job", "no: ZSCORE", "no"),
    (
        "streaq 7.2.0",
        "PyPI",
        "the task is queued; its worker",
        "no: ZREMRANGEBYSCORE",
        "no",
    ),
    (
        "channels-redis 4.3.0, core",
        "PyPI",
        "a message to a channel",
        "no: ZREMRANGEBYSCORE",
        "no",
    ),
)


def count_tests(client: Client) -> int:
    """How many tests the files of a row have; each with all its parameters counts once."""
    if "/" in client.files:
        return len(names_of_checks(CLIENT_TESTS / client.files))
    count = 0
    for name in client.files.split():
        tree = ast.parse((CLIENT_TESTS / f"test_{name}.py").read_text("utf-8"))
        count += sum(
            isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and each.name.startswith("test_")
            for each in tree.body
        )
    return count


def version_of(client: Client) -> str:
    """The pinned version of a package."""
    if client.source == "python":
        for line in (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines():
            name, _, version = line.partition("==")
            if name == client.package:
                return version
        raise AssertionError(f"constraints.txt does not pin {client.package}")
    if client.source == "node":
        lock = json.loads((CLIENT_TESTS / "node" / "package-lock.json").read_text("utf-8"))
        version: str = lock["packages"][f"node_modules/{client.package}"]["version"]
        return version
    return client.source


def _title(client: Client) -> str:
    registry = {"python": " (PyPI)", "node": " (npm)"}
    return client.package + registry.get(client.source, "")


def clients_page() -> str:
    """The page of clients."""
    return "".join(_page())


def _page() -> Iterator[str]:
    yield (
        "<!-- Made by `python -m tests.house.generate_docs` from `tests/house/clients.py`. "
        "Do not edit. -->\n\n"
        "# Clients and frameworks\n\n"
        "After this page you know which clients, frameworks and tools work with this server, and "
        "which do not.\n\n"
        "Every row is tests in `tests/clients/`, with the real package in this version, over a "
        "socket, against a server process. CI runs them. `make setup` installs the packages "
        "(`pip install --group compat --constraint constraints.txt`); where a package is "
        "missing its tests are skipped with a message; in CI a missing package of PyPI or npm is a "
        "failure. On Debian, as root, `make test` installs the packages of Debian. *Tests* counts "
        "test functions, or the checks of a program in another language; many run with several "
        "parameters.\n\n"
        "## What works\n\n"
        "| Package | Version | What is tried | On a region | Tests | Notes |\n"
        "|---|---|---|---|---|---|\n"
    )
    for client in CLIENTS:
        yield (
            f"| {_title(client)} | {version_of(client)} | {client.tried} "
            f"| {client.region} | {count_tests(client)} | {client.notes} |\n"
        )
    yield (
        "\n*On a region*: what a lock promises there is in "
        "[active-active.md](active-active.md#what-a-lock-promises), what a list that several "
        "regions pop from promises [below it](active-active.md#lists). A client that chooses whole "
        "IDs itself needs `xadd-id-uniqueness-mode liberal` there. The column was found by "
        "running all tests against a region; `tests/clients/test_on_a_region.py` runs some of them "
        "in CI. *After a fail-over*: the region dies, and its address leads to another one that "
        "had received what was written; the client connects again and goes on "
        "(`tests/clients/test_after_a_fail_over.py`). The ten libraries that are downloaded most "
        "(npm and PyPI, November 2026) are among the tests.\n\n"
        "The core of valkey-glide is in Rust, redis-cli and redis-benchmark are in C. No client "
        "for Java or .NET is tried: their registries cannot be reached where CI runs.\n\n"
        "## What does not work\n\n"
        "| Library | Needs | What its user sees |\n|---|---|---|\n"
    )
    for library, needs, seen, _ in BROKEN:
        yield f"| {library} | {needs} | {seen} |\n"
    yield (
        "\n## Tried by hand\n\n"
        "Once, in November 2026, without a test here. A *no* has the command that is "
        "missing.\n\n"
        "| Package | From | What was tried | On a server | On a region |\n|---|---|---|---|---|\n"
    )
    for row in BY_HAND:
        yield f"| {' | '.join(row)} |\n"
    yield (
        "\nAll commands of Redis that are missing: [commands.md](commands.md#not-here). "
        "Replies that differ from those of Redis: [compatibility.md](compatibility.md).\n"
    )
