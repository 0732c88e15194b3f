"""Transformer Engine's delayed scaling in numpy, for the training tests."""

import numpy as np


def te_update(history, scale, amax, largest, margin=0, skips=True, use="max", clamps=True):
    """One step of TE's delayed scaling in numpy float32: history and scale for the next step."""
    if skips and amax == 0:
        return history, scale
    rolled = np.append(history[1:], amax)
    top = np.float32(0)
    for a in rolled if use == "max" else [amax]:
        top = a if a > top else top
    if np.isfinite(top) and top > 0:
        with np.errstate(over="ignore"):
            scale = (
                np.float32(largest * 2.0**-margin) / top
                if clamps
                else np.float32(largest) / top / np.float32(2.0**margin)
            )
    if clamps and np.isinf(scale):
        scale = np.finfo(np.float32).max
    rolled[0] = 0
    return rolled.astype(np.float32), np.float32(scale)
