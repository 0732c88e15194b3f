"""What a member says of a call that was made, and where the black box disagrees."""

import dataclasses

import numpy as np

from mmaemu_jax.identify.calls import Call, Interface
from mmaemu_jax.identify.evaluate import Operands, accumulators
from mmaemu_jax.identify.member import Member
from mmaemu_jax.identify.output import Extras, output_bits

#: Products that one comparison evaluates at most.
_MAX_PRODUCTS = 1 << 22


def compared(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns whose outputs are compared: all, or as many as is quick."""
    m, n, _ = call.shape
    active = max(1, int((call.a.any(0) | call.b.any(0)).sum()))
    side = max(1, int((_MAX_PRODUCTS / active) ** 0.5))
    return np.arange(min(m, side)), np.arange(min(n, side))


def member_bits(
    member: Member,
    interface: Interface,
    call: Call,
    rows: np.ndarray,
    columns: np.ndarray,
    paired=False,
) -> np.ndarray:
    """The output bits of ``member`` at rows times columns, or at pairs of them."""
    operands = Operands.of(interface.formats, call.a[rows], call.b[columns], paired)
    acc = accumulators(member.plan, (member.arithmetic,), operands)[0]
    acc = with_specials(acc, interface, call.a[rows], call.b[columns], paired)
    extras = cut(call.extras, rows, columns)
    return output_bits(acc, member.epilogue, interface.out_dtype, extras, paired)


def mismatches(member: Member, interface: Interface, call: Call) -> np.ndarray:
    """int64 [n, 2]: outputs of ``call``, among those compared, that ``member`` gets wrong."""
    if call.questions:
        asked = np.stack(call.asked, axis=1)
        bits = member_bits(member, interface, call, *call.asked, paired=True)
        wrong = differs(bits, call.answers, member, interface.out_dtype)
        if wrong.any():
            return asked[wrong]
    rows, columns = compared(call)
    bits = member_bits(member, interface, call, rows, columns).reshape(len(rows), len(columns))
    return np.argwhere(differs(bits, call.bits[np.ix_(rows, columns)], member, interface.out_dtype))


def differs(bits: np.ndarray, seen: np.ndarray, member: Member, dtype: np.dtype) -> np.ndarray:
    """Where a member's bits are not those seen; any NaN will do for one with "other" NaN bits."""
    wrong = bits != seen
    if member.epilogue.nan == "other":
        values, others = (np.ascontiguousarray(x).view(dtype) for x in (bits, seen))
        wrong &= ~(np.isnan(values) & np.isnan(others))
    return wrong


def cut(extras: Extras, rows: np.ndarray, columns: np.ndarray) -> Extras:
    """The further operands of some rows and columns."""
    return dataclasses.replace(
        extras,
        bias=None if extras.bias is None else extras.bias[columns],
        c=None if extras.c is None else extras.c[np.ix_(rows, columns)],
    )


def with_specials(acc: np.ndarray, interface: Interface, a, b, paired: bool) -> np.ndarray:
    """``acc``, or the IEEE value of the sum where that is not finite (R14).

    A NaN has the sign of the NaN that entered (of a before b, at the first position), and the
    minus that x86 gives to Inf times 0 and to Inf minus Inf.
    """
    x, y = (fmt.values[codes] for fmt, codes in zip(interface.formats, (a, b), strict=True))
    telling = np.flatnonzero(~(np.isfinite(x).all(0) & np.isfinite(y).all(0)))
    if not len(telling):
        return acc
    x, y = x[:, telling], y[:, telling]

    def some(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Whether any position of an output has both."""
        left, right = left.astype(np.float32), right.astype(np.float32)
        return ((left * right).sum(-1) if paired else left @ right.T).reshape(-1) > 0

    def infinite(sign: float) -> np.ndarray:
        same, other = sign * np.inf, -sign * np.inf
        return (
            some(x == np.inf, sign * y > 0) | some(x == -np.inf, sign * y < 0)
            | some(x > 0, y == same) | some(x < 0, y == other)
        )  # fmt: skip

    up, down = infinite(1.0), infinite(-1.0)
    invalid = (up & down) | some(np.isinf(x), y == 0) | some(x == 0, np.isinf(y))
    first_x, sign_x = _first_nan(x)
    first_y, sign_y = _first_nan(y)
    if not paired:
        first_x, sign_x = (np.repeat(v, len(y)) for v in (first_x, sign_x))
        first_y, sign_y = (np.tile(v, len(x)) for v in (first_y, sign_y))
    entered = np.minimum(first_x, first_y) < x.shape[-1]
    sign = np.where(first_x <= first_y, sign_x, sign_y)
    out = np.where(up, np.inf, np.where(down, -np.inf, acc))
    out = np.where(invalid, -np.nan, out)
    return np.where(entered, np.copysign(np.nan, sign), out)


def _first_nan(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each row's first NaN stands (its length: nowhere), and 1 with that NaN's sign."""
    nan = np.isnan(values)
    first = nan.argmax(-1)
    sign = np.copysign(1.0, values[np.arange(len(values)), first])
    return np.where(nan.any(-1), first, values.shape[-1]), sign
