"""A fixed set of calls whose bits are recorded by version (docs/versioning.md).

Every profile with its modes and splits, every output dtype, dot of every preset, quantize. Operands
come from SHAKE-128, which no release of numpy changes. All but quantize is computed without JAX.
"""

import hashlib
import itertools
import warnings
from collections.abc import Iterator

import numpy as np
from gemms import FORMAT_PAIRS

import mmaemu_jax as mj
from mmaemu_jax import training
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.errors import MmaemuWarning, SplitKUnknownError, UnsupportedFeatureError
from mmaemu_jax.formats import E4M3, E5M2, FORMATS, Fp8Format, format_of
from mmaemu_jax.testing import bits_of, hard_scales

#: "maturity" and "bits".
Entry = dict[str, str]

#: Rows, columns and depth: several splits of every rule, the last tile ragged.
M, N, K = 8, 16, 1104
#: The splits of each scheme that are tried.
SPLITS = {"serial": (2, 3, 4), "pairwise": (3, 4, 5), "contiguous": (2, 3, 4)}
#: Numbers of presets that users might make, which the portable kernel runs.
CUSTOM_PRESETS = {
    "coarse": mj.Preset("coarse", nfma=4, frac=7, frac_out=10, min_exp=-10),
    "late": mj.Preset("late", nfma=24, frac=9, frac_out=6, min_exp=-6, late_c=True),
}


def stream(name: str, size: int) -> np.ndarray:
    """``size`` bytes that ``name`` decides."""
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(size), np.uint8)


def codes(name: str, fmt: Fp8Format, rows: int, k: int) -> np.ndarray:
    """[rows, k] in ``fmt``: rows of eight kinds in turn.

    Any finite code; exponents next to each other; subnormals and few others; six exponents; zeros;
    a NaN or an Inf among numbers; and one large 64-tile in three or four, so that the sums over
    splits have something to round.
    """
    any_code, narrow = (stream(f"{name} {part}", rows * k).reshape(rows, k) for part in "01")
    bits = fmt.mantissa_bits
    fields = any_code & np.uint8(0x80 | (1 << bits) - 1)
    largest = fmt.largest_code >> bits

    def exponents(biased) -> np.ndarray:
        return fields | (np.asarray(biased) << bits).astype(np.uint8)

    def tiles(period: int) -> np.ndarray:
        is_large = np.arange(k) // 64 % period == 0
        return exponents(np.where(is_large, largest - 1, largest // 2))

    special = np.uint8(0x7F) - np.uint8(3) * (narrow[:, :1] % 2)  # NaN, or E5M2's Inf
    kinds = (
        np.where(np.isfinite(fmt.values)[any_code], any_code, np.uint8(0)),
        exponents(fmt.bias - 1 + narrow % 2),
        np.where(narrow < 32, exponents(fmt.bias - 1), fields),
        exponents(fmt.bias - 3 + narrow % 6),
        any_code & 0x80,
        np.where(np.arange(k) == k // 3, special, exponents(fmt.bias)),
        tiles(3),
        tiles(4),
    )
    out = np.stack([kinds[row % len(kinds)][row] for row in range(rows)])
    return out.astype(np.uint8).view(fmt.dtype)


def matrices(fmt_a: Fp8Format, fmt_b: Fp8Format, k: int = K) -> tuple[np.ndarray, np.ndarray]:
    return codes("a", fmt_a, M, k), codes("b", fmt_b, N, k)


def digest(arrays: list[np.ndarray]) -> str:
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(bits_of(array).astype(f"<u{array.dtype.itemsize}").tobytes())
    return hashed.hexdigest()[:32]


def settings(profile: mj.Profile) -> Iterator[tuple[str, dict]]:
    """How the profile accumulates: a name, and the options of the call."""
    schemes = profile.split_rule.schemes if profile.splits else ()
    splits = [(S, scheme) for scheme in schemes for S in SPLITS[scheme]]
    for fast in (True, False) if profile.arithmetic.slow_chunk else (True,):
        mode = "fast" if fast else "slow"
        for S, scheme in [(1, "none"), *splits]:
            name = f"{mode} S={S} {scheme}" if S > 1 else mode
            options = {"profile": profile.name, "use_fast_accum": fast, "splitk": (S, scheme)}
            yield name, options


def accumulators(profile: mj.Profile, options: dict) -> list[np.ndarray]:
    """R3 to R14. No library multiplies E5M2 by E5M2, so only the unsplit plan is tried on it."""
    split = options["splitk"][0] > 1
    pairs = [pair for pair in FORMAT_PAIRS if not (split and pair == (E5M2, E5M2))]
    return [mj.host.accumulate(*matrices(*pair), **options) for pair in pairs]


def scaled(profile: mj.Profile, out_dtype: np.dtype) -> list[np.ndarray]:
    """scaled_mm with this output, where the profile does not refuse it (R16 to R19)."""
    scale_result = np.float32(1.7) if format_of(out_dtype) else None
    results = []
    for pair in FORMAT_PAIRS:
        refused = (*(f.name for f in pair), out_dtype.name) in profile.rejects
        if refused or pair == (E5M2, E5M2):
            continue
        a, b = matrices(*pair)
        options = {"use_fast_accum": True, "profile": profile.name, "splitk": 1}
        scales = np.float32(0.37), np.float32(2.0**-9), None, scale_result
        results.append(mj.host.scaled_mm(a, b.T, *scales, out_dtype, **options))
    return results


def hard_epilogue(out_dtype: np.dtype, has_scale_result: bool) -> list[np.ndarray]:
    """Every pair of hard scales."""
    one = np.array(hard_scales(), np.uint32).view(np.float32)
    a, b = codes("a", E4M3, M, 48)[None, None], codes("b", E4M3, N, 48)[None, None]
    third = np.stack([np.roll(one, i) for i in range(len(one))]) if has_scale_result else None
    model = mj.get_preset("hopper").model
    y = mj.host.gemm(a, b, one[:, None], one[None], third, model=model, out_dtype=out_dtype)
    return [y]


def dots(preset) -> list[np.ndarray]:
    """Chains that start from hard accumulators (R3 to R9)."""
    starts = np.resize(np.array(hard_scales(), np.uint32), 5 * M).view(np.float32).reshape(5, M)
    pairs = [(codes("a", x, M, 70), codes("b", y, M, 70)) for x, y in FORMAT_PAIRS]
    return [mj.host.dot(*pair, c, preset=preset) for pair in pairs for c in starts]


def quantized(fmt: Fp8Format) -> list[np.ndarray]:
    """Values and scales of any bits."""
    x = stream("x", 4 * 4096).view("<u4").reshape(64, 64).astype(np.uint32).view(np.float32)
    scale = np.resize(np.array(hard_scales(), np.uint32), (64, 1)).view(np.float32)
    return [np.asarray(mj.quantize(x, fmt.dtype, scale))]


# ---------------------------------------------------------------------------------- split decisions

#: Dimensions at which the recorded GPUs split K, and others.
SHAPES = tuple(itertools.product((1, 16, 100, 512), (16, 1024, 2048, 8192), (64, 1024, 4096, 8192)))
UNKNOWN = "?"


def decision(profile: str, shape: tuple[int, int, int], setting: tuple) -> str:
    """S and the scheme's letter, with "~" if unverified, as in "4p~"; "?" where none is known."""
    (a, b), out_dtype, fast = setting
    try:
        found = mj.resolve_splitk(
            *shape,
            a_dtype=a.dtype,
            b_dtype=b.dtype,
            out_dtype=out_dtype,
            use_fast_accum=fast,
            profile=profile,
        )
    except (SplitKUnknownError, UnsupportedFeatureError):
        return UNKNOWN
    return f"{found.S}{found.scheme[0] if found.S > 1 else ''}{'' if found.verified else '~'}"


def decisions(profile: str) -> str:
    """Of each of SHAPES, in settings that take turns."""
    settings = itertools.cycle(itertools.product(FORMAT_PAIRS[:3], OUTPUT_DTYPES, (True, False)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MmaemuWarning)
        found = [decision(profile, *place) for place in zip(SHAPES, settings, strict=False)]
    return " ".join(found)


# --------------------------------------------------------------------------------------- entries


def outcome(function, *arguments) -> Entry:
    """A digest of what a call returned; experimental is what warns that it has no evidence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = function(*arguments)
    warned = any(issubclass(w.category, MmaemuWarning) for w in caught)
    return {"maturity": "experimental" if warned else "validated", "bits": digest(results)}


def entries() -> dict[str, Entry]:
    """Every golden call by name, as tools/record_bits.py records them."""
    found = {}
    for name in mj.list_profiles():
        profile = mj.get_profile(name)
        for setting, options in settings(profile):
            found[f"accumulate {name} {setting}"] = outcome(accumulators, profile, options)
        for dtype in OUTPUT_DTYPES:
            found[f"scaled_mm {name} {dtype.name}"] = outcome(scaled, profile, dtype)
        found[f"splitk {name}"] = {"maturity": "decisions", "bits": decisions(name)}
    for dtype in OUTPUT_DTYPES:
        for has_scale_result in (False, True)[: 1 + (format_of(dtype) is not None)]:
            name = f"epilogue {dtype.name}{' scale_result' * has_scale_result}"
            found[name] = outcome(hard_epilogue, dtype, has_scale_result)
    for name in mj.list_presets():
        found[f"dot {name}"] = outcome(dots, name)
    for name, preset in CUSTOM_PRESETS.items():
        found[f"dot custom {name}"] = outcome(dots, preset)
    for name in training.list_recipes():  # a name alone: its bytes are recorded with torch and Flax
        profile = mj.get_profile(training.get_recipe(name).profile)
        found[f"recipe {name}"] = {"maturity": profile.maturity, "bits": "a name"}
    for fmt in FORMATS:
        found[f"quantize {fmt.name}"] = outcome(quantized, fmt)
    return found
