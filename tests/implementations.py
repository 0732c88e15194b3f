"""Who computes GEMMs here, one row per implementation, and on which cells each is compared."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
import oracle_fractions
from agreement_cells import COSTLY, EVERY, Cell, Output, Problem
from gemms import gemm

from mmaemu_jax import backends
from mmaemu_jax.formats import Fp8Format

Results = list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One way to compute a GEMM.

    Attributes:
        name: a backend's name, or "fractions".
        run: the outputs [B, M, N] of a problem, or those at the rows and columns of ``part``.
        why_not: why it cannot run here, or "".
        cells: those it is compared on in CI.
        part: indices into [B, M, N] of what it computes.
    """

    name: str
    run: Callable[[Problem, tuple[Output, ...]], Results]
    why_not: str = ""
    cells: tuple[Cell, ...] = EVERY
    part: tuple = (slice(None),)


def jax_backends() -> list[str]:
    """Names of the CPU kernels that this build has and of the reference, usable or not."""
    names = [status.name for status in backends.backends_status()]
    return [name for name in names if name.startswith("cpu:") or name == "reference"]


@functools.lru_cache(maxsize=4)
def compiled(backend: str, cell: Cell, outputs: tuple[Output, ...]):
    """All outputs in one jitted program."""

    def program(a, b, b_kn, scales):
        return [
            gemm(
                a,
                b if output.b_layout == "nk" else b_kn,
                *own,
                model=cell.model,
                plan=cell.plan,
                out_dtype=output.dtype,
                b_layout=output.b_layout,
                backend=backend,
            )
            for output, own in zip(outputs, scales, strict=True)
        ]

    return jax.jit(program)


def run_backend(backend: str, problem: Problem, outputs: tuple[Output, ...]) -> Results:
    scales = [problem.scales(output) for output in outputs]
    b_kn = np.ascontiguousarray(problem.b.swapaxes(1, 2))
    program = compiled(backend, problem.cell, outputs)
    return [np.asarray(y) for y in program(problem.a, problem.b, b_kn, scales)]


#: One row and the outer columns of every batch element: 20 microseconds a product add up.
FRACTIONS_PART = (slice(None), slice(0, 1), [0, -1])


def run_fractions(problem: Problem, outputs: tuple[Output, ...]) -> Results:
    """The exact oracle on FRACTIONS_PART."""
    cell = problem.cell
    dots = functools.cache(functools.partial(_exact_dot, cell))  # both halves of the batch agree
    rows = [bytes(a[0].view(np.uint8)) for a in problem.a]
    columns = [[bytes(b[j].view(np.uint8)) for j in FRACTIONS_PART[2]] for b in problem.b]
    results = []
    for output in outputs:
        scales = [None if s is None else s.view(np.uint32) for s in problem.scales(output)]
        bits = np.zeros((len(rows), 1, 2), f"u{output.dtype.itemsize}")
        for i, _, j in np.ndindex(bits.shape):
            own = [None if s is None else int(s[i]) for s in scales]
            bits[i, 0, j] = oracle_fractions.epilogue_bits(
                dots(rows[i], columns[i][j]), *own, output.dtype
            )
        results.append(bits.view(output.dtype))
    return results


def _exact_dot(cell: Cell, a: bytes, b: bytes):
    x, y = (
        [_values(fmt)[code] for code in codes] for codes, fmt in ((a, cell.fmt_a), (b, cell.fmt_b))
    )
    return oracle_fractions.dot_value(x, y, cell.fmt_a, cell.fmt_b, 0, cell.model, cell.plan)


@functools.cache
def _values(fmt: Fp8Format) -> list:
    return [oracle_fractions.value_of_code(code, fmt) for code in range(256)]


def implementations() -> list[Implementation]:
    """Every row of the agreement matrix; the portable kernel gives the answer to agree with."""
    rows = [
        Implementation(s.name, functools.partial(run_backend, s.name), s.why_not)
        for s in backends.backends_status()
        if s.name.startswith("cpu:")
    ]
    rows.append(
        Implementation("reference", functools.partial(run_backend, "reference"), cells=COSTLY)
    )
    rows.append(Implementation("fractions", run_fractions, cells=COSTLY, part=FRACTIONS_PART))
    return rows
