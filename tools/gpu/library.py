"""What does this GPU's cuBLASLt return, and which arithmetic explains it?"""

import collections
import dataclasses
import functools
import itertools
import pathlib
import tempfile
from collections.abc import Iterator

import jax
import numpy as np

import mmaemu_jax as mj
from gpu.bits import gpus, trusted_kernels
from gpu.section import Outcome, Section
from mmaemu_jax import cuda_record
from mmaemu_jax.cuda_cublaslt import Algorithm, CublasLt, GemmCall, Refusal, scheme_of
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.formats import format_named
from mmaemu_jax.testing.cases import families, operands

#: Calls of each kind, and in a dry run.
COUNT, DRY_COUNT = 64, 2
DTYPES = {dtype.name: dtype for dtype in OUTPUT_DTYPES}
SCALES = (np.float32(0.1), np.float32(1.7), np.float32(0.3))
#: Of the workspace, as XLA and newer versions of torch give it on Hopper.
WORKSPACE = 32 << 20
WIDE = ("float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Kind:
    """Calls that tell one thing apart.

    Attributes:
        shapes, outputs, fast: what is called, in turn.
        addend: "bias" or "c": what the epilogue adds.
    """

    shapes: tuple[tuple[int, int, int], ...]
    outputs: tuple[str, ...]
    fast: tuple[bool, ...] = (True, False)
    addend: str = ""


_SHAPES = ((64, 128, 256), (128, 64, 1040), (32, 256, 4096))
KINDS = {
    # Two blocks of the model: the second one's instruction starts from the first one's result.
    "instruction with c": Kind(((16, 64, 64), (32, 16, 64)), ("float32",), (True,)),
    "slow accumulation": Kind(_SHAPES, ("float32",), (False,)),
    "epilogue": Kind(_SHAPES[:2], tuple(DTYPES)),
    "split-K": Kind(((16, 48, 16384), (64, 64, 8192), (32, 256, 28672)), WIDE),
    "bias": Kind(_SHAPES[:2], ("bfloat16", "float32"), addend="bias"),
    "beta": Kind(_SHAPES[:2], WIDE, addend="c"),
}


def calls(kind: Kind, workspace: int = WORKSPACE) -> Iterator[tuple[int, GemmCall]]:
    """COUNT calls: shapes x formats x outputs x accumulation, in turn."""
    every = itertools.product(kind.shapes, cuda_record.PAIRS, kind.outputs, kind.fast)
    for seed, (shape, pair, out, fast) in enumerate(
        itertools.islice(itertools.cycle(every), COUNT)
    ):
        yield seed, GemmCall(*shape, *pair, out, fast, workspace, out.startswith("float8"))


def open_library(section: Section) -> CublasLt:
    """This machine's cuBLASLt; in a dry run what stands for it."""
    if not section.dry:
        return CublasLt()
    from gpu.stand_in import StandInCublasLt

    return StandInCublasLt(pathlib.Path(tempfile.mkdtemp(dir=section.work)))


def profile_of(library: CublasLt) -> str:
    """The profile with the GPU's arithmetic; Hopper's for a GPU that no profile has."""
    return "ada" if library.driver.capability == (8, 9) else "hopper"


def split_argument(library: CublasLt, algorithm: Algorithm):
    """The splitk of scaled_mm for what the library chose."""
    scheme = scheme_of(library.driver.capability, algorithm)
    return (algorithm.splitK, scheme) if algorithm.splitK > 1 and scheme else 1


def emulated(call: GemmCall, a, b, scales, profile: str, split, backend: str = "") -> np.ndarray:
    """The bits that the profile's arithmetic gives, by the CPU or by a CUDA kernel."""
    x, y = a.view(format_named(call.format_a).dtype), b.view(format_named(call.format_b).dtype)
    scale_a, scale_b, scale_result = scales
    options = {"out_dtype": DTYPES[call.out_dtype], "use_fast_accum": call.use_fast_accum,
               "profile": profile, "splitk": split}  # fmt: skip
    if call.has_scale_result:
        options["scale_result"] = scale_result
    if not backend:
        return mj.host.scaled_mm(x, y.T, scale_a, scale_b, **options)
    with jax.default_device(gpus()[0]):
        program = functools.partial(mj.scaled_mm, backend=backend, **options)
        return np.asarray(jax.jit(program)(x, y.T, scale_a, scale_b))


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal bit patterns."""
    return x.tobytes() == y.tobytes()


def hypotheses(call: GemmCall, a, b, profile: str, split, addend) -> dict[str, np.ndarray]:
    """How an addend can enter the epilogue: as one multiply-add (R17), or rounded before."""
    x, y = a.view(format_named(call.format_a).dtype), b.view(format_named(call.format_b).dtype)
    acc = mj.host.accumulate(
        x, y, use_fast_accum=call.use_fast_accum, profile=profile, splitk=split,
        out_dtype_for_split=DTYPES[call.out_dtype],
    )  # fmt: skip
    wide, alpha = addend.astype(np.longdouble), SCALES[0] * SCALES[1]
    product, dtype = acc.astype(np.longdouble) * alpha, DTYPES[call.out_dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        in_fp32 = product.astype(np.float32)
        added = in_fp32.astype(dtype).astype(np.float32) + addend.astype(np.float32)
        return {
            "one multiply-add": (product + wide).astype(np.float32).astype(dtype),
            "two roundings, fp32": (in_fp32 + addend.astype(np.float32)).astype(dtype),
            "two roundings, output": added.astype(dtype),
        }


def tensor_core_kernel(section: Section) -> str:
    """The native kernel of this GPU, or ""."""
    usable = trusted_kernels(section)
    return next((name for name in usable if name in ("cuda:wgmma", "cuda:mma_sync")), "")


def compare(section: Section) -> Outcome:
    """Every kind of call against the CPU, and against the native kernel where nothing is added."""
    library, native = open_library(section), tensor_core_kernel(section)
    tally: collections.Counter = collections.Counter()
    section.note(gpu=str(library.driver), library=library.version, native=native)
    # Kinds in turn, so that each has some calls where the time runs out.
    turns = zip(*map(calls, KINDS.values()), strict=True)
    every = ((name, *call) for turn in turns for name, call in zip(KINDS, turn, strict=True))
    for name, seed, call in every:
        if section.left < 0 or (section.dry and seed >= DRY_COUNT):
            break
        verdicts = one_call(library, KINDS[name], seed, call, native)
        section.note(kind=name, seed=seed, call=str(call), verdicts=verdicts)
        tally.update(f"{name}: {verdict}" for verdict in verdicts)
    text = f"{library.driver}, cuBLASLt {library.version}; {dict(sorted(tally.items()))}"
    library.close()
    explained = bool(tally) and not any("nothing explains" in key for key in tally)
    return Outcome(explained, text)


def operands_of(kind: Kind, seed: int, call: GemmCall):
    """Codes a and b, and what is added, [M, N]."""
    names, dtype = families(), DTYPES[call.out_dtype]
    a, b = operands(names[seed % len(names)], call.format_a, call.format_b, call.M, call.N, call.K,
                    seed)  # fmt: skip
    random = np.random.default_rng(seed)
    # Of the size of typical outputs, whose low bits matter.
    if kind.addend == "bias":
        bias = (16 * random.normal(size=call.N)).astype(DTYPES["bfloat16"])
        return a, b, np.broadcast_to(bias, (call.M, call.N))
    return a, b, (16 * random.normal(size=(call.M, call.N))).astype(dtype)


def one_call(library: CublasLt, kind: Kind, seed: int, call: GemmCall, native: str) -> list[str]:
    """What explains one GEMM of the library."""
    a, b, addend = operands_of(kind, seed, call)
    extra = {
        "": {},
        "bias": {"bias": addend[0]},
        "c": {"c": addend},
    }[kind.addend]
    extra = {name: x.view(f"u{x.dtype.itemsize}") for name, x in extra.items()}
    scales = SCALES if call.has_scale_result else (*SCALES[:2], None)
    found = library.gemm(call, a, b, *scales, **extra)
    if isinstance(found, Refusal):
        return [f"refused {found.status}"]
    bits, algorithm = found
    split, profile = split_argument(library, algorithm), profile_of(library)
    try:
        if kind.addend:
            expected = hypotheses(call, a, b, profile, split, addend)
        else:
            expected = {"the CPU's bits": emulated(call, a, b, scales, profile, split)}
            if native:
                expected[native] = emulated(call, a, b, scales, profile, split, native)
    except mj.errors.MmaemuError as error:
        return [f"accepted; emulation: {type(error).__name__}"]
    fits = [name for name, y in expected.items() if same_bits(bits, y)]
    return fits or [f"nothing explains S = {algorithm.splitK}"]
