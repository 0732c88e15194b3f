"""Properties of the plan code on any bytes: the split tables' files, the resolver, plans, explain.

Each ``fuzz_*`` function reads one input and raises AssertionError, or whatever undocumented error
the package raised, on a finding. tools/fuzz_plans.py drives them by coverage,
test_fuzz_plans.py with a few pseudo-random inputs.
"""

import dataclasses
import functools
import json

import jax
import numpy as np
from oracle_fractions import owned

import mmaemu_jax as mj
from mmaemu_jax.accumulate import MAX_CHUNK_K, MAX_SPLITS, MAX_TILE_K, AccumulationPlan, SplitRule
from mmaemu_jax.arguments import format_argument, output_dtype_argument
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.errors import MmaemuError, SplitKUnknownError, UnsupportedFeatureError
from mmaemu_jax.instruction import Preset
from mmaemu_jax.plan import plan_gemm
from mmaemu_jax.platforms import SplitQuery, parse_splitk, split_table
from mmaemu_jax.platforms.split_decision import SplitDecision
from mmaemu_jax.platforms.split_resolver import resolve
from mmaemu_jax.platforms.split_table import list_tables, read_table

#: What resolving and planning may raise, by their docstrings.
DOCUMENTED = (TypeError, ValueError, SplitKUnknownError, UnsupportedFeatureError)

HARD_NUMBERS = (
    *(0, 1, 2, 15, 16, 17, 64, 100, 127, 128, 129, 1023, 1024, 1025, 4096, 5121, 8192, 65536),
    *(2**30, 2**30 + 1, 2**31 - 1, 2**31, 2**32 + 16, 2**40, 2**40 + 1, 2**62, 2**63, 2**80),
)
FP8_NAMES = ("e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2")
MODES = ("auto", "table", "auto_or_unsplit", "live")
SCHEMES = ("serial", "pairwise", "contiguous")
WRONG_SCHEMES = ("none", "", "Serial", 1)


class Choices:
    """Bytes as choices; past their end everything is zero."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def byte(self) -> int:
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value

    def flag(self) -> bool:
        return bool(self.byte() & 1)

    def below(self, count: int) -> int:
        size = max(1, (count.bit_length() + 7) // 8)
        return int.from_bytes([self.byte() for _ in range(size)], "big") % count

    def pick(self, options):
        return options[self.below(len(options))]

    def usual(self, options, others):
        """One of the options, seldom one of the others."""
        return self.pick(others if self.below(16) == 15 else options)

    def size(self) -> int:
        """A dimension that a GEMM may have."""
        if self.flag():
            return 16 * self.below(2000)
        return max(0, self.pick(HARD_NUMBERS) + self.pick((0, 0, 1, -1)))


def outcome(documented, function, *arguments, **options):
    """What ``function`` returned, and the text of the documented error that it raised instead."""
    try:
        return function(*arguments, **options), None
    except documented as error:
        return None, f"{type(error).__name__}: {error}"


# --------------------------------------------------------------------------------- the files


class FileInMemory:
    """What read_table asks of a file."""

    def __init__(self, data: bytes | None):
        self._data = data

    def read_bytes(self) -> bytes:
        if self._data is None:
            raise FileNotFoundError("no such file")
        return self._data


class FolderInMemory:
    """What read_table asks of a folder."""

    def __init__(self, files: dict[str, bytes | None]):
        self._files = files

    def __truediv__(self, name: str) -> FileInMemory:
        return FileInMemory(self._files.get(name))


@functools.cache
def shipped_files() -> dict[str, bytes]:
    names = [f"{table}.{kind}" for table in list_tables() for kind in ("json", "npz")]
    return {name: (split_table._FOLDER / name).read_bytes() for name in ("manifest.json", *names)}


def _changed(choices: Choices, data: bytes) -> bytes | None:
    """``data`` with something wrong, or the file gone."""
    at = choices.below(len(data))
    match choices.below(6):
        case 0:
            return data[:at] + bytes([data[at] ^ (1 << choices.below(8))]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[at + 1 + choices.below(16) :]
        case 3:
            return data[:at] + bytes(choices.byte() for _ in range(8)) + data[at:]
        case 4:
            entry = choices.pick(({}, {"json": 1, "npz": None}, {"json": "0"}, [], None, 3, "x"))
            return json.dumps(choices.pick(({list_tables()[0]: entry}, entry))).encode()
        case _:
            return None


def fuzz_files(data: bytes) -> None:
    """A damaged table is refused by name; an undamaged one reads as the shipped one does."""
    choices = Choices(data)
    files = dict(shipped_files())
    for _ in range(1 + choices.below(2)):
        name = choices.pick(("manifest.json", *files))
        if files[name]:
            files[name] = _changed(choices, files[name])
    table_id = choices.pick(list_tables())
    needed = ("manifest.json", f"{table_id}.json", f"{table_id}.npz")
    intact = all(files[name] == shipped_files()[name] for name in needed)
    table, text = outcome((MmaemuError, ValueError), read_table, FolderInMemory(files), table_id)
    assert not intact or text is None
    if text is None:  # a manifest may be written in other ways
        assert table.settings == split_table.load_table(table_id).settings
    else:  # at last, the manifest may be one of other tables
        damaged = "Ways out: reinstall mmaemu_jax, or record the table again; pass the split"
        assert damaged in text or f"ValueError: load_table: unknown table_id {table_id!r}" in text


# --------------------------------------------------------------------------- decisions and plans


def _drawn_rule(choices: Choices) -> SplitRule | None:
    tile = choices.usual((64, 128, 16, 1, 32), (7, 0, -1, MAX_TILE_K, MAX_TILE_K + 1))
    count = choices.usual((1, 2, 3), (0,))
    schemes = tuple(choices.usual(SCHEMES, WRONG_SCHEMES) for _ in range(count))
    return SplitRule(tile, choices.flag(), schemes, choices.flag())


def _drawn_preset(choices: Choices) -> Preset:
    chunk = choices.usual((128, 64, 256, None), (16, 1, 0, MAX_CHUNK_K, MAX_CHUNK_K + 1, 1.5, True))
    return Preset("own", 1 + choices.below(64), 13, 13, -132, slow_chunk=chunk)


def _drawn_profile(choices: Choices):
    """A name, or a profile of one's own, which its constructors may refuse."""
    if choices.flag():
        return choices.usual((*mj.list_profiles(), None), ("", "nope", 3))
    base = mj.get_profile(choices.pick(mj.list_profiles()))
    return dataclasses.replace(
        base,
        preset=_drawn_preset(choices) if choices.flag() else base.preset,
        split_rule=_drawn_rule(choices)
        if choices.flag()
        else choices.pick((base.split_rule, None)),
        workspace_bytes=choices.usual((base.workspace_bytes, 0, 1 << 20, 4 << 20, None), (7, -1)),
        table_id=choices.usual((base.table_id, None, *list_tables()), ("nope", 1)),
        pad_key_to=choices.usual((1, 16), (3, 1 << 40, 0)),
    )


def _drawn_splitk(choices: Choices):
    count = choices.usual((1, 2, 3, 8, 29, MAX_SPLITS), (0, -1, MAX_SPLITS + 1, 1.5, True, "2"))
    scheme = choices.usual(SCHEMES, WRONG_SCHEMES)
    pairs = ((count, scheme), mj.SplitK(count, scheme))
    return choices.usual((*MODES, "auto", 1, *pairs, *pairs), (count, None, (1,), "never"))


def _drawn_sizes(choices: Choices) -> list[int]:
    """M, N, K: any, or those of a recorded row."""
    if choices.flag():
        return [choices.size() for _ in "MNK"]
    shapes = split_table.load_table(choices.pick(list_tables())).shapes
    (k, n), (start, end) = choices.pick(tuple(shapes.ranges.items()))
    return [shapes.Ms[start + choices.below(end - start)], n, k]


def _drawn_query(choices: Choices) -> SplitQuery:
    """Any query that arguments can make; the checks of arguments may refuse it."""
    profile = mj.get_profile(_drawn_profile(choices))
    formats = [format_argument("fuzz", name, choices.pick(FP8_NAMES)) for name in "ab"]
    out = output_dtype_argument("fuzz", "out_dtype", choices.pick(OUTPUT_DTYPES))
    request = parse_splitk("fuzz", _drawn_splitk(choices), profile)
    sizes = _drawn_sizes(choices)
    return SplitQuery("fuzz", *sizes, *formats, out, choices.flag(), profile, request,
                      to_scaled_fp8=choices.flag())  # fmt: skip


def _check_decision(query: SplitQuery, decision: SplitDecision) -> None:
    """What every decision promises."""
    assert 1 <= decision.S <= MAX_SPLITS
    assert (decision.S == 1) == (decision.scheme == "none")
    if decision.S > 1:
        assert query.profile.splits
        assert decision.scheme in query.profile.split_rule.schemes
    if query.request.mode == "explicit":
        assert decision.source == "explicit"
        assert decision.S == query.request.split.S
    elif query.is_empty:
        assert decision.S == 1
    elif query.profile.workspace_bytes == 0:
        assert decision.source == "workspace0"
    assert decision.source != "assumed" or query.request.mode == "auto_or_unsplit"
    assert decision.source != "envelope" or query.is_empty or query.request.mode != "table"
    assert (decision.table_id is not None) == (
        decision.source == "table" or (decision.source == "envelope" and not query.is_empty)
    )


def _check_coverage(plan: AccumulationPlan, rule: SplitRule | None, k: int) -> None:
    """The splits own every k once, in order, and the rule knows which of them own none."""
    parts = owned(k, plan)
    assert len(parts) == plan.splits
    real = [[index for index in part if index is not None] for part in parts]
    assert all(part == sorted(part) for part in real)
    assert sorted(index for part in real for index in part) == list(range(k))
    if plan.splits > 1:
        assert rule is not None
        assert rule.leaves_split_empty(plan.splits, k) == (not all(parts))


def fuzz_plans(data: bytes) -> None:
    """Decisions are documented errors or sound, repeatable, and become plans that cover K."""
    choices = Choices(data)
    query, _ = outcome((TypeError, ValueError), _drawn_query, choices)
    if query is None:
        return
    gemm, text = outcome(DOCUMENTED, plan_gemm, query)
    assert outcome(DOCUMENTED, plan_gemm, query) == (gemm, text)
    if gemm is None:
        assert "Ways out" in text
        return
    resolution = resolve(query)
    assert gemm.decision == resolution.decision
    _check_decision(query, gemm.decision)
    assert gemm.decision.verified == (not resolution.notices)
    assert set(resolution.notices) <= set(gemm.notices)
    plan, preset = gemm.accumulation, query.profile.arithmetic
    assert plan.splits == gemm.decision.S
    assert plan.chunk_k == (0 if query.use_fast_accum else preset.slow_chunk)
    assert 0 <= plan.chunk_k <= MAX_CHUNK_K  # what the kernels take (accumulate.h)
    assert plan.splits == 1 or 1 <= plan.tile_k <= MAX_TILE_K
    assert plan.pairwise == (gemm.decision.scheme == "pairwise")
    if query.K <= 2048 and plan.tile_k <= 2048:
        _check_coverage(plan, query.profile.split_rule, query.K)


# ---------------------------------------------------------------------------- explain and the call


def _drawn_call(choices: Choices) -> tuple[list, dict]:
    """Arguments and options of scaled_mm, as shapes."""
    m, n, k = (min(size, 1 << 20) for size in _drawn_sizes(choices))
    n, k = (choices.usual((-(-size // 16) * 16,), (size,)) for size in (n, k))
    fp8 = [format_argument("fuzz", "a", name).dtype for name in FP8_NAMES]
    arrays = [
        jax.ShapeDtypeStruct(shape, choices.usual(fp8, (np.float32, np.int8)))
        for shape in ((m, k), (choices.usual((k,), (16, 0)), n))
    ]
    scale, wrong = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((), (2,)))
    scales = [choices.usual((scale,), (wrong, None)) for _ in "ab"]
    out = choices.usual((*OUTPUT_DTYPES, None), (np.dtype(np.float64),))
    options = {
        "profile": choices.usual(mj.list_profiles(), ("nope",)),
        "splitk": _drawn_splitk(choices),
        "backend": choices.usual(("auto", "cpu", "cpu:scalar", "reference"), ("nope",)),
    }
    result_scale = choices.pick((None, scale))
    return [*arrays, *scales, None, result_scale, out, choices.flag()], options


def _gemms_of(arguments: list, options: dict) -> list:
    """The parameters of the primitive's equations in the program of a call."""
    arrays = [x for x in arguments if isinstance(x, jax.ShapeDtypeStruct)]

    def program(*traced):
        supply = iter(traced)
        filled = (next(supply) if isinstance(x, jax.ShapeDtypeStruct) else x for x in arguments)
        return mj.scaled_mm(*filled, **options)

    equations = jax.make_jaxpr(program)(*arrays).eqns
    return [e.params["params"] for e in equations if e.primitive.name == "mmaemu_scaled_mm"]


def fuzz_explain(data: bytes) -> None:
    """explain says what tracing the call does: the same error, or the plan that it binds."""
    arguments, options = _drawn_call(Choices(data))
    explained = mj.explain(*arguments, **options)
    assert str(explained)
    gemms, text = outcome((MmaemuError, TypeError, ValueError), _gemms_of, arguments, options)
    error = explained.error
    assert text == (None if error is None else f"{type(error).__name__}: {error}")
    if gemms is None:
        return
    if explained.accumulation is None:
        assert not gemms
    else:
        assert [gemm.plan for gemm in gemms] == [explained.accumulation]
        assert gemms[0].model == explained.preset.model


TARGETS = (fuzz_files, fuzz_plans, fuzz_explain)
