"""Contractions over devices: a real mesh axis and a virtual mesh give the same bits (R24)."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from contracted_gemms import contracted_gemm
from gemms import finite_codes, ordinary_scales
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.errors import SplitKUnknownError
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K, RANKS = 16, 48, 512, 4
A, B = finite_codes(1, (M, K)), finite_codes(2, (N, K))
SCALES = (np.float32(0.3), np.float32(2**-9))
ALL_AXES = ("x", "y")
F32, BF16, F16 = (np.dtype(t) for t in (np.float32, ml_dtypes.bfloat16, np.float16))
OF_K, REPLICATED = P(None, ALL_AXES), P()


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 2), ALL_AXES)


def gemm(a, b, scale_a=SCALES[0], scale_b=SCALES[1], contraction="gather", **changes):
    """contracted_gemm with options."""
    options = {"out_dtype": BF16, "use_fast_accum": True, "splitk": 1, **changes}
    return contracted_gemm(a, b, scale_a, scale_b, contraction=contraction, **options)


def per_device(**changes) -> mj.Contraction:
    return mj.Contraction("per_device", **changes)


def mapped(mesh, function, in_specs=(OF_K, OF_K), out_specs=REPLICATED, **options):
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)
    )


def slices(x, parts=RANKS) -> list[np.ndarray]:
    return np.split(x, parts, axis=-1)


def partial_results(a, b, **changes) -> list[np.ndarray]:
    pairs = zip(slices(a), slices(b), strict=True)
    return [np.asarray(gemm(x, w, **changes)) for x, w in pairs]


def summed(parts: list[np.ndarray], reduce_dtype) -> np.ndarray:
    """The definition, by numpy; the parts have no subnormals that conversions could lose."""
    total = parts[0].astype(np.float32).astype(reduce_dtype)
    for part in parts[1:]:
        exact = total.astype(np.float32) + part.astype(np.float32).astype(reduce_dtype).astype("f4")
        total = exact.astype(reduce_dtype)
    return total.astype(np.float32).astype(parts[0].dtype)


# -------------------------------------------------------------------------------------- per device


@pytest.mark.parametrize(
    ("out_dtype", "reduce_dtype"),
    [(F32, F32), (BF16, BF16), (F16, F32)],
    ids=["f32", "bf16", "f16 by f32"],
)
def test_virtual_real_and_the_definition(mesh, out_dtype, reduce_dtype):
    virtual = per_device(parts=RANKS, reduce_dtype=reduce_dtype)
    y = jax.jit(lambda a, b: gemm(a, b, out_dtype=out_dtype, contraction=virtual))(A, B)
    assert_bitwise_equal(y, summed(partial_results(A, B, out_dtype=out_dtype), reduce_dtype))
    assert (np.asarray(y) != np.asarray(gemm(A, B, out_dtype=out_dtype))).mean() > 0.1

    real = per_device(axes=ALL_AXES, reduce_dtype=reduce_dtype)
    local = lambda a, b: gemm(a, b, out_dtype=out_dtype, contraction=real)  # noqa: E731
    assert_bitwise_equal(mapped(mesh, local, check_vma=out_dtype != F16)(A, B), y)


def test_axes_in_the_order_given(mesh):
    """The ranks are counted along the axes, major first, as in a PartitionSpec."""
    swapped = ("y", "x")
    how = per_device(axes=swapped)
    spec = P(None, swapped)
    y = mapped(mesh, lambda a, b: gemm(a, b, contraction=how), (spec, spec))(A, B)
    assert_bitwise_equal(y, gemm(A, B, contraction=per_device(parts=RANKS)))


def test_one_axis_of_two(mesh):
    """Rows over x, K over y: each device multiplies its quarter of K and half of M."""
    how = per_device(axes="y")
    program = mapped(
        mesh, lambda a, b: gemm(a, b, contraction=how), (P("x", "y"), P(None, "y")), P("x")
    )
    assert_bitwise_equal(program(A, B), gemm(A, B, contraction=per_device(parts=2)))


def test_batches(mesh):
    a, b = finite_codes(3, (3, M, K)), finite_codes(4, (1, N, K))
    scales = ordinary_scales(5, (3,)), ordinary_scales(6, (1,))
    virtual = gemm(a, b, *scales, contraction=per_device(parts=RANKS))
    for i in range(3):
        one = gemm(a[i], b[0], scales[0][i], scales[1][0], contraction=per_device(parts=RANKS))
        assert_bitwise_equal(virtual[i], one)
    spec = P(None, None, ALL_AXES)
    local = lambda a, b, s, t: gemm(a, b, s, t, per_device(axes=ALL_AXES))  # noqa: E731
    assert_bitwise_equal(mapped(mesh, local, (spec, spec, P(), P()))(a, b, *scales), virtual)
    vmapped = jax.vmap(lambda a, s: gemm(a, b[0], s, scales[1][0], per_device(parts=RANKS)))
    assert_bitwise_equal(vmapped(a, scales[0]), virtual)


def test_an_axis_of_vmap():
    how = per_device(axes="ranks")
    local = jax.vmap(lambda a, b: gemm(a, b, contraction=how), axis_name="ranks")
    y = local(np.stack(slices(A)), np.stack(slices(B)))
    desired = gemm(A, B, contraction=per_device(parts=RANKS))
    assert_bitwise_equal(y, np.broadcast_to(desired, y.shape))


def test_not_a_number(mesh):
    """A NaN of one rank reaches every device, canonical."""
    a = A.copy()
    a.view(np.uint8)[3, K - 1] = 0xFF
    y = gemm(a, B, contraction=per_device(parts=RANKS), out_dtype=F32)
    assert (np.asarray(y).view(np.uint32)[3] == 0x7FFFFFFF).all()
    local = lambda a, b: gemm(a, b, contraction=per_device(axes=ALL_AXES), out_dtype=F32)  # noqa: E731
    assert_bitwise_equal(mapped(mesh, local)(a, B), y)


def test_split_k_is_decided_at_the_local_shape():
    """And refused there: a table that holds the whole may not hold the slices."""
    a = jax.ShapeDtypeStruct((16, 8192), A.dtype)
    b = jax.ShapeDtypeStruct((2048, 8192), A.dtype)

    def splits(how, **changes):
        gemms = mj.explain_jaxpr(lambda a, b: gemm(a, b, contraction=how, **changes), a, b)
        return [(site.K, site.plan.splits) for site in gemms]

    setting = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": BF16, "use_fast_accum": True}
    own = mj.resolve_splitk(16, 2048, 4096, **setting).S
    assert splits("gather", splitk="auto") == [(8192, 2)]
    assert splits(per_device(parts=2), splitk="auto") == [(4096, own)] * 2
    assert own != 2
    with pytest.raises(SplitKUnknownError, match=r"^contracted_gemm: .*K=2730"):
        gemm(np.zeros((16, 8190), A.dtype), np.zeros((2048, 8190), A.dtype), splitk="table",
             contraction=per_device(parts=3))  # fmt: skip


def test_what_a_psum_on_this_machine_gives(mesh):
    """XLA:CPU adds float32 in rank order too; bfloat16 it adds in float32, so bits differ."""
    psum = mapped(mesh, lambda a, b: jax.lax.psum(gemm(a, b, out_dtype=F32), ALL_AXES))(A, B)
    assert_bitwise_equal(psum, gemm(A, B, contraction=per_device(parts=RANKS), out_dtype=F32))


# --------------------------------------------------------------------------------- gather and error


def test_gathered_inside_a_shard_map(mesh):
    how = mj.Contraction("gather", axes=ALL_AXES)
    program = mapped(mesh, lambda a, b: gemm(a, b, contraction=how))
    assert_bitwise_equal(program(A, B), gemm(A, B))


def test_nothing_is_spread():
    """A virtual mesh, axes of no mesh, and one part alone, which may be FP8."""
    assert_bitwise_equal(gemm(A, B, contraction=mj.Contraction(parts=RANKS)), gemm(A, B))
    scales = ordinary_scales(5, (1,)), ordinary_scales(6, (1,))
    y = gemm(A[None], B[None], *scales, mj.Contraction(axes="x"))
    assert_bitwise_equal(y[0], gemm(A, B, scales[0][0], scales[1][0]))
    e4m3 = gemm(A, B, contraction="per_device", out_dtype="e4m3")
    assert_bitwise_equal(e4m3, gemm(A, B, out_dtype="e4m3"))


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (mj.Contraction("error", axes=ALL_AXES), r"over mesh axes \('x', 'y'\)"),
        (mj.Contraction("error", axes="x"), r"over mesh axes \('x',\)"),
        (mj.Contraction("error", parts=8), "over a virtual mesh of 8 parts"),
    ],
)
def test_error(mesh, how, text):
    with pytest.raises(ValueError, match=rf"^contracted_gemm: K is spread {text}\. Ways out"):
        mapped(mesh, lambda a, b: gemm(a, b, contraction=how))(A, B)


def test_error_where_nothing_is_spread():
    assert_bitwise_equal(gemm(A, B, contraction="error"), gemm(A, B))


# ----------------------------------------------------------------------------- without a shard_map


def test_on_the_mesh_in_force(mesh):
    """Outside any shard_map, axes name those of jax.set_mesh's mesh."""
    with jax.set_mesh(mesh):
        y = jax.jit(lambda a, b: gemm(a, b, contraction=per_device(axes=ALL_AXES)))(A, B)
    assert_bitwise_equal(y, gemm(A, B, contraction=per_device(parts=RANKS)))
    with pytest.raises(
        ValueError, match=r"\('x', 'y'\) are not axes of a mesh in force .*set_mesh"
    ):
        gemm(A, B, contraction=per_device(axes=ALL_AXES))


@pytest.fixture
def explicit():
    """A mesh in force whose axes types name, as a function that places arrays on it."""
    mesh = jax.make_mesh((2, 2), ALL_AXES, axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        yield lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))


def test_explicit_sharding(explicit):
    """Types say over which axes K is spread, and what the result is sharded like."""
    a, b = explicit(A, "x", "y"), explicit(B, None, "y")
    for how, same_as in (
        ("gather", "gather"),
        ("per_device", per_device(parts=2)),
        (per_device(axes="y"), per_device(parts=2)),
    ):
        y = jax.jit(lambda a, b, how=how: gemm(a, b, contraction=how))(a, b)
        assert y.sharding.spec == P("x", None)
        assert_bitwise_equal(
            y, jax.jit(lambda a, b, how=same_as: gemm(a, b, contraction=how))(A, B)
        )
    for how, text in (
        ("error", r"K is spread over mesh axes \('y',\)"),
        (mj.Contraction("error", parts=2), "K is spread over a virtual mesh of 2 parts"),
    ):
        with pytest.raises(ValueError, match=text):
            gemm(a, b, contraction=how)


def test_explicit_sharding_of_a_batch(explicit):
    a, b = np.stack([A, A[::-1]]), np.stack([B, -B])
    placed = explicit(a, None, "x", "y"), explicit(b, None, None, "y")
    scales = ordinary_scales(5, (2,)), ordinary_scales(6, (2,))
    for how, same_as in (("gather", "gather"), ("per_device", per_device(parts=2))):
        y = jax.jit(lambda a, b, how=how: gemm(a, b, *scales, how))(*placed)
        assert y.sharding.spec == P(None, "x", None)
        assert_bitwise_equal(y, gemm(a, b, *scales, same_as))
    rows = explicit(a, None, None, "y"), placed[1]
    for specs in (("x", None), (None, "x")):  # either scale shards the batch
        spread = [explicit(s, spec) for s, spec in zip(scales, specs, strict=True)]
        shape = jax.eval_shape(lambda *x: gemm(*x, "per_device"), *rows, *spread)
        assert shape.sharding.spec == P("x", None, None)


def test_a_mesh_of_explicit_and_other_axes():
    mesh = jax.make_mesh((2, 2), ALL_AXES, axis_types=(AxisType.Explicit, AxisType.Auto))
    with jax.set_mesh(mesh):
        y = jax.jit(lambda a, b: gemm(a, b, contraction=per_device(axes="y")))(A, B)
    assert_bitwise_equal(y, gemm(A, B, contraction=per_device(parts=2)))


def test_inside_a_shard_map_over_another_axis(mesh):
    """Rows over x by hand, K over y by the contraction's own shard_map."""
    local = lambda a, b: gemm(a, b, contraction=per_device(axes="y"))  # noqa: E731
    with jax.set_mesh(mesh):
        y = jax.jit(
            jax.shard_map(local, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"})
        )(A, B)
    assert_bitwise_equal(y, gemm(A, B, contraction=per_device(parts=2)))


def test_types_that_do_not_cut_k_alike(explicit):
    """A gather does not mind; slices that are not of the same k would be a wrong product."""
    a, b = explicit(A, None, ("x", "y")), explicit(B, None, ("y", "x"))
    assert_bitwise_equal(jax.jit(gemm)(a, b), gemm(A, B))
    swapped = r"axes \('x', 'y'\), but types spread K of a over \('x', 'y'\) and K of b over \('y'"
    with pytest.raises(ValueError, match=rf"^contracted_gemm: .* mesh {swapped}.*reshard"):
        gemm(a, b, contraction="per_device")
    with pytest.raises(ValueError, match=r"K is spread over mesh axes \('x', 'y'\)"):
        gemm(a, b, contraction="error")
    with pytest.raises(ValueError, match=r"mesh axes \('y', 'x'\), but types spread K of a"):
        gemm(a, explicit(B, None, ("x", "y")), contraction=per_device(axes=("y", "x")))
    for one_sided in ((a, explicit(B)), (explicit(A), b)):
        for how in ("per_device", "error"):
            assert_bitwise_equal(gemm(*one_sided, contraction=how), gemm(A, B))


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"mode": "sum"}, ValueError, "unknown mode 'sum'; known: gather, per_device, error"),
        ({"axes": ["x"]}, TypeError, "axes must be a tuple"),
        ({"parts": 0}, ValueError, "parts must be positive"),
        ({"parts": 2.0}, TypeError, "parts must be an int"),
        ({"parts": True}, TypeError, "parts must be an int"),
        ({"parts": 2, "axes": ("x",)}, ValueError, "parts must be positive, and 1 with axes"),
        ({"reduce_dtype": "float16"}, ValueError, "unknown reduce_dtype 'float16'"),
        ({"reduce_dtype": 3}, TypeError, "reduce_dtype must be a numerical dtype"),
    ],
    ids=str,
)
def test_a_bad_contraction(changes, error, text):
    with pytest.raises(error, match=f"^Contraction: {text}"):
        mj.Contraction(**changes)


def test_a_contraction_is_a_value():
    one, other = (mj.Contraction("per_device", "x", reduce_dtype=d) for d in ("bf16", BF16))
    assert (one, hash(one)) == (other, hash(other))
    assert one.axes == ("x",)


def test_what_is_refused(mesh):
    with pytest.raises(ValueError, match=r"unknown contraction 'local'.*mmaemu_jax\.Contraction"):
        gemm(A, B, contraction="local")
    with pytest.raises(
        ValueError, match="parts of a virtual mesh must divide K, got K = 512 and 3"
    ):
        gemm(A, B, contraction=per_device(parts=3))
    with pytest.raises(ValueError, match="partial results in float8_e4m3fn cannot be reduced"):
        gemm(A, B, contraction=per_device(parts=2), out_dtype="e4m3")
    one_sided = mapped(
        mesh, lambda a, b: gemm(a, b, contraction=per_device(axes=ALL_AXES)), (OF_K, P())
    )
    with pytest.raises(ValueError, match="K is not spread over mesh axis 'x': b is the same"):
        one_sided(A, B[:, : K // RANKS])
    after_one_of_vmap = jax.vmap(
        lambda a, b: gemm(a, b, contraction=per_device(axes=("ranks", "x"))), axis_name="ranks"
    )
    one_sided = mapped(mesh, after_one_of_vmap, (P(None, None, "x"), P()))
    with pytest.raises(ValueError, match="K is not spread over mesh axis 'x': b is the same"):
        one_sided(np.stack(slices(A, 2)), np.stack(slices(B))[:2])
    with pytest.raises(TypeError, match=r"^contracted_gemm: a must be float8"):
        gemm(A.astype(np.float32), B)
    for b in (B.T, B[0], B[None]):
        with pytest.raises(ValueError, match=r"^contracted_gemm: a and b must be \(\*L, M, K\)"):
            gemm(A, b)


def test_contract_with_a_gemm_of_ones_own(mesh):
    """The gemm sees slices, and decides by their shape."""
    seen = []

    def product(a, b):
        seen.append((a.shape, b.shape))
        return mj.scaled_mm(a, b.T, *SCALES, out_dtype=jnp.float32, splitk=1)

    y = mj.contract(product, A, B, contraction=per_device(parts=2))
    assert seen == [((M, K // 2), (N, K // 2))] * 2
    assert y.shape == (M, N)
