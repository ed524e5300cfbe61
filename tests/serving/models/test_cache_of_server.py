"""The cache of a server: its metrics, and what leaves it with a model."""

from __future__ import annotations

from tests.support.echo_engine import running
from tests.support.reload_harness import running_with_admin_port
from tests.support.timing import eventually

TEXT = "Tom lives in Boston."


async def test_a_server_keeps_translations_only_if_it_is_told_to() -> None:
    async with running() as server:
        assert await server.translate(TEXT) == await server.translate(TEXT)
        assert server.runner.encoded > 1
        assert server.metric("lingon_cache_lookups_total", outcome="miss") == 0


async def test_the_metrics_count_hits_misses_and_bytes() -> None:
    async with running(cache=1) as server:
        first = await server.translate(TEXT)
        assert await server.translate(TEXT) == first
        await server.translate(TEXT, "Nobody knows.")
        assert server.metric("lingon_cache_lookups_total", outcome="hit") == 2
        assert server.metric("lingon_cache_lookups_total", outcome="miss") == 2
        assert server.metric("lingon_cache_evictions_total") == 0
        assert server.metric("lingon_cache_bytes") > 0


async def test_the_translations_of_a_replaced_model_leave_the_cache() -> None:
    async with running_with_admin_port(cache=1) as admin:
        before = await admin.server.translate(TEXT)
        assert admin.server.metric("lingon_cache_bytes") > 0
        await admin.swap(admin.publish(2))
        await eventually(lambda: admin.server.metric("lingon_cache_bytes") == 0)
        after = await admin.server.translate(TEXT)
        assert (before.version, after.version) == ("1", "2")
        assert admin.server.metric("lingon_cache_lookups_total", outcome="hit") == 0
