"""What scaled_mm refuses, in which order, and what the messages say (R20, R21)."""

import jax
import numpy as np
import pytest
from api_calls import B200, BF16, E4M3, E5M2, E8M0, FNUZ, f32, record_bind, scaled_mm, zeros

from mmaemu_jax.errors import ReferenceRejectsError, SplitKUnknownError, UnsupportedFeatureError


@pytest.fixture
def bound(monkeypatch):
    return record_bind(monkeypatch)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"input": [[0.0]]}, "input must be a jax or numpy array, got list"),
        ({"input": None}, "input must be a jax or numpy array, got NoneType"),
        ({"mat2": "x"}, "mat2 must be a jax or numpy array, got str"),
        ({"scale_a": 1}, "scale_a must be a float32 array .*got 1 of type int"),
        ({"scale_a": True}, "scale_a must be a float32 array .*got True of type bool"),
        ({"scale_b": None}, "scale_b must be a float32 array .*got None of type NoneType"),
        ({"scale_b": [1.0]}, "scale_b must be a float32 array"),
        ({"scale_a": 1j}, "scale_a must be a float32 array"),
        ({"bias": 0.0}, "bias must be a jax or numpy array, got float"),
        ({"scale_result": 2}, "scale_result must be a float32 array"),
        ({"out_dtype": "bf17"}, "out_dtype must be a numerical dtype or its name, got 'bf17'"),
        ({"out_dtype": 5}, "out_dtype must be a numerical dtype"),
        ({"out_dtype": np.dtype("U3")}, "out_dtype must be a numerical dtype"),
        ({"out_dtype": np.dtype([("a", "f4")])}, "out_dtype must be a numerical dtype"),
        ({"use_fast_accum": 1}, "use_fast_accum must be a bool, got 1 of type int"),
        ({"use_fast_accum": None}, "use_fast_accum must be a bool, got None"),
        ({"profile": 3}, "profile must be a name, .*got int"),
        ({"splitk": True}, "splitk must be a name, 1, .*got True"),
        ({"backend": None}, "backend must be a str, got None"),
    ],
)
def test_wrong_python_types(bound, changes, text):
    with pytest.raises(TypeError, match=f"^scaled_mm: {text}"):
        scaled_mm(**changes)
    assert not bound


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"profile": "h100"}, "unknown profile 'h100'; known: hopper, "),
        ({"splitk": "never"}, "unknown splitk 'never'; known: auto, "),
        ({"splitk": (2, "pairwise")}, "scheme 'pairwise' with S = 2 .*profile 'hopper'"),
        ({"splitk": 0}, "S must be in 1.."),
    ],
)
def test_unknown_option_values(bound, changes, text):
    with pytest.raises(ValueError, match=f"^scaled_mm: {text}.*Ways out: "):
        scaled_mm(**changes)
    assert not bound


# What torch and the library reject


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"input": zeros(2, 32, 48)},
            r"matrices .*\(2, 32, 48\) and float8_e4m3fn of shape \(48, 16\)",
        ),
        ({"mat2": zeros(48)}, r"matrices .*\(32, 48\) and float8_e4m3fn of shape \(48,\)"),
        ({"mat2": zeros(16, 48)}, r"same K, got .*\(32, 48\) and .*\(16, 48\).*w\.T"),
        ({"scale_a": np.float64(1)}, r"float32, got float64 of shape \(\) and float32"),
        ({"scale_a": np.ones(1)}, r"float32, got float64 of shape \(1,\)"),
        ({"scale_b": np.ones((), BF16)}, r"and bfloat16 of shape \(\)"),
        ({"scale_b": np.ones((), np.int32)}, "int32"),
        ({"scale_b": np.bool_(True)}, "bool"),
        ({"scale_a": f32(1, 2)}, r"one element each .*\[32, 1\] and \[1, 16\].*shape \(2,\)"),
        ({"scale_a": f32(1, 32, 1)}, r"one element each .*\(32, 1\) and float32 of shape \(\)"),
        ({"scale_a": f32(1, 0)}, r"one element each"),
        ({"scale_result": np.float64(1)}, "scale_result must be one float32 element, got float64"),
        ({"scale_result": f32(1, 2)}, r"scale_result must be one float32 element.*\(2,\)"),
        (
            {"bias": np.zeros(3, BF16)},
            r"bias must have N = 16 elements, got bfloat16 of shape \(3,\)",
        ),
        (
            {"input": zeros(32, 40), "mat2": zeros(40, 16)},
            "K must be a multiple of 16, got K = 40 .*pad K with zeros;",
        ),
        (
            {"mat2": zeros(48, 24)},
            r"N must be a multiple of 16, got N = 24 .*\(48, 24\).*pad N with zeros and slice",
        ),
        (
            {"input": np.zeros((32, 48), BF16)},
            "input must be float8_e4m3fn or .*got bfloat16.*quant",
        ),
        ({"mat2": np.zeros((48, 16), np.float16)}, "mat2 must be .*got float16"),
        (
            {"input": zeros(32, 48, dtype=E5M2), "mat2": zeros(48, 16, dtype=E5M2)},
            "float8_e5m2 times float8_e5m2",
        ),
        ({"bias": np.zeros(16, BF16), "out_dtype": "float32"}, "bias must be left out for float32"),
        (
            {"bias": np.zeros(16, np.float32)},
            "bias must be bfloat16 for bfloat16 output, got float32",
        ),
        ({"bias": np.zeros(16, BF16), "out_dtype": "float16"}, "bias must be float16 for float16"),
        (
            {"bias": np.zeros(16, np.float32), "out_dtype": "e4m3"},
            "bias must be bfloat16 or float16",
        ),
        (
            {"scale_a": f32(1, 32, 1), "scale_b": f32(1, 1, 16), "out_dtype": "float32"},
            "row-wise .*bfl",
        ),
        (
            {"scale_a": f32(1, 32, 1), "scale_b": f32(1, 1, 16), "mat2": zeros(48, 16, dtype=E5M2)},
            "row-wise scales need a float8_e4m3fn mat2",
        ),
        ({"input": zeros(32, 48, dtype=FNUZ)}, "multiplies only .*got input float8_e4m3fnuz"),
        ({"mat2": zeros(48, 16, dtype=E8M0)}, "multiplies only .*mat2 float8_e8m0fnu"),
        ({"out_dtype": np.float64}, "out_dtype must be one of float32, .*got float64"),
        ({"out_dtype": "float8_e4m3fnuz"}, "out_dtype must be one of .*got float8_e4m3fnuz"),
        ({"out_dtype": E5M2}, "'hopper' refuses e4m3 x e4m3 -> float8_e5m2"),
        ({"out_dtype": E5M2, "profile": "ada-te"}, "'ada-te' refuses e4m3 x e4m3 -> float8_e5m2"),
    ],
)
def test_what_the_reference_rejects(bound, changes, text):
    with pytest.raises(ReferenceRejectsError, match=f"^scaled_mm: .*{text}") as info:
        scaled_mm(**changes)
    assert type(info.value) is ReferenceRejectsError
    assert "Ways out: " in str(info.value)
    assert not bound


def test_a_key_array_is_not_fp8(bound):
    with pytest.raises(
        ReferenceRejectsError, match=r"input must be .*got key<fry> of shape \(32, 48\)"
    ):
        scaled_mm(input=jax.random.split(jax.random.key(0), (32, 48)))


def test_mixed_formats_may_give_e5m2(bound):
    for a, b in ((E4M3, E5M2), (E5M2, E4M3)):
        scaled_mm(input=zeros(32, 48, dtype=a), mat2=zeros(48, 16, dtype=b), out_dtype=E5M2)
    assert len(bound) == 2


# The order of the checks (R21): all are violated at first, each step repairs the one that spoke.

IN_ORDER = [
    (TypeError, "use_fast_accum", {"use_fast_accum": False}),
    (ValueError, "scheme 'pairwise'", {"splitk": "auto"}),
    (ReferenceRejectsError, "matrices", {"input": zeros(32, 40, dtype=BF16)}),
    (ReferenceRejectsError, "same K", {"mat2": zeros(40, 24, dtype=FNUZ)}),
    (ReferenceRejectsError, "float32, got float64", {"scale_a": f32(1, 2)}),
    (ReferenceRejectsError, "one element each", {"scale_a": 1.0}),
    (ReferenceRejectsError, "scale_result", {"scale_result": 1.0}),
    (ReferenceRejectsError, "bias must have N", {"bias": f32(0, 24)}),
    (
        ReferenceRejectsError,
        "K must be a multiple",
        {"input": zeros(32, 48, dtype=BF16), "mat2": zeros(48, 24, dtype=E5M2)},
    ),
    (
        ReferenceRejectsError,
        "N must be a multiple",
        {"mat2": zeros(48, 16, dtype=E5M2), "bias": f32(0, 16)},
    ),
    (ReferenceRejectsError, "input must be float8", {"input": zeros(32, 48, dtype=E5M2)}),
    (ReferenceRejectsError, "float8_e5m2 times", {"mat2": zeros(48, 16, dtype=FNUZ)}),
    (ReferenceRejectsError, "bias must be bfloat16 or", {"bias": np.zeros(16, BF16)}),
    (
        ReferenceRejectsError,
        "multiplies only",
        {"input": zeros(32, 48), "mat2": zeros(48, 16)},
    ),
    (ReferenceRejectsError, "out_dtype must be", {"out_dtype": E5M2}),
    (ReferenceRejectsError, "refuses e4m3 x e4m3", {"out_dtype": BF16}),
    (UnsupportedFeatureError, "bias", {"bias": None}),
    (SplitKUnknownError, "unknown how cuBLASLt splits K", {"splitk": 1}),
]


def test_the_first_violation_decides(bound):
    call = {
        "use_fast_accum": 1,
        "splitk": (2, "pairwise"),
        "input": zeros(1, 32, 40, dtype=BF16),
        "mat2": zeros(56, 24, dtype=FNUZ),
        "scale_a": np.float64(1),
        "scale_result": f32(1, 2),
        "bias": f32(0, 3),
        "out_dtype": np.int8,
    }
    for error, text, repair in IN_ORDER:
        with pytest.raises(error, match=f"^scaled_mm: .*{text}") as info:
            scaled_mm(**call)
        assert type(info.value) is error
        call |= repair
    assert not bound
    scaled_mm(**call)
    assert len(bound) == 1


def test_the_row_wise_output_is_checked_before_the_formats(bound):
    rowwise = {"scale_a": f32(1, 32, 1), "scale_b": f32(1, 1, 16)}
    with pytest.raises(ReferenceRejectsError, match="row-wise"):
        scaled_mm(**rowwise, out_dtype="float32", input=zeros(32, 48, dtype=FNUZ))
    with pytest.raises(UnsupportedFeatureError, match=r"row-wise scales .*\(32, 1\).*Ways out"):
        scaled_mm(**rowwise, splitk="auto")


def test_what_is_not_modelled(bound):
    for out, bias in (("bfloat16", BF16), ("float16", np.float16), ("e4m3", np.float16)):
        for shape in ((16,), (1, 16), (4, 4)):
            with pytest.raises(UnsupportedFeatureError, match=r"^scaled_mm: bias .*Ways out"):
                scaled_mm(bias=np.zeros(shape, bias), out_dtype=out)
    with pytest.raises(UnsupportedFeatureError, match=r"^scaled_mm: slow accumulation .*Ways out"):
        scaled_mm(profile=B200)
    with pytest.raises(UnsupportedFeatureError, match=r"^scaled_mm: split-K \(S = 2\).*Ways out"):
        scaled_mm(profile=B200, use_fast_accum=True, splitk=(2, "serial"))
    assert not bound


def test_an_unknown_split(bound):
    with pytest.raises(SplitKUnknownError, match=r"^scaled_mm: .*M=32 N=16 K=48 .*Ways out"):
        scaled_mm(splitk="auto")
    scaled_mm(splitk="auto", profile="ada-ws0")
    assert len(bound) == 1
