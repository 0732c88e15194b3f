"""Times of two programs, measured in turn so that a noisy machine disturbs both alike."""

import time
from collections.abc import Callable

import jax
import numpy as np

from mmaemu_jax.bench.case import TINY_SHAPE, BenchCase
from mmaemu_jax.bench.program import emulated, float32_dot, operands, stored_weights

#: Seconds after which a row stops repeating.
TIME_LIMIT = 8.0
_OVERHEAD_CALLS = 100


def seconds_of(call: Callable) -> float:
    """Seconds until the result of ``call()`` is ready."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def interleaved(first: Callable, second: Callable, repeat: int) -> tuple[list, list]:
    """Seconds of each call: first, second, first, ...; fewer than ``repeat`` if they are slow."""
    times = [], []
    start = time.perf_counter()
    while not times[0] or (len(times[0]) < repeat and time.perf_counter() - start < TIME_LIMIT):
        times[0].append(seconds_of(first))
        times[1].append(seconds_of(second))
    return times


def overhead(case: BenchCase, repeat: int) -> tuple[float, float]:
    """Seconds per jitted call on a tiny shape: XLA's float32 dot, ours; best of ``repeat``."""
    a, w = operands(case)
    w = stored_weights(case, w)
    dot, ours = float32_dot(case), emulated(case)
    floats = [jax.device_put(x.astype(np.float32)) for x in (a, w)]
    codes = [jax.device_put(x) for x in (a, w)]
    for warm_up in (lambda: dot(*floats), lambda: ours(*codes)):
        seconds_of(warm_up)

    def many(function: Callable, arrays: list) -> Callable:
        def loop():
            for _ in range(_OVERHEAD_CALLS):
                function(*arrays).block_until_ready()

        return loop

    times = interleaved(many(dot, floats), many(ours, codes), repeat)
    return min(times[0]) / _OVERHEAD_CALLS, min(times[1]) / _OVERHEAD_CALLS


def tiny(case: BenchCase) -> BenchCase:
    """The case on the shape whose time is all overhead."""
    m, n, k = TINY_SHAPE
    return BenchCase((m, n, k), case.formats, case.profile, case.mode, case.out_dtype,
                     case.backend, case.weights)  # fmt: skip
