"""django-redis: Django's cache on strings, and its lock."""

from __future__ import annotations

from typing import Any

from tests.support.packages import required
from tests.support.servers import AnabranchServer

conf = required("django.conf")
required("django_redis")
if not conf.settings.configured:
    conf.settings.configure()
django_cache = required("django_redis.cache")


def cache_of(server: AnabranchServer) -> Any:
    return django_cache.RedisCache(f"redis://127.0.0.1:{server.port}/1", {})


def test_values_are_kept_counted_and_deleted(server: AnabranchServer) -> None:
    cache = cache_of(server)
    assert cache.set("a", {"x": 1}, timeout=100)
    assert cache.get("a") == {"x": 1}
    assert 0 < cache.ttl("a") <= 100
    assert not cache.add("a", "other")
    cache.set_many({"b": 1, "c": 2})
    assert cache.get_many(["b", "c", "d"]) == {"b": 1, "c": 2}
    assert cache.incr("b", 5) == 6
    assert cache.touch("b", 50)
    assert cache.delete("a")
    assert cache.get("a", "none") == "none"
    cache.clear()
    assert cache.get("b") is None


def test_keys_are_found_and_deleted_by_a_pattern(server: AnabranchServer) -> None:
    cache = cache_of(server)
    for number in range(30):
        cache.set(f"user:{number}", number)
    cache.set("other", 1)
    assert sorted(cache.iter_keys("user:1?")) == [f"user:{number}" for number in range(10, 20)]
    assert cache.delete_pattern("user:*") == 30
    assert cache.keys("*") == ["other"]


def test_its_lock_lets_one_in_at_a_time(server: AnabranchServer) -> None:
    cache = cache_of(server)
    with cache.lock("door", timeout=60):
        assert not cache.lock("door", timeout=60).acquire(blocking=False)
    assert cache.lock("door", timeout=60).acquire(blocking=False)
