"""Which output of a call answers which question.

Output (t mod M, t mod N) answers question t. With M = N every question has operands of its own.
With M < N the questions t, t + M, t + 2 M, ... share a row of a, their *leader's*, and likewise a
column of b with M > N: that is how a GEMM with a single row can be asked hundreds of questions.
"""

import dataclasses

import numpy as np

from mmaemu_jax.identify.selection import row_ids, separating_columns

#: Questions asked in one call at most.
_MOST = 256


@dataclasses.dataclass(frozen=True)
class Layout:
    """The questions of one call.

    Attributes:
        leaders: how many questions share nothing.
        each: how many share one leader's operand; question t has leader t mod ``leaders``.
        shared: the operand that is shared, 0 for a or 1 for b; no matter with ``each`` 1.
    """

    leaders: int
    each: int
    shared: int

    @classmethod
    def of(cls, shape: tuple[int, int, int]) -> "Layout":
        """The most questions that a call at (M, N, K) has."""
        m, n, _ = shape
        leaders = min(m, n, _MOST)
        return cls(leaders, min(max(m, n), _MOST) // leaders, int(n < m))

    @property
    def count(self) -> int:
        """Number of questions."""
        return self.leaders * self.each

    def widened(self, count: int) -> "Layout":
        """The same with enough leaders for a pool of about ``count`` questions."""
        return dataclasses.replace(self, leaders=max(2, count // self.each))

    def chosen(self, predictions: np.ndarray, wanted: "Layout") -> np.ndarray | None:
        """Questions of this pool, in order, that tell hypotheses [hypotheses, count] apart best.

        None if none of them does.
        """
        if self.each == 1:
            columns = separating_columns(predictions, wanted.leaders)
            return columns if len(columns) else None
        groups = predictions.reshape(len(predictions), self.each, self.leaders)
        told = [row_ids(groups[:, :, leader]) for leader in range(self.leaders)]
        leaders = separating_columns(np.stack(told, axis=1), wanted.leaders)
        if not len(leaders):
            return None
        chosen = np.resize(leaders, wanted.leaders)
        return (chosen + self.leaders * np.arange(wanted.each)[:, None]).reshape(-1)


def outputs(shape: tuple[int, int, int], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the outputs that answer the first ``count`` questions."""
    t = np.arange(count)
    return t % shape[0], t % shape[1]
