"""The fuzz targets of the plan code on pseudo-random inputs; `make fuzz` runs them by coverage."""

import random
import warnings

import plan_fuzzing
import pytest

#: Inputs of each target.
COUNTS = {"fuzz_files": 80, "fuzz_plans": 1500, "fuzz_explain": 80}


@pytest.mark.parametrize("target", plan_fuzzing.TARGETS, ids=lambda target: target.__name__)
def test_pseudo_random_inputs(target):
    source = random.Random(target.__name__)
    for _ in range(COUNTS[target.__name__]):
        data = source.randbytes(48)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the notices of unverified splits
            try:
                target(data)
            except Exception as error:
                error.add_note(f"{target.__name__}(bytes.fromhex({data.hex()!r}))")
                raise
