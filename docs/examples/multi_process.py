"""Data- and tensor-parallel FP8 GEMMs in one or in several processes: the same bits every time.

    python multi_process.py                                    # one process, one device
    python multi_process.py --processes 2 --id 0 --coordinator localhost:1234 &
    python multi_process.py --processes 2 --id 1 --coordinator localhost:1234
    srun python multi_process.py --cluster                     # SLURM: JAX finds out the rest

Each run prints one digest per case. They are equal, whatever the processes and devices.
"""

import argparse
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj

RANKS = 4  # of the tensor-parallel job whose bits are wanted, on however many devices
TOKENS, MODEL, HIDDEN = 64, 256, 512
UP, DOWN = np.float32(2**-6), np.float32(2**-7)  # scales of the two weights


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--id", type=int, default=0)
    parser.add_argument("--coordinator", help="host:port of process 0")
    parser.add_argument("--cluster", action="store_true", help="let JAX ask SLURM, Open MPI, ...")
    return parser.parse_args()


def codes(seed: int, *shape: int) -> np.ndarray:
    """The same E4M3 data in every process."""
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return np.asarray(mj.quantize(values, "e4m3", 32.0))


def spread(mesh: Mesh, array: np.ndarray, *spec) -> jax.Array:
    """``array`` on the devices of all processes, each of which makes its own shards."""
    sharding = NamedSharding(mesh, P(*spec))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def linear(x, w, scale):
    """[T, K] and a weight [N, K] that a real job keeps as it is: bfloat16 [T, N]."""
    return mj.scaled_mm(
        x, w.T, 1 / 32, scale, out_dtype=jnp.bfloat16, use_fast_accum=True, splitk=1
    )


def mlp(x, up, down, contraction):
    """up is split by its rows, down by its columns, over which the second GEMM contracts."""
    hidden = mj.quantize(jax.nn.relu(linear(x, up, UP)), "e4m3", 32.0)
    return mj.contract(lambda h, w: linear(h, w, DOWN), hidden, down, contraction=contraction)


def digest(y: jax.Array) -> str:
    """Of the bits of the whole array, which every process gathers."""
    bits = jax.jit(lambda y: jax.lax.bitcast_convert_type(y, jnp.uint16))(y)
    whole = np.asarray(multihost_utils.process_allgather(bits, tiled=True))
    return hashlib.sha256(whole.tobytes()).hexdigest()[:16]


def main() -> None:
    options = parse()
    if options.cluster:
        jax.distributed.initialize()
    elif options.processes > 1:
        jax.distributed.initialize(options.coordinator, options.processes, options.id)
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    x, up, down = codes(1, TOKENS, MODEL), codes(2, HIDDEN, MODEL), codes(3, MODEL, HIDDEN)

    # Data-parallel: rows of x everywhere, no communication.
    forward = jax.jit(mlp, static_argnums=3)
    whole = [spread(mesh, w) for w in (up, down)]
    results = {"data-parallel": forward(spread(mesh, x, "ranks"), *whole, "gather")}

    # Tensor-parallel: the hidden dimension is split. By default K is gathered.
    parts = [spread(mesh, x), spread(mesh, up, "ranks"), spread(mesh, down, None, "ranks")]
    results["tensor-parallel, gathered"] = forward(*parts, "gather")

    # Tensor-parallel as GPUs do it: a GEMM per rank, and a reduction of the partial results.
    if mesh.size == RANKS:
        how = mj.Contraction("per_device", axes=("ranks",), reduce_dtype=jnp.bfloat16)
        specs = (P(), P("ranks"), P(None, "ranks"))
        local = jax.shard_map(
            lambda *operands: mlp(*operands, how), mesh=mesh, in_specs=specs, out_specs=P()
        )
        per_rank = jax.jit(local)(*parts)
    else:
        how = mj.Contraction("per_device", parts=RANKS, reduce_dtype=jnp.bfloat16)
        per_rank = forward(*(spread(mesh, operand) for operand in (x, up, down)), how)
    results[f"tensor-parallel, {RANKS} ranks"] = per_rank

    lines = [f"{case}: {digest(y)}" for case, y in results.items()]
    if jax.process_index() == 0:
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
