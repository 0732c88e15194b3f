"""Codes, their exponents and exact products (R1 to R3)."""

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import oracle_fractions as oracle
import pytest
from reference_calls import FLOAT32, reference_bits

from mmaemu_jax.epilogue import CANONICAL_NAN
from mmaemu_jax.formats import E4M3, E5M2, FORMATS, as_dtype, format_named
from mmaemu_jax.instruction import HOPPER
from mmaemu_jax.reference import _f64, block_fma

ALL_CODES = np.arange(256, dtype=np.uint8)
PAIRS = [(x, y) for x in FORMATS for y in FORMATS]


def name(value):
    return value.name


@pytest.mark.parametrize(
    "value", ["f4,f4", "(2,)f4", [("x", "f4")], np.zeros(1, np.float32), 4, "a b"]
)
def test_what_numpy_makes_a_dtype_of_and_is_none(value):
    assert as_dtype(value) is None
    assert format_named(value) is None


def test_names_of_formats_and_dtypes():
    assert as_dtype("float32") == as_dtype(np.float32) == as_dtype("<f4") == np.float32
    assert [format_named(x) for x in ("e5m2", E5M2.dtype, E5M2, "float8_e5m2")] == [E5M2] * 4
    assert format_named(np.float32) is None


def decode_all(fmt):
    with _f64.x64():
        values, exponents = block_fma.decode(jnp.asarray(ALL_CODES), fmt)
        assert values.dtype == np.float64
        return np.asarray(values), np.asarray(exponents)


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_every_code_decodes_to_its_value(fmt):
    values, _ = decode_all(fmt)
    for code in ALL_CODES:
        expected, got = oracle.value_of_code(int(code), fmt), values[code]
        if expected != expected:
            assert math.isnan(got)
        else:
            assert got == expected
            assert math.copysign(1, got) == (-1 if code >= 128 else 1)


@pytest.mark.parametrize("fmt", FORMATS, ids=name)
def test_every_finite_code_has_its_exponent_and_zero_has_none(fmt):
    _, exponents = decode_all(fmt)
    for code in ALL_CODES:
        value = oracle.value_of_code(int(code), fmt)
        if isinstance(value, Fraction) and value != 0:
            assert exponents[code] == oracle.code_exponent(value, fmt)
        else:  # no sum of two of these reaches the exponent of a product
            assert exponents[code] < -1000


def test_named_codes():
    e4m3, e5m2 = decode_all(E4M3)[0], decode_all(E5M2)[0]
    assert [e4m3[c] for c in (0x01, 0x08, 0x38, 0x7E)] == [2.0**-9, 2.0**-6, 1.0, 448.0]
    assert [e5m2[c] for c in (0x01, 0x04, 0x3C, 0x7B)] == [2.0**-16, 2.0**-14, 1.0, 57344.0]
    assert np.isnan(e4m3[[0x7F, 0xFF]]).all()
    assert np.isnan(e5m2[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]]).all()
    assert list(e5m2[[0x7C, 0xFC]]) == [math.inf, -math.inf]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}x{pair[1].name}")
def test_every_product_is_exact(pair):
    column = ALL_CODES[:, None]
    got = reference_bits(column, column, *pair, model=HOPPER.model)
    rows, columns = ([oracle.value_of_code(int(c), fmt) for c in ALL_CODES] for fmt in pair)
    for x, row in zip(rows, got.tolist(), strict=True):
        for y, bits in zip(columns, row, strict=True):
            product = oracle.ieee_product(x, y)
            if product != product:
                assert bits == CANONICAL_NAN[FLOAT32]
            else:
                assert oracle.value_of_f32(bits) == product
                assert bits != 0x80000000
