"""A change of bits is a major version: what was recorded is what the package still returns."""

import itertools
import pathlib
import runpy

import golden_calls
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "record_bits.py"))
WHAT_TO_DO = """
If this was not intended, it is an error: the bits of a release are what its users pin.
If it was, docs/versioning.md applies: raise the version in pyproject.toml (major for validated
bits and for names, minor for experimental ones), say so in CHANGELOG.md under "Changed bits",
rebuild, and run: python tools/record_bits.py"""


def test_bits_change_with_the_version_alone():
    recorded, now = TOOL["read"](), golden_calls.entries()
    problems = TOOL["refused"](recorded, now, mj.__version__)
    assert not problems, "\n  ".join(["bits changed:", *problems]) + WHAT_TO_DO
    assert TOOL["updated"](recorded, now, mj.__version__) == recorded, (
        "there are calls to record: run python tools/record_bits.py and commit its file"
    )


def test_every_name_is_recorded():
    """So that none can be dropped or renamed unseen."""
    recorded = [f"{key} " for key in TOOL["read"]()]
    kinds = {
        "accumulate": mj.list_profiles(),
        "splitk": mj.list_profiles(),
        "dot": mj.list_presets(),
        "recipe": training.list_recipes(),
    }
    for kind, names in kinds.items():
        for name in names:
            assert any(key.startswith(f"{kind} {name} ") for key in recorded)


def entry(version="1.4.2", maturity="validated", bits="x"):
    return {"version": version, "maturity": maturity, "bits": bits}


OTHER = {"maturity": "validated", "bits": "y"}


@pytest.mark.parametrize(
    ("old", "new", "major", "minor", "patch"),
    [
        (entry(), OTHER, True, False, False),
        (entry(), None, True, False, False),
        (entry(maturity="experimental"), OTHER, True, True, False),
        (entry(maturity="experimental"), None, True, False, False),
        (entry(), {"maturity": "experimental", "bits": "x"}, True, True, True),
        (entry(bits="1 ? 2c~", maturity="decisions"), {"bits": "1 3c 2c"}, True, True, True),
        (entry(bits="1 ? 2c~", maturity="decisions"), {"bits": "1 ? 3c~"}, True, True, False),
        (entry(bits="1 ? 2c~", maturity="decisions"), {"bits": "1 ? ?"}, True, True, False),
        (entry(bits="1 ? 2c~", maturity="decisions"), {"bits": "2c ? 2c~"}, True, False, False),
    ],
)
def test_which_version_may_change_what(old, new, major, minor, patch):
    allowed = [TOOL["allowed"](old, new, v) for v in ("2.0.0", "1.5.0", "1.4.3", "1.4.2")]
    assert allowed == [major, minor, patch, patch]


def test_what_did_not_change_keeps_its_version():
    recorded = {"a": entry(), "b": entry(), "gone": entry()}
    now = {"new": OTHER, "b": OTHER, "a": {"maturity": "validated", "bits": "x"}}
    assert TOOL["updated"](recorded, now, "2.0.0") == {
        "new": {"version": "2.0.0", **OTHER},
        "b": {"version": "2.0.0", **OTHER},
        "a": entry(),
    }
    assert [p.split()[0] for p in TOOL["refused"](recorded, now, "1.5.0")] == ["b", "gone"]


def test_the_golden_calls_tell_settings_apart():
    """Splits that are added in another order, other outputs and other presets have other bits; to
    8-bit outputs presets round alike."""
    by_bits = {}
    for name, recorded in TOOL["read"]().items():
        kind, owner, *_ = name.split()
        once = owner in ("ada", "hopper") or kind in ("dot", "quantize", "epilogue")
        if once and not name.startswith("scaled_mm ada float8"):
            by_bits.setdefault(recorded["bits"], []).append(name)
    alike = [names for names in by_bits.values() if len(names) > 1]
    empty_split = [
        [f"accumulate hopper {mode} S={S} contiguous" for S in (3, 4)] for mode in ("fast", "slow")
    ]
    assert alike == empty_split


def test_the_golden_calls_give_every_kind_of_value():
    for pair in itertools.product(golden_calls.FORMATS, repeat=2):
        a, b = golden_calls.matrices(*pair)
        y = mj.host.accumulate(a, b, use_fast_accum=True, splitk=1)
        assert (y == 0).any()
        assert np.isnan(y).any()
        assert len(np.unique(y)) > y.size / 3
    assert np.isinf(y).any()
