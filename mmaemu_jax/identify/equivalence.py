"""Which members are one computation for every input, by argument rather than by trial."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from mmaemu_jax.identify.calls import Interface, Shape
from mmaemu_jax.identify.member import Arithmetic, Epilogue, Member
from mmaemu_jax.identify.plan import Plan, chains_of, fingerprint
from mmaemu_jax.identify.probes import Formats
from mmaemu_jax.identify.triples import contrast

_GRADUAL = {"subnormals": "gradual"}


def losing_additions(interface: Interface) -> frozenset[str]:
    """The ways to add (:attr:`Arithmetic.add`) that lose the small product of a triple."""
    bits = {"f32": 24, "f32 toward zero": 24, "f64": 53}
    widest = contrast(interface.formats, interface.out_dtype)
    return frozenset(add for add, kept in bits.items() if widest > kept + 1)


def canonical(
    member: Member, interface: Interface, shapes: Sequence[Shape]
) -> tuple[tuple, Arithmetic, Epilogue]:
    """Equal for two members only if no operands of these shapes can tell them apart.

    The arguments: plans that build the same tree of additions for these K are the same; a result
    grid finer than any block sum drops nothing; how additions round is not seen where there are
    none; a product's leading bit does not depend on how its factors' exponents are counted; where
    the largest exponent that a zero or a subnormal can lend drops no bit of any product, it does
    not matter; a float64 or exact sum that never loses a bit has no order; rounding a float32 to
    float32 once more changes nothing.

    One exception, which :func:`is_argued` tells: plans of float64 sums too wide for these formats
    to show their order, and not wide enough to prove that there is none.
    """
    lengths = sorted({k for _, _, k in shapes})
    step = _step(member, interface.formats, lengths)
    hidden = step.add == "exact" or (step.add == "f64" and "f64" not in losing_additions(interface))
    tree = () if hidden else tuple(fingerprint(member.plan, k) for k in lengths)
    return tree, step, _epilogue(member, step, interface.operands)


def is_argued(member: Member, interface: Interface, shapes: Sequence[Shape]) -> bool:
    """Whether the members with this one's :func:`canonical` form are equal by argument."""
    tree, step, _ = canonical(member, interface, shapes)
    return bool(tree) or step.add == "exact"


def _step(member: Member, formats: Formats, lengths: list[int]) -> Arithmetic:
    plan, step = member.plan, member.arithmetic
    if plan.block == 1:
        exact = step.add == "exact" or (step.add == "f64" and _fits_f64(formats, lengths[-1]))
        return dataclasses.replace(step, add="exact") if exact else step
    if step.products == "normalised" and step.subnormals == "normalised":
        step = dataclasses.replace(step, subnormals="gradual")
    if _borrowed_exponent(formats) - step.frac <= sum(f.emin - f.mantissa_bits for f in formats):
        changes = {"zeros": "absent"} | ({} if step.subnormals == "flushed" else _GRADUAL)
        step = dataclasses.replace(step, **changes)
    if not any(has_additions(plan, k) for k in lengths):
        step = dataclasses.replace(step, add="f32")
    products = max(largest_block(plan, k) for k in lengths)
    if step.frac + _widest(products, plan.late, step, formats) <= step.frac_out:
        step = dataclasses.replace(step, frac_out=23, result="truncate")
    return step


def _widest(products: int, late: bool, step: Arithmetic, formats: Formats) -> int:
    """The largest exponent, above E, of the sum of a block's aligned terms.

    A product's significand is at most the one of the largest factors, which the grid of R5 holds,
    so alignment does not raise it; that of c is at most 2.
    """
    bits = [f.mantissa_bits for f in formats]
    significand = math.prod(2 - 2.0**-m for m in bits)
    if step.products == "normalised":
        significand = min(significand, 2 - 2.0 ** -(sum(bits) + 1))
    if step.frac <= sum(bits):
        significand += 2.0**-step.frac
    return math.floor(math.log2(products * significand + (0 if late else 2)))


def _borrowed_exponent(formats: Formats) -> int:
    """The largest exponent of a product with a zero or subnormal factor."""
    a, b = formats
    return max(a.emin + b.emax, a.emax + b.emin)


def _fits_f64(formats: Formats, k: int) -> bool:
    highest = math.log2(k * np.prod([f.max_finite for f in formats]))
    return highest - sum(f.emin - f.mantissa_bits for f in formats) <= 53


@functools.lru_cache(maxsize=4096)
def largest_block(plan: Plan, k: int) -> int:
    """Products in the fullest block of any chain."""
    return max(len(block) for chain in chains_of(plan, k) for block in chain)


@functools.lru_cache(maxsize=4096)
def has_additions(plan: Plan, k: int) -> bool:
    """Whether partial results are added anywhere, but for an accumulator in a block (R4)."""
    chains = chains_of(plan, k)
    return len(chains) > 1 or (plan.late and any(len(chain) > 1 for chain in chains))


def _epilogue(member: Member, step: Arithmetic, operands: Sequence[str]) -> Epilogue:
    epilogue = member.epilogue
    plain = not set(operands) & {"scale_a", "scale_b", "bias", "c"}
    narrow = plain and step.add not in ("exact", "f64")
    if epilogue.via == "once" and (narrow or "scale_result" in operands):
        epilogue = dataclasses.replace(epilogue, via="float32")
    if "c" in operands and "bias" not in operands and epilogue.c == "separate":
        via = "float32" if epilogue.via == "once" else epilogue.via  # the sum is one already
        epilogue = dataclasses.replace(epilogue, via=via)
    if "c" in operands and (epilogue.c, epilogue.bias) == ("separate", "separate"):
        epilogue = dataclasses.replace(epilogue, bias="fused")  # what it is added to is a float32
    return epilogue
