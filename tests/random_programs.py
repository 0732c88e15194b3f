"""Random programs around one FP8 GEMM, for emulate: compositions of JAX's transformations.

A program maps a [*L, M, K] and w [K, N] to one result for each leading index, and emulate stands
anywhere between its transformations. What it must return is known without it: a plain scaled_mm
call for each leading index, of the product itself or, in a program with grad, of its gradient by a.

    python -c "import random_programs; random_programs.main(first, count)"

prints how often each transformation was used, as JSON.
"""

import dataclasses
import itertools
import json
import warnings
from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal

E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2
M, N, K, LEADING = 16, 16, 160, 2
MESHES = {"8x1": (8, 1), "4x2": (4, 2), "2x2x2": (2, 2, 2)}
AXES = ("x", "y", "z")


def codes(seed: int, shape, dtype=E4M3) -> np.ndarray:
    """Values of ``dtype`` as float32."""
    values = np.random.default_rng(seed).standard_normal(shape) * 2
    return values.astype(dtype).astype(np.float32)


WEIGHT = codes(1, (K, N))
COTANGENT = codes(2, (1, N), E5M2)


def dot(a, b, precision=None):
    dims = (((a.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=jnp.float32)


@jax.custom_vjp
def product(a, w):
    """An FP8 op with an FP8 backward pass, as training libraries have it."""
    return dot(a.astype(E4M3), w.astype(E4M3))


def product_backward(residuals, g):
    a, w = residuals
    g = g.astype(E5M2)
    da = dot(g, w.astype(E4M3).T, "highest")
    dw = dot(a.astype(E4M3).T, g, "highest")
    return da, over_devices(dw, w)


def over_devices(cotangent, primal):
    """In a shard_map, the cotangent of what all devices share is the sum over them."""
    axes = [jax.typeof(x).manual_axis_type.varying for x in (cotangent, primal)]
    return lax.psum(cotangent, tuple(axes[0] - axes[1]))


product.defvjp(lambda a, w: (product(a, w), (a, w)), product_backward)


@dataclasses.dataclass
class Program:
    """A function of (a, w) while it is built.

    Attributes:
        fn: the function so far.
        leading: how many leading dimensions its a has.
        names: what was applied, innermost first.
        sharded: sharded by the outermost jit: the specs of a's last two dimensions and w's.
    """

    fn: Callable
    leading: int
    names: list[str]

    def has(self, name: str) -> bool:
        return name in self.names


Transform = Callable[[Callable, Program, np.random.Generator], Callable]


def vmap(fn: Callable, p: Program, _) -> Callable:
    return jax.vmap(fn, (0, None))


def vmap_last(fn: Callable, p: Program, _) -> Callable:
    """The new dimension last in a, so that the dot's operand arrives transposed."""
    inner = jax.vmap(fn, (p.leading + 2, None))
    return lambda a, w: inner(jnp.moveaxis(a, 0, -1), w)


def scan(fn: Callable, p: Program, _) -> Callable:
    return lambda a, w: lax.scan(lambda carry, x: (carry + 1, fn(x, w)), 0, a)[1]


def fori(fn: Callable, p: Program, _) -> Callable:
    """A while loop, or a scan where it is differentiated."""

    def looped(a, w):
        start = jax.vmap(lambda x: fn(x, w) * 0)(a)
        return lax.fori_loop(0, len(a), lambda i, y: y.at[i].set(fn(a[i], w)), start)

    return looped


def cond(fn: Callable, p: Program, _) -> Callable:
    def branches(a, w):
        return lax.cond(jnp.sum(a) < jnp.inf, fn, lambda a, w: -fn(a, w), a, w)

    return branches


def grad(fn: Callable, p: Program, _) -> Callable:
    return jax.grad(lambda a, w: jnp.sum(fn(a, w) * COTANGENT))


def shard_map(fn: Callable, p: Program, random: np.random.Generator) -> Callable:
    mesh, spec_a, spec_w, spec_y = specs(p, random)
    before = (None,) * p.leading
    return jax.shard_map(
        fn,
        mesh=mesh,
        in_specs=(P(*before, *spec_a), P(*spec_w)),
        out_specs=P(*before, *spec_y),
    )


def sharded_jit(fn: Callable, p: Program, random: np.random.Generator) -> Callable:
    mesh, spec_a, spec_w, _ = specs(p, random)
    before = (None,) * p.leading
    shardings = [NamedSharding(mesh, P(*s)) for s in ((*before, *spec_a), spec_w)]
    inner = jax.jit(fn)
    return lambda a, w: inner(*map(jax.device_put, (a, w), shardings))


def specs(p: Program, random: np.random.Generator):
    """A mesh, and how a's last two dimensions, w and the result's last two are spread over it."""
    name = str(random.choice(list(MESHES)))
    p.names.append(name)
    shape = MESHES[name]
    mesh = Mesh(np.array(jax.devices()).reshape(shape), AXES[: len(shape)])
    rows = "x" if len(shape) == 2 or random.integers(2) else ("x", "z")
    if p.has("grad"):  # its result is a's gradient
        return mesh, (rows, None), (None, None), (rows, None)
    return mesh, (rows, None), (None, "y"), (rows, "y")


TRANSFORMS: dict[str, tuple[Transform, int]] = {
    "jit": (lambda fn, *_: jax.jit(fn), 0),
    "vmap": (vmap, 1),
    "vmap_last": (vmap_last, 1),
    "scan": (scan, 1),
    "fori": (fori, 1),
    "cond": (cond, 0),
    "remat": (lambda fn, *_: jax.checkpoint(fn), 0),
    "grad": (grad, 0),
    "shard_map": (shard_map, 0),
}


def choices(p: Program) -> list[str]:
    """What may be applied next."""
    names = [name for name, (_, adds) in TRANSFORMS.items() if p.leading + adds <= 2]
    if p.has("grad") or p.has("shard_map"):
        names.remove("grad")  # one gradient; one of a shard_map over N would sum over devices
    if p.has("shard_map"):
        names.remove("shard_map")
    # JAX itself refuses a vmapped cond of what varies over a mesh.
    refused = [{"cond", "shard_map", vmapped} for vmapped in ("vmap", "vmap_last")]
    return [name for name in names if not any(r <= {*p.names, name} for r in refused)]


def build(seed: int) -> Program:
    """The program of ``seed``: up to four transformations, and emulate among them."""
    random = np.random.default_rng(seed)
    p = Program(product, 0, [])
    count = int(random.integers(1, 5))
    place = int(random.integers(0, count + 1))
    for i in range(count + 1):
        if i == place:
            p.fn = mj.emulate(p.fn, splitk=1)
            p.names.append("emulate")
        if i == count:
            break
        name = str(random.choice(choices(p)))
        transform, adds = TRANSFORMS[name]
        p.names.append(name)
        p.fn = transform(p.fn, p, random)
        p.leading += adds
    if random.integers(3) == 0 and not p.has("shard_map"):
        p.names.append("sharded_jit")
        p.fn = sharded_jit(p.fn, p, random)
    return p


def expected(p: Program, a: np.ndarray) -> np.ndarray:
    """The plain calls."""

    def one(a):
        if p.has("grad"):
            g = np.broadcast_to(COTANGENT, (M, N)).astype(E5M2)
            return plain(g, WEIGHT.T.astype(E4M3), False)
        return plain(a.astype(E4M3), WEIGHT.astype(E4M3), True)

    indices = itertools.product(*map(range, a.shape[: p.leading]))
    results = [one(a[i]) for i in indices]
    return np.stack(results).reshape(*a.shape[: p.leading], *results[0].shape)


def plain(a, b, fast: bool) -> np.ndarray:
    y = mj.scaled_mm(
        np.ascontiguousarray(a),
        np.ascontiguousarray(b),
        1.0,
        1.0,
        out_dtype=jnp.float32,
        use_fast_accum=fast,
        splitk=1,
        profile="hopper",
    )
    return np.asarray(y)


def check(seed: int) -> list[str]:
    """Runs one program; the names of what it is made of."""
    p = build(seed)
    a = codes(seed + 10, (LEADING,) * p.leading + (M, K))
    assert_bitwise_equal(p.fn(jnp.asarray(a), jnp.asarray(WEIGHT)), expected(p, a))
    nested = [name for name in p.names if name in ("vmap", "vmap_last")]
    return [*p.names, *(["nested vmap"] if len(nested) > 1 else [])]


def main(first: int, count: int) -> None:
    warnings.simplefilter("ignore", mj.errors.ExperimentalPresetWarning)
    counts = Counter()
    for seed in range(first, first + count):
        try:
            counts.update(check(seed))
        except Exception as error:
            raise AssertionError(f"program {seed}: {build(seed).names}") from error
    print(json.dumps({"programs": count, **counts}))
