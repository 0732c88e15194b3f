"""``info``: versions, devices, backends, profiles and presets of this installation."""

import argparse
import dataclasses
import json
import os
import platform
from typing import Any

_PRESET_NUMBERS = ("nfma", "frac", "frac_out", "min_exp", "late_c", "slow_chunk")


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "info",
        help="versions, devices, backends and why not, profiles, presets",
        description="Prints what this installation is and what it can run; for bug reports.",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    facts = gather()
    print(json.dumps(facts, indent=1) if args.json else _text(facts))
    return 0


def gather() -> dict[str, Any]:
    """Everything that is printed, as JSON-ready values."""
    import jax

    import mmaemu_jax as mj
    from mmaemu_jax import _native, config
    from mmaemu_jax.versions import versions

    profiles = [mj.get_profile(name) for name in mj.list_profiles()]
    presets = [mj.get_preset(name) for name in mj.list_presets()]
    return {
        "versions": versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "cpu_features": _native.cpu_features(),
        "devices": [f"{device.platform}: {device}" for device in jax.devices()],
        "forced_cpu_target": config.CPU_TARGET,
        "default_profile": config.DEFAULT_PROFILE,
        "backends": [dataclasses.asdict(status) for status in mj.backends_status()],
        "profiles": [
            {
                "name": p.name,
                "preset": p.arithmetic.name,
                "maturity": p.maturity,
                "evidence": p.evidence,
                "split_evidence": p.split_evidence,
                "gpu": p.gpu,
                "library": p.library,
                "caller": p.caller,
                "workspace_bytes": p.workspace_bytes,
                "table_id": p.table_id,
                "provenance": p.provenance,
            }
            for p in profiles
        ],
        "presets": [dataclasses.asdict(p) for p in presets],
    }


def _text(facts: dict[str, Any]) -> str:
    lines = ["Versions", *_rows((name, v) for name, v in facts["versions"].items())]
    lines += ["", "Machine", *_rows((name, v) for name, v in facts["machine"].items())]
    features = facts["cpu_features"]
    for word, there in (("has", True), ("lacks", False)):
        names = " ".join(name for name, present in features.items() if present == there)
        lines += _rows([(word, names)] if names else [])
    lines += ["", "Devices of JAX", *(f"  {device}" for device in facts["devices"])]
    lines += ["", "Backends (all usable ones give the same bits)"]
    lines += _rows(
        (b["name"], "usable" if b["usable"] else b["why_not"]) for b in facts["backends"]
    )
    if facts["forced_cpu_target"]:
        lines.append(f"  MMAEMU_JAX_CPU_TARGET is {facts['forced_cpu_target']!r}")
    default = facts["default_profile"]
    known = default in [p["name"] for p in facts["profiles"]]
    note = "" if known else ", which MMAEMU_JAX_PROFILE names and nobody knows"
    lines += ["", f"Profiles (default: {default}{note})"]
    lines += _rows(
        (p["name"], f"{p['evidence']}, S > 1 {p['split_evidence']}; {p['gpu']}; {p['caller']}")
        for p in facts["profiles"]
    )
    lines += ["", "Presets"]
    lines += _rows(
        (p["name"], f"{p['evidence']}; " + " ".join(f"{n}={p[n]}" for n in _PRESET_NUMBERS))
        for p in facts["presets"]
    )
    return "\n".join(lines)


def _rows(pairs) -> list[str]:
    pairs = list(pairs)
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in pairs]
