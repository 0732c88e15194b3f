"""Option values that several commands take."""

import argparse


def shape(text: str) -> tuple[int, int, int]:
    """M, N and K of ``MxNxK``."""
    try:
        m, n, k = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not MxNxK: {text!r}") from None
    return m, n, k


def profile(text: str) -> str:
    """The name of a shipped profile, or the path of a profile file."""
    from mmaemu_jax.errors import MmaemuError
    from mmaemu_jax.platforms import get_profile

    try:
        get_profile(text)
    except (MmaemuError, OSError, TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def split(text: str) -> str | int | tuple[int, str]:
    """A ``splitk`` argument: a mode, 1, or ``S,scheme``."""
    from mmaemu_jax.platforms.split_request import MODES

    if text in MODES:
        return text
    count, comma, scheme = text.partition(",")
    try:
        return (int(count), scheme) if comma else int(count)
    except ValueError:
        names = ", ".join(MODES)
        raise argparse.ArgumentTypeError(f"not {names}, 1 or S,scheme: {text!r}") from None
