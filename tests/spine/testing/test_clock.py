"""A fake clock waits for nothing, and wakes sleepers in the order of their times."""

import random
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.errors import UsageError
from spine.testing.clock import START, FakeClock, FakeIds, FakeRandom


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    assert clock.now() == clock.now() == int(START.timestamp()) * 1_000_000
    clock.advance(1.5)
    assert clock.now() == int(START.timestamp()) * 1_000_000 + 1_500_000
    assert clock.monotonic() == 1.5


def test_a_clock_starts_where_it_is_told() -> None:
    clock = FakeClock(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC) + timedelta(microseconds=7))
    assert clock.now() == 2_000_007


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="has no time zone"):
        FakeClock(datetime(2026, 1, 1))


@pytest.mark.parametrize("delay", [-1, float("nan")])
def test_time_never_goes_back(delay: float) -> None:
    with pytest.raises(UsageError, match="never goes back"):
        FakeClock().advance(delay)


async def test_a_sleep_moves_time_and_takes_none() -> None:
    clock = FakeClock()
    with anyio.fail_after(5):
        await clock.sleep(3600)
    assert clock.monotonic() == 3600


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = FakeClock(), []

    async def sleeper(delay: float) -> None:
        await clock.sleep(delay)
        woken.append((delay, clock.monotonic()))

    delays = [3.0, 1.0, 2.0, 1.0, 0.0]
    async with anyio.create_task_group() as group:
        for delay in delays:
            group.start_soon(sleeper, delay)
    assert woken == [(delay, delay) for delay in sorted(delays)]


async def test_a_sleeper_that_is_cancelled_holds_nobody_up() -> None:
    clock, woken = FakeClock(), []

    async def sleeper(delay: float) -> None:
        await clock.sleep(delay)
        woken.append(delay)

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper, 9.0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await clock.sleep(1.0)
    assert woken == [9.0]
    assert clock.monotonic() == 9.0


async def test_what_a_pause_cuts_off_does_not_come_back() -> None:
    """A time limit, say: whoever waited for it acts before the sleeper that went beyond."""
    clock, woken = FakeClock(), []

    async def limit(scope: anyio.CancelScope) -> None:
        await clock.pause(2.0)
        scope.cancel()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(limit, scope)
            await clock.sleep(9.0)
            woken.append(9.0)
    assert (scope.cancelled_caught, woken, clock.monotonic()) == (True, [], 9.0)


async def test_a_pause_waits_for_others_to_move_time() -> None:
    clock, over = FakeClock(), []

    async def pause() -> None:
        await clock.pause(2.0)
        over.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(pause)
        await anyio.wait_all_tasks_blocked()
        clock.advance(1.5)
        await anyio.wait_all_tasks_blocked()
        assert over == []
        await clock.sleep(0.5)
    assert over == [2.0]


async def test_a_pause_of_nothing_returns() -> None:
    with anyio.fail_after(5):
        await FakeClock().pause(0)


@given(st.lists(st.integers(0, 1_000_000), max_size=8), st.randoms())
def test_any_sleepers_wake_in_order(delays: list[int], rng: random.Random) -> None:
    """Whatever the delays, time is at each sleeper's own moment when it wakes."""
    clock, woken = FakeClock(), []

    async def sleeper(delay: int) -> None:
        await clock.sleep(delay / 1_000_000)
        woken.append((delay, round(clock.monotonic() * 1_000_000)))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for delay in delays:
                group.start_soon(sleeper, delay)

    anyio.run(main, backend=rng.choice(["asyncio", "trio"]))
    assert woken == [(delay, delay) for delay in sorted(delays)]


def test_random_numbers_are_those_given() -> None:
    numbers = FakeRandom(0.1, 0.9)
    assert [numbers() for _ in range(5)] == [0.1, 0.9, 0.1, 0.9, 0.1]
    assert [FakeRandom()() for _ in range(2)] == [0.5, 0.5]


def test_ids_count() -> None:
    ids = FakeIds("order")
    assert [ids() for _ in range(3)] == ["order-1", "order-2", "order-3"]
