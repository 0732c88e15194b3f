"""One line on the terminal that says how far a run is, and when it will be over."""

import sys
import time


class Progress:
    """A bar of ``total`` steps; on anything but a terminal, a line every minute."""

    def __init__(self, total: int):
        self.total, self.done, self.counts = total, 0, dict[str, int]()
        self.start = self.shown = time.monotonic()

    def step(self, status: str) -> None:
        """Counts one mutant."""
        self.done += 1
        self.counts[status] = self.counts.get(status, 0) + 1
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if self.done < self.total and now - self.shown < (0.2 if terminal else 60):
            return
        self.shown = now
        left = (now - self.start) / self.done * (self.total - self.done)
        filled = 30 * self.done // self.total
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        line = f"[{'#' * filled:<30}] {self.done}/{self.total}, {left / 60:.0f} min left: {counts}"
        last = self.done == self.total or not terminal
        print(f"\r{line}", end="\n" if last else "", file=sys.stderr, flush=True)
