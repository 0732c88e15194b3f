"""The exceptions and warnings of R20. Every message ends with the ways out."""

from collections.abc import Iterable


class MmaemuError(Exception):
    """Base class of this package's own exceptions."""


class ReferenceRejectsError(MmaemuError, RuntimeError):
    """torch 2.7.1 or the profile's cuBLAS rejects this call, so there are no bits to return."""


class UnsupportedFeatureError(MmaemuError, NotImplementedError):
    """The reference platform accepts this call; this package does not model it."""


class SplitKUnknownError(MmaemuError, LookupError):
    """The number of K splits of this GEMM on this profile is not known."""


class BackendUnavailableError(MmaemuError, RuntimeError):
    """The requested backend cannot run here."""


class MmaemuWarning(UserWarning):
    """Base class of this package's warnings."""


class ExperimentalPresetWarning(MmaemuWarning):
    """The instruction model or profile has no hardware evidence for this use."""


class UnverifiedSplitWarning(MmaemuWarning):
    """The split-K decision was assumed, or its combination was never replayed."""


class UnvalidatedEnvelopeWarning(MmaemuWarning):
    """The split-K decision was inferred from an envelope that was not validated."""


class ExperimentalKernelWarning(MmaemuWarning):
    """A kernel that no GPU has run yet was asked for; it agreed with the portable one here."""


class UnemulatedDotWarning(MmaemuWarning):
    """emulate leaves an FP8 product to JAX, because it cannot take it over."""


class BackendFallbackWarning(MmaemuWarning):
    """A platform without kernels computes by the float64 reference (same bits, slower)."""


def message(what: str, ways_out: Iterable[str] = ()) -> str:
    """``what``, then the ways out, as one text."""
    ways = list(ways_out)
    return f"{what} Ways out: {'; '.join(ways)}." if ways else what


def unknown_name(kind: str, name: str, known: Iterable[str], *ways_out: str) -> ValueError:
    """The error for a name that is not in a registry."""
    return ValueError(message(f"Unknown {kind} {name!r}; known: {', '.join(known)}.", ways_out))
