"""The black box: every call that was made, with its operands and the bits that came back."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from mmaemu_jax.errors import message
from mmaemu_jax.identify.output import Extras
from mmaemu_jax.identify.probes import Formats
from mmaemu_jax.identify.questions import outputs

Shape = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: codes a [M, K] and b [N, K], further operands, and the output's bits [M, N].

    ``questions`` were asked (:mod:`mmaemu_jax.identify.questions`); all outputs count.
    """

    purpose: str
    shape: Shape
    a: np.ndarray
    b: np.ndarray
    extras: Extras
    bits: np.ndarray
    questions: int = 0

    @property
    def asked(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the outputs that answer them."""
        return outputs(self.shape, self.questions)

    @property
    def answers(self) -> np.ndarray:
        """Their bits."""
        return self.bits[self.asked]


@dataclasses.dataclass(frozen=True)
class Interface:
    """What is known of a GEMM before it is called: formats of a and b, output, further operands."""

    formats: Formats
    out_dtype: np.dtype
    operands: tuple[str, ...] = ()


class BlackBox:
    """Calls the GEMM, no more often than allowed, and keeps what it saw."""

    def __init__(
        self,
        gemm: Callable[..., Any],
        interface: Interface,
        b_layout: Literal["kn", "nk"],
        budget: int,
    ):
        self.interface = interface
        self.formats, self.out_dtype = interface.formats, interface.out_dtype
        self.operands = interface.operands
        self.calls: list[Call] = []
        self._gemm, self._layout, self._budget = gemm, b_layout, budget

    @property
    def left(self) -> int:
        """Calls that may still be made."""
        return self._budget - len(self.calls)

    def neutral(self, shape: Shape) -> Extras:
        """Further operands that leave the accumulator as it is."""
        m, n, _ = shape
        one = np.float32(1)
        values: dict[str, Any] = {"scale_a": one, "scale_b": one, "scale_result": one}
        values |= {"bias": np.zeros(n, np.float32), "c": np.zeros((m, n), np.float32)}
        chosen = {name: values[name] for name in self.operands}
        return Extras(**chosen, beta=one if "c" in chosen else None)

    def call(
        self,
        purpose: str,
        shape: Shape,
        a: np.ndarray,
        b: np.ndarray,
        extras: Extras | None = None,
        questions: int = 0,
    ) -> Call:
        """One call of the GEMM on codes a [M, K] and b [N, K]."""
        extras = self.neutral(shape) if extras is None else extras
        fmt_a, fmt_b = self.formats
        b_values = b.view(fmt_b.dtype)
        if self._layout == "kn":
            b_values = np.ascontiguousarray(b_values.T)
        try:
            result = np.asarray(self._gemm(a.view(fmt_a.dtype), b_values, **extras.keywords()))
        except Exception as error:
            error.add_note(self._called_with(a, b_values, extras))
            raise
        if result.shape != shape[:2] or result.dtype != self.out_dtype:
            raise ValueError(
                message(
                    f"identify: the GEMM must return {self.out_dtype.name}{list(shape[:2])} for "
                    f"M, N, K = {shape}, got {result.dtype.name}{list(result.shape)}.",
                    ["pass another out_dtype", "pass b_layout='nk' for a GEMM that takes b [N, K]"],
                )
            )
        bits = np.ascontiguousarray(result).view(f"u{self.out_dtype.itemsize}")
        made = Call(purpose, shape, a, b, extras, bits.reshape(shape[:2]), questions)
        self.calls.append(made)
        return made

    def _called_with(self, a: np.ndarray, b: np.ndarray, extras: Extras) -> str:
        given = [f"a {self.formats[0].dtype.name}{list(a.shape)}"]
        given += [f"b {b.dtype.name}{list(b.shape)}", *extras.keywords()]
        return message(
            f"identify: raised by the GEMM when called with {', '.join(given)}.",
            ["pass other formats, shapes, operands or b_layout"],
        )
