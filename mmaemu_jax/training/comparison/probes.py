"""At the same parameters: each variant's gradients and GEMMs beside the reference's."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mmaemu_jax.testing.bits import bits_of, ulp_distance
from mmaemu_jax.training.comparison.capture import Capture, CapturedDot
from mmaemu_jax.training.comparison.plan import Job

Line = dict[str, Any]

#: The results of one dot_general and its gradients, in this order.
GEMMS = ("fprop", "dgrad", "wgrad")


class Probes:
    """Gradients and GEMMs of all variants, at states of the reference's run.

    Args:
        job: with a loss.
    """

    def __init__(self, job: Job):
        assert job.loss is not None
        self._job = job
        self._gradients = {
            name: jax.jit(jax.grad(functools.partial(_loss, job.loss, variant.numerics)))
            for name, variant in job.variants.items()
        }
        numerics = job.variants[job.reference].numerics
        self._capture = Capture(job.loss, numerics, job.sites) if job.gemms else None

    def at(self, step: int, state, done: Callable[[str], None]) -> list[Line]:
        """What every variant does differently from the reference in the state before ``step``.

        Args:
            step: whose batch is taken.
            state: the reference's.
            done: told when a variant is finished.
        """
        job = self._job
        params, batch = job.params(state), job.batches(job.probe_seed, step)
        gradient = self._gradient(job.reference, params, batch)
        dots = self._captured(params, batch)
        results = [self._products(job.reference, dot) for dot in dots]
        done(job.reference)
        lines: list[Line] = []
        for name in job.variants:
            if name == job.reference:
                continue
            head = {"variant": name, "seed": job.probe_seed, "step": step}
            ours = self._gradient(name, params, batch)
            for (leaf, x), (_, desired) in zip(ours, gradient, strict=True):
                what = {"kind": "gradient", **head, "leaf": leaf}
                lines.append({**what, **_gradient_difference(x, desired)})
            for dot, desired in zip(dots, results, strict=True):
                lines += _gemm_lines(head, dot, self._products(name, dot), desired)
            done(name)
        return lines

    def _captured(self, params, batch) -> tuple[CapturedDot, ...]:
        if self._capture is None:
            return ()
        return self._capture(*self._placed(self._job.reference, (params, batch)))

    def _gradient(self, name: str, params, batch) -> list[tuple[str, np.ndarray]]:
        """Every leaf by its path, after one leaf "all" that holds the whole gradient."""
        gradient = self._gradients[name](*self._placed(name, (params, batch)))
        paths, _ = jax.tree_util.tree_flatten_with_path(gradient)
        named = [(jax.tree_util.keystr(path), _flat(leaf)) for path, leaf in paths]
        return [("all", np.concatenate([leaf for _, leaf in named])), *named]

    def _products(self, name: str, dot: CapturedDot) -> tuple[np.ndarray, ...]:
        """Result, gradient of lhs and gradient of rhs of one dot_general."""
        numerics = self._job.variants[name].numerics
        results = _pull_back(numerics, dot.call, *self._placed(name, dot.operands))
        return tuple(np.asarray(x) for x in results)

    def _placed(self, name: str, tree):
        """The arrays where variant ``name`` runs, wherever the reference has left them."""
        variants = self._job.variants
        if all(variant.device is None for variant in variants.values()):
            return tree
        return jax.device_put(tree, variants[name].device or jax.local_devices()[0])


def _flat(leaf) -> np.ndarray:
    return np.ravel(np.asarray(leaf)).astype(np.float64)


def _loss(loss, numerics, params, batch):
    return loss(params, batch, numerics)


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


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pull_back(numerics, call, lhs, rhs, cotangent):
    result, pull = jax.vjp(lambda x, w: call.apply(numerics, x, w), lhs, rhs)
    return result, *pull(cotangent)


def _gemm_lines(head: Line, dot: CapturedDot, ours, reference) -> list[Line]:
    return [
        {
            "kind": "gemm",
            **head,
            "site": dot.site,
            "gemm": gemm,
            **shape,
            "dtype": x.dtype.name,
            **_output_difference(x, desired),
        }
        for gemm, shape, x, desired in zip(GEMMS, dot.shapes, ours, reference, strict=True)
    ]


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
        "p99_ulps": float(np.percentile(ulps, 99)) if ulps.size else 0.0,
        "max_ulps": int(ulps.max(initial=0)),
        "norm_error": float(np.linalg.norm(error)) / norm if norm else 0.0,
        "bias": float((error * np.sign(y[finite])).sum()) / total if total else 0.0,
    }
