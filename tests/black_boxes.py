"""GEMMs to identify: members, this package's kernels, and some that are outside the family.

What is outside is written here from scratch, product by product, and shares nothing with
mmaemu_jax.identify.
"""

import dataclasses

import numpy as np

import mmaemu_jax as mj
from mmaemu_jax.identify import Member
from mmaemu_jax.identify.calls import Interface
from mmaemu_jax.identify.check import with_specials
from mmaemu_jax.identify.evaluate import Operands, accumulators
from mmaemu_jax.identify.output import Extras, output_bits

ROWS = 16


def member_gemm(member: Member, interface: Interface):
    """A GEMM that computes as ``member``, a few rows at a time."""

    def gemm(a, b, **operands):
        a, b = (np.ascontiguousarray(x).view(np.uint8) for x in (a, b.T))
        extras = Extras(**operands)
        rows = []
        for i in range(0, len(a), ROWS):
            some = a[i : i + ROWS]
            pairs = Operands.of(interface.formats, some, b, False)
            acc = accumulators(member.plan, (member.arithmetic,), pairs)[0]
            acc = with_specials(acc, interface, some, b, False)
            part = extras
            if extras.c is not None:
                part = dataclasses.replace(extras, c=extras.c[i : i + ROWS])
            bits = output_bits(acc, member.epilogue, interface.out_dtype, part, False)
            rows.append(bits.reshape(len(some), len(b)))
        return np.concatenate(rows).view(interface.out_dtype)

    return gemm


def kernel_gemm(model, plan):
    """This package's C++ kernels with a [K, N] operand."""
    return lambda a, b: mj.host.gemm(a, b, model=model, plan=plan, b_layout="kn", threads=1)


# ---------------------------------------------------------------------------- outside the family


def _exact_products(a, b):
    """float64 [K, M, N]."""
    a, b = a.astype(np.float32).astype(np.float64), b.astype(np.float32).astype(np.float64)
    return a.T[:, :, None] * b[:, None, :]


def backwards(a, b):
    """float32 additions from the last product to the first."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for product in _exact_products(a, b)[::-1]:
        total = total + product.astype(np.float32)
    return total


def half_precision_partials(a, b):
    """float32 chains of 64, of which the sums are kept as float16."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    products = _exact_products(a / np.float32(32), b / np.float32(32)).astype(np.float32)
    for start in range(0, len(products), 64):
        chain = np.zeros_like(total)
        for product in products[start : start + 64]:
            chain = chain + product
        total = total + chain.astype(np.float16).astype(np.float32)
    return total * np.float32(1024)


def every_eighty(a, b):
    """hopper's blocks, but a new chain every 80 elements."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    model = mj.get_preset("hopper").model
    for start in range(0, a.shape[1], 80):
        part = slice(start, start + 80)
        total = total + mj.host.gemm(a[:, part], b[part], model=model, b_layout="kn", threads=1)
    return total


def seventeen_bits(a, b):
    """hopper's blocks with 17 fraction bits, which the family leaves out."""
    model = dataclasses.replace(mj.get_preset("hopper").model, frac=17)
    return mj.host.gemm(a, b, model=model, b_layout="kn", threads=1)


def high_floor(a, b):
    """hopper with an alignment exponent of at least -4 (R4)."""
    model = dataclasses.replace(mj.get_preset("hopper").model, min_exp=-4)
    return mj.host.gemm(a, b, model=model, b_layout="kn", threads=1)


def compensated(a, b):
    """Kahan's sum in float32."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    missed = np.zeros_like(total)
    for product in _exact_products(a, b).astype(np.float32):
        term = product - missed
        new = total + term
        missed = (new - total) - term
        total = new
    return total


def wrong_corner(a, b):
    """hopper, but for sums of exactly one kind of operand: the last row is computed backwards."""
    model = mj.get_preset("hopper").model
    c = mj.host.gemm(a, b, model=model, b_layout="kn", threads=1)
    c[-1] = mj.host.gemm(a[-1:, ::-1], b[::-1], model=model, b_layout="kn", threads=1)[0]
    return c


OUTSIDE = (
    backwards,
    half_precision_partials,
    every_eighty,
    seventeen_bits,
    high_floor,
    compensated,
    wrong_corner,
)
