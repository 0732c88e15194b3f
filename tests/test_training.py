"""fp8_dot_general: every GEMM of it is a direct scaled_mm call, whatever the layout."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_docs import ROOT, table_rows
from training_cases import Case, expected

import mmaemu_jax as mj
from mmaemu_jax import training
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Gemm, Quantization, Recipe, Scaling, fp8_dot_general
from mmaemu_jax.training.layout import make_layout

DENSE = Case("mk", "kn", {"m": 32, "k": 64, "n": 48})
CASES = {
    "dense": DENSE,
    "tokens": Case("bsk", "kn", {"b": 2, "s": 16, "k": 32, "n": 16}),
    "torch weights": Case("mk", "nk", {"m": 16, "k": 48, "n": 32}),
    "transposed lhs": Case("km", "kn", {"m": 16, "k": 32, "n": 48}),
    "two contracted": Case("sihj", "jnhi", {"s": 16, "i": 3, "h": 4, "j": 4, "n": 16}),
    "batched": Case("bmk", "bkn", {"b": 3, "m": 16, "k": 32, "n": 16}, batch="b"),
    "attention": Case("bqhd", "bkhd", {"b": 2, "q": 16, "k": 32, "h": 3, "d": 16}, batch="bh"),
    "batch inside": Case("mbk", "nkb", {"b": 2, "m": 16, "k": 16, "n": 32}, batch="b"),
}  # fmt: skip
#: fast accumulation of fprop, dgrad, wgrad; whether wgrad is (N_out, K_in) of grad and lhs.
FRAMEWORKS = {
    "te_pytorch": ((True, False, False), True),
    "te_pytorch_current": ((True, False, False), True),
    "te_jax": ((True, True, True), False),
    "te_jax_current": ((True, True, True), False),
    "torchao_tensorwise": ((True, False, False), True),
    "flax_direct": ((True, False, False), True),
}
#: The arithmetic that the expectation calls, without looking splits up.
SAME_GPU = {"profile": "hopper", "splitk": 1}


def some_state(recipe):
    """A state after a step, so that no scale is 1."""
    state = training.init_state(recipe)
    if state is None:
        return None
    leaves, tree = jax.tree.flatten(state)
    leaves = [x + jnp.float32(0.3 + 0.1 * i) for i, x in enumerate(leaves)]
    return jax.tree.unflatten(tree, leaves)


def unscaled(recipe):
    """The recipe without scales: a smaller program, where scales are not the subject."""
    unit = Scaling(timing="unit")
    tensors = {t: Quantization(recipe.quantization(t).format, unit) for t in ("lhs", "rhs", "grad")}
    return dataclasses.replace(recipe, **tensors)


def layer(case, recipe, **options):
    options = {**SAME_GPU, **options}

    def run(lhs, rhs, grad, state):
        def dot(lhs, rhs, state):
            return fp8_dot_general(
                lhs, rhs, case.dimension_numbers, recipe=recipe, state=state, **options
            )

        y, pull = jax.vjp(dot, lhs, rhs, state)
        return y, pull(grad)

    return run


def check(case, recipe, operands, *, fast, swap_wgrad, out_dtypes=None, run=None, **options):
    state = some_state(recipe)
    run = jax.jit(layer(case, recipe, **options)) if run is None else run
    y, (dlhs, drhs, after) = run(*operands, state)
    if out_dtypes is None:
        out_dtypes = [y.dtype, operands[0].dtype, operands[1].dtype]
    want = expected(
        case, recipe, operands, state, fast=fast, swap_wgrad=swap_wgrad, out_dtypes=out_dtypes
    )
    for got, expect, dtype in zip(
        (y, dlhs, drhs), want, (y.dtype, operands[0].dtype, operands[1].dtype), strict=False
    ):
        assert_bitwise_equal(got, expect.astype(dtype))
    if state is not None:
        for got, expect in zip((after.lhs, after.rhs, after.grad), want[3], strict=True):
            assert_bitwise_equal(got, expect)
        assert float(after.uses) == 1


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_gemm_is_a_scaled_mm_call(name):
    fast, swap = FRAMEWORKS[name]
    recipe = training.get_recipe(name)
    check(DENSE, recipe, DENSE.operands(jnp.bfloat16), fast=fast, swap_wgrad=swap)
    assert list(FRAMEWORKS) == list(training.list_recipes())


@pytest.mark.parametrize("case", CASES)
def test_dimension_numbers(case):
    fast, swap = FRAMEWORKS["torchao_tensorwise"]
    recipe = unscaled(training.get_recipe("torchao_tensorwise"))
    operands = CASES[case].operands(jnp.bfloat16, seed=3)
    check(CASES[case], recipe, operands, fast=fast, swap_wgrad=swap)


def test_matrices_of_a_plain_product():
    """No batch, and nothing moved."""
    lhs, rhs, _ = DENSE.operands(jnp.bfloat16)
    layout = make_layout("f", lhs, rhs, DENSE.dimension_numbers)
    program = jax.make_jaxpr(lambda x, w: (layout.lhs_matrix(x), layout.rhs_matrix(w)))(lhs, rhs)
    assert [x.shape for x in program.out_avals] == [lhs.shape, rhs.shape]
    assert "transpose" not in str(program)


@pytest.mark.parametrize(
    ("dtype", "rhs_dtype", "preferred"),
    [
        (jnp.float32, None, None),
        (jnp.float16, None, None),
        (jnp.bfloat16, jnp.float32, None),
        (jnp.bfloat16, None, jnp.float32),
    ],
)
def test_dtypes(dtype, rhs_dtype, preferred):
    lhs, rhs, grad = DENSE.operands(dtype, rhs_dtype)
    out = jnp.promote_types(lhs.dtype, rhs.dtype) if preferred is None else preferred
    fast, swap = FRAMEWORKS["te_pytorch_current"]
    recipe = unscaled(training.get_recipe("te_pytorch_current"))
    operands = (lhs, rhs, grad.astype(out))
    check(DENSE, recipe, operands, fast=fast, swap_wgrad=swap, preferred_element_type=preferred)


@pytest.mark.parametrize("scales", ["folded", "after"])
def test_where_scales_go(scales):
    fast, swap = FRAMEWORKS["te_pytorch_current"]
    recipe = dataclasses.replace(training.get_recipe("te_pytorch_current"), scales=scales)
    check(DENSE, recipe, DENSE.operands(jnp.bfloat16), fast=fast, swap_wgrad=swap)


def test_options_of_the_frameworks():
    recipe = training.te_jax("current", "e4m3", high_precision_accumulation=True)
    assert recipe.grad.format == "e4m3"
    check(DENSE, recipe, DENSE.operands(jnp.bfloat16), fast=(False,) * 3, swap_wgrad=False)
    with pytest.raises(ValueError, match="unknown format 'e5m2'; known: hybrid, e4m3"):
        training.te_pytorch(format="e5m2")


def test_a_recipe_of_ones_own():
    """All-E4M3, slow fprop, lhs first in wgrad and float32 weights' gradients rounded to bf16."""
    e4m3 = Quantization("e4m3", Scaling(timing="current", power_of_two=True))
    recipe = Recipe(
        "mine",
        e4m3,
        e4m3,
        e4m3,
        fprop=Gemm(("rhs", "lhs"), use_fast_accum=False),
        dgrad=Gemm(("rhs", "grad"), use_fast_accum=True),
        wgrad=Gemm(("lhs", "grad"), use_fast_accum=True, out_dtype="bfloat16"),
    )
    operands = DENSE.operands(jnp.float32)
    out_dtypes = [jnp.float32, jnp.float32, jnp.bfloat16]
    check(
        DENSE, recipe, operands, fast=(False, True, True), swap_wgrad=False, out_dtypes=out_dtypes
    )


@pytest.mark.parametrize("name", ["fprop", "dgrad", "wgrad"])
def test_one_gemm_without_fp8(name):
    """It is XLA's product of the tensors as they are; the other two do not change."""
    whole = unscaled(training.get_recipe("torchao_tensorwise"))
    gemm = dataclasses.replace(whole.gemm(name), fp8=False)
    operands = DENSE.operands(jnp.bfloat16)
    lhs, rhs, grad = (x.astype(jnp.float32) for x in operands)
    product = {
        "fprop": lambda: lhs @ rhs,
        "dgrad": lambda: grad @ rhs.T,
        "wgrad": lambda: lhs.T @ grad,
    }
    results = [
        jax.jit(layer(DENSE, recipe))(*operands, None)
        for recipe in (whole, dataclasses.replace(whole, **{name: gemm}))
    ]
    results = [dict(zip(product, (y, *grads), strict=False)) for y, grads in results]
    for other in set(product) - {name}:
        assert_bitwise_equal(results[1][other], results[0][other])
    got, want = results[1][name].astype(jnp.float32), product[name]()
    assert results[1][name].dtype == jnp.bfloat16
    # bfloat16 has 8 significant bits; float32 sums of XLA differ by far less.
    assert float(jnp.abs(got - want).max()) <= float(jnp.abs(want).max()) * 2.0**-8
    assert np.any(np.asarray(results[0][name]) != np.asarray(results[1][name]))


def test_the_order_that_the_split_is_decided_on():
    """wgrad: TE PyTorch multiplies (N_out, T) by (T, K_in), TE JAX (K_in, T) by (T, N_out)."""
    keys = {}
    for name in ("te_pytorch_current", "te_jax_current"):
        recipe = training.get_recipe(name)
        operands = DENSE.operands(jnp.bfloat16)
        report = mj.explain_jaxpr(lambda *a, r=recipe: layer(DENSE, r)(*a, None), *operands)
        keys[name] = [
            (s.M, s.N, s.K, s.format_a, s.format_b, s.accumulate, s.out_dtype) for s in report
        ]
    common = [
        (32, 48, 64, "e4m3", "e4m3", "fast", "bfloat16"),
        (32, 64, 48, "e5m2", "e4m3", "slow", "bfloat16"),
    ]
    wgrad = (48, 64, 32, "e5m2", "e4m3", "slow", "bfloat16")
    assert keys["te_pytorch_current"] == [*common, wgrad]
    fast_dgrad = (*common[1][:5], "fast", "bfloat16")
    wgrad = (64, 48, 32, "e4m3", "e5m2", "fast", "bfloat16")
    assert keys["te_jax_current"] == [common[0], fast_dgrad, wgrad]


def test_padding_with_zeros():
    """As XLA does: the GEMM of multiples of 16, and a slice of it."""
    case = Case("mk", "kn", {"m": 5, "k": 20, "n": 9})
    recipe = dataclasses.replace(training.get_recipe("torchao_tensorwise"), padding="zeros")
    operands = case.operands(jnp.bfloat16)
    y, (dx, dw, _) = jax.jit(layer(case, recipe))(*operands, None)

    def padded(x):
        return jnp.pad(x, [(0, -d % 16) for d in x.shape])

    wide = [padded(x) for x in operands]
    y16, (dx16, dw16, _) = jax.jit(layer(case, recipe))(*wide, None)
    assert y16.shape == (16, 16)
    assert_bitwise_equal(y, y16[:5, :9])
    assert_bitwise_equal(dx, dx16[:5, :20])
    assert_bitwise_equal(dw, dw16[:20, :9])
    report = mj.explain_jaxpr(lambda *a: layer(case, recipe)(*a, None), *operands)
    assert [(s.M, s.N, s.K) for s in report] == [(16, 16, 32), (16, 32, 16), (16, 32, 16)]


def test_empty_tokens():
    case = Case("mk", "kn", {"m": 0, "k": 32, "n": 16})
    run = jax.jit(layer(case, training.get_recipe("torchao_tensorwise")))
    y, (dx, dw, _) = run(*case.operands(jnp.bfloat16), None)
    assert (y.shape, dx.shape) == ((0, 16), (0, 32))
    assert_bitwise_equal(dw, jnp.zeros((32, 16), jnp.bfloat16))


# ------------------------------------------------------------------------- the recipe's own profile


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_experimental_recipes_warn(name, recwarn):
    lhs, rhs, _ = DENSE.operands(jnp.bfloat16)
    state = training.init_state(name)
    dot = functools.partial(fp8_dot_general, recipe=name, state=state, splitk=1)
    jax.eval_shape(lambda a, b: dot(a, b, DENSE.dimension_numbers), lhs, rhs)
    categories = {w.category for w in recwarn}
    experimental = name.startswith(("te_jax", "flax"))
    assert categories == ({mj.errors.ExperimentalPresetWarning} if experimental else set())
    profiles = {"te_pytorch": "hopper-te", "torchao": "hopper", "flax": "hopper-xla"}
    profile = mj.get_profile(training.get_recipe(name).profile)
    assert profile.name == next(
        (v for k, v in profiles.items() if name.startswith(k)), "hopper-te-jax"
    )


def test_table_of_recipes():
    """docs/training.md says what each recipe is."""
    rows = table_rows(ROOT / "docs" / "training.md", "recipe")
    assert tuple(rows) == training.list_recipes()
    for name, (scaling, *modes, profile) in rows.items():
        recipe = training.get_recipe(name)
        assert {recipe.quantization(t).scaling.timing for t in ("lhs", "rhs", "grad")} == {scaling}
        own = mj.get_profile(recipe.profile)
        if own.name in mj.list_profiles():
            assert profile == f"`{own.name}`"
        else:  # a copy of a shipped one, for a caller that nobody recorded
            assert profile == f"`{own.name.removesuffix('-jax')}`, marked experimental"
            assert own.evidence == own.split_evidence == "experimental"
        order = "(N_out, K_in)" if recipe.wgrad.operands[0] == "grad" else "(K_in, N_out)"
        gemms = (recipe.fprop, recipe.dgrad, recipe.wgrad)
        fprop, dgrad, wgrad = ("fast" if gemm.use_fast_accum else "slow" for gemm in gemms)
        assert modes == [fprop, dgrad, f"{wgrad}, {order}"]


def test_unknown_splits_are_assumed_and_warn():
    case = Case("mk", "kn", {"m": 48, "k": 80, "n": 112})
    lhs, rhs, _ = case.operands(jnp.bfloat16)
    with pytest.warns(mj.errors.UnverifiedSplitWarning, match=r"M=48 N=112 K=80"):
        fp8_dot_general(lhs, rhs, case.dimension_numbers, recipe="te_pytorch_current")
    with pytest.raises(mj.errors.SplitKUnknownError):
        fp8_dot_general(
            lhs, rhs, case.dimension_numbers, recipe="te_pytorch_current", splitk="auto"
        )


# --------------------------------------------------------------------------------------- refusals


def test_refusals():
    lhs, rhs, _ = DENSE.operands(jnp.bfloat16)
    dims = DENSE.dimension_numbers
    dot = functools.partial(fp8_dot_general, recipe="torchao_tensorwise", **SAME_GPU)
    delayed = training.init_state("te_pytorch")
    for error, match, call in (
        (TypeError, r"lhs must be float32.*got int32", lambda: dot(lhs.astype(int), rhs, dims)),
        (TypeError, r"rhs must be a jax or numpy array", lambda: dot(lhs, [1.0], dims)),
        (TypeError, r"contracting dimensions", lambda: dot(lhs, rhs[:16], dims)),
        (ValueError, r"precision must be None.*Ways", lambda: dot(lhs, rhs, dims, "highest")),
        (ValueError, r"preferred_element_type", lambda: dot(lhs, rhs, dims, None, jnp.int8)),
        (ValueError, r"unknown recipe 'te'; known", lambda: dot(lhs, rhs, dims, recipe="te")),
        (TypeError, r"recipe must be a name", lambda: dot(lhs, rhs, dims, recipe=None)),
        (ValueError, r"needs a state, got None.*init_state",
         lambda: dot(lhs, rhs, dims, recipe="te_pytorch")),
        (ValueError, r"the state of lhs does not fit", lambda: dot(lhs, rhs, dims, state=delayed)),
        (TypeError, r"state must be an Fp8State", lambda: dot(lhs, rhs, dims, state=1.0)),
        (ValueError, r"unknown splitk", lambda: dot(lhs, rhs, dims, splitk="many")),
        (ValueError, r"unknown profile", lambda: dot(lhs, rhs, dims, profile="volta")),
        (ValueError, r"unknown contraction", lambda: dot(lhs, rhs, dims, contraction="sum")),
        (ValueError, r"say which one",
         lambda: dot(lhs, rhs, dims, contraction=mj.Contraction("per_device", parts=2))),
        (ValueError, r"GEMM in contraction 'bprop'",
         lambda: dot(lhs, rhs, dims, contraction={"bprop": "gather"})),
        (mj.errors.ReferenceRejectsError, r"the fprop of lhs \[32, 24\].*contracts 24 elements",
         lambda: dot(lhs[:, :24], rhs[:24], dims)),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            call()


def test_a_dimension_that_only_a_gradient_contracts():
    case = Case("mk", "kn", {"m": 24, "k": 32, "n": 16})
    operands = case.operands(jnp.bfloat16)
    dot = functools.partial(
        fp8_dot_general, dimension_numbers=case.dimension_numbers, recipe="torchao_tensorwise"
    )
    assert dot(*operands[:2], **SAME_GPU).shape == (24, 16)
    with pytest.raises(
        mj.errors.ReferenceRejectsError, match=r"the wgrad of .*contracts 24 .*Ways out"
    ):
        layer(case, training.get_recipe("torchao_tensorwise"))(*operands, None)


def test_recipes_that_are_refused():
    e4m3, e5m2 = Quantization("e4m3"), Quantization("e5m2")
    for fields, match in (
        ({"rhs": e5m2}, r"Recipe: dgrad would multiply e5m2 by e5m2.*Ways out"),
        ({"lhs": e5m2, "rhs": e5m2}, r"fprop would multiply"),
        ({"padding": "ones"}, r"unknown padding 'ones'; known: refuse, zeros"),
        ({"scales": "before"}, r"unknown scales"),
        ({"wgrad": Gemm(("lhs", "rhs"), True)}, r"wgrad multiplies grad and lhs"),
        ({"profile": "volta"}, r"unknown profile"),
    ):
        with pytest.raises(ValueError, match=match):
            Recipe(**{**{"name": "x", "lhs": e4m3, "rhs": e4m3, "grad": e5m2}, **fields})
    Recipe("x", e4m3, e5m2, e5m2, dgrad=Gemm(("grad", "rhs"), False, fp8=False))
    for fields, match in (
        ({"lhs": "e4m3"}, "lhs must be Quantization"),
        ({"fprop": None}, "fprop must be Gemm"),
        ({"name": 3}, "name must be str"),
    ):
        with pytest.raises(TypeError, match=match):
            Recipe(**{**{"name": "x", "lhs": e4m3, "rhs": e4m3, "grad": e5m2}, **fields})
    with pytest.raises(TypeError, match="use_fast_accum must be bool"):
        Gemm(("lhs", "rhs"), 1)
    with pytest.raises(ValueError, match="out_dtype"):
        Gemm(("lhs", "rhs"), True, out_dtype="float8_e4m3fn")
    assert Gemm(("lhs", "rhs"), True, out_dtype=jnp.float16).out_dtype == "float16"
