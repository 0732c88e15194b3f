"""Comparison of arrays by their bits: what differs, where, and in which way.

``==`` says that +0 equals -0 and that no NaN equals itself, and it computes; nothing here does.
Arrays are viewed as unsigned integers and every answer follows from those.
"""

import dataclasses
import typing

import jax
import numpy as np

NanPolicy = typing.Literal["payload", "any"]

#: The ways in which two bit patterns can differ, as :attr:`BitReport.kinds` counts them.
KINDS: tuple[str, ...] = (
    "zero sign",
    "NaN payload",
    "NaN versus number",
    "Inf versus other",
    "value",
)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """One differing element."""

    index: tuple[int, ...]
    actual_bits: str
    desired_bits: str
    actual: str
    desired: str
    #: Steps between the two (see :func:`ulp_distance`); None where one of them is NaN.
    ulps: int | None
    kind: str


@dataclasses.dataclass(frozen=True)
class BitReport:
    """How two arrays of one dtype and shape compare; ``str()`` gives the text.

    Attributes:
        dtype, shape: of both arrays.
        differing: how many elements differ.
        kinds: for each of :data:`KINDS`, how many elements differ in that way.
        max_ulps: the largest distance among the mismatches of kind "value"; 0 without any.
        examples: the first mismatches in index order.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    differing: int
    kinds: dict[str, int]
    max_ulps: int
    examples: tuple[Mismatch, ...]

    @property
    def equal(self) -> bool:
        """Whether no element differs."""
        return self.differing == 0

    @property
    def size(self) -> int:
        """Number of elements compared."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        where = f"{self.dtype.name}{list(self.shape)}"
        if self.equal:
            return f"{where}: all {self.size} elements have equal bits."
        counts = ", ".join(f"{kind} {n}" for kind, n in self.kinds.items() if n)
        share = 100.0 * self.differing / self.size
        lines = [
            f"{where}: {self.differing} of {self.size} elements differ ({share:.3g} %): {counts}."
        ]
        if self.kinds["value"]:
            lines.append(f"Largest distance of a differing value: {self.max_ulps} ulp.")
        table = [("index", "actual", "desired", "actual", "desired", "ulps", "kind")]
        table += [_row(example) for example in self.examples]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  " + "  ".join(cells).rstrip())
        if self.differing > len(self.examples):
            lines.append(f"  ... and {self.differing - len(self.examples)} more")
        return "\n".join(lines)


def _row(m: Mismatch) -> tuple[str, ...]:
    ulps = "-" if m.ulps is None else str(m.ulps)
    index = str(tuple(m.index))
    return (index, m.actual_bits, m.desired_bits, m.actual, m.desired, ulps, m.kind)


def bits_of(x) -> np.ndarray:
    """The bit patterns of ``x`` as an unsigned integer array of the same shape.

    Args:
        x: a numpy or JAX array or scalar of a float, bfloat16, float8, integer or boolean dtype
            of 1, 2, 4 or 8 bytes. Nothing is computed on the way.

    Raises:
        TypeError: another dtype (complex, sub-byte, foreign byte order, object, records, ...).
    """
    array = np.asarray(x)
    dtype = array.dtype
    known = dtype.kind in "biu" or _is_float(dtype)
    if not known or dtype.itemsize not in (1, 2, 4, 8) or not dtype.isnative:
        raise TypeError(
            f"bits_of: {dtype} is not a native float, integer or boolean dtype of 1, 2, 4 or 8 "
            "bytes. Ways out: compare the parts that are (real and imag of a complex array, the "
            "fields of a record)."
        )
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{dtype.itemsize}")


def _is_float(dtype: np.dtype) -> bool:
    # By name: of the ml_dtypes some register as kind "f" and some as kind "V".
    return dtype.name.startswith(("float16", "float32", "float64", "bfloat16", "float8_"))


def ulp_distance(actual, desired) -> np.ndarray:
    """Steps of the representable values between two arrays of one dtype and shape.

    +0 and -0 are 0 apart, the smallest positive and the largest negative number 2, Inf is the
    step after the largest finite number. Integers are their difference apart. Meaningless
    where one of the two is NaN.

    Returns:
        uint64 array of the common shape.
    """
    a, d, dtype = _same_kind("ulp_distance", actual, desired)
    return _distance(bits_of(a), bits_of(d), dtype)


def _distance(a: np.ndarray, d: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """uint64 distances of the bit patterns ``a`` and ``d`` of ``dtype``."""
    sign = np.uint64(1 << (8 * dtype.itemsize - 1))
    a, d = a.astype(np.uint64), d.astype(np.uint64)
    if _is_float(dtype) and dtype.name != "float8_e8m0fnu":
        # Sign and magnitude: equal signs differ by their magnitudes, others meet at zero.
        magnitude_a, magnitude_d = a & (sign - np.uint64(1)), d & (sign - np.uint64(1))
        opposite = ((a ^ d) & sign) != 0
        return np.where(opposite, magnitude_a + magnitude_d, _gap(magnitude_a, magnitude_d))
    if dtype.kind == "i":
        # Flipping the top bit orders two's complement patterns like their values.
        return _gap(a ^ sign, d ^ sign)
    return _gap(a, d)


def _gap(a: np.ndarray, d: np.ndarray) -> np.ndarray:
    return np.where(a > d, a - d, d - a)


def compare_bits(
    actual, desired, *, nan: NanPolicy = "payload", max_examples: int = 5
) -> BitReport:
    """Compares two arrays of one dtype and shape bit by bit.

    Args:
        actual, desired: numpy or JAX arrays; see :func:`bits_of` for the dtypes.
        nan: "payload" compares NaN by their bits as well; "any" takes all NaN as equal.
        max_examples: how many mismatches the report quotes.

    Raises:
        TypeError: dtypes differ or have no bit pattern.
        ValueError: shapes differ, or ``nan`` is neither of the two.
    """
    if nan not in typing.get_args(NanPolicy):
        raise ValueError(f'compare_bits: nan must be "payload" or "any", got {nan!r}.')
    a, d, dtype = _same_kind("compare_bits", actual, desired)
    bits_a, bits_d = bits_of(a).reshape(-1), bits_of(d).reshape(-1)
    where = np.flatnonzero(bits_a != bits_d)
    bits_a, bits_d = bits_a[where], bits_d[where]
    kind = _classify(bits_a, bits_d, dtype)
    if nan == "any":
        keep = kind != KINDS.index("NaN payload")
        where, bits_a, bits_d, kind = where[keep], bits_a[keep], bits_d[keep], kind[keep]
    ulps = _distance(bits_a, bits_d, dtype)
    examples = tuple(
        _mismatch(
            np.unravel_index(where[i], a.shape), bits_a[i], bits_d[i], ulps[i], kind[i], dtype
        )
        for i in range(min(max_examples, where.size))
    )
    counts = np.bincount(kind, minlength=len(KINDS)).tolist()
    max_ulps = int(ulps[kind == KINDS.index("value")].max(initial=0))
    kinds = dict(zip(KINDS, counts, strict=True))
    return BitReport(dtype, a.shape, where.size, kinds, max_ulps, examples)


def _same_kind(function: str, actual, desired) -> tuple[np.ndarray, np.ndarray, np.dtype]:
    a, d = np.asarray(actual), np.asarray(desired)
    if a.dtype != d.dtype:
        raise TypeError(
            f"{function}: dtypes differ: actual {a.dtype.name}, desired {d.dtype.name}."
        )
    if a.shape != d.shape:
        raise ValueError(f"{function}: shapes differ: actual {a.shape}, desired {d.shape}.")
    return a, d, a.dtype


def _classify(a: np.ndarray, d: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Index into KINDS for each pair of differing bit patterns of ``dtype``."""
    kind = np.full(a.shape, KINDS.index("value"))
    if not _is_float(dtype) or not a.size:
        return kind
    # A wider format holds every value, so the conversion tells zeros, NaN and Inf apart exactly.
    with np.errstate(invalid="ignore"):
        x, y = a.view(dtype).astype(np.float64), d.view(dtype).astype(np.float64)
    nan_x, nan_y = np.isnan(x), np.isnan(y)
    kind[(x == 0) & (y == 0)] = KINDS.index("zero sign")
    kind[np.isinf(x) | np.isinf(y)] = KINDS.index("Inf versus other")
    kind[nan_x | nan_y] = KINDS.index("NaN versus number")
    kind[nan_x & nan_y] = KINDS.index("NaN payload")
    return kind


def _mismatch(index, a, d, ulps, kind, dtype: np.dtype) -> Mismatch:
    digits = 2 * dtype.itemsize
    name = KINDS[int(kind)]
    return Mismatch(
        index=tuple(int(i) for i in index),
        actual_bits=f"0x{int(a):0{digits}x}",
        desired_bits=f"0x{int(d):0{digits}x}",
        actual=str(a.view(dtype)),
        desired=str(d.view(dtype)),
        ulps=None if name.startswith("NaN") else int(ulps),
        kind=name,
    )


def assert_bitwise_equal(
    actual, desired, *, err_msg: str = "", nan: NanPolicy = "payload", max_examples: int = 5
) -> None:
    """Asserts that two arrays, or two pytrees of arrays, have equal dtypes, shapes and bits.

    Args:
        actual, desired: numpy or JAX arrays, or pytrees of them with one structure.
        err_msg: text put in front of the report.
        nan: see :func:`compare_bits`.
        max_examples: how many mismatches are quoted per array.

    Raises:
        AssertionError: tree structures, dtypes, shapes or bits differ. The text names the leaf,
            says how many elements differ and in which way, and quotes the first of them with
            both bit patterns, both values and their distance in ulp.
        TypeError: a leaf has no bit pattern (see :func:`bits_of`).
    """
    leaves_a, tree_a = jax.tree_util.tree_flatten_with_path(actual)
    leaves_d, tree_d = jax.tree_util.tree_flatten_with_path(desired)
    problems = []
    if tree_a != tree_d:
        problems.append(f"Tree structures differ: actual {tree_a}, desired {tree_d}.")
        leaves_a = leaves_d = []
    for (path, a), (_, d) in zip(leaves_a, leaves_d, strict=True):
        problem = _problem(np.asarray(a), np.asarray(d), nan, max_examples)
        if problem:
            problems.append(f"At {jax.tree_util.keystr(path)}: {problem}" if path else problem)
    if problems:
        raise AssertionError("\n".join([err_msg, *problems] if err_msg else problems))


def _problem(a: np.ndarray, d: np.ndarray, nan: NanPolicy, max_examples: int) -> str:
    """What distinguishes two leaves, or ""."""
    if a.dtype != d.dtype or a.shape != d.shape:
        given, wanted = (f"{x.dtype.name}{list(x.shape)}" for x in (a, d))
        return f"Dtype or shape differ: actual {given}, desired {wanted}."
    report = compare_bits(a, d, nan=nan, max_examples=max_examples)
    return "" if report.equal else str(report)
