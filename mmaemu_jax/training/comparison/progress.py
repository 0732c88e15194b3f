"""Progress of a comparison: a bar with the time left where somebody watches, else a few lines."""

import time
from typing import TextIO

_BAR = 24
#: Without a terminal, a line so often.
_QUIET_SECONDS = 60.0
#: What a probe of one variant takes, in training steps; about, compilation included.
PROBE_STEPS = 5


class Progress:
    """Counts work in training steps.

    Args:
        total: how much there is.
        stream: where to write; None writes nothing.
    """

    def __init__(self, total: int, stream: TextIO | None):
        self._total = total
        self._stream = stream
        self._watched = stream is not None and stream.isatty()
        self._done = 0
        self._worked = 0
        self._start = self._last = time.monotonic()

    def skipped(self, work: int) -> None:
        """Work that an earlier call had finished."""
        self._done += work

    def step(self, label: str, step: int, loss: float | None) -> None:
        """One training step is done."""
        shown = "not finite" if loss is None else f"{loss:.4f}"
        self._advance(1, f"{label}: step {step}, loss {shown}")

    def probe(self, label: str) -> None:
        """One variant's probe is done."""
        self._advance(PROBE_STEPS, label)

    def _advance(self, work: int, label: str) -> None:
        self._done += work
        self._worked += work
        if self._stream is None:
            return
        now = time.monotonic()
        elapsed = now - self._start
        left = elapsed / self._worked * (self._total - self._done)
        share = self._done / max(self._total, 1)
        text = f"{share:4.0%}  {_clock(elapsed)}, {_clock(left)} left  {label}"
        if self._watched:
            full = round(_BAR * share)
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
