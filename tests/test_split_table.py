"""The recorded split-K tables: their rows, what they do not hold, and their files."""

import dataclasses
import functools
import json
import shutil
import time

import numpy as np
import pytest
from own_table import copy_table
from recordings import VECTORS

from mmaemu_jax.errors import MmaemuError
from mmaemu_jax.platforms import split_table
from mmaemu_jax.platforms.split_setting import Setting
from mmaemu_jax.platforms.split_table import (
    Combination,
    is_table,
    list_tables,
    load_table,
    read_table,
)

H100, RTX4060 = "heur_h100pcie_lt12.8.3.14", "heur_rtx4060_lt12.8.3.14"
MIB = 1 << 20
ROWS = {H100: 1_767_416, RTX4060: 1_228_448}
SPLIT_ROWS = {H100: 36_457, RTX4060: 125_980}
#: The scheme of a split by its customOption (R12, R13), and the customOptions that were verified.
SCHEMES = {
    H100: dict.fromkeys(range(6), "contiguous"),
    RTX4060: {0: "serial", 1: "pairwise", 2: "serial"},
}
VERIFIED_CUSTOMS = {H100: {0, 1, 2, 3}, RTX4060: {0, 1, 2}}


@functools.cache
def sample() -> dict[str, list]:
    """Rows of both tables as they were recorded, by column; names instead of codes."""
    with np.load(VECTORS / "splitk_sample.npz") as members:
        index = json.loads(members["index"].tobytes())
        columns = {name: members[name].tolist() for name in members.files if name != "index"}
    columns["table"] = [index["tables"][code] for code in columns["table"]]
    for names, codes in (("fa", "fa/fb"), ("fb", "fa/fb"), ("out", "out")):
        columns[names] = [index["codes"][codes][str(code)] for code in columns[names]]
    columns["ws"] = [index["codes"]["ws"][code] for code in columns["ws"]]
    return columns


def sample_rows(*names: str):
    return zip(*(sample()[name] for name in names), strict=True)


KEY = ("M", "N", "K", "fa", "fb", "out", "fast", "ws")


def test_the_shipped_tables():
    assert list_tables() == (H100, RTX4060)
    for name in list_tables():
        table = load_table(name)
        assert table is load_table(name)
        assert table.table_id == name
        assert table.library == "cuBLASLt 12.8.3.14"
    assert "H100 PCIe (114 SMs)" in load_table(H100).gpu
    assert "RTX 4060 (24 SMs)" in load_table(RTX4060).gpu
    assert load_table(RTX4060).scale_result_recorded
    assert not load_table(H100).scale_result_recorded


def test_recorded_rows():
    found = dict.fromkeys(ROWS, 0)
    for name, splits, custom, *key in sample_rows("table", "splitK", "custom", *KEY):
        row = load_table(name).lookup(*key)
        assert row is not None, key
        assert splits == row.S
        assert row.scheme == (SCHEMES[name][custom] if splits > 1 else "none")
        assert row.custom == (custom if splits > 1 else None)
        assert row.custom_verified == (splits == 1 or custom in VERIFIED_CUSTOMS[name])
        found[name] += 1
    assert found == {H100: 10_000, RTX4060: 10_000}


def test_the_sample_has_every_kind_of_row():
    kinds = set(sample_rows("table", "fa", "fb", "out", "fast", "ws", "splitK"))
    for name in ROWS:
        for setting, facts in load_table(name).settings.items():
            seen = {S for *key, S in kinds if tuple(key) == (name, *setting) and S > 1}
            assert seen == set(facts.S_values)


@pytest.mark.parametrize("name", ROWS)
def test_counts_of_every_setting(name):
    table = load_table(name)
    assert len(table.settings) == 112
    splits = np.array([0 if row is None else row.S for row in table.decisions])
    for setting, facts in table.settings.items():
        found = splits[table.codes[table.columns[setting]]]
        assert np.count_nonzero(found) == facts.rows
        assert np.count_nonzero(found > 1) == facts.split_rows
        assert tuple(np.unique(found[found > 1])) == facts.S_values
        assert (setting.workspace_bytes == 0) == (facts.split_rows == 0)
    assert sum(facts.rows for facts in table.settings.values()) == ROWS[name]
    assert sum(facts.split_rows for facts in table.settings.values()) == SPLIT_ROWS[name]


@pytest.mark.parametrize("name", ROWS)
def test_largest_and_smallest_that_split(name):
    table = load_table(name)
    shapes = np.array(
        [(K, N) for (K, N), (a, b) in table.shapes.ranges.items() for _ in range(a, b)]
    )
    MN = np.array(table.shapes.Ms) * shapes[:, 1]
    splits = np.array([0 if row is None else row.S for row in table.decisions])
    for setting, facts in table.settings.items():
        found = splits[table.codes[table.columns[setting]]] > 1
        assert facts.max_split_MN == (MN[found].max() if found.any() else None)
        assert facts.min_split_K == (shapes[found, 0].min() if found.any() else None)


def test_without_workspace_nothing_splits():
    for name in ROWS:
        table = load_table(name)
        for setting, facts in table.settings.items():
            assert setting.workspace_bytes or (facts.rows and not facts.split_rows)
    assert {S for S, ws in sample_rows("splitK", "ws") if ws == 0} == {1}


def test_no_split_below_k_5760_on_the_h100():
    smallest = [f.min_split_K for f in load_table(H100).settings.values() if f.min_split_K]
    assert min(smallest) == 5760
    assert min(K for K, _ in load_table(H100).shapes.ranges) == 1024


def test_ranges_begin_where_k_or_n_changes():
    M, N, K = (np.array(x) for x in ([1, 2, 1, 5], [16, 16, 32, 48], [16, 16, 32, 32]))
    shapes = split_table._shapes(M, N, K)
    assert dict(shapes.ranges) == {(16, 16): (0, 2), (32, 32): (2, 3), (32, 48): (3, 4)}
    assert [shapes.position(*shape) for shape in zip(M, N, K, strict=True)] == [0, 1, 2, 3]
    assert shapes.position(2, 32, 32) is None


@pytest.mark.parametrize("name", ROWS)
def test_absent_keys_have_no_row(name):
    table = load_table(name)
    Ms, ranges = table.shapes.Ms, table.shapes.ranges
    setting = Setting("e4m3", "e4m3", "float32", True, MIB)
    for (K, N), (start, end) in ranges.items():
        assert table.lookup(Ms[start], N, K, *setting) is not None
        for M in (0, Ms[start] - 1, Ms[end - 1] + 1, 1 << 40):
            known = M in Ms[start:end]
            assert (table.lookup(M, N, K, *setting) is not None) == known
        for other_N, other_K in ((N + 1, K), (N, K + 1), (K + 3, N + 3), (1 << 40, 1 << 40)):
            assert table.lookup(Ms[start], other_N, other_K, *setting) is None


@pytest.mark.parametrize("name", ROWS)
def test_absent_settings_have_no_row(name):
    table = load_table(name)
    (K, N), (start, _) = next(iter(table.shapes.ranges.items()))
    shape = (table.shapes.Ms[start], N, K)
    assert table.lookup(*shape, "e4m3", "e4m3", "float32", False, MIB) is not None
    for setting in (
        ("e5m2", "e5m2", "float32", False, MIB),
        ("e4m3", "e4m3", "float8_e5m2", False, MIB),
        ("e4m3", "e4m3", "float64", False, MIB),
        ("e4m3", "e4m3", "float32", False, 2 * MIB),
        ("e4m3", "e4m3", "float32", False, None),
    ):
        assert table.lookup(*shape, *setting) is None


def test_rows_that_only_some_settings_have():
    held = {name: {len(np.unique(load_table(name).codes > 0, axis=0))} for name in ROWS}
    assert held == {H100: {2}, RTX4060: {2}}
    absent = load_table(H100).lookup(2, 1024, 1920, "e4m3", "e4m3", "float32", True, 4 * MIB)
    assert absent is None


def test_verified_combinations():
    for name, count in ((H100, 444), (RTX4060, 520)):
        table = load_table(name)
        assert len(table.verified) == count
        columns = sample_rows("table", "fast", "splitK", "custom", "out", "fa", "fb")
        for where, fast, splits, custom, out, fa, fb in columns:
            if where == name and splits > 1:
                scheme = SCHEMES[name][custom]
                assert table.is_verified(Combination(bool(fast), splits, scheme, out, fa, fb))
    known = Combination(True, 2, "contiguous", "float32", "e4m3", "e4m3")
    assert load_table(H100).is_verified(known)
    assert not load_table(RTX4060).is_verified(known)
    assert not load_table(H100).is_verified(dataclasses.replace(known, S=99))


def test_what_is_a_table(tmp_path, monkeypatch):
    """A shipped one by its name, a recorded one by its folder and name; a name alone is no file."""
    recorded = tmp_path / "mine"
    recorded.with_suffix(".json").touch()
    assert is_table(H100)
    assert is_table(str(recorded))
    assert not is_table(str(tmp_path / "absent"))
    monkeypatch.chdir(tmp_path)
    assert not is_table("mine")


def test_a_recorded_table_is_read_from_its_folder(tmp_path):
    assert load_table(str(copy_table(H100, tmp_path))).settings == load_table(H100).settings


def test_unknown_tables():
    with pytest.raises(ValueError, match=f"unknown table_id 'nope'; known: {H100}, .*Ways out"):
        load_table("nope")


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_changed_files_are_refused(tmp_path, suffix):
    for file in split_table._FOLDER.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    assert read_table(tmp_path, H100).settings == load_table(H100).settings
    changed = tmp_path / f"{H100}.{suffix}"
    data = bytearray(changed.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    with pytest.raises(MmaemuError, match=rf"{H100}.{suffix} is not .*sha256 is .*, not .*Ways"):
        read_table(tmp_path, H100)
    assert read_table(tmp_path, RTX4060).table_id == RTX4060


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("manifest.json", b"", "manifest.json does not list the digests"),
        ("manifest.json", b"\xff{", "manifest.json does not list the digests"),
        ("manifest.json", b"[1]", "manifest.json does not list the digests"),
        ("manifest.json", b'{"t": {"json": "0", "npz": 1}}', "manifest.json does not list"),
        ("manifest.json", f'{{"{H100}": {{"json": 1}}}}'.encode(), "manifest.json does not list"),
        ("manifest.json", None, r"manifest.json cannot be read \(.*No such file"),
        (f"{H100}.npz", None, rf"{H100}.npz cannot be read \(.*No such file"),
    ],
)
def test_missing_files_and_manifests_of_another_form(tmp_path, name, data, text):
    for file in split_table._FOLDER.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / name).unlink()
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(MmaemuError, match=rf"^load_table: {text}.*Ways out: reinstall"):
        read_table(tmp_path, H100)


def test_tables_cannot_be_changed():
    table = load_table(H100)
    with pytest.raises(ValueError, match="read-only"):
        table.codes[0, 0] = 1
    with pytest.raises(TypeError):
        table.settings[next(iter(table.settings))] = None


def test_size_and_speed():
    size = sum(file.stat().st_size for file in split_table._FOLDER.iterdir())
    assert size < 1_000_000
    start = time.perf_counter()
    for name in ROWS:
        read_table(split_table._FOLDER, name)
    loading = time.perf_counter() - start
    rows = list(sample_rows("table", *KEY))
    tables = {name: load_table(name) for name in ROWS}
    start = time.perf_counter()
    for name, *key in rows:
        tables[name].lookup(*key)
    each = (time.perf_counter() - start) / len(rows)
    print(f"\n{size} bytes, both read in {loading * 1e3:.0f} ms, {each * 1e6:.1f} us a look-up")
