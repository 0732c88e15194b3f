"""How a split-K decision is asked for, found, refused and warned about."""

import warnings

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

import mmaemu_jax as mj
from mmaemu_jax.errors import (
    SplitKUnknownError,
    UnsupportedFeatureError,
    UnverifiedSplitWarning,
)


def resolve(m=64, n=64, k=4096, **options):
    defaults = {
        "a_dtype": "e4m3",
        "b_dtype": "e5m2",
        "out_dtype": jnp.bfloat16,
        "use_fast_accum": True,
    }
    return mj.resolve_splitk(m, n, k, **{**defaults, **options})


# The splitk argument


@pytest.mark.parametrize(
    ("splitk", "profile", "S", "scheme"),
    [
        (1, "hopper", 1, "none"),
        (np.int64(1), "ada", 1, "none"),
        ((1, "none"), "hopper", 1, "none"),
        ((1, "contiguous"), "hopper", 1, "none"),
        ((1, "pairwise"), "ada", 1, "none"),
        (mj.SplitK(1), "hopper", 1, "none"),
        (mj.SplitK(1, "serial"), "ada", 1, "none"),
        ((3, "serial"), "ada", 3, "serial"),
        ((np.int32(3), "pairwise"), "ada", 3, "pairwise"),
        (mj.SplitK(4, "contiguous"), "hopper", 4, "contiguous"),
        (1, "b200-mma-sync-experimental", 1, "none"),
    ],
)
def test_explicit_splits(splitk, profile, S, scheme):
    decision = resolve(splitk=splitk, profile=profile)
    assert (decision.S, decision.scheme, decision.source) == (S, scheme, "explicit")
    assert decision.verified
    assert decision.table_id is None


@pytest.mark.parametrize(
    ("splitk", "profile", "error", "text"),
    [
        ("never", "hopper", ValueError, "unknown splitk 'never'; known: auto, table, auto_or"),
        (0, "hopper", ValueError, "S must be in 1..4096, got 0"),
        (-3, "hopper", ValueError, "S must be in 1..4096, got -3"),
        ((0, "serial"), "ada", ValueError, "S must be in 1.."),
        ((4097, "serial"), "ada", ValueError, "S must be in 1.."),
        ((2**31, "serial"), "ada", ValueError, "S must be in 1.."),
        (2, "hopper", ValueError, "splitk=2 needs the scheme"),
        ((2, "none"), "ada", ValueError, "scheme 'none' with S = 2 is not one of profile 'ada'"),
        ((2, "contiguous"), "ada", ValueError, "scheme 'contiguous' with S = 2"),
        ((1, "serial"), "hopper", ValueError, "scheme 'serial' with S = 1 is not one of profile"),
        (mj.SplitK(2, "pairwise"), "hopper", ValueError, "scheme 'pairwise' with S = 2"),
        (True, "hopper", TypeError, "got True of type bool"),
        (1.0, "hopper", TypeError, "got 1.0 of type float"),
        (None, "hopper", TypeError, "got None of type NoneType"),
        ([1, "none"], "hopper", TypeError, "of type list"),
        ((1, "none", 2), "hopper", TypeError, "of type tuple"),
        ((True, "serial"), "ada", TypeError, r"a split is \(S, scheme\)"),
        ((2.0, "serial"), "ada", TypeError, r"a split is \(S, scheme\)"),
        ((2, 1), "ada", TypeError, r"a split is \(S, scheme\)"),
    ],
)
def test_splitk_values_that_are_refused(splitk, profile, error, text):
    with pytest.raises(error, match=f"^resolve_splitk: .*{text}.*Ways out: pass splitk=1") as info:
        resolve(splitk=splitk, profile=profile)
    assert type(info.value) is error
    for scheme in mj.get_profile(profile).split_rule.schemes:
        assert f"splitk=(S, '{scheme}')" in str(info.value)


def test_splits_that_were_never_characterised():
    for scheme in ("serial", "contiguous"):
        with pytest.raises(
            UnsupportedFeatureError, match=r"^resolve_splitk: split-K \(S = 2\).*Ways"
        ):
            resolve(splitk=(2, scheme), profile="b200-mma-sync-experimental")


# Sources of a decision


def test_without_a_source_every_reason_is_given():
    for splitk in ("auto", "table", "live"):
        with pytest.raises(SplitKUnknownError) as info:
            resolve(m=48, n=80, k=4096, splitk=splitk, profile="ada-te")
        text = str(info.value)
        for part in (
            "resolve_splitk", "M=48 N=80 K=4096", "e4m3 x e5m2 -> bfloat16", "fast", "ada-te",
            "4194304 bytes", f"splitk={splitk!r}", "explicit:", "zero-size:", "workspace0:",
            "live-query:", "assumed:", "Ways out:", "splitk=(S, 'pairwise')", "auto_or_unsplit",
        ):  # fmt: skip
            assert part in text
    assert isinstance(info.value, LookupError)


def test_workspace_0_never_splits():
    for name in ("ada-ws0", "hopper-ws0"):
        for splitk in ("auto", "table", "auto_or_unsplit", "live"):
            decision = resolve(profile=name, splitk=splitk)
            assert (decision.S, decision.scheme, decision.source) == (1, "none", "workspace0")
            assert decision.verified


@pytest.mark.parametrize("shape", [(0, 16, 16), (16, 0, 16), (16, 16, 0), (0, 0, 0)])
def test_zero_size_never_splits(shape):
    decision = resolve(*shape, profile="hopper")
    assert (decision.S, decision.scheme, decision.verified) == (1, "none", True)
    assert "R15" in decision.note
    assert resolve(*shape, profile="hopper", splitk=(3, "contiguous")).source == "explicit"


def warning_of(function, *args, **kwargs):
    """The result and the one warning of a call, which points at this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert issubclass(caught[0].category, UnverifiedSplitWarning)
    return result, str(caught[0].message)


def test_assuming_unsplit_warns():
    decision, text = warning_of(resolve, n=80, splitk="auto_or_unsplit")
    assert (decision.S, decision.scheme, decision.source) == (1, "none", "assumed")
    assert not decision.verified
    assert decision.note == "S = 1 is assumed: no source knows this GEMM"
    assert text.startswith("resolve_splitk: S = 1")
    assert "Ways out" in text


def test_the_largest_split():
    decision, text = warning_of(resolve, splitk=(4096, "serial"), profile="ada")
    assert decision.S == 4096
    assert "never verified together" in text


def test_splits_under_transformer_engine_warn():
    for name, scheme in (("hopper-te", "contiguous"), ("ada-te", "serial")):
        decision, text = warning_of(resolve, splitk=(2, scheme), profile=name)
        assert (decision.S, decision.source, decision.verified) == (2, "explicit", False)
        assert f"S > 1 is experimental on profile '{name}'" in text
        assert resolve(splitk=1, profile=name).verified


def test_contiguous_splits_without_tiles_warn():
    # 9 tiles of 128: S = 5 gives 2 2 2 2 1, S = 6 gives 2 2 2 2 1 0.
    assert resolve(k=1152, splitk=(5, "contiguous")).verified
    decision, text = warning_of(resolve, k=1152, splitk=(6, "contiguous"))
    assert not decision.verified
    assert "own no k-tile" in text
    assert resolve(k=128, splitk=(6, "serial"), profile="ada").verified  # recorded, R12
    _, both = warning_of(resolve, k=1152, splitk=(6, "contiguous"), profile="hopper-te")
    assert "own no k-tile" in both
    assert "experimental" in both


def test_a_warning_is_shown_once_per_line_and_decision():
    def call():
        resolve(n=80, splitk="auto_or_unsplit")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            call()
        resolve(m=16, n=80, splitk="auto_or_unsplit")
    assert len(caught) == 2


# Arguments


def test_symbolic_dimensions():
    m, k = export.symbolic_shape("m, 16*k")
    assert resolve(m, 32, k, splitk=1).verified
    assert resolve(m, 32, k, splitk=(3, "serial"), profile="ada").S == 3
    assert resolve(m, 32, k, profile="hopper-ws0").source == "workspace0"
    assert resolve(m, 32, 1024, splitk=(2, "contiguous")).verified
    _, text = warning_of(resolve, m, 32, k, splitk=(2, "contiguous"))
    assert "16*k is symbolic" in text
    with pytest.raises(SplitKUnknownError, match=r"M=m N=32 K=16\*k"):
        resolve(m, 32, k)


def test_dtypes_and_their_names():
    for a in ("e4m3", "e4m3fn", "float8_e4m3fn", jnp.float8_e4m3fn, ml_dtypes.float8_e4m3fn):
        for out in (None, "bfloat16", jnp.bfloat16, np.float32, "e5m2", np.dtype(np.float16)):
            assert resolve(a_dtype=a, out_dtype=out, splitk=1).S == 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"m": -1}, ValueError, "M must not be negative, got -1"),
        ({"n": True}, TypeError, "N must be an int .*got True of type bool"),
        ({"k": 1.0}, TypeError, "K must be an int .*got 1.0 of type float"),
        ({"a_dtype": "float32"}, TypeError, "a_dtype must be float8_e4m3fn or float8_e5m2, got"),
        ({"a_dtype": None}, TypeError, "a_dtype must be a numerical dtype or its name, got None"),
        ({"b_dtype": "float8_e4m3fnuz"}, TypeError, "b_dtype must be .*got float8_e4m3fnuz"),
        ({"out_dtype": "float64"}, ValueError, "out_dtype must be one of float32, .*got float64"),
        ({"out_dtype": "e3m4"}, TypeError, "out_dtype must be a numerical dtype .*got 'e3m4'"),
        ({"use_fast_accum": 1}, TypeError, "use_fast_accum must be a bool, got 1 of type int"),
        ({"use_fast_accum": None}, TypeError, "use_fast_accum must be a bool"),
        ({"profile": "h100"}, ValueError, "unknown profile 'h100'"),
    ],
)
def test_other_arguments_that_are_refused(options, error, text):
    with pytest.raises(error, match=f"^resolve_splitk: {text}"):
        resolve(splitk=1, **options)
    assert resolve(splitk=1, use_fast_accum=np.bool_(False)).S == 1
