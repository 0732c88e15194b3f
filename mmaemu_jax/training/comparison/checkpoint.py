"""State of an interrupted run on disk: written whole or not at all, read back bit for bit."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.atomic_file import write_atomically, write_bytes_atomically
from mmaemu_jax.errors import message


def write_lines(path: pathlib.Path, lines: list[dict[str, Any]]) -> None:
    """Writes JSON lines; NaN and infinities are not JSON and raise ValueError."""
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    write_bytes_atomically(path, text.encode())


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The JSON lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def save_state(path: pathlib.Path, state, lines: list[dict[str, Any]]) -> None:
    """Saves a pytree of arrays, and the lines written so far."""
    leaves = [_raw(leaf) for leaf in jax.tree.leaves(state)]
    members: dict[str, Any] = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
    members["lines"] = np.frombuffer(json.dumps(lines, allow_nan=False).encode(), np.uint8)
    write_atomically(path, lambda stream: np.savez(stream, **members))


def load_state(path: pathlib.Path, like) -> tuple[Any, list[dict[str, Any]]]:
    """The pytree and lines of :func:`save_state`; ``like`` has its structure, shapes and dtypes.

    Raises:
        ValueError: the file holds a state of another structure, or other shapes.
    """
    leaves, structure = jax.tree.flatten(like)
    with np.load(path) as members:
        raw = [members[f"leaf{i}"] for i in range(len(members.files) - 1)]
        lines = json.loads(members["lines"].tobytes())
    expected = [_raw(leaf) for leaf in leaves]
    if [(x.shape, x.dtype) for x in raw] != [(x.shape, x.dtype) for x in expected]:
        raise ValueError(
            message(
                f"compare: {path} holds the state of another program.",
                ["continue with the code that wrote it", "start afresh in another directory"],
            )
        )
    restored = [_restored(bits, leaf) for bits, leaf in zip(raw, leaves, strict=True)]
    return jax.tree.unflatten(structure, restored), lines


def _is_key(leaf) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw(leaf) -> np.ndarray:
    """The bits of a leaf, in a dtype that numpy's file format knows."""
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    plain = array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1
    return array if plain else array.view(f"u{array.dtype.itemsize}")


def _restored(bits: np.ndarray, like):
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(bits), impl=jax.random.key_impl(like))
    if not isinstance(like, jax.Array):
        return type(like)(bits.view(np.asarray(like).dtype)[()])
    return jax.device_put(bits.view(like.dtype), like.sharding)
