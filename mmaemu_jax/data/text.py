"""The text that ``compare`` trains on (README.md beside this file says where it comes from)."""

import functools
import hashlib
import importlib.resources

import numpy as np

from mmaemu_jax import data

WONDERLAND_SHA256 = "9f23253b172e92cc5d43cd04cc16178b89d826e078a6facec465fd312db1fcb0"


@functools.cache
def load_wonderland() -> tuple[np.ndarray, bytes]:
    """Alice's Adventures in Wonderland as int32 symbols, and the byte of each symbol.

    Raises:
        ValueError: the file was changed, for example its line ends.
    """
    content = (importlib.resources.files(data) / "wonderland.txt").read_bytes()
    if hashlib.sha256(content).hexdigest() != WONDERLAND_SHA256:
        raise ValueError("mmaemu_jax/data/wonderland.txt is not the file that was shipped.")
    alphabet, symbols = np.unique(np.frombuffer(content, np.uint8), return_inverse=True)
    return symbols.astype(np.int32), alphabet.tobytes()


def text_batch(sequences: int, length: int, seed: int, step: int) -> np.ndarray:
    """int32 [sequences, length + 1] of the text at places drawn for (seed, step)."""
    symbols, _ = load_wonderland()
    rng = np.random.default_rng([seed, step])
    starts = rng.integers(0, symbols.size - length, sequences)
    return symbols[starts[:, None] + np.arange(length + 1)]
