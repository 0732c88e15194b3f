"""Records what the golden calls return, with the version of the package (docs/versioning.md).

    python tools/record_bits.py

New calls, profiles and presets are added. What was recorded changes only with the version:
validated bits with a new major version, experimental ones with a new minor version. Otherwise
nothing is written, and the exit code is 1.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "vectors" / "bits_by_version.json"

#: A split decision that was not known; an unverified one ends with the second.
UNKNOWN, UNVERIFIED = "?", "~"

Entry = dict[str, str]
Entries = dict[str, Entry]


def release(version: str) -> tuple[int, int]:
    """Major and minor version."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def changed(old: Entry, new: Entry | None) -> str:
    """Whose bits changed: "validated", "experimental", or "" if none did.

    The bits of an entry of split decisions are one word for each; one that was unknown had no bits.
    """
    if new is None:
        return "validated"  # a name is gone
    if old["bits"] == new["bits"]:
        return ""
    if old["maturity"] != "decisions":
        return old["maturity"]
    pairs = zip(old["bits"].split(), new["bits"].split(), strict=True)
    others = [x for x, y in pairs if x != UNKNOWN and x.rstrip(UNVERIFIED) != y.rstrip(UNVERIFIED)]
    if not others:
        return ""
    return "experimental" if all(x.endswith(UNVERIFIED) for x in others) else "validated"


def allowed(old: Entry, new: Entry | None, version: str) -> bool:
    """Whether ``version`` may return ``new`` where an earlier one returned ``old``."""
    before, after = release(old["version"]), release(version)
    return {"": True, "experimental": after > before, "validated": after[0] > before[0]}[
        changed(old, new)
    ]


def refused(recorded: Entries, now: Entries, version: str) -> list[str]:
    """The calls whose change ``version`` does not allow, each with what changed."""
    return [
        f"{name} ({'gone' if name not in now else changed(old, now[name])}, "
        f"recorded at {old['version']})"
        for name, old in recorded.items()
        if not allowed(old, now.get(name), version)
    ]


def updated(recorded: Entries, now: Entries, version: str) -> Entries:
    """The entries to record: those that did not change keep their version."""
    return {
        name: recorded[name]
        if name in recorded and all(recorded[name][key] == new[key] for key in new)
        else {"version": version, **new}
        for name, new in now.items()
    }


def read() -> Entries:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def text(entries: Entries) -> str:
    """JSON with a line for each entry."""
    lines = (f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    import golden_calls

    import mmaemu_jax as mj

    recorded, now = read(), golden_calls.entries()
    if problems := refused(recorded, now, mj.__version__):
        lines = "\n  ".join(problems)
        raise SystemExit(f"Not allowed in version {mj.__version__}:\n  {lines}")
    entries = updated(recorded, now, mj.__version__)
    FILE.write_text(text(entries))
    count = sum(entry != recorded.get(name) for name, entry in entries.items())
    print(f"{FILE.relative_to(ROOT)}: {len(entries)} entries, {count} of them new or changed")


if __name__ == "__main__":
    main()
