"""Option values that several commands take."""

import argparse


def shape(text: str) -> tuple[int, int, int]:
    """M, N and K of ``MxNxK``."""
    try:
        m, n, k = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not MxNxK: {text!r}") from None
    return m, n, k
