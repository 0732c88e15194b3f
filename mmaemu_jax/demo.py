"""The main job on real data: recorded FP8 projections of a language model, replayed inside jit.

Every projection ran on an RTX 4060 (``mmaemu_jax.data``). The demo computes them with the bits of
that GPU, with XLA's own float32-accumulated dot, and with the bits of an H100 PCIe, and says how
the results differ.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.api import scaled_mm
from mmaemu_jax.data import RecordedOutput, RecordedProjection, load_evo2_projections
from mmaemu_jax.testing.bits import bits_of, ulp_distance

#: Shape of the timed layer: the recorded rows repeated to the model's own size.
TIMED_ROWS, TIMED_COLUMNS = 2048, 1024


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one result differs from another in its bits.

    Attributes:
        differing: outputs whose bits differ.
        total: outputs compared.
        max_ulps: largest distance in units of the output dtype's last place.
        max_abs: largest absolute difference.
        max_relative: the same, as a share of the largest output of this call.
    """

    differing: int
    total: int
    max_ulps: int
    max_abs: float
    max_relative: float

    @property
    def share(self) -> float:
        return self.differing / self.total


@dataclasses.dataclass(frozen=True)
class ProjectionReport:
    """One recorded output and what was computed for it."""

    name: str
    shape: tuple[int, int, int]
    out_dtype: str
    ada: Difference
    xla: Difference
    hopper: Difference
    hopper_xla: Difference


@dataclasses.dataclass(frozen=True)
class SpeedReport:
    """GMAC/s of one jitted layer, and its ratio to XLA's float32 dot in the same run."""

    name: str
    shape: tuple[int, int, int]
    gmacs: float
    ratio: float


def difference(actual, desired) -> Difference:
    """Compares two arrays of one shape and dtype, bit for bit."""
    a, d = np.asarray(actual), np.asarray(desired)
    unequal = bits_of(a) != bits_of(d)
    if not unequal.any():
        return Difference(0, a.size, 0, 0.0, 0.0)
    values = d.astype(np.float64)
    gap = float(np.abs(a.astype(np.float64) - values).max())
    ulps = int(np.max(ulp_distance(a, d)))
    return Difference(int(unequal.sum()), a.size, ulps, gap, gap / float(np.abs(values).max()))


def emulated_layer(profile: str, out: RecordedOutput, backend: str) -> Callable:
    """A jitted linear layer y = x @ w.T with the bits of ``profile``."""

    @jax.jit
    def layer(x, w):
        return scaled_mm(
            x, w.T, out.scale_a, out.scale_b, out_dtype=out.out_dtype,
            use_fast_accum=out.use_fast_accum, profile=profile, splitk=1, backend=backend,
        )  # fmt: skip

    return layer


def xla_layer(out: RecordedOutput) -> Callable:
    """The same layer by XLA's own dot of the FP8 operands, accumulated in float32."""

    @jax.jit
    def layer(x, w):
        contract_k = (((1,), (1,)), ((), ()))
        acc = jax.lax.dot_general(x, w, contract_k, preferred_element_type=jnp.float32)
        return (acc * (jnp.float32(out.scale_a) * jnp.float32(out.scale_b))).astype(out.out_dtype)

    return layer


def replay(backend: str = "auto") -> Iterator[ProjectionReport]:
    """Replays every recorded output; S = 1 throughout, as it was recorded."""
    for projection in load_evo2_projections():
        x, w = jnp.asarray(projection.a), jnp.asarray(projection.b)
        for out in projection.outputs:
            ada = emulated_layer("ada", out, backend)(x, w)
            hopper = emulated_layer("hopper", out, backend)(x, w)
            xla = xla_layer(out)(x, w)
            yield ProjectionReport(
                projection.name,
                (x.shape[0], w.shape[0], x.shape[1]),
                out.out_dtype.name,
                ada=difference(ada, out.bits),
                xla=difference(xla, out.bits),
                hopper=difference(hopper, out.bits),
                hopper_xla=difference(hopper, xla),
            )


def _seconds(layer: Callable, x, w, repeats: int = 3) -> float:
    """Best time of one call, compilation left out."""
    layer(x, w).block_until_ready()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        layer(x, w).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return best


def measure(backend: str = "auto") -> Iterator[SpeedReport]:
    """Times one projection's data, repeated to 2048 x 1024 x 1920."""
    projection: RecordedProjection = load_evo2_projections()[0]
    x = jnp.asarray(np.resize(projection.a, (TIMED_ROWS, projection.a.shape[1])))
    w = jnp.asarray(np.resize(projection.b, (TIMED_COLUMNS, projection.b.shape[1])))
    shape = (x.shape[0], w.shape[0], x.shape[1])
    macs = float(np.prod(shape))
    out = next(o for o in projection.outputs if o.out_dtype != np.float32)
    float32_dot = jax.jit(lambda a, b: a @ b.T)
    dot_seconds = _seconds(float32_dot, x.astype(jnp.float32), w.astype(jnp.float32))
    yield SpeedReport("XLA float32 dot", shape, macs / dot_seconds / 1e9, 1.0)
    for profile in ("ada", "hopper"):
        seconds = _seconds(emulated_layer(profile, out, backend), x, w)
        yield SpeedReport(profile, shape, macs / seconds / 1e9, dot_seconds / seconds)


def _cell(d: Difference) -> str:
    return "equal" if d.differing == 0 else f"{d.share:7.2%}  {d.max_relative:.1e}"


def _row(report: ProjectionReport) -> str:
    m, n, k = report.shape
    cells = (report.ada, report.xla, report.hopper, report.hopper_xla)
    columns = "".join(f"{_cell(d):<20}" for d in cells)
    return f"{report.name:<9}{f'{m} x {n} x {k}':<17}{report.out_dtype:<10}{columns}".rstrip()


def run(backend: str = "auto", speed: bool = True) -> int:
    """Prints the demo; returns 0 if every output equals the hardware's bits, else 1."""
    print("FP8 projections of the Evo 2 1B DNA language model, recorded on an RTX 4060")
    print(f"(cuBLASLt 12.8.3.14, torch 2.7.1), computed here inside jax.jit, backend {backend!r}.")
    print("Columns: share of outputs whose bits differ, largest difference as a share of the")
    print("call's largest output.\n")
    heads = (("profile ada", "XLA's dot", "profile hopper", "profile hopper"),
             ("vs RTX 4060", "vs RTX 4060", "vs RTX 4060", "vs XLA's dot"))  # fmt: skip
    for labels, head in zip((("call", "M x N x K", "output"), ("", "", "")), heads, strict=True):
        left = "{:<9}{:<17}{:<10}".format(*labels)
        print((left + "".join(f"{h:<20}" for h in head)).rstrip())
    reports = []
    for report in replay(backend):
        reports.append(report)
        print(_row(report), flush=True)
    values = sum(r.ada.total for r in reports)
    wrong = sum(r.ada.differing for r in reports)
    verdict = "all equal to" if wrong == 0 else f"{wrong} differ from"
    print(f"\n{values} outputs of profile ada: {verdict} the hardware's bits (evidence: replayed).")
    worst = max(r.xla.max_relative for r in reports)
    print(f"XLA's float32-accumulated dot is off by up to {worst:.1e} of a call's largest output.")
    print("Profile hopper is an H100 PCIe (evidence: inherited); no recording of these calls.")
    if speed:
        _print_speed(backend)
    return 0 if wrong == 0 else 1


def _print_speed(backend: str) -> None:
    print(f"\n{'layer':<18} {'M x N x K':<20} {'GMAC/s':>8}  of XLA's float32 dot")
    for s in measure(backend):
        m, n, k = s.shape
        print(f"{s.name:<18} {f'{m} x {n} x {k}':<20} {s.gmacs:8.1f}  {s.ratio:.2f}", flush=True)
