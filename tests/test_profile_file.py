"""Profiles in files: what is written is read, wherever a name is accepted."""

import dataclasses
import json

import numpy as np
import pytest
from own_table import copy_table

import mmaemu_jax as mj
from mmaemu_jax import cli
from mmaemu_jax.accumulate import SplitRule
from mmaemu_jax.errors import MmaemuError

SETTING = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": "bfloat16", "use_fast_accum": True}
H100 = "heur_h100pcie_lt12.8.3.14"


@pytest.fixture
def recorded(tmp_path):
    """A folder with a table that is not a shipped one, as ``record`` leaves it."""
    return copy_table(H100, tmp_path).parent


CUSTOM = mj.Profile(
    "custom",
    mj.Preset("wide", 32, 25, 23, -133, late_c=True, slow_chunk=128),
    SplitRule(64, True, ("serial",), empty_split_recorded=False),
    rejects=(("e4m3", "e5m2", "float16"),),
    pad_key_to=16,
)


@pytest.mark.parametrize("profile", [*mj.list_profiles(), CUSTOM], ids=str)
def test_written_is_read(profile, tmp_path):
    profile = mj.get_profile(profile)
    mj.write_profile(profile, tmp_path / "p.json")
    assert mj.read_profile(tmp_path / "p.json") == profile
    assert hash(mj.read_profile(str(tmp_path / "p.json"))) == hash(profile)


def test_a_changed_preset_is_written_in_full(tmp_path):
    fourteen = dataclasses.replace(mj.get_preset("hopper"), frac=14)
    mj.write_profile(dataclasses.replace(CUSTOM, preset=fourteen), tmp_path / "p.json")
    assert mj.read_profile(tmp_path / "p.json").arithmetic == fourteen


def test_a_table_of_ones_own(recorded, monkeypatch):
    shipped = mj.get_profile("hopper")
    mine = dataclasses.replace(shipped, name="mine", table_id=str(recorded / "mine"))
    path = recorded / "profile.json"
    mj.write_profile(mine, path)
    assert json.loads(path.read_text())["table_id"] == "mine", "the folder can be moved"
    moved = recorded.rename(recorded.with_name("moved")) / "profile.json"
    with pytest.raises(ValueError, match="unknown table_id"):
        dataclasses.replace(mine, workspace_bytes=0)
    for name in (str(moved), mj.read_profile(moved)):
        decision = mj.resolve_splitk(16, 2048, 8192, **SETTING, profile=name)
        assert decision == mj.resolve_splitk(16, 2048, 8192, **SETTING, profile=shipped)
        assert (decision.S, decision.source) == (2, "table")
    a, b = (np.zeros((16, 8192), "float8_e4m3fn"), np.zeros((2048, 8192), "float8_e4m3fn"))
    fp8 = {"out_dtype": np.dtype("float8_e4m3fn"), "use_fast_accum": True, "scale_result": 1.0}
    plan = mj.explain(a, b.T, 1.0, 1.0, **fp8, profile=str(moved))
    assert plan.decision == mj.explain(a, b.T, 1.0, 1.0, **fp8).decision
    monkeypatch.chdir(moved.parent)
    assert mj.get_profile("profile.json") == mj.read_profile(moved)


def test_a_table_beside_the_file_comes_first(recorded):
    """A recorded table may have the name of a shipped one."""
    for suffix in ("json", "npz"):
        (recorded / f"mine.{suffix}").rename(recorded / f"{H100}.{suffix}")
    shipped = mj.get_profile("hopper")
    assert shipped.table_id == H100
    mj.write_profile(shipped, recorded / "profile.json")
    assert mj.read_profile(recorded / "profile.json").table_id == str(recorded / H100)


def test_shipped_presets_are_written_by_name(tmp_path):
    mj.write_profile(mj.get_profile("ada"), tmp_path / "p.json")
    assert (tmp_path / "p.json").read_text().startswith('{\n "name": "ada",\n "preset": "ada",\n')


def test_on_the_command_line(recorded, capsys):
    mine = dataclasses.replace(mj.get_profile("hopper"), name="m", table_id=str(recorded / "mine"))
    mj.write_profile(mine, recorded / "profile.json")
    where = str(recorded / "profile.json")
    arguments = ["explain", "16", "2048", "8192", "--out", "bf16", "--fast", "--profile", where]
    assert cli.main(arguments) == 0
    assert "S = 2" in capsys.readouterr().out


def test_a_damaged_table_says_so(recorded):
    with (recorded / "mine.npz").open("ab") as file:
        file.write(b"x")
    mine = dataclasses.replace(mj.get_profile("hopper"), table_id=str(recorded / "mine"))
    with pytest.raises(MmaemuError, match=r"mine\.npz is not the file that manifest\.json .*names"):
        mj.resolve_splitk(16, 2048, 8192, **SETTING, profile=mine)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("{", MmaemuError, r"read_profile: .*p\.json is not a profile: it is not JSON"),
        ("[]", MmaemuError, "it holds a list, not an object"),
        ("{}", MmaemuError, "Profile needs the field 'name'"),
        ('{"name": "x", "preset": "hopper", "speed": 1}', MmaemuError, "no field 'speed'.*Ways"),
        ('{"name": "x", "preset": {"name": "y"}}', MmaemuError, "Preset needs the field 'nfma'"),
        ('{"name": "x", "preset": "nope"}', ValueError, "Unknown preset 'nope'"),
        ('{"name": "x", "preset": "hopper", "table_id": "nope"}', ValueError, "unknown table_id"),
        ('{"name": "x", "preset": "hopper", "split_rule": 3}', TypeError, "split_rule must be"),
        (
            '{"name": "x", "preset": "hopper", "split_rule": {"tile_k": 128}}',
            MmaemuError,
            "SplitRule needs the field 'interleaved'",
        ),
        ('{"name": "x", "preset": "hopper", "rejects": 1}', TypeError, "rejects must be tuple"),
        ('{"name": "x", "preset": "hopper", "rejects": ["abc"]}', TypeError, "each entry of rej"),
    ],
)
def test_what_is_no_profile(text, error, match, tmp_path):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(error, match=match):
        mj.read_profile(tmp_path / "p.json")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        mj.get_profile(str(tmp_path / "absent.json"))


@pytest.mark.parametrize("path", [None, 3, b"p.json"])
def test_what_is_no_path(path):
    with pytest.raises(TypeError, match=r"^read_profile: path must be a path, got"):
        mj.read_profile(path)
    with pytest.raises(TypeError, match=r"^write_profile: path must be a path, got"):
        mj.write_profile(CUSTOM, path)
    with pytest.raises(TypeError, match=r"^write_profile: profile must be a Profile, got"):
        mj.write_profile("hopper", path)
