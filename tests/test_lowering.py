"""What the primitive becomes in a compiled program: no data movement around the kernel."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import finite_codes, gemm
from jax.extend.core import Primitive
from jax.interpreters import mlir
from processes import run_python

from mmaemu_jax import _native
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K, BATCH = 32, 48, 64, 3
A, W = finite_codes(1, (M, K)), finite_codes(2, (N, K))
X = finite_codes(3, (BATCH, M, K))
WEIGHTS = finite_codes(4, (BATCH, N, K))

matmul = partial(gemm, b_layout="kn")  # b is [K, N]


def compiled_text(function, *args) -> str:
    return jax.jit(function).lower(*args).compile().as_text()


def moves(hlo: str) -> list[str]:
    """Instructions that transpose or copy a matrix, of whatever type XLA widened it to."""
    instructions = re.findall(r"= \w+\[\d+,[\d,]+\]\S* (?:transpose|copy)\(.*", hlo)
    return [line for line in instructions if "custom-call" not in line]


def scan_over_rows(x, w):
    return jax.lax.scan(lambda c, x: (c, matmul(x, w.T)), 0, x)[1]


def scan_over_weights(x, weights):
    return jax.lax.scan(lambda x, w: (x, matmul(x, w.T)), x, weights)[1]


def in_a_branch(x, w):
    either = jax.lax.abs, jax.lax.neg
    return jax.lax.cond(x[0, 0] > 0, *(lambda x, w, f=f: f(matmul(x, w.T)) for f in either), x, w)


def in_a_loop(x, w):
    def body(state):
        return state[0] + 1, matmul(x, w.T)[0]

    return jax.lax.while_loop(lambda s: s[0] < 2, body, (0, np.zeros(N, np.float32)))[1]


def nested(x, w):
    return jax.vmap(jax.vmap(lambda x: matmul(x, w.T)))(x)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        pytest.param(lambda x, w: matmul(x, w.T), (A, W), id="transposed weight"),
        pytest.param(matmul, (A, W.T.copy()), id="[K, N] argument"),
        pytest.param(lambda x, w: gemm(x.T, w), (A.T.copy(), W), id="(x.T is moved)"),
        pytest.param(lambda x, w: gemm(x, w.T), (A, W.T.copy()), id="[N, K] from [K, N]"),
        pytest.param(jax.vmap(lambda x: matmul(x, W.T)), (X,), id="vmap, constant weight"),
        pytest.param(
            jax.vmap(lambda x, w: matmul(x, w.T), (0, None)), (X, W), id="vmap, w not mapped"
        ),
        pytest.param(jax.vmap(lambda x, w: matmul(x, w.T)), (X, WEIGHTS), id="vmap, w mapped"),
        pytest.param(
            jax.vmap(lambda x, w: matmul(x, w.T), (None, 0)), (A, WEIGHTS), id="vmap, only w mapped"
        ),
        pytest.param(nested, (X[None], W), id="nested vmap"),
        pytest.param(jax.checkpoint(lambda x, w: matmul(x, w.T)), (A, W), id="checkpoint"),
        pytest.param(in_a_branch, (A, W), id="branch of cond"),
        pytest.param(in_a_loop, (A, W), id="body of while_loop"),
        pytest.param(scan_over_rows, (X, W), id="scan body, w from outside"),
        pytest.param(scan_over_weights, (A, WEIGHTS), id="scan body, w scanned"),
    ],
)
def test_a_transposed_weight_costs_nothing(function, args, request):
    """Kernels pack either layout, so XLA's float8 transpose, slower than the GEMM, is left out."""
    hlo = compiled_text(function, *args)
    assert "mmaemu_scaled_mm" in hlo
    if "(x.T is moved)" in request.node.name:  # rows are not repacked: the detector must see it
        assert moves(hlo)
    else:
        assert not moves(hlo)
    if function is not matmul:
        with jax.disable_jit():
            desired = function(*args)
        assert_bitwise_equal(jax.jit(function)(*args), desired)


def broadcast_in_another_order(x):
    """``x`` [2, 2, N, K] with its first two dimensions exchanged by a stablehlo.broadcast_in_dim.

    JAX makes none whose dimensions are not in order, but any primitive's lowering may.
    """
    reorder = Primitive("reorder")
    reorder.def_abstract_eval(lambda x: x)

    def lower(_, x):
        dimensions = mlir.ir.DenseI64ArrayAttr.get([1, 0, 2, 3])
        name, attributes = "stablehlo.broadcast_in_dim", {"broadcast_dimensions": dimensions}
        return mlir.ir.Operation.create(name, [x.type], [x], attributes=attributes).results

    mlir.register_lowering(reorder, lower)
    return reorder.bind(x)


@pytest.mark.parametrize(
    ("make_b", "shape", "layout"),
    [
        pytest.param(lambda w: w.T, (K, N), "kn", id="transpose"),
        pytest.param(lambda w: w.transpose(0, 2, 1), (BATCH, K, N), "kn", id="in a batch"),
        pytest.param(lambda w: w.transpose(1, 0, 2), (N, BATCH, K), "nk", id="another transpose"),
        pytest.param(lambda w: w.T[None], (K, N), "kn", id="a one added"),
        pytest.param(
            lambda w: w.transpose(0, 2, 1).reshape(1, BATCH, N, K),
            (BATCH, K, N),
            "kn",
            id="a one added by a reshape",
        ),
        pytest.param(
            lambda w: w.transpose(0, 1, 3, 2).reshape(6, N, K),
            (2, 3, K, N),
            "kn",
            id="a reshape of the batch",
        ),
        pytest.param(
            lambda w: jnp.broadcast_to(w.T, (BATCH, N, K)), (K, N), "nk", id="more than ones added"
        ),
        pytest.param(lambda w: w.T.reshape(N, K), (2 * K, N // 2), "nk", id="a reshape of rows"),
        pytest.param(lambda w: w.reshape(N, K), (N * K,), "nk", id="a reshape of a vector"),
        pytest.param(
            lambda w: broadcast_in_another_order(w.transpose(0, 1, 3, 2)),
            (2, 2, K, N),
            "nk",
            id="a batch in another order",
        ),
    ],
)
def test_what_is_taken_for_a_transpose(make_b, shape, layout):
    """The last two dimensions exchanged, with or without ones added to the batch; no other move."""
    w = finite_codes(5, shape)

    def function(a, w):
        b = make_b(w)
        return gemm(a.reshape((1,) * (b.ndim - 2) + a.shape), b)

    assert f'b_layout = "{layout}"' in jax.jit(function).lower(A, w).as_text()
    b = jax.jit(make_b)(w)
    desired = gemm(A.reshape((1,) * (b.ndim - 2) + A.shape), b)
    assert_bitwise_equal(jax.jit(function)(A, w), desired)


@pytest.mark.parametrize(("backend", "calls"), [("auto", 1), ("cpu:scalar", 1), ("reference", 0)])
def test_the_reference_calls_no_kernel(backend, calls):
    text = jax.jit(partial(gemm, backend=backend)).lower(A, W).as_text()
    assert text.count(f"custom_call @{_native.GEMM_TARGET}") == calls


CACHE_PROGRAM = """
import jax, numpy as np
from gemms import finite_codes, gemm
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
y = jax.jit(gemm)(finite_codes(1, (16, 64)), finite_codes(2, (32, 64)))
hits = sum(event == "/jax/compilation_cache/cache_hits" for event in events)
print(hits, np.asarray(y).tobytes().hex())
"""


def cache_in(folder, **more: str) -> dict[str, str]:
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **more,
    }


def test_persistent_compilation_cache(tmp_path):
    """A second process loads the program that the first one compiled."""
    runs = [run_python(CACHE_PROGRAM, **cache_in(tmp_path)).split() for _ in range(2)]
    desired = np.asarray(gemm(finite_codes(1, (16, 64)), finite_codes(2, (32, 64))))
    assert [int(hits) > 0 for hits, _ in runs] == [False, True]
    assert {bits for _, bits in runs} == {desired.tobytes().hex()}


SHARDED_CACHE_PROGRAM = """
import functools, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from gemms import finite_codes, gemm
from mmaemu_jax.accumulate import AccumulationPlan
mesh = Mesh(np.array(jax.devices()), ("x",))
a, b = finite_codes(1, (16, 512)), finite_codes(2, (32, 512))
specs = P("x"), P()
sharded = [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip((a, b), specs)]
for chunk in CHUNKS:
    function = functools.partial(gemm, plan=AccumulationPlan(chunk))
    plain, events = np.asarray(function(a, b)), []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    y = np.asarray(jax.jit(function)(*sharded))
    assert y.tobytes() == plain.tobytes()
    print(events.count("/jax/compilation_cache/cache_hits"))
"""


def test_persistent_compilation_cache_on_several_devices(tmp_path):
    """JAX puts the rule's address into the key, unless told to leave it out.

    Then a rule must not be taken for that of another GEMM: the second chunk size misses.
    """

    def hits(chunks: tuple[int, ...], **more: str) -> list[str]:
        flags = "--xla_force_host_platform_device_count=2"
        environment = cache_in(tmp_path, XLA_FLAGS=flags, **more)
        return run_python(f"CHUNKS = {chunks}{SHARDED_CACHE_PROGRAM}", **environment).split()

    without = {"JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY": "1"}
    assert hits((128,)) == ["0"]
    assert hits((128,)) == ["0"]
    assert hits((128,), **without) == ["0"]
    assert hits((128, 0), **without) == ["1", "0"]
