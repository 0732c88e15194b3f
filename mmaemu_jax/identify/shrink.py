"""The smallest operands on which a black box and a member still differ."""

import dataclasses

import numpy as np

from mmaemu_jax.identify.calls import BlackBox, Call, Interface
from mmaemu_jax.identify.check import member_bits, mismatches
from mmaemu_jax.identify.member import Member
from mmaemu_jax.identify.probes import Sparse
from mmaemu_jax.identify.questions import Layout


@dataclasses.dataclass(frozen=True)
class Counterexample:
    """One dot product: where a factor is nonzero, and what came out.

    Attributes:
        shape: the GEMM's (M, N, K).
        output: (row, column); no other row of a or column of b should matter.
        positions: the k at which a or b is not zero.
        a, b: their codes.
        seen: the black box's output bits.
        expected: the member's.
    """

    shape: tuple[int, int, int]
    output: tuple[int, int]
    positions: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    seen: int
    expected: int


def smallest(box: BlackBox, member: Member) -> Counterexample | None:
    """The smallest mismatch found: the calls left are spent on parts of the smallest seen."""
    best = None
    for call in list(box.calls):
        best = _smaller(best, _of_call(box.interface, member, call))
    while best is not None and box.left and len(best.positions) > 2:
        call = _parts(box, best)
        again = _smaller(best, _of_call(box.interface, member, call))
        if again is best:
            break
        best = again
    return best


def of_output(
    interface: Interface, member: Member, call: Call, row: int, column: int
) -> Counterexample:
    """Output (row, column) of a call that was made, and what ``member`` says of it."""
    a, b = call.a[row], call.b[column]
    positions = np.flatnonzero((a | b) & 0x7F)
    expected = member_bits(member, interface, call, np.array([row]), np.array([column]))
    return Counterexample(
        call.shape,
        (row, column),
        tuple(positions.tolist()),
        tuple(a[positions].tolist()),
        tuple(b[positions].tolist()),
        int(call.bits[row, column]),
        int(expected[0]),
    )


def _of_call(interface: Interface, member: Member, call: Call) -> Counterexample | None:
    wrong = mismatches(member, interface, call)
    if not len(wrong):
        return None
    used = (call.a[wrong[:, 0]] | call.b[wrong[:, 1]]) & 0x7F != 0
    row, column = map(int, wrong[int(used.sum(1).argmin())])
    return of_output(interface, member, call, row, column)


def _smaller(x: Counterexample | None, y: Counterexample | None) -> Counterexample | None:
    if x is None or y is None:
        return y if x is None else x
    return y if len(y.positions) < len(x.positions) else x


def _parts(box: BlackBox, example: Counterexample) -> Call:
    """One call of parts of the example: without one term each, halves, and random subsets."""
    terms = len(example.positions)
    rng = np.random.default_rng(terms)
    layout = Layout.of(example.shape)
    count = layout.count
    keep = rng.random((count, terms)) < rng.uniform(0.05, 0.9, (count, 1))
    single = min(terms, count // 2)
    keep[:single] = True
    drop = rng.permutation(terms)[:single]
    keep[np.arange(single), drop] = False
    codes = [np.tile(np.array(x, np.uint8), (count, 1)) for x in (example.a, example.b)]
    for side in {0, 1} if layout.each == 1 else {1 - layout.shared}:
        codes[side][~keep] = 0
    a, b = Sparse(codes[0], codes[1], np.array(example.positions)).matrices(example.shape)
    return box.call("smaller counterexample", example.shape, a, b, questions=count)
