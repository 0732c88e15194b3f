"""Runs recorded calls through the public API, inside jit.

A GEMM case can be replayed as recorded (:func:`as_recorded`, one program per case) or together
with others (:func:`plan_programs`): where every program costs a second to compile, calls that
differ in nothing static but their shapes share one, batched by vmap and padded with zero codes.
Padding is the same computation, because

* a zero code takes no part in a block (R3, R4), so a chain that goes on over zeros keeps its
  bits (R7), and a chunk of zeros is +0, which changes no fp32 sum of accumulators (none is -0);
* it only ever lengthens K: a tile keeps its number, so under R12 it keeps its split; under R13
  K grows to exactly the S q tiles that the S splits span anyway, so q stays;
* rows of a and b only decide their own rows and columns of the result, and a batch element is
  its own GEMM (R25).
"""

import collections
import dataclasses
import math
from collections.abc import Iterable

import jax
import numpy as np
from recordings import GemmCase, GemmOutput, InstructionCase

import mmaemu_jax as mj

#: Zero products accepted to save one program: about what the reference does in a quarter second.
PADDING_LIMIT = 20_000_000
TILE_K = 128

Shape = tuple[int, int, int]
Call = tuple[GemmCase, GemmOutput]


def padded(x: np.ndarray, rows: int, k: int) -> np.ndarray:
    """``x`` [R, K] with zero codes up to [rows, k]."""
    zeros = np.zeros((rows, k), np.uint8)
    zeros[: x.shape[0], : x.shape[1]] = x.view(np.uint8)
    return zeros.view(x.dtype)


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def joint_shape(a: Shape, b: Shape) -> Shape:
    """The smallest shape that holds both."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])


def accepted(output: GemmOutput) -> np.ndarray:
    assert output.bits is not None
    return output.bits


def operands(case: GemmCase) -> tuple[np.ndarray, np.ndarray]:
    assert case.a is not None
    assert case.b is not None
    return case.a, case.b


def scales_of(output: GemmOutput) -> tuple[np.float32, ...]:
    """scale_a, scale_b and scale_result if there is one."""
    both = (output.scale_a, output.scale_b)
    return both if output.scale_result is None else (*both, output.scale_result)


def scaled_mm(a, b, scales, case: GemmCase, output: GemmOutput, backend: str) -> jax.Array:
    """The recorded call with operands a [M, K] and b [N, K]; mat2 is b transposed."""
    scale_a, scale_b, *rest = scales
    return mj.scaled_mm(
        a,
        b.T,
        scale_a,
        scale_b,
        scale_result=rest[0] if rest else None,
        out_dtype=output.out_dtype,
        use_fast_accum=output.fast,
        profile=case.profile,
        splitk=output.split,
        backend=backend,
    )


def as_recorded(case: GemmCase, backend: str) -> list[np.ndarray]:
    """Every accepted output of one case, by one program with the recorded shapes.

    b gets zero rows up to the multiple of 16 that the library demands of N.
    """
    a, b = operands(case)
    outputs = [output for output in case.outputs if output.bits is not None]

    @jax.jit
    def program(a, b, scales):
        results = zip(outputs, scales, strict=True)
        return [scaled_mm(a, b, s, case, output, backend) for output, s in results]

    rows = b.shape[0]
    b = padded(b, round_up(rows, 16), b.shape[1])
    return [np.asarray(y)[:, :rows] for y in program(a, b, [scales_of(o) for o in outputs])]


def reject(case: GemmCase, output: GemmOutput, backend: str) -> None:
    """Makes the call that the reference rejected."""
    assert output.rejected_shape is not None
    m, n, k = output.rejected_shape
    a, b = np.zeros((m, k), case.a_dtype), np.zeros((n, k), case.b_dtype)
    jax.jit(lambda a, b, s: scaled_mm(a, b, s, case, output, backend))(a, b, scales_of(output))


@dataclasses.dataclass
class Program:
    """Calls that agree in everything static, and the shape [M, N, K] they are padded to."""

    shape: Shape
    calls: list[Call]

    def padding(self, shape: Shape, count: int) -> int:
        """Zero products added by taking in ``count`` calls of ``shape``."""
        joint = math.prod(joint_shape(self.shape, shape))
        own = math.prod(self.shape) * len(self.calls) + math.prod(shape) * count
        return joint * (len(self.calls) + count) - own

    def run(self, backend: str) -> list[np.ndarray]:
        """The results of ``calls``, in their own shapes."""
        m, n, k = self.shape
        case, output = self.calls[0]
        pairs = [operands(case) for case, _ in self.calls]
        a = np.stack([padded(a, m, k) for a, _ in pairs])
        b = np.stack([padded(b, n, k) for _, b in pairs])
        scales = [np.stack(s) for s in zip(*(scales_of(o) for _, o in self.calls), strict=True)]
        program = jax.jit(jax.vmap(lambda a, b, s: scaled_mm(a, b, s, case, output, backend)))
        results = np.asarray(program(a, b, scales))
        return [y[: a.shape[0], : b.shape[0]] for y, (a, b) in zip(results, pairs, strict=True)]


def plan_programs(calls: Iterable[Call]) -> list[Program]:
    """Few programs that compute all ``calls``."""
    groups = collections.defaultdict(list)
    for call in calls:
        groups[_static_options(*call)].append(call)
    return [program for group in groups.values() for program in _merge_shapes(group)]


def _static_options(case: GemmCase, output: GemmOutput) -> tuple:
    scaled = output.scale_result is not None
    dtypes = (case.profile, case.a_dtype, case.b_dtype, output.out_dtype, scaled)
    return (*dtypes, output.fast, output.split, _tiles_per_split(case, output))


def _tiles_per_split(case: GemmCase, output: GemmOutput) -> int:
    """q of R13; 0 for the plans in which K can grow freely."""
    splits, scheme = output.split
    tiles = round_up(operands(case)[0].shape[1], TILE_K) // TILE_K
    return -(-tiles // splits) if scheme == "contiguous" else 0


def _shape(case: GemmCase, output: GemmOutput) -> Shape:
    """The shape of a call, padded as far as it must be."""
    (m, k), (n, _) = (x.shape for x in operands(case))
    q = _tiles_per_split(case, output)
    return m, round_up(n, 16), q * output.split[0] * TILE_K if q else round_up(k, 16)


def _merge_shapes(calls: list[Call]) -> list[Program]:
    by_shape = collections.defaultdict(list)
    for call in calls:
        by_shape[_shape(*call)].append(call)
    programs: list[Program] = []
    for shape, members in sorted(by_shape.items(), key=lambda item: -math.prod(item[0])):
        costs = [program.padding(shape, len(members)) for program in programs]
        if costs and min(costs) < PADDING_LIMIT:
            program = programs[costs.index(min(costs))]
            program.shape = joint_shape(program.shape, shape)
            program.calls += members
        else:
            programs.append(Program(shape, members))
    return programs


def covering(programs: list[Program]) -> list[Program]:
    """Some of ``programs`` that still have every case, and every case fast and slow if it is."""
    wanted = {(case.id, output.fast) for p in programs for case, output in p.calls}
    chosen = []
    while wanted:
        best = max(programs, key=lambda p: len(wanted & _covered(p)))
        wanted -= _covered(best)
        chosen.append(best)
    return chosen


def _covered(program: Program) -> set[tuple[str, bool]]:
    return {(case.id, output.fast) for case, output in program.calls}


def dot_groups(cases: Iterable[InstructionCase]) -> list[list[InstructionCase]]:
    """Cases of one preset, format pair and K, which one program computes."""
    groups = collections.defaultdict(list)
    for case in cases:
        groups[case.preset, case.a.dtype, case.b.dtype, case.a.shape[-1]].append(case)
    return list(groups.values())


def run_dots(cases: list[InstructionCase], backend: str) -> list[np.ndarray]:
    """The results of one of :func:`dot_groups`, each in its own shape."""
    a = np.concatenate([_vectors(case.a, case) for case in cases])
    b = np.concatenate([_vectors(case.b, case) for case in cases])
    starts = [np.zeros_like(case.d) if case.c is None else case.c for case in cases]
    c = np.concatenate([start.ravel() for start in starts])
    program = jax.jit(lambda a, b, c: mj.dot(a, b, c, preset=cases[0].preset, backend=backend))
    ends = np.cumsum([case.d.size for case in cases])
    results = np.split(np.asarray(program(a, b, c)), ends[:-1])
    return [y.reshape(case.d.shape) for y, case in zip(results, cases, strict=True)]


def _vectors(x: np.ndarray, case: InstructionCase) -> np.ndarray:
    k = x.shape[-1]
    return np.broadcast_to(x, (*case.d.shape, k)).reshape(-1, k)
