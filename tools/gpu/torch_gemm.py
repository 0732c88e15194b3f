"""What does torch._scaled_mm return on this GPU, with the split that its cuBLASLt chooses?"""

import collections
import importlib.util

import numpy as np

import mmaemu_jax as mj
from gpu import library
from gpu.library import Kind
from gpu.section import Outcome, Section
from mmaemu_jax.cuda_cublaslt import CublasLt, GemmCall, Refusal
from mmaemu_jax.testing.cases import families, operands

#: What gpu_check.py makes torch use.
WORKSPACE = 1 << 20
KIND = Kind(((64, 128, 256), (128, 64, 1040), (16, 48, 16384)), library.WIDE)


def compare(section: Section) -> Outcome:
    """torch against the CPU and the native kernel."""
    if importlib.util.find_spec("torch") is None:
        return Outcome(None, "torch is not installed")
    import torch

    device = "cpu" if section.dry else "cuda"
    if not section.dry and not torch.cuda.is_available():
        return Outcome(None, f"torch {torch.__version__} sees no GPU")
    lt, native = library.open_library(section), library.tensor_core_kernel(section)
    tally: collections.Counter = collections.Counter()
    for seed, call in library.calls(KIND, WORKSPACE):
        if section.left < 0 or (section.dry and seed >= library.DRY_COUNT):
            break
        verdicts = one_call(torch, device, lt, seed, call, native)
        section.note(seed=seed, call=str(call), verdicts=verdicts)
        tally.update(verdicts)
    name = f"torch {torch.__version__}, cuBLASLt {lt.version}"
    lt.close()
    # On a CPU torch's own arithmetic answers, which is another one.
    explained = section.dry or not any("nothing explains" in key for key in tally)
    return Outcome(bool(tally) and explained, f"{name}: {dict(sorted(tally.items()))}")


def one_call(torch, device: str, lt: CublasLt, seed: int, call: GemmCall, native: str) -> list[str]:
    """What explains one of torch's GEMMs."""
    names = families()
    a, b = operands(names[seed % len(names)], call.format_a, call.format_b, call.M, call.N, call.K,
                    seed)  # fmt: skip
    kinds = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    x, y = (
        torch.from_numpy(codes.copy()).to(device).view(kinds[fmt])
        for codes, fmt in ((a, call.format_a), (b, call.format_b))
    )
    scales = (*library.SCALES[:2], None)
    tensors = [torch.tensor(float(s), device=device, dtype=torch.float32) for s in scales[:2]]
    try:
        out = torch._scaled_mm(
            x, y.t(), *tensors, out_dtype=getattr(torch, call.out_dtype),
            use_fast_accum=call.use_fast_accum,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        return [f"refused: {str(error).splitlines()[0][:80]}"]
    bits = out.view(torch.uint8).cpu().numpy()
    found = lt.heuristic(call)
    split = 1 if isinstance(found, Refusal) else library.split_argument(lt, found)
    profile = library.profile_of(lt)
    try:
        expected = {
            name: library.emulated(call, a, b, scales, profile, split, backend)
            for name, backend in (("the CPU's bits", ""), (native, native))
            if name
        }
    except mj.errors.MmaemuError as error:
        return [f"accepted; emulation: {type(error).__name__}"]
    fits = [name for name, z in expected.items() if library.same_bits(bits, z.view(np.uint8))]
    return fits or [f"nothing explains split {split}"]
