"""The three GEMMs of a layer from FP8 tensors: against numpy's, in every order, batched, padded."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gemms import finite_codes
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Gemm, get_recipe
from mmaemu_jax.training.cast import Fp8Tensor
from mmaemu_jax.training.gemms import GemmOptions, check_dimensions, fp8_gemm, wide_gemm
from mmaemu_jax.training.recipe import GEMM_TENSORS

BF16 = np.dtype(ml_dtypes.bfloat16)
RECIPE = dataclasses.replace(get_recipe("te_pytorch_current"), profile="hopper")
OF_TENSOR = {"lhs": ("mk", E4M3, 0.5), "rhs": ("kn", E4M3, 0.75), "grad": ("mn", E5M2, 3.0)}
#: Each GEMM as a product of two tensors: the letters of its rows, columns and what is contracted.
LETTERS = {"fprop": "mnk", "dgrad": "mkn", "wgrad": "knm"}
SIZES, ODD_SIZES = {"m": 16, "k": 32, "n": 48}, {"m": 5, "k": 20, "n": 9}


def tensors(name: str, batch: tuple[int, ...], sizes: dict[str, int]) -> dict[str, Fp8Tensor]:
    made = {}
    for seed, tensor in enumerate(GEMM_TENSORS[name]):
        letters, fp8, inverse = OF_TENSOR[tensor]
        shape = (*batch, *(sizes[c] for c in letters))
        codes = jnp.asarray(finite_codes(seed, shape, fp8))
        made[tensor] = Fp8Tensor(codes, jnp.float32(inverse), None)
    return made


def by_numpy(name: str, given: dict[str, Fp8Tensor], fast: bool, ks=slice(None)) -> np.ndarray:
    """One GEMM on matrices, padded with zeros and sliced, by mmaemu_jax.host; of some k."""
    rows, columns, k = LETTERS[name]
    factors, scales = [], []
    for wanted in (rows + k, k + columns):
        tensor = next(t for t in given if set(OF_TENSOR[t][0]) == set(wanted))
        codes = np.asarray(given[tensor].codes)
        codes = codes if OF_TENSOR[tensor][0] == wanted else codes.T
        codes = codes[:, ks] if wanted[1] == k else codes[ks]
        factors.append(np.pad(codes, [(0, -size % 16) for size in codes.shape]))
        scales.append(np.float32(given[tensor].inverse))
    options = {"out_dtype": BF16, "use_fast_accum": fast, "profile": "hopper", "splitk": 1}
    y = mj.host.scaled_mm(*factors, *scales, **options)
    by_letter = dict(zip(rows + columns, y.shape, strict=True))
    for tensor, x in given.items():
        by_letter |= dict(zip(OF_TENSOR[tensor][0], x.codes.shape, strict=True))
    return y[: by_letter[rows], : by_letter[columns]]


def options(name: str, swapped: bool, padding: str = "refuse", **contraction) -> GemmOptions:
    operands = GEMM_TENSORS[name][:: -1 if swapped else 1]
    gemm = Gemm(operands, use_fast_accum=name == "dgrad")
    recipe = dataclasses.replace(RECIPE, padding=padding, **{name: gemm})
    how = tuple((name, mj.Contraction(**fields)) for name, fields in contraction.items())
    return GemmOptions(recipe, mj.get_profile("hopper"), 1, "auto", how)


@pytest.mark.parametrize("name", LETTERS)
def test_every_order_and_padding(name):
    for swapped, sizes in itertools.product((False, True), (SIZES, ODD_SIZES)):
        given = tensors(name, (), sizes)
        how = options(name, swapped, "refuse" if sizes is SIZES else "zeros")
        assert_bitwise_equal(
            fp8_gemm(how, name, given, BF16), by_numpy(name, given, name == "dgrad")
        )


@pytest.mark.parametrize("name", LETTERS)
def test_batches_and_slices_of_k(name):
    """Each element of the batch is a GEMM; a virtual mesh adds those of two halves of K."""
    given = tensors(name, (2,), SIZES)
    of_each = [{t: x._replace(codes=x.codes[i]) for t, x in given.items()} for i in range(2)]
    fast = name == "dgrad"
    whole = [by_numpy(name, one, fast) for one in of_each]
    assert_bitwise_equal(fp8_gemm(options(name, True), name, given, BF16), np.stack(whole))
    how = options(name, False, "zeros", **{name: {"mode": "per_device", "parts": 2}})
    half = SIZES[LETTERS[name][2]] // 2
    halves = [
        [
            by_numpy(name, one, fast, ks).astype(np.float32)
            for ks in (slice(half), slice(half, None))
        ]
        for one in of_each
    ]
    desired = np.stack([(first + second).astype(BF16) for first, second in halves])
    assert np.any(desired != np.stack(whole))
    assert_bitwise_equal(fp8_gemm(how, name, given, BF16), desired)


@pytest.mark.parametrize("scales", ["operands", "folded", "after"])
def test_where_the_scales_go(scales):
    single = np.float32
    of = {t: single(inverse) for t, inverse in (("lhs", 0.3), ("rhs", 0.7))}
    given = {t: x._replace(inverse=of[t]) for t, x in tensors("fprop", (), SIZES).items()}
    how = options("fprop", False)
    recipe = dataclasses.replace(how.recipe, scales=scales)
    how = dataclasses.replace(how, recipe=recipe)
    y = jax.jit(lambda t: fp8_gemm(how, "fprop", t, BF16))(given)
    alpha = (of["lhs"] * of["rhs"]).astype(BF16).astype(single)
    at_operands = {
        "operands": of,
        "folded": {"lhs": alpha, "rhs": single(1)},
        "after": {"lhs": single(1), "rhs": single(1)},
    }[scales]
    scaled = {t: x._replace(inverse=at_operands[t]) for t, x in given.items()}
    want = by_numpy("fprop", scaled, False)
    if scales == "after":
        want = (want.astype(single) * alpha).astype(BF16)
    assert_bitwise_equal(y, want)


def test_an_output_dtype_of_ones_own():
    """The GEMM rounds to it, and the result is converted."""
    how = options("fprop", False)
    gemm = dataclasses.replace(how.recipe.fprop, out_dtype="bfloat16")
    how = dataclasses.replace(how, recipe=dataclasses.replace(how.recipe, fprop=gemm))
    given = tensors("fprop", (), SIZES)
    y = fp8_gemm(how, "fprop", given, np.float32)
    assert_bitwise_equal(y, by_numpy("fprop", given, False).astype(np.float32))


def test_padding_of_empty_and_of_aligned_operands():
    for m, k, n in ((0, 32, 16), (0, 5, 16), (3, 0, 1), (3, 5, 0)):
        sizes = {"m": m, "k": k, "n": n}
        given = tensors("fprop", (), sizes)
        y = fp8_gemm(options("fprop", False, "zeros"), "fprop", given, BF16)
        assert_bitwise_equal(y, np.zeros((sizes["m"], sizes["n"]), BF16))
    with pytest.raises(mj.errors.ReferenceRejectsError, match="multiple of 16"):
        fp8_gemm(options("fprop", False), "fprop", tensors("fprop", (), ODD_SIZES), BF16)
    given, how = tensors("fprop", (), SIZES), options("fprop", False, "zeros")
    names = {
        e.primitive.name
        for e in jax.make_jaxpr(lambda t: fp8_gemm(how, "fprop", t, BF16))(given).eqns
    }
    assert "pad" not in names


def test_types_that_spread_k():
    """Both types name the axis, or one alone: gathered."""
    given, how = tensors("fprop", (), SIZES), options("fprop", False)
    want = by_numpy("fprop", given, False)
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        for specs in ((P(None, "x"), P("x", None)), (P(None, "x"), P()), (P(), P("x", None))):
            placed = {
                t: x._replace(codes=jax.device_put(x.codes, NamedSharding(mesh, spec)))
                for (t, x), spec in zip(given.items(), specs, strict=True)
            }
            y = jax.jit(lambda t: fp8_gemm(how, "fprop", t, BF16))(placed)
            assert_bitwise_equal(y, want)


@pytest.mark.parametrize("name", LETTERS)
def test_xlas_own_product(name):
    rng = np.random.default_rng(1)
    given = {
        t: rng.integers(-4, 5, (2, *(SIZES[c] for c in OF_TENSOR[t][0]))).astype(dtype)
        for t, dtype in zip(GEMM_TENSORS[name], (np.float32, BF16), strict=True)
    }
    gemm = Gemm(GEMM_TENSORS[name], True, fp8=False, out_dtype="bfloat16")
    rows, columns, _ = LETTERS[name]
    letters = [OF_TENSOR[t][0] for t in given]
    wide = [x.astype(np.float32) for x in given.values()]
    exact = np.einsum(f"b{letters[0]},b{letters[1]}->b{rows}{columns}", *wide)
    y = wide_gemm(gemm, name, {t: jnp.asarray(x) for t, x in given.items()}, np.float32)
    assert_bitwise_equal(y, exact.astype(BF16).astype(np.float32))


def test_dimensions_that_are_refused():
    """The contracted one and the columns, whichever operand is first; rows may have any size."""
    multiple, odd = {"m": 16, "n": 32, "k": 48}, {"m": 24, "n": 40, "k": 56}
    for name, swapped, letter in itertools.product(LETTERS, (False, True), "mnk"):
        rows, columns, contracted = LETTERS[name]
        first = GEMM_TENSORS[name][1 if swapped else 0]
        columns = columns if rows in OF_TENSOR[first][0] else rows
        mnk = tuple((odd if c == letter else multiple)[c] for c in "mnk")
        recipe = options(name, swapped).recipe
        if letter in (columns, contracted):
            with pytest.raises(mj.errors.ReferenceRejectsError, match=f"the {name} of lhs"):
                check_dimensions(recipe, (name,), mnk)
        else:
            check_dimensions(recipe, (name,), mnk)
        check_dimensions(options(name, swapped, "zeros").recipe, (name,), mnk)
        wide = dataclasses.replace(
            recipe, **{name: dataclasses.replace(recipe.gemm(name), fp8=False)}
        )
        check_dimensions(wide, (name,), mnk)
    for empty in ((0, 3, 5), (1, 0, 1)):
        check_dimensions(RECIPE, tuple(LETTERS), empty)
    for none in ((1, 1, 1), (16, 16, 15), (17, 17, 16)):
        with pytest.raises(mj.errors.ReferenceRejectsError):
            check_dimensions(RECIPE, tuple(LETTERS), none)
