"""Which of many questions to ask."""

import numpy as np


def row_ids(predictions: np.ndarray) -> np.ndarray:
    """int64 [hypotheses]: equal for rows of [hypotheses, questions] that are equal."""
    rows = np.packbits(predictions, axis=1) if predictions.dtype == bool else predictions
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).reshape(-1)
    return np.unique(whole, return_inverse=True)[1]


def separating_columns(predictions: np.ndarray, count: int) -> np.ndarray:
    """Up to ``count`` columns of [hypotheses, columns], the most telling first.

    A column tells as much as the groups it cuts the hypotheses into are small; each one taken has
    to split further what those before it have left together.
    """
    different = predictions[np.unique(row_ids(predictions), return_index=True)[1]]
    total = len(different)
    values, ids = np.unique(different, return_inverse=True)
    ids = ids.reshape(different.shape)
    varied = np.flatnonzero((ids != ids[:1]).any(0))
    together = [np.square(np.unique(ids[:, c], return_counts=True)[1]).sum() for c in varied]
    varied = varied[np.argsort(together, kind="stable")]
    groups, found, chosen = np.zeros(total, np.int64), 1, []
    for column in varied:
        _, split = np.unique(groups * len(values) + ids[:, column], return_inverse=True)
        if split.max() + 1 > found:
            groups, found = split, split.max() + 1
            chosen.append(column)
            if len(chosen) == count or found == total:
                break
    taken = set(chosen)
    rest = [c for c in varied if c not in taken][: count - len(chosen)]
    return np.array([*chosen, *rest], np.int64)
