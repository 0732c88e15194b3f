"""Why do some outputs differ? Tries every single change of what was expected, then another
accumulation together with any split, and says which explain the bits that were seen."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mmaemu_jax.arguments import output_dtype_argument, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.formats import format_of
from mmaemu_jax.identify.arguments import format_pair
from mmaemu_jax.identify.calls import Call, Interface, Shape
from mmaemu_jax.identify.check import member_bits
from mmaemu_jax.identify.classify_calls import caller
from mmaemu_jax.identify.conclude import neighbours
from mmaemu_jax.identify.equivalence import canonical
from mmaemu_jax.identify.family import SLOW, SPLITS, family_of
from mmaemu_jax.identify.member import Member
from mmaemu_jax.identify.models import as_member
from mmaemu_jax.identify.output import Extras
from mmaemu_jax.identify.parts import WHOLE
from mmaemu_jax.testing.bits import bits_of

#: Outputs that are explained at most, and products that are evaluated to find them.
_MOST = 512
#: A change that explains none of this many differing outputs is not looked at further.
_FEW = 24
_PRODUCTS = 1 << 26
_LISTED = 8


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One way to explain outputs that differ.

    Attributes:
        change: in words, from what was expected.
        member: the changed model.
        explained: differing outputs whose bits it gives.
        broken: agreeing outputs that it would change.
        calls: the options of :func:`scaled_mm` that are the same computation at these shapes, the
            plainest first; empty if there are none.
    """

    change: str
    member: Member
    explained: int
    broken: int
    calls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Classification:
    """What :func:`classify` found.

    Attributes:
        outputs: outputs that were looked at: of those that differ and of those that agree a few
            hundred each.
        differing: of these, those that differ from the expected model.
        explanations: changes that explain at least one of them and break nothing, the best first;
            of changes that are one computation at this K the plainest.
        size: all outputs of the GEMM.
        out_dtype: their dtype.
        given: which further operands were given, such as ("scale_a", "scale_b").
    """

    outputs: int
    differing: int
    explanations: tuple[Explanation, ...]
    size: int
    out_dtype: str
    given: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.outputs:,} of {self.size:,} outputs looked at, of these {self.differing:,} "
            "differ from the expected model"
        ]
        most = self.explanations[0].explained if self.explanations else 0
        best = [e for e in self.explanations if e.explained == most or e.broken][:_LISTED]
        for e in best:
            broken = f", breaks {e.broken:,}" if e.broken else ""
            lines.append(f"  {e.change}: explains {e.explained:,}{broken}")
            lines += [f"    that is {call}" for call in e.calls[:1]]
        if len(best) < len(self.explanations):
            lines.append(f"  more changes that explain some: {len(self.explanations) - len(best)}")
        if self.differing and not self.explanations:
            lines += ["  no change of the model explains any of them", *self._assumed()]
        return "\n".join(lines)

    def _assumed(self) -> list[str]:
        """What was taken for granted about the epilogue."""
        operands = ["scale_a", "scale_b", "bias"]
        if format_of(np.dtype(self.out_dtype)) is not None:
            operands.insert(2, "scale_result")
        missing = [name for name in operands if name not in self.given]
        given = f"with {', '.join(self.given)}" if self.given else "without scales and bias"
        lines = [f"  it was taken for a GEMM {given}, rounded to {self.out_dtype}"]
        if missing:
            lines.append(f"  if it has more operands, pass them too: {', '.join(missing)}")
        return lines


def classify(
    a: Any,
    b: Any,
    seen: Any,
    expected: Any,
    *,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_result: Any = None,
    bias: Any = None,
    b_layout: str = "nk",
) -> Classification:
    """Explains the outputs of a GEMM that are not those of the expected model.

    Fast against slow accumulation, another split or combine order, both of these at once, other bit
    counts, a double rounding, another order of scales, and whatever else is one change away in the
    family.

    Args:
        a: float8 [M, K].
        b: float8 [N, K], or [K, N] with ``b_layout="kn"``.
        seen: [M, N] in an output dtype of R18: what the GEMM returned.
        expected: the model it should follow: a :class:`Member`, an :class:`Identification`, a
            preset, or ``(preset, plan)``.
        scale_a, scale_b, scale_result, bias: the further operands that the GEMM had: float32 of
            one element each, bias [N]. A GEMM that was called with scales looks unexplained without
            them.
        b_layout: "nk" or "kn".

    Returns:
        The changes that explain, with how many outputs each explains.

    Raises:
        TypeError, ValueError: operands of the wrong type or shape.
    """
    member = as_member("classify", expected)
    call, interface = _as_call(a, b, seen, b_layout, scale_a, scale_b, scale_result, bias)
    rows, columns = _chosen(member, interface, call)
    wanted = call.bits[rows, columns]
    plain = _pairs(member, interface, call, rows, columns)
    differ = plain != wanted
    found = _explanations(member, interface, call, (rows, columns, differ)) if differ.any() else ()
    return Classification(
        outputs=len(rows),
        differing=int(differ.sum()),
        explanations=found,
        size=call.bits.size,
        out_dtype=interface.out_dtype.name,
        given=interface.operands,
    )


def _explanations(member: Member, interface: Interface, call: Call, chosen):
    """The changes that explain outputs (rows, columns, whether they differ), the best first.

    Where a single change explains all, nobody asks for two.
    """
    found = list(_tried(_changes(member, interface, call.shape), interface, call, chosen))
    differing = chosen[2].sum()
    if not any(e.explained == differing and not e.broken for e in found):
        found += _tried(_two_changes(member), interface, call, chosen)
    found.sort(key=lambda e: (e.broken - e.explained, not e.calls, e.change))
    return tuple([e for e in found if not e.broken] or found[:3])


def _tried(
    changes: Iterable[tuple[str, Member]], interface: Interface, call: Call, chosen
) -> Iterator[Explanation]:
    """Those of the changes that explain at least one of the outputs that differ."""
    rows, columns, differ = chosen
    wanted = call.bits[rows, columns]
    calls_of = caller(interface, call.shape)
    few = np.flatnonzero(differ)[:_FEW]
    for change, other in changes:
        if not (_pairs(other, interface, call, rows[few], columns[few]) == wanted[few]).any():
            continue
        bits = _pairs(other, interface, call, rows, columns)
        explained = int((bits[differ] == wanted[differ]).sum())
        broken = int((bits[~differ] != wanted[~differ]).sum())
        if explained:
            yield Explanation(change, other, explained, broken, calls_of(other))


def _as_call(a, b, seen, b_layout, scale_a, scale_b, scale_result, bias):
    a, b, seen = (np.asarray(x) for x in (a, b, seen))
    output_dtype_argument("classify", "seen", seen.dtype)
    if b_layout not in ("kn", "nk"):
        raise unknown_option("classify", "b_layout", b_layout, ("kn", "nk"), "b_layout='kn'")
    b = np.ascontiguousarray(b.T) if b_layout == "kn" else b
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or seen.shape != (len(a), len(b)):
        raise ValueError(
            message(
                f"classify: a [M, K], b [N, K] and seen [M, N] do not fit: {a.shape}, {b.shape}, "
                f"{seen.shape}.",
                ["b_layout='kn' for b [K, N]"],
            )
        )
    formats = format_pair("classify", (a.dtype, b.dtype))
    scales = {"scale_a": scale_a, "scale_b": scale_b, "scale_result": scale_result}
    values: dict[str, Any] = {
        name: _one_scale(name, scale) for name, scale in scales.items() if scale is not None
    }
    if bias is not None:
        values["bias"] = np.asarray(bias, np.float32).reshape(-1)
    extras = Extras(**values)
    interface = Interface(formats, seen.dtype, tuple(extras.keywords()))
    shape = (len(a), len(b), a.shape[1])
    codes = [np.ascontiguousarray(x).view(np.uint8) for x in (a, b)]
    return Call("given", shape, codes[0], codes[1], extras, np.asarray(bits_of(seen))), interface


def _one_scale(name: str, scale: Any) -> np.float32:
    values = np.asarray(scale)
    if values.size != 1:
        raise ValueError(
            message(
                f"classify: {name} must have one element, got shape {values.shape}.",
                ["explain the accumulators: outputs in float32 before the scales, without scales"],
            )
        )
    return np.float32(values.reshape(()))


def _chosen(member: Member, interface: Interface, call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the outputs to explain: of those that differ, and of those that agree, a few.

    Of a large GEMM only as many outputs are looked at as :data:`_PRODUCTS` allow.
    """
    m, n, k = call.shape
    rng = np.random.default_rng(0)
    outputs = rng.permutation(m * n)[: max(_MOST, _PRODUCTS // k)]
    rows, columns = np.divmod(outputs, n)
    parts = [slice(i, i + _MOST) for i in range(0, len(rows), _MOST)]
    bits = np.concatenate([_pairs(member, interface, call, rows[p], columns[p]) for p in parts])
    differ = bits != call.bits[rows, columns]
    some = [np.flatnonzero(which)[: _MOST // 2] for which in (differ, ~differ)]
    index = np.sort(np.concatenate(some))
    return rows[index], columns[index]


def _pairs(member: Member, interface: Interface, call: Call, rows, columns) -> np.ndarray:
    return member_bits(member, interface, call, rows, columns, paired=True)


def _changes(member: Member, interface: Interface, shape: Shape) -> Sequence[tuple[str, Member]]:
    """Single changes, and every split with the member's own arithmetic, one of each computation."""
    changes = list(neighbours(member, family_of(interface)))
    for split in SPLITS:
        other = dataclasses.replace(member, plan=dataclasses.replace(member.plan, split=split))
        changes.append((other.words()[0], other))
    distinct = {canonical(member, interface, [shape]): ("", member)}
    for change, other in changes:
        distinct.setdefault(canonical(other, interface, [shape]), (change, other))
    return list(distinct.values())[1:]


def _two_changes(member: Member) -> Iterator[tuple[str, Member]]:
    """The other accumulation (R10, R11) with every split: one forgotten, the other unknown."""
    restart = SLOW if member.plan.restart.is_whole else WHOLE
    said = f"restart every {SLOW.tile}" if member.plan.restart.is_whole else "no restart"
    for split in SPLITS:
        plan = dataclasses.replace(member.plan, split=split, restart=restart)
        other = dataclasses.replace(member, plan=plan)
        if split != member.plan.split:
            yield f"{_split_words(other)} and {said}", other


def _split_words(member: Member) -> str:
    return "no split" if member.plan.split.is_whole else member.words()[0]
