"""Third question: what happens between accumulator and output? Asked by awkward scales."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from mmaemu_jax.identify.bits import f32
from mmaemu_jax.identify.calls import BlackBox, Call, Shape
from mmaemu_jax.identify.check import cut, mismatches
from mmaemu_jax.identify.evaluate import Operands
from mmaemu_jax.identify.find_steps import evaluated
from mmaemu_jax.identify.member import Epilogue, Member
from mmaemu_jax.identify.output import Extras, grid_of, output_bits
from mmaemu_jax.identify.probes import random_code

_PURPOSE = "epilogue"
_CANDIDATES = 96
_COMPARED = 40
_SEED = 4_242
#: Of the value a bias or c is added to: too small to move it, but not to stop it short of a tie.
_TINY = (2.0**-27, -(2.0**-27))


def ask_epilogue(
    box: BlackBox,
    shape: Shape,
    members: Sequence[Member],
    epilogues: Sequence[Epilogue],
    number: int,
) -> tuple[Call, list[Epilogue]] | None:
    """One call whose scales, bias and c split ``epilogues`` best, and those that explain it.

    None if no candidate splits them. Half of the accumulators are single products, which have few
    bits, and half are sums of two; only those on which ``members`` agree count.
    """
    rng = np.random.default_rng([_SEED, number])
    a, b = _few_products(rng, box, shape)
    acc, sure = _agreed(members, Operands.of(box.formats, a, b, False), shape)
    rows, columns = (np.arange(min(_COMPARED, size)) for size in shape[:2])
    few = np.ix_(rows, columns)
    some = sure[few].reshape(-1)
    best, most = None, 1
    for _ in range(_CANDIDATES):
        extras = _draw(rng, box, shape, acc)
        part = cut(extras, rows, columns)
        bits = [_bits(acc[few], e, box, part)[some].tobytes() for e in epilogues]
        if len(set(bits)) > most:
            best, most = extras, len(set(bits))
            if most == len(epilogues):
                break
    if best is None:
        return None
    call = box.call(_PURPOSE, shape, a, b, best)
    wrong = {e: _bits(acc, e, box, best) != call.bits.reshape(-1) for e in epilogues}
    return call, [e for e in epilogues if not (wrong[e] & sure.reshape(-1)).any()]


def ignored_operands(box: BlackBox, member: Member) -> tuple[str, ...]:
    """The fewest operands without which ``member`` explains the last call that varied them."""
    call = [call for call in box.calls if call.purpose == _PURPOSE][-1:]
    if not call:
        return ()
    neutral = vars(box.neutral(call[0].shape))
    for count in range(1, len(box.operands) + 1):
        for names in itertools.combinations(box.operands, count):
            extras = dataclasses.replace(call[0].extras, **{n: neutral[n] for n in names})
            without = dataclasses.replace(call[0], extras=extras)
            if not len(mismatches(member, box.interface, without)):
                return names
    return ()


def _agreed(members: Sequence[Member], operands: Operands, shape: Shape):
    """The first member's accumulators [M, N], and where all members have the same."""
    every = evaluated(members, operands)
    acc = every[members[0].plan, members[0].arithmetic]
    sure = (np.stack(list(every.values())) == acc).all(0)
    return acc.reshape(shape[:2]), sure.reshape(shape[:2])


def _bits(acc, epilogue: Epilogue, box: BlackBox, extras: Extras) -> np.ndarray:
    return output_bits(acc.reshape(-1), epilogue, box.out_dtype, extras, False)


def _few_products(rng, box: BlackBox, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Normal values of moderate exponent at the first position, in every other row of a smaller
    ones at the second, zeros elsewhere."""
    m, n, k = shape
    matrices = []
    for fmt, rows in zip(box.formats, (m, n), strict=True):
        codes = np.zeros((rows, k), np.uint8)
        for column, (low, high) in enumerate(((-3, 4), (-6, -3))[:k]):
            e = rng.integers(max(fmt.emin, low), high, rows)
            codes[:, column] = random_code(rng, fmt, e)
        matrices.append(codes)
    matrices[0][::2, 1:] = 0
    return matrices[0], matrices[1]


def _draw(rng, box: BlackBox, shape: Shape, acc: np.ndarray) -> Extras:
    """Scales whose products with some accumulator lie next to a tie of the output, or powers of
    two, and a bias and a c that nearly cancel what they are added to, or are tiny."""
    m, n, _ = shape
    grid = grid_of(box.out_dtype)
    some = np.abs(acc[rng.integers(min(m, _COMPARED)), rng.integers(min(n, _COMPARED))])
    tie = _critical(rng, grid.bits)
    scale_a = f32(np.array(rng.uniform(1, 2) * 2.0 ** rng.integers(-2, 3)))
    values: dict = {}
    last = float(f32(np.array(rng.uniform(0.5, 2)))) if "scale_result" in box.operands else 1.0
    beta = f32(np.array(rng.uniform(0.5, 2)))
    scale_b = f32(np.array(tie * 2.0 ** rng.integers(0, 3) / (some * scale_a * last)))
    if rng.random() < 0.3:  # accumulators on the output's grid stay there, but for bias and c
        scale_a, scale_b, last, beta = (
            2.0 ** np.frexp(x)[1] for x in (scale_a, scale_b, last, beta)
        )
    if "scale_a" in box.operands:
        values["scale_a"] = np.float32(scale_a)
    if "scale_b" in box.operands:
        values["scale_b"] = np.float32(scale_b)
    if "scale_result" in box.operands:
        values["scale_result"] = np.float32(last)
    alpha = np.prod([float(values.get(s, 1.0)) for s in ("scale_a", "scale_b")])
    y = acc * alpha
    if "bias" in box.operands:
        fraction = rng.choice([7, 10, 23])  # as held by bfloat16, float16 and float32
        close = y[np.arange(n) % m, np.arange(n)] * rng.choice([1.0, 1.0, 0.5, 3.0, *_TINY], n)
        values["bias"] = _short(-close, int(fraction)).astype(np.float32)
    if "c" in box.operands:
        values["beta"] = np.float32(beta)
        values["c"] = _short(-y / beta * rng.choice([1.0, 1.0, 0.25, *_TINY], (m, n)), 23).astype(
            np.float32
        )
    return Extras(**values)


def _critical(rng, bits: int) -> float:
    """A value in [1, 2) where the rounding to so few bits changes: a tie, on or off a grid that the
    value may be rounded to before, or, as truncation has it, a multiple."""
    if bits > 22:
        return 1 + (2 * int(rng.integers(1 << 22)) + 1) * 2.0**-24
    point = 1 + int(rng.integers(1, 2 << bits)) * 2.0 ** -(bits + 1)
    return point + (
        rng.choice([0, 0, -(2.0**-8), 2.0**-8, -(2.0**-11), 2.0**-11]) if bits < 7 else 0
    )


def _short(x: np.ndarray, bits: int) -> np.ndarray:
    mantissa, e = np.frexp(x)
    return np.ldexp(np.rint(mantissa * 2.0 ** (bits + 1)), e - bits - 1)
