"""What the figures say, in plain sentences that are chosen by the figures."""

from mmaemu_jax.training.comparison.figures import NEVER, Metrics
from mmaemu_jax.training.comparison.markup import Shown


def conclusions(metrics: Metrics, shown: Shown) -> list[str]:
    """HTML sentences, the most important first; each number in them is a figure."""
    found = [_losses(metrics, shown), _single_losses(metrics, shown)]
    found += [_partings(metrics, shown), *_gradients(metrics, shown), *_gemms(metrics, shown)]
    return [sentence for sentence in found if sentence]


def verdict(metrics: Metrics, figures, name: str) -> str:
    """How far the final losses of a variant are from the reference's, in one word.

    "visible": further than the reference's own seeds are from each other. "one-sided": nearer, but
    every seed has the same sign and the mean is larger than the range. "equal": all equal.
    Otherwise "lost".
    """
    low, high = figures[f"apart/{name}/low"], figures[f"apart/{name}/high"]
    average = figures[f"apart/{name}/mean"]
    if low == high == 0:
        return "equal"
    if not average == average:
        return "not finite"
    if len(metrics.seeds) > 1 and abs(average) > figures[f"loss/{metrics.reference}/spread"]:
        return "visible"
    if len(metrics.seeds) > 1 and low * high > 0 and abs(average) > high - low:
        return "one-sided"
    return "lost"


def _names(names: list[str]) -> str:
    quoted = [f"<b>{name}</b>" for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _losses(metrics: Metrics, shown: Shown) -> str:
    reference = metrics.reference
    by_verdict: dict[str, list[str]] = {}
    for name in metrics.others():
        by_verdict.setdefault(verdict(metrics, shown.figures, name), []).append(name)
    parts = []
    if "lost" in by_verdict:
        names = by_verdict["lost"]
        parts.append(
            f"The loss curves of {_names(names)} cannot be told from that of <b>{reference}</b>: "
            f"{'their' if len(names) > 1 else 'its'} final losses differ by less than seeds alone "
            f"do ({shown(f'loss/{reference}/spread', '.4f')} between the reference's seeds)."
        )
    if "one-sided" in by_verdict:
        parts.append(
            f"{_names(by_verdict['one-sided'])}: a small difference with the same sign for every "
            "seed, which a single curve would not show."
        )
    if "visible" in by_verdict:
        parts.append(
            f"{_names(by_verdict['visible'])}: the difference is larger than the spread of seeds, "
            "so a curve shows it."
        )
    if "equal" in by_verdict:
        parts.append(f"{_names(by_verdict['equal'])}: no difference at all in the final loss.")
    if "not finite" in by_verdict:
        parts.append(f"{_names(by_verdict['not finite'])}: a loss is not finite.")
    return " ".join(parts)


def _single_losses(metrics: Metrics, shown: Shown) -> str:
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
        at = sorted({shown.figures[f"parted/{n}/state"] for n in parted}, key=str)
        when = (
            f"after step {shown(f'parted/{parted[0]}/state')}"
            if len(at) == 1
            else "early (the table says when)"
        )
        parts.append(
            f"In their bits the runs part all the same: the parameters of {_names(parted)} differ "
            f"from the reference's {when}. Equal curves do not mean equal bits, and a comparison "
            "of weights or losses to the last digit tells one arithmetic from another at once."
        )
    if same:
        parts.append(f"{_names(same)} never differed from the reference, in any bit.")
    return " ".join(parts)


def _split_by_emulation(metrics: Metrics) -> tuple[list[str], list[str]]:
    emulated = {line["variant"] for line in metrics.of_kind("shape")}
    others = metrics.others()
    return [n for n in others if n in emulated], [n for n in others if n not in emulated]


def _gradients(metrics: Metrics, shown: Shown) -> list[str]:
    key = "gradient/{}/relative_difference/worst"
    known = [n for n in metrics.others() if key.format(n) in shown.figures]
    emulated, native = ([n for n in names if n in known] for names in _split_by_emulation(metrics))
    if not emulated:
        return []

    def size(name: str) -> float:
        return float(shown.figures[key.format(name)] or 0)

    most, least = max(emulated, key=size), min(emulated, key=size)
    text = (
        f"At the same parameters, the arithmetic moves the gradient by up to "
        f"{shown(key.format(most), '.2%')} of its length ({most})"
    )
    if least != most:
        text += f"; {least} moves it least, by {shown(key.format(least), '.2%')}"
    sentences = [text + "."]
    further = [n for n in native if size(n) > size(most)]
    if further:
        name = max(further, key=size)
        sentences.append(
            f"For scale: <b>{name}</b>, which quantises otherwise or not at all, has a gradient "
            f"{shown(key.format(name), '.2%')} away. What is rounded before the GEMM weighs more "
            "here than how the GEMM accumulates."
        )
    return sentences


def _gemms(metrics: Metrics, shown: Shown) -> list[str]:
    emulated, _ = _split_by_emulation(metrics)
    gemms = metrics.values("gemm", "gemm")
    shares = {
        (name, gemm): shown.figures[f"gemm/{name}/{gemm}/share"]
        for name in emulated
        for gemm in gemms
    }
    if not shares:
        return []
    most = max(shares, key=lambda key: float(shares[key] or 0))
    least = min(shares, key=lambda key: float(shares[key] or 0))
    key = "gemm/{}/{}/".format(*most)
    return [
        f"In a single GEMM on the same operands, between "
        f"{shown('gemm/{}/{}/share'.format(*least), '.1%')} ({least[0]}, {least[1]}) and "
        f"{shown(key + 'share', '.1%')} ({most[0]}, {most[1]}) of the outputs have other bits than "
        f"with <b>{metrics.reference}</b>; in the latter the error is "
        f"{shown(key + 'norm_error', '.1e')} of the result's norm. So a test that wants equal bits "
        "must compare with the arithmetic of the GPU it stands for, and a tolerance must allow "
        "for this much."
    ]
