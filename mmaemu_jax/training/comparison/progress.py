"""Progress of a comparison: a bar with the time left where somebody watches, else a few lines."""

import time
from typing import TextIO

_BAR = 24
#: Without a terminal, a line so often.
_QUIET_SECONDS = 60.0


class Progress:
    """Counts units of work, which take about equally long.

    Args:
        total: how many there are.
        stream: where to write; None writes nothing.
    """

    def __init__(self, total: int, stream: TextIO | None):
        self._total = total
        self._stream = stream
        self._watched = stream is not None and stream.isatty()
        self._done = 0
        self._worked = 0
        self._start = self._last = time.monotonic()

    def skipped(self, units: int) -> None:
        """Units that an earlier call had finished."""
        self._done += units

    def step(self, label: str, step: int, loss: float | None) -> None:
        """One training step is done."""
        shown = "not finite" if loss is None else f"{loss:.4f}"
        self.unit(f"{label}: step {step}, loss {shown}")

    def unit(self, label: str) -> None:
        """One unit is done."""
        self._done += 1
        self._worked += 1
        if self._stream is None:
            return
        now = time.monotonic()
        elapsed = now - self._start
        left = elapsed / self._worked * (self._total - self._done)
        text = f"{self._done}/{self._total}  {_clock(elapsed)}, {_clock(left)} left  {label}"
        if self._watched:
            full = _BAR * self._done // max(self._total, 1)
            bar = "#" * full + "." * (_BAR - full)
            print(f"\r\x1b[K[{bar}] {text}", end="", file=self._stream, flush=True)
        elif now - self._last > _QUIET_SECONDS:
            self._last = now
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Takes the bar away."""
        if self._watched:
            print("\r\x1b[K", end="", file=self._stream, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
