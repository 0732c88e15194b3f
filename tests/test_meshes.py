"""Bits and split-K decisions do not depend on the mesh (R24), on eight devices."""

import json

import pytest
from eight_devices import MESHES
from processes import run_python


@pytest.fixture(scope="module")
def found() -> dict:
    flags = "--xla_force_host_platform_device_count=8"
    return json.loads(run_python("import eight_devices; eight_devices.report()", XLA_FLAGS=flags))


@pytest.mark.parametrize("mesh", MESHES)
def test_decided_on_the_global_shape(found, mesh):
    assert found["alone"]["S"] == [2]
    assert found["meshes"][mesh]["S"] == [2]
    assert found["meshes"][mesh]["bits"] == found["alone"]["bits"]


def test_collectives(found):
    """None for M and N; the axis that K is spread over is gathered."""
    every = {name: mesh["collectives"] for name, mesh in found["meshes"].items()}
    assert every == {"8x1": [], "4x2": [], "2x2x2": ["all-gather"]}


def test_decided_on_the_local_shape_in_a_shard_map(found):
    assert found["shard_map"] == {axis: {"S": [3], "same": True} for axis in ("m", "n")}


def test_every_placement_on_three_axes(found):
    assert found["placements"] == 9
