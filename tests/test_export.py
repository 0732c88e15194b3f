"""jax.export, ahead-of-time compilation, and the versioned name of the kernels' call."""

import base64
import hashlib
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import FORMAT_PAIRS, finite_codes, gemm, ordinary_scales
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from processes import run_python

import mmaemu_jax as mj
from mmaemu_jax import _native, primitive
from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.errors import BackendFallbackWarning, SplitKUnknownError
from mmaemu_jax.primitive import GemmParams
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K = 8, 32, 64
X, W = finite_codes(1, (M, K)), finite_codes(2, (N, K))


def linear(x, w, splitk=1):
    return mj.scaled_mm(x, w.T, 0.5, 0.25, out_dtype=jnp.bfloat16, splitk=splitk)


def exported(function, *operands, **options):
    export = partial(jax.export.export, disabled_checks=mj.export_checks(), **options)
    return export(jax.jit(function))(*operands)


def saved_and_loaded(function, *operands, **options):
    return jax.export.deserialize(exported(function, *operands, **options).serialize())


LOADER = """
import base64, sys, jax, ml_dtypes, numpy as np
from jax import export
program = export.deserialize(base64.b64decode(SAVED))
codes = np.arange(40 * 64, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(40, 64)
x, w = codes[:8], codes[8:]
try:
    program.call(x, w).block_until_ready()
except Exception as error:
    print(type(error).__name__, str(error).replace(chr(10), " "))
assert "mmaemu_jax" not in sys.modules
import mmaemu_jax
print(np.asarray(program.call(x, w)).tobytes().hex())
"""


def test_in_another_process():
    """Without the import the error names the missing call; with it, the same bits."""
    saved = base64.b64encode(exported(linear, X, W).serialize()).decode()
    error, bits = run_python(f"SAVED = {saved!r}\n{LOADER}").splitlines()
    assert f"No FFI handler registered for {_native.GEMM_TARGET}" in error
    codes = np.arange((M + N) * K, dtype=np.uint8).view(X.dtype).reshape(M + N, K)
    x, w = codes[:M], codes[M:]
    assert bits == np.asarray(linear(x, w)).tobytes().hex()


def test_jax_asks_for_the_checks():
    with pytest.raises(ValueError, match=_native.GEMM_TARGET):
        jax.export.export(jax.jit(linear))(X, W)


def test_symbolic_rows():
    (m,) = jax.export.symbolic_shape("m")
    rows = jax.ShapeDtypeStruct((m, K), X.dtype)
    program = saved_and_loaded(linear, rows, W)
    for count in (1, M):
        assert_bitwise_equal(program.call(X[:count], W), linear(X[:count], W))
    batch = jax.ShapeDtypeStruct((m, M, K), X.dtype)
    program = saved_and_loaded(jax.vmap(linear, (0, None)), batch, W)
    assert_bitwise_equal(program.call(X[None], W), linear(X, W)[None])


def test_symbolic_rows_need_a_split():
    (m,) = jax.export.symbolic_shape("m")
    with pytest.raises(SplitKUnknownError, match=r"M=m .*a dimension is symbolic.*splitk=1"):
        exported(partial(linear, splitk="auto"), jax.ShapeDtypeStruct((m, K), X.dtype), W)


def test_a_platform_without_kernels():
    """The program is then the reference on all of its platforms, and says so."""
    with pytest.warns(BackendFallbackWarning, match="no kernels for tpu"):
        program = exported(linear, X, W, platforms=("cpu", "tpu"))
    assert program.platforms == ("cpu", "tpu")
    assert_bitwise_equal(program.call(X, W), linear(X, W))


def test_sharded_operands():
    """A saved program keeps no partitioning rule: it gathers, unless it is a shard_map."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    specs = (P("x"), P())
    x, w = (jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip((X, W), specs, strict=True))
    mapped = jax.shard_map(linear, mesh=mesh, in_specs=specs, out_specs=P("x"))
    for function, gathers in ((linear, True), (mapped, False)):
        program = jax.jit(saved_and_loaded(function, x, w).call)
        assert_bitwise_equal(program(x, w), linear(X, W))
        assert ("all-gather" in program.lower(x, w).compile().as_text()) == gathers


def test_ahead_of_time():
    compiled = jax.jit(linear).lower(X, W).compile()
    assert_bitwise_equal(compiled(X, W), linear(X, W))
    with pytest.raises(TypeError, match="compiled"):
        compiled(X[:4], W)


# ------------------------------------------------------------------------------------- the version

#: What each version of the call is: names and types of its attributes, and a digest of results.
#: If a test below fails, give the target a new name (GEMM_TARGET in csrc/ffi) and a new entry.
SCHEMAS = {
    "mmaemu_scaled_mm_v1": (
        "b_layout:str has_c:bool has_scale_result:bool kernel:str model.frac:int32 "
        "model.frac_out:int32 model.late_c:bool model.min_exp:int32 model.nfma:int32 "
        "plan.chunk_k:int64 plan.interleaved:bool plan.pairwise:bool plan.splits:int64 "
        "plan.tile_k:int64"
    )
}
RESULTS = {"mmaemu_scaled_mm_v1": "72cb50d3e049b3a87a7fcdbfa743c79b"}


def schema(attributes: dict, prefix: str = "") -> list[str]:
    entries = []
    for name, value in attributes.items():
        if isinstance(value, dict):
            entries += schema(value, f"{prefix}{name}.")
        else:
            entries.append(f"{prefix}{name}:{type(value).__name__}")
    return entries


def test_attributes_belong_to_the_version():
    model = mj.get_preset("hopper").model
    params = GemmParams(model, ONE_CHAIN, np.dtype(np.float32), "nk", "auto", False, False)
    attributes = {"b_layout": params.b_layout, **primitive._ffi_attributes(params, "auto")}
    assert " ".join(sorted(schema(attributes))) == SCHEMAS[_native.GEMM_TARGET]


def test_bits_belong_to_the_version():
    plans = (ONE_CHAIN, AccumulationPlan(128), AccumulationPlan(128, 3, 64, True, True))
    outputs = itertools.cycle(OUTPUT_DTYPES)
    scale = ordinary_scales(3, ())
    digest = hashlib.sha256()
    for fmt_a, fmt_b in FORMAT_PAIRS:
        a, b = finite_codes(4, (5, 448), fmt_a), finite_codes(5, (7, 448), fmt_b)
        for name, plan in itertools.product(("ada", "hopper", "b200_mma_sync"), plans):
            model = mj.get_preset(name).model
            y = gemm(a, b, scale, scale, model=model, plan=plan, out_dtype=next(outputs))
            digest.update(np.asarray(y).tobytes())
    assert digest.hexdigest()[:32] == RESULTS[_native.GEMM_TARGET]
