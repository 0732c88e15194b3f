"""The self-test: it passes here, and it notices a wrong bit and a failing backend."""

import importlib

import cuda_fakes
import numpy as np
import pytest

import mmaemu_jax as mj

selftest = importlib.import_module("mmaemu_jax.selftest")


def test_every_usable_backend_passes():
    lines = []
    report = mj.selftest(progress=lines.append)
    assert report.ok
    assert len(lines) == len(selftest.SETTINGS)
    tested = [r.name for r in report.results if not r.why_not]
    assert "cpu:scalar" in tested
    assert tested == [s.name for s in mj.backends_status() if s.usable and ":" in s.name]
    assert len({r.values for r in report.results if not r.why_not}) == 1
    for r in report.results:
        assert not r.why_not or f"{r.name:<12} not tested: {r.why_not}" in str(report)
    assert report.to_dict()["ok"]


def test_a_wrong_bit_and_a_failure_are_reported(monkeypatch):
    def compute(setting, arguments, backend):
        if backend != "reference" and setting.preset == "hopper":
            raise selftest.jax.errors.JaxRuntimeError("INTERNAL: broken")
        result = np.zeros((2, 3), setting.out_dtype)
        result.view(np.uint8)[0, 0] = backend != "reference"
        return result

    monkeypatch.setattr(selftest, "_compute", compute)
    report = mj.selftest("cpu:scalar")
    (result,) = report.results
    assert not report.ok
    assert len(result.problems) == len(selftest.SETTINGS)
    assert "hopper e4m3xe4m3->bfloat16 fast: INTERNAL: broken" in result.problems[0]
    assert "1 of 6" in result.problems[-1] or "1 differ" in result.problems[-1]
    assert "Ways out" in result.problems[-1]
    assert "FAILED" in str(report)


@pytest.mark.parametrize("name", ["nope", "cpu", "auto"])
def test_unknown_backends(name):
    with pytest.raises(ValueError, match=f"selftest: Unknown backend '{name}'; known: cpu:"):
        mj.selftest(name)


def test_a_backend_that_cannot_run_is_not_tested(monkeypatch):
    cuda_fakes.remove(monkeypatch)
    report = mj.selftest("cuda")
    assert report.ok
    assert report.results[0].why_not
