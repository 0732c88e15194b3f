"""Rebuilds the split-K tables of mmaemu_jax/platforms/tables from their original columns.

    python tools/pack_tables.py FOLDER

FOLDER holds NAME.npz (one row per recorded call), NAME.json (its head) and the files of verified
combinations. The new files are read back and compared with every original row by the package's own
look-up; only then they replace the old ones. A sample of the original rows goes to
tests/vectors/splitk_sample.npz. tables/README.md describes the files.
"""

import argparse
import collections
import dataclasses
import functools
import hashlib
import io
import json
import pathlib
import tempfile
import zipfile

import numpy as np
from pack_recordings import json_bytes, npz_bytes

from mmaemu_jax.platforms.envelope import Bound
from mmaemu_jax.platforms.split_setting import Setting, SettingFacts
from mmaemu_jax.platforms.split_table import Combination, Row, SplitTable, read_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "mmaemu_jax" / "platforms" / "tables"
SAMPLE = ROOT / "tests" / "vectors" / "splitk_sample.npz"
SAMPLE_ROWS = 10_000
FORMAT = "mmaemu-splitk-table/1"

#: The head of the RTX 4060 table has no envelope: shapes up to 1.27 times the largest M * N that
#: splits in the table were seen to split, so its bound is twice that M * N.
DEFAULT_ENVELOPE = {"kind": "max_split", "margin": 2}
#: What the heads say about calls with a scale_result.
SCALE_RESULT_RECORDED = {"not recorded": False, "asserted": True}


@dataclasses.dataclass(frozen=True, eq=False)
class Original:
    """One table as it was recorded: the head, the columns [rows] and the verified combinations."""

    head: dict
    columns: dict[str, np.ndarray]
    combinations: list[dict]

    @property
    def codes(self) -> dict:
        return self.head["codes"]

    def settings(self) -> tuple[list[Setting], np.ndarray]:
        """The distinct settings of the rows, and which of them each row has."""
        fields = [self.columns[name] for name in ("fa", "fb", "out", "fast", "ws")]
        distinct, number = distinct_tuples(fields)
        return [self._setting(*codes) for codes in distinct.tolist()], number

    def _setting(self, fa: int, fb: int, out: int, fast: int, ws: int) -> Setting:
        formats, outputs = self.codes["fa/fb"], self.codes["out"]
        names = formats[str(fa)], formats[str(fb)], outputs[str(out)]
        return Setting(*names, bool(fast), self.codes["ws"][ws])

    def decision(self, splits: int, custom: int) -> dict:
        """The fields of a row's decision; the customOption of an unsplit call means nothing."""
        if splits == 1:
            return {"S": 1, "scheme": "none", "custom": None, "custom_verified": True}
        schemes = self.codes["custom -> scheme"]
        listed = str(custom) in schemes
        scheme = schemes[str(custom)] if listed else self.codes["custom -> scheme, unlisted"]
        return {"S": splits, "scheme": scheme, "custom": custom, "custom_verified": listed}


def read_original(folder: pathlib.Path, name: str) -> Original:
    head = json.loads((folder / f"{name}.json").read_text())
    data = (folder / f"{name}.npz").read_bytes()
    require(hashlib.sha256(data).hexdigest() == head["npz_sha256"], f"{name}.npz: its sha256")
    with np.load(io.BytesIO(data)) as members:
        columns = {column: members[column] for column in members.files}
    combinations = head.get("verified_combos", "verified_split_combos.json")
    verified = json.loads((folder / combinations).read_text())
    require(verified["table_id"] == head["table_id"] == name, f"{name}: its table_id")
    require(len(columns["M"]) == head["rows"], f"{name}: its number of rows")
    return Original(head, columns, [c for c in verified["combos"] if c["verified"]])


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"pack_tables: {what} is not what it should be.")


def distinct_tuples(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows [n, columns] of equal-length columns, sorted, and which one each row is."""
    bits = 63 // len(columns)
    packed = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        require(column.min() >= 0 and column.max() < 1 << bits, "the range of a column")
        packed = packed << bits | column
    distinct, number = np.unique(packed, return_inverse=True)
    shifts = np.arange(len(columns))[::-1] * bits
    return distinct[:, None] >> shifts & ((1 << bits) - 1), number


# Encoding


def encode(original: Original) -> tuple[dict, dict[str, np.ndarray]]:
    """The facts and the arrays of a packed table."""
    settings, number = original.settings()
    shapes, position = distinct_tuples([original.columns[name] for name in "KNM"])
    splits, customs = original.columns["splitK"], original.columns["custom"]
    decisions, decision = distinct_tuples([splits, np.where(splits == 1, 0, customs)])
    codes = np.zeros((len(settings), len(shapes)), np.uint8)
    codes[number, position] = decision + 1
    require(np.count_nonzero(codes) == len(number), "the original has a key twice, or its keys")
    distinct, column = np.unique(codes, axis=0, return_inverse=True)
    facts = {
        "table_id": original.head["table_id"],
        "device": original.head["profile_device"],
        "descriptor": original.head["descriptor"],
        "original": {"npz_sha256": original.head["npz_sha256"], "rows": original.head["rows"]},
        "scale_result_recorded": scale_result_recorded(original.head),
        "decisions": [original.decision(*pair) for pair in decisions.tolist()],
        "settings": setting_entries(original, dict(zip(settings, column.tolist(), strict=True))),
        "envelope": envelope_entry(original.head),
        "verified_combinations": combination_entries(original.combinations),
    }
    arrays = {name: shapes[:, i].astype(np.int32) for i, name in enumerate("KNM")}
    return facts, arrays | {"codes": distinct}


def scale_result_recorded(head: dict) -> bool:
    (recorded,) = (
        value for text, value in SCALE_RESULT_RECORDED.items()
        if head["dscale_invariance"].startswith(text)
    )  # fmt: skip
    return recorded


def setting_of(entry: dict) -> Setting:
    return Setting(entry["fmt_a"], entry["fmt_b"], entry["out"], entry["fast"], entry["ws"])


def setting_entries(original: Original, columns: dict[Setting, int]) -> list[dict]:
    entries = {setting_of(entry): entry for entry in original.head["settings"]}
    require(entries.keys() == columns.keys(), "the head's list of settings")
    counts = ("rows", "split_rows", "S_values", "max_split_MN", "min_split_K")
    return [
        setting._asdict() | {"column": columns[setting]} | {name: entry[name] for name in counts}
        for setting, entry in entries.items()
    ]


def envelope_entry(head: dict) -> dict:
    envelope = head.get("envelope")
    if envelope is None:
        return DEFAULT_ENVELOPE
    require(envelope["kind"] == "k_grid" and envelope["inference"], "the kind of envelope")
    grid = {name: envelope[name] for name in ("kind", "K_min", "K_max", "K_grid")}
    bounds = [setting_of(entry)._asdict() | {"MN": entry["B"]} for entry in envelope["bounds"]]
    tests = [
        {"workspace_bytes": int(workspace), "status": test["status"], "tested": test["tested"],
         "split": test["split_above_bound"]}
        for workspace, test in envelope["validation"].items()
    ]  # fmt: skip
    return grid | {"tests": tests, "bounds": bounds}


def combination_of(entry: dict) -> Combination:
    formats = entry["fmt_pair"].split("x")
    return Combination(entry["fast"], entry["S"], entry["scheme"], entry["out"], *formats)


def combination_entries(combinations: list[dict]) -> list[dict]:
    """The combinations, those that differ in S alone together."""
    groups = collections.defaultdict(set)
    for entry in combinations:
        fields = dataclasses.asdict(combination_of(entry))
        splits = fields.pop("S")
        groups[tuple(fields.items())].add(splits)
    return [dict(fields) | {"S_values": sorted(splits)} for fields, splits in groups.items()]


def facts_text(facts: dict, indent: str = "") -> str:
    """JSON with one entry of a list of objects to a line."""
    lines = []
    for name, value in facts.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            entries = ",\n".join(f"{indent}  {json.dumps(entry)}" for entry in value)
            text = f"[\n{entries}\n{indent} ]"
        elif name == "envelope":
            text = facts_text(value, indent + " ")
        lines.append(f"{indent} {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def write_table(folder: pathlib.Path, original: Original) -> dict[str, str]:
    """Writes one table and returns its manifest entry."""
    facts, arrays = encode(original)
    files = {
        "json": (facts_text(facts) + "\n").encode(),
        "npz": npz_bytes(arrays, zipfile.ZIP_DEFLATED),
    }
    for suffix, data in files.items():
        (folder / f"{facts['table_id']}.{suffix}").write_bytes(data)
    return {suffix: hashlib.sha256(data).hexdigest() for suffix, data in files.items()}


# Proof


def prove(table: SplitTable, original: Original) -> int:
    """Compares a packed table with every original row; returns how many there are."""
    settings, number = original.settings()
    names = ("M", "N", "K", "splitK", "custom")
    columns = (original.columns[name].tolist() for name in names)
    expected = functools.cache(lambda splits, custom: Row(**original.decision(splits, custom)))
    for setting, m, n, k, splits, custom in zip(number.tolist(), *columns, strict=True):
        row = table.lookup(m, n, k, *settings[setting])
        if row != expected(splits, custom):
            raise ValueError(f"pack_tables: {(m, n, k, *settings[setting])} became {row}.")
    held = sum(np.count_nonzero(table.codes[column]) for column in table.columns.values())
    require(held == len(number), "the number of keys that the packed table holds")
    prove_facts(table, original)
    return len(number)


def prove_facts(table: SplitTable, original: Original) -> None:
    for entry in original.head["settings"]:
        facts = {field.name: entry[field.name] for field in dataclasses.fields(SettingFacts)}
        facts["S_values"] = tuple(facts["S_values"])
        require(table.settings[setting_of(entry)] == SettingFacts(**facts), f"setting {entry}")
    combinations = {combination_of(entry) for entry in original.combinations}
    require(table.verified == combinations, "the verified combinations")
    envelope = original.head.get("envelope", {"bounds": []})
    for entry in envelope["bounds"]:
        for k, expected in zip(envelope["K_grid"], entry["B"], strict=True):
            bound = table.bound(setting_of(entry), k)
            require(isinstance(bound, Bound) and expected == bound.MN, f"the bound {entry}")


# Sample


def write_sample(originals: list[Original]) -> None:
    """Some original rows of every table: at least one of every kind of decision and setting."""
    rows = [sample_rows(original) for original in originals]
    parts = list(zip(originals, rows, strict=True))
    members = {
        name: np.concatenate([original.columns[name][chosen] for original, chosen in parts])
        for name in originals[0].columns
    }
    members["table"] = np.repeat(np.arange(len(rows), dtype=np.uint8), [len(r) for r in rows])
    index = {"tables": [o.head["table_id"] for o in originals], "codes": originals[0].codes}
    SAMPLE.write_bytes(npz_bytes({"index": json_bytes(index)} | members, zipfile.ZIP_LZMA))


def sample_rows(original: Original) -> np.ndarray:
    order = np.random.default_rng(0).permutation(original.head["rows"])
    _, number = original.settings()
    _, kind = distinct_tuples([number, original.columns["splitK"], original.columns["custom"]])
    _, first = np.unique(kind[order], return_index=True)
    others = np.setdiff1d(np.arange(len(order)), first)[: SAMPLE_ROWS - len(first)]
    return np.sort(order[np.concatenate([first, others])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    heads = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    names = [name for name, head in heads.items() if head["format"] == FORMAT]
    originals = [read_original(folder, name) for name in names]
    with tempfile.TemporaryDirectory() as scratch:
        packed = pathlib.Path(scratch)
        manifest = {n: write_table(packed, o) for n, o in zip(names, originals, strict=True)}
        (packed / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        for name, original in zip(names, originals, strict=True):
            rows = prove(read_table(packed, name), original)
            print(f"{name}: {rows} rows, no decision changed")
        for path in packed.iterdir():
            (TABLES / path.name).write_bytes(path.read_bytes())
    write_sample(originals)


if __name__ == "__main__":
    main()
