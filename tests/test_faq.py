"""Figures of docs/faq.md that no block of the page computes."""

import dataclasses
import re
import warnings
from collections.abc import Iterable

import numpy as np
import recordings
from test_docs import ANY_BLOCK, ROOT, slug

import mmaemu_jax as mj
from mmaemu_jax.formats import format_of

ROW = re.compile(r"^\|[^|]*\(`(\w+)`\) \| (.*) \|$", re.MULTILINE)
NUMBER = re.compile(r"\d[\d,]*")


def subnormal_codes(arrays: Iterable[np.ndarray | None]) -> int:
    total = 0
    for array in arrays:
        if array is not None and (fmt := format_of(array.dtype)) is not None:
            magnitude = array.view(np.uint8) & 0x7F
            total += int(((magnitude != 0) & (magnitude < 1 << fmt.mantissa_bits)).sum())
    return total


def subnormal_floats(arrays: Iterable[np.ndarray | None]) -> int:
    given = (a.view(np.uint32) & 0x7FFFFFFF for a in arrays if a is not None)
    return sum(int(((bits != 0) & (bits < 0x00800000)).sum()) for bits in given)


def instructions(name: str, gpu: str = "") -> list[int]:
    cases = [c for c in recordings.instruction_cases(name) if c.id.startswith(gpu)]
    codes = subnormal_codes(array for c in cases for array in (c.a, c.b))
    return [codes, subnormal_floats(c.c for c in cases), subnormal_floats(c.d for c in cases)]


def gemms(name: str) -> list[int]:
    cases = recordings.gemm_cases(name)
    codes = subnormal_codes(array for c in cases for array in (c.a, c.b))
    wide = (o.bits for c in cases for o in c.outputs if o.out_dtype == np.float32)
    return [codes, subnormal_floats(wide)]


def test_the_list_of_questions():
    """At the top, since GitHub shows none: every section and question of the page, in order."""
    page = ANY_BLOCK.sub("", (ROOT / "docs" / "faq.md").read_text())
    listed = re.findall(r"^ *- (.*)$", page.partition("Every Python block")[0], re.MULTILINE)
    assert listed == [
        text if level == "##" else f"[{text.replace('`', '')}](#{slug(text)})"
        for level, text in re.findall(r"^(##+) (.*)$", page, re.MULTILINE)
    ]


def test_subnormals_in_the_recordings():
    """The table of "how it was checked" counts what the recordings hold."""
    page = (ROOT / "docs" / "faq.md").read_text()
    shown = {
        name: [int(n.replace(",", "")) for n in NUMBER.findall(re.sub(r"float32", "", text))]
        for name, text in ROW.findall(page)
    }
    assert shown == {
        "rtx4060_mma": instructions("rtx4060_mma"),
        "rtx4060_gemm": gemms("rtx4060_gemm"),
        "toolbox_vectors": instructions("toolbox_vectors", "H100")[:1],
        "h100_oracle": gemms("h100_oracle")[:1],
    }
    h200 = instructions("toolbox_vectors", "H200")
    assert h200 == [*shown["toolbox_vectors"], 0, 0]


def test_an_early_accumulator_does_not_fit_the_b200_vectors():
    late = mj.get_preset("b200_mma_sync")
    early = dataclasses.replace(late, name="early", late_c=False)
    cases = [c for c in recordings.instruction_cases("toolbox_vectors") if c.id.startswith("B200")]
    met = {late: [], early: []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mj.errors.ExperimentalPresetWarning)
        for case in cases:
            for preset, found in met.items():
                d = mj.dot(case.a, case.b, case.c, preset=preset)
                found.append(np.mean(mj.testing.bits_of(d) == case.d.view(np.uint32)))
    assert met[late] == [1, 1]
    assert [f"{share:.0%}" for share in met[early]] == ["65%", "65%"]
    page = (ROOT / "docs" / "faq.md").read_text()
    assert re.search(r"adding it afterwards gives all, aligning it\s+65 %", page)
