"""Work beside a reader: in order for each kind, bounded, and its errors come back."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tokenreel.verify.beside import AHEAD, Beside, in_order


@pytest.mark.parametrize("threads", [False, True])
def test_each_kind_is_done_in_order(threads: bool) -> None:
    done: dict[str, list[int]] = {"a": [], "b": []}
    with Beside(threads=threads) as beside:
        for number in range(50):
            for kind, seen in done.items():
                beside.do(kind, lambda number=number, seen=seen: seen.append(number))  # type: ignore[misc]
        for kind in done:
            beside.wait(kind)
        assert done == {"a": list(range(50)), "b": list(range(50))}
        beside.wait("never asked for")


def test_a_reader_is_held_up_by_slow_work() -> None:
    gate, begun = threading.Event(), []
    with Beside(threads=True) as beside:

        def fill() -> None:
            for number in range(AHEAD + 1):
                begun.append(number)
                beside.do("a", lambda: (gate.wait(), None)[1])

        reader = threading.Thread(target=fill)
        reader.start()
        reader.join(0.2)
        assert reader.is_alive(), "one more than may wait"
        gate.set()
        reader.join()
    assert begun == list(range(AHEAD + 1))


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    with Beside(threads=True) as beside:
        beside.do("a", wrong)
        with pytest.raises(ValueError, match="wrong"):
            beside.wait("a")


@pytest.mark.parametrize("room", [1, 3, 50])
def test_results_of_a_pool_come_in_order_and_few_are_begun(room: int) -> None:
    begun: list[int] = []
    with ThreadPoolExecutor(3) as pool:

        def begin(number: int) -> Future[int]:
            begun.append(number)
            return pool.submit(lambda: number * number)

        for count, (number, square) in enumerate(in_order(range(20), begin, room)):
            assert (number, square) == (count, count * count)
            assert len(begun) <= count + room
    assert begun == list(range(20))


def test_what_a_job_raises_is_raised_and_the_rest_is_given_up() -> None:
    gate, ran = threading.Event(), []
    with ThreadPoolExecutor(1) as pool:

        def work(number: int) -> None:
            if number == 0:
                raise ValueError("the first")
            gate.wait()
            ran.append(number)

        with (
            pytest.raises(ValueError, match="the first"),
            contextlib.closing(in_order(range(9), lambda number: pool.submit(work, number), 9)) as results,
        ):
            list(results)
        gate.set()
    assert ran in ([], [1]), "one may have been at work"
