"""Values to FP8 codes without rounding: what the format holds, or an error that says where."""

import numpy as np
import pytest

from mmaemu_jax.codes import FLOAT_DTYPES, exact_codes
from mmaemu_jax.formats import E4M3, FORMATS


@pytest.mark.parametrize("fp8", FORMATS, ids=lambda fp8: fp8.name)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda dtype: dtype.name)
def test_every_code_comes_back(fp8, dtype):
    values = fp8.values.astype(dtype)
    expected = np.where(np.isnan(fp8.values), 0x7F, np.arange(256)).astype(np.uint8)
    got = exact_codes("test", "a", values, fp8)
    assert got.dtype == fp8.dtype
    np.testing.assert_array_equal(got.view(np.uint8), expected)


def test_the_first_value_that_a_format_does_not_hold_is_named():
    values = np.array([[1, np.nan], [1.0625, -449], [448, 2.0**-10]])
    with pytest.raises(
        ValueError,
        match=r"^test: a must hold float8_e4m3fn values exactly, got 1\.0625 at index \(1, 0\) "
        r"\(float64 of shape \(3, 2\)\)\. Ways out: ",
    ):
        exact_codes("test", "a", values, E4M3)
    for wrong in (449, -480, 2.0**-10, np.inf):
        with pytest.raises(ValueError, match=r"at index \(1,\)"):
            exact_codes("test", "a", np.array([0, wrong]), E4M3)
