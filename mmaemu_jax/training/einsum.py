"""fp8_einsum: two-operand einsums by fp8_dot_general, with the first operand as lhs.

jnp.einsum may hand its operands to a dot_general in either order, which would exchange what
belongs to activations and to weights.
"""

import string

import jax
import jax.numpy as jnp

from mmaemu_jax.call import array_operand
from mmaemu_jax.errors import message
from mmaemu_jax.training.dot_general import fp8_dot_general

FUNCTION = "fp8_einsum"


def fp8_einsum(subscripts: str, lhs, rhs, /, **options) -> jax.Array:
    """``jnp.einsum(subscripts, lhs, rhs)`` by :func:`fp8_dot_general`.

    Args:
        subscripts: such as "bsk,kn->bsn". "..." stands for the same dimensions wherever it is. A
            letter of both operands is a batch dimension if the result has it, else contracted.
        lhs: the activations.
        rhs: the weights.
        options: as for fp8_dot_general.

    Returns:
        The dimensions that the subscripts ask for.

    Raises:
        TypeError, ValueError: subscripts that are not one dot_general and a transposition, and
            whatever fp8_dot_general refuses.
    """
    ranks = [
        len(array_operand(FUNCTION, name, x).shape) for name, x in (("lhs", lhs), ("rhs", rhs))
    ]
    left, right, result = _letters(subscripts, ranks)
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in result]
    contracted = [c for c in shared if c not in result]
    dimension_numbers = tuple(
        (tuple(left.index(c) for c in letters), tuple(right.index(c) for c in letters))
        for letters in (contracted, batch)
    )
    rows, columns = (
        [c for c in own if c not in other] for own, other in ((left, right), (right, left))
    )
    computed = [*batch, *rows, *columns]
    if sorted(computed) != sorted(result):
        raise _refused(subscripts, "sums a dimension of one operand")
    y = fp8_dot_general(lhs, rhs, dimension_numbers, **options)
    return jnp.transpose(y, [computed.index(c) for c in result])


def _letters(subscripts: str, ranks: list[int]) -> tuple[str, str, str]:
    """The letters of lhs, rhs and result, with letters of their own for an ellipsis."""
    if not isinstance(subscripts, str):
        raise TypeError(f"{FUNCTION}: subscripts must be a str, got {subscripts!r}.")
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    operands = inputs.split(",")
    if len(operands) != 2:
        raise _refused(subscripts, "does not have two operands")
    unused = "".join(c for c in string.ascii_letters if c not in subscripts)
    hidden = {
        rank - len(operand.replace("...", ""))
        for operand, rank in zip(operands, ranks, strict=True)
        if "..." in operand
    }
    if len(hidden) > 1 or any(n < 0 for n in hidden):
        raise _refused(subscripts, f"does not fit operands of {ranks[0]} and {ranks[1]} dimensions")
    ellipsis = unused[: hidden.pop()] if hidden else ""
    left, right = (operand.replace("...", ellipsis) for operand in operands)
    if not arrow:
        once = sorted(c for c in set(left + right) if (left + right).count(c) == 1)
        result = "..." + "".join(c for c in once if c not in ellipsis)
    result = result.replace("...", ellipsis)
    for letters, rank in ((left, ranks[0]), (right, ranks[1])):
        if len(letters) != rank:
            raise _refused(subscripts, f"names {len(letters)} dimensions of an operand with {rank}")
    for letters in (left, right, result):
        if len(set(letters)) != len(letters) or (not letters.isalpha() and letters):
            raise _refused(subscripts, "repeats a letter within one operand, or is not of letters")
    return left, right, result


def _refused(subscripts: str, why: str) -> ValueError:
    return ValueError(
        message(
            f"{FUNCTION}: {subscripts!r} {why}.",
            ["one product of two operands, such as 'bsk,kn->bsn'", "jnp.einsum around it"],
        )
    )
