"""Profiles: what ships, what a user may define, and which one is the default."""

import dataclasses
import os
import subprocess
import sys

import pytest

import mmaemu_jax as mj
from mmaemu_jax import config
from mmaemu_jax.accumulate import CONTIGUOUS_128, INTERLEAVED_64

NAMES = (
    "hopper", "hopper-te", "hopper-ws0", "hopper-xla", "ada", "ada-te", "ada-ws0",
    "hopper-experimental", "b200-mma-sync-experimental",
)  # fmt: skip
MIB = 1 << 20


def test_the_shipped_profiles():
    assert mj.list_profiles() == NAMES
    for name in NAMES:
        profile = mj.get_profile(name)
        assert profile.name == name
        assert mj.get_profile(profile) is profile
        assert profile.arithmetic is mj.get_preset(profile.preset)
        hash(profile)
        experimental = name.endswith(("experimental", "xla"))
        assert profile.maturity == ("experimental" if experimental else "validated")
        rejects = () if name.startswith("b200") else (("e4m3", "e4m3", "float8_e5m2"),)
        assert profile.rejects == rejects
    workspaces = [mj.get_profile(name).workspace_bytes for name in NAMES]
    assert workspaces == [MIB, 32 * MIB, 0, 32 * MIB, MIB, 4 * MIB, 0, None, None]
    assert [mj.get_profile(name).pad_key_to for name in NAMES] == [1, 1, 1, 16, 1, 1, 1, 1, 1]


def test_evidence_of_the_profiles():
    assert mj.get_profile("ada").evidence == "replayed"
    assert mj.get_profile("hopper").evidence == "inherited"
    assert mj.get_profile("hopper-te").split_evidence == "experimental"
    assert mj.get_profile("ada").split_rule is INTERLEAVED_64
    assert mj.get_profile("hopper").split_rule is CONTIGUOUS_128


def test_the_default_profile(monkeypatch):
    assert mj.get_profile().name == mj.get_profile(None).name == config.DEFAULT_PROFILE
    monkeypatch.setattr(config, "DEFAULT_PROFILE", "ada")
    assert mj.get_profile().name == "ada"
    monkeypatch.setattr(config, "DEFAULT_PROFILE", "nope")
    with pytest.raises(ValueError, match=r"MMAEMU_JAX_PROFILE 'nope'; known: hopper, .*Ways out"):
        mj.get_profile()


def test_the_environment_is_read_once_at_import():
    code = (
        "import os, mmaemu_jax as mj; os.environ['MMAEMU_JAX_PROFILE'] = 'hopper'; "
        "from mmaemu_jax import config; print(mj.get_profile().name, config.CPU_TARGET)"
    )
    environment = {**os.environ, "MMAEMU_JAX_PROFILE": "ada-te", "MMAEMU_JAX_CPU_TARGET": "scalar"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["ada-te", "scalar"]


def test_unknown_profiles():
    with pytest.raises(
        ValueError, match=r"get_profile: unknown profile 'h100'; known: hopper, .*Ways"
    ):
        mj.get_profile("h100")
    for wrong in (3, ["hopper"], mj.get_preset("hopper")):
        with pytest.raises(
            TypeError, match=r"get_profile: profile must be a name, .* or None, got"
        ):
            mj.get_profile(wrong)


def test_a_users_profile_works_where_a_name_does():
    preset = mj.Preset("mine", nfma=8, frac=14, frac_out=14, min_exp=-126, slow_chunk=64)
    mine = mj.Profile("mine", preset, mj.SplitRule(64, True, ("serial",), True), workspace_bytes=0)
    assert mine.arithmetic is preset
    assert mine.maturity == "experimental"
    dims = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": "e4m3", "use_fast_accum": True}
    assert mj.resolve_splitk(16, 16, 16, **dims, profile=mine).source == "workspace0"
    assert dataclasses.replace(mine, preset="ada").arithmetic.name == "ada"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"preset": "h100"}, ValueError, "Unknown preset 'h100'"),
        ({"preset": 3}, TypeError, "preset must be a name or a Preset"),
        ({"name": 3}, TypeError, "name must be str, got 3"),
        ({"split_rule": "serial"}, TypeError, "split_rule must be"),
        ({"workspace_bytes": True}, TypeError, "workspace_bytes must be an int or None, got True"),
        ({"workspace_bytes": -1}, ValueError, "workspace_bytes must not be negative, got -1"),
        ({"evidence": "validated"}, ValueError, "evidence must be one of replayed, inherited"),
        ({"split_evidence": None}, ValueError, "split_evidence must be one of"),
        ({"rejects": ["x"]}, TypeError, "rejects must be tuple"),
        ({"rejects": (("e4m3", "e4m3"),)}, TypeError, "each entry of rejects must be"),
        ({"rejects": (("e4m3", "int8", "float32"),)}, ValueError, "must be one of e4m3, e5m2"),
        ({"rejects": (("e4m3", "e4m3", "int8"),)}, ValueError, "must be one of float32, bfloat16"),
        ({"table_id": 1}, TypeError, "table_id must be"),
        ({"table_id": "nope"}, ValueError, "Profile: unknown table_id 'nope'; known: heur_.*Ways"),
        ({"pad_key_to": 0}, ValueError, "pad_key_to must be positive, got 0"),
        ({"pad_key_to": True}, TypeError, "pad_key_to must be an int, got True"),
        (
            {"split_rule": mj.SplitRule(96, True, ("serial",), True)},
            ValueError,
            "tile_k must divide the preset's slow_chunk, got 96 and 128",
        ),
    ],
)
def test_fields_of_a_profile_are_checked(changes, error, text):
    with pytest.raises(error, match=text):
        dataclasses.replace(mj.get_profile("ada"), **changes)


def test_splits_need_a_rule_and_a_preset_that_chunks():
    rule = mj.SplitRule(64, True, ("serial",), True)
    assert mj.Profile("mine", "ada", rule).splits
    assert not mj.Profile("mine", "ada").splits
    assert not mj.Profile("mine", "b200_mma_sync", rule).splits
