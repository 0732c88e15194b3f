"""What a process with eight CPU devices finds on meshes 8x1, 4x2 and 2x2x2 (test_meshes.py)."""

import hashlib
import itertools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
from gemms import finite_codes
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3

#: Recorded shapes: hopper splits the whole into 2, half and a quarter of N into 3.
M, N, K = 16, 2048, 8192
OPTIONS = {"out_dtype": jnp.bfloat16, "use_fast_accum": True}
MESHES = {"8x1": ((8, 1), "mn"), "4x2": ((4, 2), "nm"), "2x2x2": ((2, 2, 2), "mnk")}


def linear(x, w):
    """[M, K] and a weight [N, K], with the split that the profile's library decides on."""
    return mj.scaled_mm(x, w.T, 0.5, 0.25, **OPTIONS)


def splits(function, *operands) -> list[int]:
    """The S of every GEMM that ``function`` would compute."""
    return [site.plan.splits for site in mj.explain_jaxpr(function, *operands)]


def digest(y) -> str:
    return hashlib.sha256(np.asarray(y).tobytes()).hexdigest()


def collectives(function, *operands) -> list[str]:
    hlo = jax.jit(function).lower(*operands).compile().as_text()
    return re.findall(r"(?:all-gather|all-reduce|all-to-all|collective-\w+)(?=[\w.-]*\()", hlo)


def on_mesh(shape, axes, x, w) -> dict:
    """Global shapes under jit; every placement of the operands that the axes allow."""
    mesh = Mesh(np.array(jax.devices()).reshape(shape), tuple(axes))
    named = {axis: axis if axis in axes else None for axis in "mnk"}
    arrays = [
        jax.device_put(x, NamedSharding(mesh, P(named["m"], named["k"]))),
        jax.device_put(w, NamedSharding(mesh, P(named["n"], None))),
    ]
    return {
        "S": splits(jax.jit(linear), *arrays),
        "bits": digest(jax.jit(linear)(*arrays)),
        "collectives": collectives(linear, *arrays),
    }


def local_splits(x, w) -> dict:
    """In a shard_map the shapes, and so the decisions, are those of each device."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("n", "m"))
    found = {}
    for axis, parts in (("m", 2), ("n", 4)):
        specs = (P(), P(axis))
        local = jax.shard_map(linear, mesh=mesh, in_specs=specs, out_specs=P(None, axis))
        pieces = [linear(x, w[i * N // parts : (i + 1) * N // parts]) for i in range(parts)]
        found[axis] = {
            "S": splits(jax.jit(local), x, w),
            "same": digest(jax.jit(local)(x, w)) == digest(jnp.concatenate(pieces, axis=1)),
        }
    return found


def small_placements() -> int:
    """Every pair of specs over a mesh of three axes, small shapes: how many gave the plain bits."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("d", "f", "t"))
    x, w = finite_codes(3, (16, 64)), finite_codes(4, (32, 64))
    plain = digest(mj.scaled_mm(x, w.T, 0.5, 0.25, splitk=1, **OPTIONS))
    program = jax.jit(lambda x, w: mj.scaled_mm(x, w.T, 0.5, 0.25, splitk=1, **OPTIONS))
    of_x = (P("d", "t"), P(("d", "f")), P(None, ("t", "f", "d")))
    of_w = (P("t"), P(("t", "d"), "f"), P(None, "d"))
    pairs = list(itertools.product(of_x, of_w))
    for specs in pairs:
        placed = [
            jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip((x, w), specs, strict=True)
        ]
        assert digest(program(*placed)) == plain, specs
    return len(pairs)


def report() -> None:
    """Prints everything as JSON."""
    assert jax.device_count() == 8
    x, w = finite_codes(1, (M, K), E4M3), finite_codes(2, (N, K), E4M3)
    alone = {"S": splits(jax.jit(linear), x, w), "bits": digest(jax.jit(linear)(x, w))}
    print(
        json.dumps(
            {
                "alone": alone,
                "meshes": {name: on_mesh(*how, x, w) for name, how in MESHES.items()},
                "shard_map": local_splits(x, w),
                "placements": small_placements(),
            }
        )
    )
