"""What the figures say, in plain sentences that are chosen by the figures."""

from mmaemu_jax.training.comparison.figures import NEVER, Metrics
from mmaemu_jax.training.comparison.markup import Shown
from mmaemu_jax.training.comparison.verdict import by_verdict

#: The arithmetic is said to stand out where it moves a gradient this much more than the control.
_STANDS_OUT = 1.5

_GRADIENT = "gradient/{}/relative_difference/worst"


def conclusions(metrics: Metrics, shown: Shown) -> list[str]:
    """HTML sentences, the most important first; each number in them is a figure."""
    found = [
        _losses(metrics, shown),
        _one_seed(metrics),
        _partings(metrics, shown),
        _gradients(metrics, shown),
        _wider(metrics, shown),
        _gemms(metrics, shown),
    ]
    return [sentence for sentence in found if sentence]


def _names(names: list[str]) -> str:
    quoted = [f"<b>{name}</b>" for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _losses(metrics: Metrics, shown: Shown) -> str:
    reference = metrics.reference
    found = by_verdict(metrics, shown.figures)
    spread = f"{shown(f'loss/{reference}/spread', '.4f')} between the reference's seeds"
    texts = {
        "noise": "{} cannot be told from <b>" + reference + "</b> by the loss: the difference of "
        "the final losses is no larger than what another order of float32 sums grows to in so many "
        f"steps ({_names(metrics.controls)}).",
        "small": "{}: a difference in the final loss, but a smaller one than another seed makes "
        f"({spread}), so a single curve does not show it.",
        "visible": "{}: a larger difference in the final loss than another seed makes "
        f"({spread}), so a curve shows it.",
        "equal": "{}: no difference at all in the final loss.",
        "not finite": "{}: a loss is not finite.",
    }
    order = ("not finite", "visible", "small", "noise", "equal")
    return " ".join(texts[v].format(_names(found[v])) for v in order if v in found)


def _one_seed(metrics: Metrics) -> str:
    if len(metrics.seeds) > 1:
        return ""
    return (
        "There is one seed, so nothing is known about the spread that chance alone makes: run at "
        "least three."
    )


def _partings(metrics: Metrics, shown: Shown) -> str:
    parted = [n for n in metrics.others() if shown.figures[f"parted/{n}/state"] != NEVER]
    same = [n for n in metrics.others() if n not in parted]
    parts = []
    if parted:
        told = [n for n in parted if n not in metrics.controls] or parted
        first = min(told, key=lambda n: int(shown.figures[f"parted/{n}/state"] or 0))
        parts.append(
            f"In their bits the runs part all the same: after step "
            f"{shown(f'parted/{first}/state')} the parameters of <b>{first}</b> differ from the "
            f"reference's, and {shown('parted')} of {shown('others')} variants do in the end."
        )
        parts += [
            f"Even those of <b>{name}</b> do, after step {shown(f'parted/{name}/state')}."
            for name in metrics.controls
            if name in parted and told != parted
        ]
        parts.append("Curves that look equal do not mean equal bits.")
    if same:
        parts.append(f"{_names(same)} never differed from the reference, in any bit.")
    return " ".join(parts)


def _emulated(metrics: Metrics) -> list[str]:
    emulated = metrics.values("shape", "variant")
    return [name for name in metrics.others() if name in emulated]


def _size(shown: Shown, name: str) -> float:
    return float(shown.figures.get(_GRADIENT.format(name)) or 0)


def _gradients(metrics: Metrics, shown: Shown) -> str:
    emulated = [n for n in _emulated(metrics) if _GRADIENT.format(n) in shown.figures]
    if not emulated:
        return ""
    most = max(emulated, key=lambda n: _size(shown, n))
    text = (
        "At the same parameters, the emulated arithmetic moves the gradient by up to "
        f"{shown.percent(_GRADIENT.format(most))} of its length (<b>{most}</b>)."
    )
    controls = [n for n in metrics.controls if _GRADIENT.format(n) in shown.figures]
    if not controls:
        return text
    control = max(controls, key=lambda n: _size(shown, n))
    moved = f"<b>{control}</b> alone moves it by {shown.percent(_GRADIENT.format(control))}"
    if _size(shown, most) > _STANDS_OUT * _size(shown, control):
        return f"{text} That stands out from rounding noise: {moved}."
    return (
        f"{text} That is about what rounding noise makes, too: {moved}. A changed last bit falls "
        "on the other side of an FP8 rounding somewhere, and FP8 has few bits."
    )


def _wider(metrics: Metrics, shown: Shown) -> str:
    """The native variant that is further away than any emulated one, if there is one."""
    emulated = _emulated(metrics)
    native = [n for n in metrics.others() if n not in emulated and n not in metrics.controls]
    furthest = max((_size(shown, n) for n in emulated), default=0.0)
    further = [n for n in native if _size(shown, n) > furthest]
    if not further or not emulated:
        return ""
    name = max(further, key=lambda n: _size(shown, n))
    return (
        f"For scale: the gradient of <b>{name}</b>, which does not quantise as the reference does, "
        f"is {shown.percent(_GRADIENT.format(name))} away. What is rounded before a product weighs "
        "more here than how the product is accumulated."
    )


def _gemms(metrics: Metrics, shown: Shown) -> str:
    def share(key: tuple[str, str]) -> float:
        return float(shown.figures["gemm/{}/{}/share".format(*key)] or 0)

    keys = [(name, g) for name in _emulated(metrics) for g in metrics.values("gemm", "gemm")]
    if not keys:
        return ""
    least, most = min(keys, key=share), max(keys, key=share)
    low, high = (shown("gemm/{}/{}/share".format(*key), ".1%") for key in (least, most))
    text = (
        f"One product alone, on the same operands: {low} ({least[0]}, {least[1]}) to {high} "
        f"({most[0]}, {most[1]}) of the outputs have other bits than with "
        f"<b>{metrics.reference}</b>; at the upper end the error is "
        f"{shown('gemm/{}/{}/norm_error'.format(*most), '.1e')} of the result's norm."
    )
    controls = [(name, g) for name in metrics.controls for g in metrics.values("gemm", "gemm")]
    if controls:
        control = max(controls, key=share)
        text += (
            f" Another order of float32 sums changes "
            f"{shown.percent('gemm/{}/{}/share'.format(*control))}."
        )
    return (
        f"{text} So a test that wants equal bits must compare with the arithmetic of the GPU that "
        "it stands for, and a tolerance has to allow for this much."
    )
