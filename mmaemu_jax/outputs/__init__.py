"""Outputs of FP8 GEMMs that somebody recorded, against the bits that a profile returns.

A recording is one ``.npz`` for each GEMM (docs/layer-by-layer.md): operands as codes, scales,
options and what came out. :func:`check_outputs` computes each again, compares, and can say what
explains a difference.
"""

from mmaemu_jax.outputs.check import check_outputs as check_outputs
from mmaemu_jax.outputs.recorded import RecordedGemm as RecordedGemm
from mmaemu_jax.outputs.recorded import read_gemm as read_gemm
from mmaemu_jax.outputs.recorded import write_gemm as write_gemm
from mmaemu_jax.outputs.report import CheckedGemm as CheckedGemm
from mmaemu_jax.outputs.report import OutputsReport as OutputsReport
