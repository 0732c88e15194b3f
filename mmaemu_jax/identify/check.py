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
    if call.pairs:
        index = np.arange(call.pairs)
        bits = member_bits(member, interface, call, index, index, paired=True)
        wrong = np.flatnonzero(differs(bits, call.diagonal, member, interface.out_dtype))
        if len(wrong):
            return np.stack([wrong, wrong], axis=1)
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
    values = [fmt.values[codes] for fmt, codes in zip(interface.formats, (a, b), strict=True)]
    if all(np.isfinite(v).all() for v in values):
        return acc
    out = acc.copy()
    x, y = values if paired else (values[0][:, None], values[1][None])
    with np.errstate(invalid="ignore"):
        ieee = np.zeros(np.broadcast_shapes(x.shape[:-1], y.shape[:-1]))
        sign = np.full(ieee.shape, -1.0)
        for k in reversed(range(x.shape[-1])):
            ieee = ieee + x[..., k] * y[..., k]
            for factor in (y[..., k], x[..., k]):
                sign = np.where(np.isnan(factor), np.copysign(1.0, factor), sign)
    ieee, sign = ieee.reshape(-1), sign.reshape(-1)
    out = np.where(np.isfinite(ieee), out, ieee)
    return np.where(np.isnan(out), np.copysign(np.nan, sign), out)
