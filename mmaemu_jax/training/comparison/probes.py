"""At the same parameters: each variant's gradients and GEMMs beside the reference's."""

import functools
import math
from typing import Any

import jax
import numpy as np

from mmaemu_jax.testing.bits import bits_of, ulp_distance
from mmaemu_jax.training.comparison.capture import CapturedDot, capture
from mmaemu_jax.training.comparison.plan import Job

Line = dict[str, Any]

#: The results of one dot_general and its gradients, in this order.
GEMMS = ("fprop", "dgrad", "wgrad")


class Probes:
    """Gradients and GEMMs of all variants at one state of the reference.

    Args:
        job: with a loss.
        step: the state before this step is probed, on this step's batch.
        state: that state.
    """

    def __init__(self, job: Job, step: int, state):
        assert job.loss is not None
        self._job = job
        self._step = step
        self._params = job.params(state)
        self._batch = job.batches(job.probe_seed, step)
        self._gradient = _host(_gradient(job, job.reference)(self._params, self._batch))
        self._dots: tuple[CapturedDot, ...] = ()
        self._results: list[tuple[np.ndarray, ...]] = []
        if job.gemms:
            numerics = job.variants[job.reference].numerics
            self._dots = capture(job.loss, self._params, self._batch, numerics, job.sites)
            self._results = [_results(numerics, dot) for dot in self._dots]

    def lines(self, name: str) -> list[Line]:
        """What variant ``name`` does differently from the reference."""
        head = {"variant": name, "seed": self._job.probe_seed, "step": self._step}
        gradient = _host(_gradient(self._job, name)(self._params, self._batch))
        lines = [
            {"kind": "gradient", **head, "leaf": leaf, **_gradient_difference(ours, reference)}
            for (leaf, ours), reference in zip(
                _leaves(gradient), (g for _, g in _leaves(self._gradient)), strict=True
            )
        ]
        numerics = self._job.variants[name].numerics
        for dot, reference in zip(self._dots, self._results, strict=True):
            ours = _results(numerics, dot)
            for gemm, shape, x, desired in zip(GEMMS, dot.shapes, ours, reference, strict=True):
                what = {"site": dot.site, "gemm": gemm, **shape, "dtype": x.dtype.name}
                lines.append({"kind": "gemm", **head, **what, **_output_difference(x, desired)})
        return lines


def _gradient(job: Job, name: str):
    variant = job.variants[name]
    return jax.jit(jax.grad(functools.partial(_loss, job.loss, variant.numerics)))


def _loss(loss, numerics, params, batch):
    return loss(params, batch, numerics)


def _host(tree):
    return jax.tree.map(np.asarray, tree)


def _leaves(gradient) -> list[tuple[str, np.ndarray]]:
    """Every leaf by its path, after one leaf "all" that holds the whole gradient."""
    paths, _ = jax.tree_util.tree_flatten_with_path(gradient)
    named = [(jax.tree_util.keystr(path), np.ravel(leaf).astype(np.float64)) for path, leaf in paths]
    return [("all", np.concatenate([leaf for _, leaf in named])), *named]


def _gradient_difference(ours: np.ndarray, reference: np.ndarray) -> Line:
    """Cosine and size; ``one_minus_cosine`` is computed so that small angles keep their digits."""
    size, reference_size = float(np.linalg.norm(ours)), float(np.linalg.norm(reference))
    product = size * reference_size
    if not math.isfinite(product) or product == 0:
        none = dict.fromkeys(("cosine", "one_minus_cosine", "relative_difference", "norm_ratio"))
        return {"elements": ours.size, "equal_bits": bool((ours == reference).all()), **none}
    # |u - v|^2 = 2 - 2 cos for unit vectors u and v.
    apart = float(np.linalg.norm(ours / size - reference / reference_size))
    return {
        "elements": ours.size,
        "equal_bits": bool((ours == reference).all()),
        "cosine": 1 - apart**2 / 2,
        "one_minus_cosine": apart**2 / 2,
        "relative_difference": float(np.linalg.norm(ours - reference)) / reference_size,
        "norm_ratio": size / reference_size,
    }


def _results(numerics, dot: CapturedDot) -> tuple[np.ndarray, ...]:
    """Result, gradient of lhs and gradient of rhs of one dot_general, in reduced output dtypes."""
    return tuple(np.asarray(x) for x in _pull_back(numerics, dot.call, *dot.operands))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pull_back(numerics, call, lhs, rhs, cotangent):
    result, pull = jax.vjp(lambda x, w: call.apply(numerics, x, w), lhs, rhs)
    return result, *pull(cotangent)


def _output_difference(actual: np.ndarray, desired: np.ndarray) -> Line:
    """How the outputs of one GEMM differ from the reference's, in bits and in size."""
    differing = bits_of(actual) != bits_of(desired)
    # The numbers below are about finite results.
    x, y = (v.astype(np.float64) for v in (actual, desired))
    finite = np.isfinite(x) & np.isfinite(y)
    ulps = ulp_distance(actual, desired)[differing & finite]
    error, size = (x - y)[finite], np.abs(y[finite])
    total, norm = float(size.sum()), float(np.linalg.norm(y[finite]))
    return {
        "outputs": int(actual.size),
        "differing": int(np.count_nonzero(differing)),
        "not_finite": int(np.count_nonzero(~finite)),
        "median_ulps": float(np.median(ulps)) if ulps.size else 0.0,
        "max_ulps": int(ulps.max(initial=0)),
        "norm_error": float(np.linalg.norm(error)) / norm if norm else 0.0,
        "bias": float((error * np.sign(y[finite])).sum()) / total if total else 0.0,
    }
