"""The dimensions of a GEMM by name: one table for shapes, explicit shardings and partitioning.

Names are "m", "n", "k" and, for the leading batch dimensions from the left, "b0", "b1", ... .
"""

from typing import Literal

BLayout = Literal["nk", "kn"]
Names = tuple[str, ...]


def operand_names(
    leading: int, b_layout: BLayout, has_scale_result: bool, has_c: bool
) -> tuple[Names, ...]:
    """The names of each operand's dimensions, in the order of the primitive's operands."""
    batch = batch_names(leading)
    optional = [batch] * has_scale_result + [(*batch, "m", "n")] * has_c
    return ((*batch, "m", "k"), (*batch, *b_layout), batch, batch, *optional)


def batch_names(leading: int) -> Names:
    """The names of the leading dimensions."""
    return tuple(f"b{i}" for i in range(leading))


def result_names(leading: int) -> Names:
    """The names of the result's dimensions."""
    return (*batch_names(leading), "m", "n")


def sizes_by_name(shapes, names: tuple[Names, ...]) -> dict[str, int] | None:
    """The size of each named dimension, or None if two operands disagree.

    A batch dimension may be 1 on some operands and is then the size of the others; the sizes may be
    symbolic.
    """
    sizes: dict[str, int] = {}
    for shape, own in zip(shapes, names, strict=True):
        if len(shape) != len(own):
            return None
        for name, size in zip(own, shape, strict=True):
            known = sizes.setdefault(name, size)
            if known == size or (name[0] == "b" and size == 1):
                continue
            if name[0] != "b" or known != 1:
                return None
            sizes[name] = size
    return sizes
