"""Functions run in processes of their own, side by side."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def other_processes(count: int = 1) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes that share no memory and no descriptor with this one."""
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def at_once(function: Callable[..., T], arguments: Sequence[tuple[object, ...]]) -> list[T]:
    """Call the function once for each tuple of arguments, each in its own process, all at the same time."""
    with other_processes(len(arguments)) as pool:
        calls = [pool.submit(function, *each) for each in arguments]
        return [call.result(timeout=90) for call in calls]
