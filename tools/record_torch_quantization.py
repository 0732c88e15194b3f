"""Records what torch's CPU arithmetic makes of hard tensors: scales and FP8 bytes.

    python tools/record_torch_quantization.py [FILE]

Needs torch (recorded with 2.13.0 on x86-64), which nothing else here does. The formulas are those
that Transformer Engine and torchao publish, written in torch operations. The file holds

    x_<dtype>                   inputs, raw bits [case, 64]
    cases                       a name for each case
    <formula>_<format>_<dtype>_scale, _inverse     float32 bits [case]
    <formula>_<format>_<dtype>_codes               bytes [case, 64]
"""

import sys

import numpy as np
import torch

FILE = "tests/vectors/training/torch_quantization.npz"
SIZE = 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FLOAT32_MAX = torch.finfo(torch.float32).max


def torchao(x: torch.Tensor, fp8: torch.dtype) -> torch.Tensor:
    """The scale of torchao's tensor-wise dynamic scaling, by way of float64."""
    amax = torch.max(torch.abs(x)).to(torch.float64)
    return (torch.finfo(fp8).max / torch.clamp(amax, min=1e-12)).to(torch.float32)


def te(x: torch.Tensor, fp8: torch.dtype, epsilon: float = 0.0) -> torch.Tensor:
    """The scale of Transformer Engine's current scaling; its maximum passes over NaN."""
    magnitudes = torch.abs(x.to(torch.float32))
    amax = torch.where(torch.isnan(magnitudes), 0.0, magnitudes).max()
    if amax < epsilon:
        amax = torch.tensor(epsilon, dtype=torch.float32)
    if torch.isinf(amax) or amax == 0:
        return torch.ones((), dtype=torch.float32)
    scale = torch.tensor(torch.finfo(fp8).max, dtype=torch.float32) / amax
    return torch.where(torch.isinf(scale), FLOAT32_MAX, scale)


def te_power_of_two(x: torch.Tensor, fp8: torch.dtype) -> torch.Tensor:
    """The same with the fraction masked away."""
    bits = te(x, fp8).view(torch.int32) & -0x800000
    return bits.view(torch.float32)


def te_epsilon(x: torch.Tensor, fp8: torch.dtype) -> torch.Tensor:
    """The same with TE's amax_epsilon."""
    return te(x, fp8, epsilon=2.0**-20)


FORMULAS = {f.__name__: f for f in (torchao, te, te_power_of_two, te_epsilon)}


def saturated(x: torch.Tensor, scale: torch.Tensor, fp8: torch.dtype) -> torch.Tensor:
    largest = torch.finfo(fp8).max
    return (x.to(torch.float32) * scale).clamp(-largest, largest).to(fp8)


def hard_tensors() -> dict[str, np.ndarray]:
    """float64 values by name; each dtype rounds them."""
    rng = np.random.default_rng(5)
    ordinary = rng.standard_normal(SIZE)
    exponents = 2.0 ** rng.integers(-20, 0, SIZE)
    e4m3_ties = np.concatenate([np.arange(1, 32, 2) * 2.0**k for k in (-10, -9, -5, 4)])
    e5m2_ties = np.concatenate([np.arange(1, 32, 2) * 2.0**k for k in (-17, -16, -8, 11)])
    cases = {
        "ordinary": ordinary,
        "activations": np.maximum(ordinary, 0) * 3,
        "wide": ordinary * exponents,
        "wider": ordinary * exponents**2,
        "large": ordinary * 3e4,
        "e4m3 ties": np.append(e4m3_ties[:-1], 448.0),
        "e5m2 ties": np.append(e5m2_ties[:-1], 57344.0),
        "e4m3 ties scaled": np.append(e4m3_ties[:-1], 448.0) * -(2.0**-9),
        "zero": np.zeros(SIZE),
        "negative zero": -np.zeros(SIZE),
        "signed zeros": np.append(np.where(ordinary[:-1] > 0, 0.0, -0.0), 1.0),
        "one element": np.append(np.zeros(SIZE - 1), -0.3),
        "nan": np.append(ordinary[:-1], np.nan),
        "negative nan": np.append(ordinary[:-1], -np.nan),
        "all nan": np.full(SIZE, np.nan),
        "inf": np.append(ordinary[:-1], np.inf),
        "negative inf": np.append(ordinary[:-1], -np.inf),
        "inf and nan": np.append(ordinary[:-2], [np.inf, np.nan]),
        "float32 subnormal": ordinary * 2.0**-130,
        "float32 smallest": np.append(np.zeros(SIZE - 1), 2.0**-149),
        "subnormal beside normal": np.append(ordinary[:-1] * 2.0**-128, 1.0),
        "scale overflows": ordinary * 2.0**-124,
        "scale nearly overflows": np.append(ordinary[:-1] * 2.0**-122, 2.0**-118.9),
        "float16 subnormal": ordinary * 2.0**-18,
        "below 1e-12": ordinary * 1e-14,
        "at 1e-12": np.append(ordinary[:-1] * 1e-13, np.float32(1e-12)),
        "below epsilon": ordinary * 2.0**-26,
        "float32 largest": np.append(ordinary[:-1] * 1e38, np.finfo(np.float32).max),
        "float16 largest": np.append(ordinary[:-1] * 1e4, 65504.0),
    }
    for i in range(12):  # quotients of all sorts
        cases[f"random amax {i}"] = rng.standard_normal(SIZE) * rng.lognormal(0, 6)
    return cases


def main(path: str) -> None:
    cases = hard_tensors()
    arrays: dict[str, np.ndarray] = {"cases": np.array(list(cases))}
    for dtype_name, dtype in DTYPES.items():
        integers = torch.int32 if dtype is torch.float32 else torch.int16
        stack = np.stack(list(cases.values()))
        x = torch.from_numpy(stack).to(torch.float32).to(dtype)
        unsigned = np.uint32 if dtype is torch.float32 else np.uint16
        arrays[f"x_{dtype_name}"] = x.view(integers).numpy().view(unsigned)
        for formula_name, formula in FORMULAS.items():
            for format_name, fp8 in FORMATS.items():
                scales = torch.stack([formula(row, fp8) for row in x])
                codes = torch.stack(
                    [
                        saturated(row, scale, fp8).view(torch.uint8)
                        for row, scale in zip(x, scales, strict=True)
                    ]
                )
                key = f"{formula_name}_{format_name}_{dtype_name}"
                arrays[f"{key}_scale"] = scales.numpy().view(np.uint32)
                arrays[f"{key}_inverse"] = scales.reciprocal().numpy().view(np.uint32)
                arrays[f"{key}_codes"] = codes.numpy()
    np.savez_compressed(path, **arrays)
    print(f"{path}: {len(cases)} cases, torch {torch.__version__}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or [FILE]))
