"""Recorded decisions and envelope bounds through the public function, profile by profile."""

import json

import numpy as np
import pytest
from recordings import VECTORS

import mmaemu_jax as mj
from mmaemu_jax.errors import SplitKUnknownError
from mmaemu_jax.platforms.split_table import load_table

#: Workspaces that no profile has; rows of them are for users' own profiles.
WITHOUT_PROFILE = {("heur_h100pcie_lt12.8.3.14", 4 << 20), ("heur_rtx4060_lt12.8.3.14", 32 << 20)}
SCHEMES = {
    "heur_h100pcie_lt12.8.3.14": dict.fromkeys(range(6), "contiguous"),
    "heur_rtx4060_lt12.8.3.14": {0: "serial", 1: "pairwise", 2: "serial"},
}

# Splits of Transformer Engine, and customOptions that were never verified, warn.
pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.UnverifiedSplitWarning")


def profiles() -> dict[tuple[str, int], str]:
    """The profile of each table and workspace; those of another caller's padding left out."""
    found = [mj.get_profile(name) for name in mj.list_profiles()]
    return {
        (p.table_id, p.workspace_bytes): p.name for p in found if p.table_id and p.pad_key_to == 1
    }


def check(profile: str, M, N, K, fa, fb, out, fast, ws, splits: int, scheme: str) -> None:
    decision = mj.resolve_splitk(
        M, N, K, a_dtype=fa, b_dtype=fb, out_dtype=out, use_fast_accum=bool(fast), profile=profile
    )
    source = "table" if ws else "workspace0"
    assert (decision.S, decision.scheme, decision.source) == (splits, scheme, source)


def test_recorded_rows_resolve():
    with np.load(VECTORS / "splitk_sample.npz") as members:
        index = json.loads(members["index"].tobytes())
        columns = {name: members[name].tolist() for name in members.files if name != "index"}
    codes, of = index["codes"], profiles()
    names = ("table", "M", "N", "K", "fa", "fb", "out", "fast", "ws", "splitK", "custom")
    checked = dict.fromkeys(of.values(), 0)
    for table, M, N, K, fa, fb, out, fast, ws, splits, custom in zip(
        *(columns[name] for name in names), strict=True
    ):
        table_id, workspace = index["tables"][table], codes["ws"][ws]
        profile = of.get((table_id, workspace))
        if profile is None:
            assert (table_id, workspace) in WITHOUT_PROFILE
            continue
        formats = (codes["fa/fb"][str(fa)], codes["fa/fb"][str(fb)], codes["out"][str(out)])
        scheme = SCHEMES[table_id][custom] if splits > 1 else "none"
        check(profile, M, N, K, *formats, fast, workspace, splits, scheme)
        checked[profile] += 1
    assert set(checked) == {"hopper", "hopper-te", "hopper-ws0", "ada", "ada-te", "ada-ws0"}
    assert min(checked.values()) > 500


@pytest.mark.exhaustive
@pytest.mark.parametrize(("key", "profile"), profiles().items())
def test_every_row_resolves(key, profile):
    table_id, workspace = key
    table = load_table(table_id)
    shapes = [
        (table.shapes.Ms[position], N, K)
        for (K, N), (start, end) in table.shapes.ranges.items()
        for position in range(start, end)
    ]
    checked = 0
    for setting, column in table.columns.items():
        if setting.workspace_bytes != workspace:
            continue
        for (M, N, K), code in zip(shapes, table.codes[column].tolist(), strict=True):
            row = table.decisions[code]
            if row is not None:
                check(profile, M, N, K, *setting, row.S, row.scheme)
                checked += 1
    wanted = sum(f.rows for s, f in table.settings.items() if s.workspace_bytes == workspace)
    assert checked == wanted


@pytest.mark.parametrize(
    ("profile", "k", "bound"),
    [
        ("hopper", 1033, 15_360),
        ("hopper", 8193, 268_004),
        ("hopper", 4_194_304, 268_004),
        ("hopper-te", 8193, 470_682),
        ("hopper-te", 4_194_304, 11_796_480),
        ("ada", 17, 2 * 100_352),
        ("ada", 1 << 40, 2 * 100_352),
    ],
)
@pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.UnvalidatedEnvelopeWarning")
def test_the_bound_of_the_envelope(profile, k, bound):
    options = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": "float32"}
    options |= {"use_fast_accum": True, "profile": profile}
    decision = mj.resolve_splitk(bound + 1, 1, k, **options)
    assert (decision.S, decision.scheme, decision.source) == (1, "none", "envelope")
    assert decision.verified == (profile != "hopper-te")
    with pytest.raises(SplitKUnknownError, match=f"not above the bound {bound} .*Ways out"):
        mj.resolve_splitk(bound, 1, k, **options)
    for outside in (1023, 4_194_305) if profile.startswith("hopper") else ():
        with pytest.raises(SplitKUnknownError, match=r"only for 1024\.\.4194304"):
            mj.resolve_splitk(1 << 20, 1 << 20, outside, **options)
