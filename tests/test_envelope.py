"""What the recorded tables let infer outside their rows, and the resolvers that read them."""

import dataclasses

import numpy as np
import pytest
from jax import export

from mmaemu_jax.accumulate import CONTIGUOUS_128, INTERLEAVED_64, SplitK
from mmaemu_jax.arguments import format_argument, output_dtype_argument
from mmaemu_jax.errors import UnsupportedFeatureError
from mmaemu_jax.platforms import Profile, SplitRequest
from mmaemu_jax.platforms.envelope import (
    HeldOutTest,
    KGridEnvelope,
    MaxSplitEnvelope,
    infer_unsplit,
)
from mmaemu_jax.platforms.split_decision import SplitDecision, SplitQuery
from mmaemu_jax.platforms.split_setting import Setting, SettingFacts
from mmaemu_jax.platforms.split_table import load_table
from mmaemu_jax.platforms.table_steps import envelope_step, table_step, unverified_combination

H100, RTX4060 = "heur_h100pcie_lt12.8.3.14", "heur_rtx4060_lt12.8.3.14"
MIB = 1 << 20
HOPPER = Profile("h", "hopper", CONTIGUOUS_128, workspace_bytes=MIB, table_id=H100)
ADA = Profile("a", "ada", INTERLEAVED_64, workspace_bytes=MIB, table_id=RTX4060)


def at(profile: Profile, mib: int) -> Profile:
    return dataclasses.replace(profile, workspace_bytes=mib * MIB)


def query(profile, m, n, k, a="e4m3", b="e4m3", out="float32", fast=True, mode="auto"):
    formats = (format_argument("test", name, name) for name in (a, b))
    dtype = output_dtype_argument("test", "out", out)
    return SplitQuery("test", m, n, k, *formats, dtype, fast, profile, SplitRequest(mode))


def outcome(step, *args, **options):
    """The decision of a step, which must be one."""
    found = step(query(*args, **options))
    assert isinstance(found, SplitDecision), found
    return found


def refusal(step, *args, **options) -> str:
    """The reason of a step, which must be one."""
    found = step(query(*args, **options))
    assert isinstance(found, str), found
    return found


# The two kinds, on made-up numbers


def setting(out="float32", workspace=MIB) -> Setting:
    return Setting("e4m3", "e4m3", out, True, workspace)


def facts(largest: int | None) -> SettingFacts:
    return SettingFacts(10, 0 if largest is None else 3, (), largest, None)


def test_max_split_bound():
    known = {
        setting(): facts(100),
        setting("float16"): facts(70),
        setting("float16", 0): facts(None),
        setting("float8_e5m2"): facts(None),
    }
    envelope = MaxSplitEnvelope(2, known)
    assert envelope.bound(setting(), 16).MN == 200
    assert envelope.bound(setting("float16"), 1 << 40).MN == 140
    assert envelope.bound(setting("bfloat16"), 16).MN == 200  # the largest of any output dtype
    assert envelope.bound(setting("float32", 0), 16).MN == 0
    assert "no rows of the setting" in envelope.bound(setting("float32", 2 * MIB), 16)
    assert "no rows" in envelope.bound(setting()._replace(use_fast_accum=False), 16)
    assert infer_unsplit(envelope, setting(), 201, 1, 16).caveat is None
    assert "M*N = 200 is not above the bound 200" in infer_unsplit(envelope, setting(), 200, 1, 16)
    assert "none of the 10 rows" in infer_unsplit(envelope, setting("float16", 0), 1, 1, 16).note


def test_k_grid_bound():
    tests = {MIB: HeldOutTest("validated", 9, 0), 4 * MIB: HeldOutTest("unvalidated", 9, 1)}
    bounds = {setting(workspace=workspace): (5, 6, 8) for workspace in (MIB, 2 * MIB, 4 * MIB)}
    envelope = KGridEnvelope(10, 30, (10, 20, 30), bounds, tests)
    expected = {10: 5, 11: 6, 19: 6, 20: 6, 21: 8, 30: 8}
    assert {k: envelope.bound(setting(), k).MN for k in expected} == expected
    for k in (9, 31, 0):
        assert f"nothing is inferred for K = {k}, only for 10..30" in envelope.bound(setting(), k)
    assert "no bound for the setting" in envelope.bound(setting("float16"), 10)
    assert envelope.bound(setting(), 10).caveat is None
    assert "never tested" in envelope.bound(setting(workspace=2 * MIB), 10).caveat
    assert "1 of 9 shapes" in envelope.bound(setting(workspace=4 * MIB), 10).caveat


# The envelopes of the shipped tables


@pytest.mark.parametrize(
    ("mib", "k", "bound"),
    [
        (1, 1024, 15_360),
        (1, 5120, 15_360),
        (1, 5121, 256_642),
        (1, 5744, 256_642),
        (1, 8192, 256_642),
        (1, 8193, 268_004),
        (1, 8208, 268_004),
        (1, 4_194_304, 268_004),
        (32, 1024, 15_360),
        (32, 8192, 327_680),
        (32, 8193, 470_682),
        (32, 4_194_304, 11_796_480),
    ],
)
def test_h100_bounds(mib, k, bound):
    profile = at(HOPPER, mib)
    reason = refusal(envelope_step, profile, bound, 1, k)
    assert f"M*N = {bound} is not above the bound {bound} of the setting" in reason
    assert f"e4m3 x e4m3 -> float32, fast accumulation, workspace {mib * MIB} bytes" in reason
    for m, n in ((bound + 1, 1), (1, bound + 1), (1 << 40, 1 << 40)):
        decision = outcome(envelope_step, profile, m, n, k)
        assert (decision.S, decision.scheme, decision.source) == (1, "none", "envelope")
        assert decision.table_id == H100
        assert decision.verified == (mib == 1)
        assert f"above the bound {bound}" in decision.note
        assert (mib == 32) == ("1 of 77518 shapes" in decision.note)
        assert "None" not in decision.note


def test_h100_bounds_end_with_k_and_workspace():
    big = (1 << 20, 1 << 20)
    for k in (16, 1023, 4_194_305, 1 << 40):
        reason = refusal(envelope_step, HOPPER, *big, k)
        assert f"K = {k}, only for 1024..4194304" in reason
    reason = refusal(envelope_step, at(HOPPER, 4), *big, 4096)
    assert "no bound for the setting" in reason
    assert "4194304 bytes" in reason
    assert "no bound" in refusal(envelope_step, HOPPER, *big, 4096, a="e5m2", b="e5m2")


@pytest.mark.parametrize(
    ("options", "mib", "bound"),
    [
        ({}, 1, 2 * 100_352),
        ({"fast": False, "out": "bfloat16"}, 1, 2 * 131_072),
        ({"b": "e5m2", "out": "float8_e5m2"}, 1, 2 * 131_072),
        ({"out": "float8_e5m2"}, 1, 2 * 135_168),  # without rows: the union of the outputs
        ({"fast": False, "out": "float8_e5m2"}, 1, 2 * 131_072),
        ({"out": "float8_e5m2"}, 4, 2 * 983_040),
        ({"b": "e5m2"}, 4, 2 * 786_432),
    ],
)
def test_rtx4060_bounds(options, mib, bound):
    profile = at(ADA, mib)
    for k in (16, 1000, 1 << 40):
        reason = refusal(envelope_step, profile, bound, 1, k, **options)
        assert f"M*N = {bound} is not above the bound {bound} of the setting" in reason
        assert f"workspace {mib * MIB} bytes" in reason
        decision = outcome(envelope_step, profile, 1, bound + 1, k, **options)
        assert (decision.S, decision.scheme, decision.source) == (1, "none", "envelope")
        assert decision.verified
        assert decision.table_id == RTX4060


def test_rtx4060_settings_without_any_rows_or_splits():
    reason = refusal(envelope_step, ADA, 1 << 20, 1 << 20, 64, a="e5m2", b="e5m2")
    assert "no rows of the setting (e5m2 x e5m2 -> float32" in reason
    assert "no rows" in refusal(envelope_step, at(ADA, 2), 1 << 20, 1 << 20, 64)
    decision = outcome(envelope_step, at(ADA, 0), 1, 1, 64)
    assert decision.S == 1
    assert "none of the" in decision.note


def test_every_setting_with_rows_has_a_bound_where_it_is_stated():
    for name, workspaces in ((H100, {MIB, 32 * MIB}), (RTX4060, {0, MIB, 4 * MIB, 32 * MIB})):
        table = load_table(name)
        for known in table.settings:
            stated = not isinstance(table.bound(known, 4096), str)
            assert stated == (known.workspace_bytes in workspaces)


def test_tables_are_hashed_by_identity():
    """They are as large as what they hold, and each is read once."""
    tables = [load_table(name) for name in (H100, RTX4060)]
    for parts in (tables, [t.envelope for t in tables], [t.shapes for t in tables]):
        assert len(set(parts)) == 2
        assert dataclasses.replace(parts[0]) != parts[0]
    assert not any(table.codes.flags.writeable for table in tables)


def test_a_query_for_people():
    for fast, mode in ((True, "fast"), (False, "slow")):
        asked = query(HOPPER, 1, 1, 1, fast=fast)
        assert f"float32, {mode} accumulation" in str(asked)
        assert f"float32, {mode} accumulation" in str(asked.setting)


# The steps


def test_table_step():
    decision = outcome(table_step, HOPPER, 16, 2048, 8192)
    assert decision == SplitDecision(
        2, "contiguous", "table", True, H100,
        "recorded on NVIDIA H100 PCIe (114 SMs), cuBLASLt 12.8.3.14",
    )  # fmt: skip
    assert outcome(table_step, HOPPER, 16, 2048, 8192, mode="table") == decision
    unsplit = outcome(table_step, HOPPER, 16, 2048, 2048)
    assert (unsplit.S, unsplit.scheme, unsplit.source) == (1, "none", "table")
    assert "no row for this shape and setting" in refusal(table_step, HOPPER, 16, 2049, 8192)


def test_a_custom_option_that_was_never_verified():
    table = load_table(H100)
    unverified = [
        code for code, row in enumerate(table.decisions) if row and not row.custom_verified
    ]
    found = {}
    for known, column in table.columns.items():
        for code in unverified:
            positions = np.flatnonzero(table.codes[column] == code).tolist()
            found |= {(known, code): positions[0]} if positions else {}
    assert {known.workspace_bytes for known, _ in found} == {32 * MIB}
    for (known, code), position in found.items():
        K, N = next(
            pair for pair, (start, end) in table.shapes.ranges.items() if start <= position < end
        )
        a, b, out, fast, _ = known
        shape = (table.shapes.Ms[position], N, K)
        decision = outcome(table_step, at(HOPPER, 32), *shape, a=a, b=b, out=out, fast=fast)
        assert (decision.scheme, decision.source) == ("contiguous", "table")
        assert not decision.verified
        assert f"customOption {table.decisions[code].custom}" in decision.note


def test_steps_without_a_table_a_workspace_or_numbers():
    m, k = export.symbolic_shape("m, 16*k")
    unknown = dataclasses.replace(HOPPER, workspace_bytes=None)
    for step, name in ((table_step, "table"), (envelope_step, "envelope")):
        no_table = dataclasses.replace(HOPPER, table_id=None)
        assert refusal(step, no_table, 16, 16, 16) == f"{name}: profile 'h' has no table"
        assert "workspace of profile 'h' is unknown" in refusal(step, unknown, 16, 16, 16)
        for shape in ((m, 16, 16), (16, 16, k), (m, 16, k)):
            assert refusal(step, HOPPER, *shape) == f"{name}: a dimension is symbolic"
        with pytest.raises(ValueError, match="unknown table_id 'nope'"):
            step(query(dataclasses.replace(HOPPER, table_id="nope"), 16, 16, 16))


def test_the_table_mode_infers_nothing():
    assert "infers nothing" in refusal(envelope_step, ADA, 1 << 20, 16, 64, mode="table")
    for mode in ("auto", "auto_or_unsplit", "live"):
        assert outcome(envelope_step, ADA, 1 << 20, 16, 64, mode=mode).S == 1


def test_a_split_that_the_profile_does_not_model():
    for rule in (None, INTERLEAVED_64):
        profile = dataclasses.replace(HOPPER, split_rule=rule)
        with pytest.raises(UnsupportedFeatureError, match=r"^test: .*S = 2 .*'contiguous'.*Ways"):
            table_step(query(profile, 16, 2048, 8192))
        assert outcome(table_step, profile, 16, 2048, 2048).S == 1
    unchunked = dataclasses.replace(HOPPER, preset="b200_mma_sync")
    with pytest.raises(UnsupportedFeatureError, match="does not model"):
        table_step(query(unchunked, 16, 2048, 8192))


def test_unverified_combinations():
    def why(profile, S, scheme, **options):
        asked = query(profile, 64, 64, 4096, **options)
        split = SplitK(S, scheme)
        return unverified_combination(asked, SplitDecision(split.S, split.scheme, "explicit"))

    assert why(HOPPER, 2, "contiguous") is None
    assert why(HOPPER, 1, "none") is None
    assert why(ADA, 29, "serial", fast=True) is None
    assert "never verified together" in why(ADA, 29, "serial", fast=False)
    assert "never verified" in why(HOPPER, 99, "contiguous")
    assert "never verified" in why(HOPPER, 2, "contiguous", a="e5m2", b="e5m2")
    assert why(dataclasses.replace(HOPPER, table_id=None), 99, "contiguous") is None
