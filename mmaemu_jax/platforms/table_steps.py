"""The resolvers that read a profile's recorded table: by its rows, then by its envelope."""

from mmaemu_jax.errors import UnsupportedFeatureError, message
from mmaemu_jax.platforms.envelope import infer_unsplit
from mmaemu_jax.platforms.split_decision import SplitDecision, SplitQuery
from mmaemu_jax.platforms.split_setting import Setting
from mmaemu_jax.platforms.split_table import Combination, Row, SplitTable, load_table


def table_step(query: SplitQuery) -> SplitDecision | str:
    """The recorded decision of exactly this GEMM.

    Raises:
        UnsupportedFeatureError: it is split in a way that the profile does not model.
    """
    found = _table_and_setting(query)
    if isinstance(found, str):
        return f"table: {found}"
    table, setting = found
    row = table.lookup(query.M, query.N, query.K, *setting)
    if row is None:
        return f"table: {table.table_id} has no row for this shape and setting"
    _check_modelled(query, row)
    note = f"recorded on {table.gpu}, {table.library}"
    if not row.custom_verified:
        note = f"no split with customOption {row.custom}, {note}, was ever verified"
    return SplitDecision(row.S, row.scheme, "table", row.custom_verified, table.table_id, note)


def envelope_step(query: SplitQuery) -> SplitDecision | str:
    """S = 1, where the profile's table lets infer it."""
    if query.request.mode == "table":
        return "envelope: splitk='table' infers nothing"
    found = _table_and_setting(query)
    if isinstance(found, str):
        return f"envelope: {found}"
    table, setting = found
    inferred = infer_unsplit(table.envelope, setting, query.M, query.N, query.K)
    if isinstance(inferred, str):
        return f"envelope: {inferred}"
    note = inferred.note if inferred.caveat is None else f"{inferred.caveat}; {inferred.note}"
    return SplitDecision(1, "none", "envelope", inferred.caveat is None, table.table_id, note)


def unverified_combination(query: SplitQuery, decision: SplitDecision) -> str | None:
    """Why the bits of a split were never verified, by the profile's table; None without one."""
    if decision.S == 1 or query.profile.table_id is None:
        return None
    combination = Combination(
        query.use_fast_accum,
        decision.S,
        decision.scheme,
        query.out_dtype.name,
        query.format_a.name,
        query.format_b.name,
    )
    if load_table(query.profile.table_id).is_verified(combination):
        return None
    return "this S, scheme, accumulation, formats and output dtype were never verified together"


def _table_and_setting(query: SplitQuery) -> tuple[SplitTable, Setting] | str:
    profile = query.profile
    if profile.table_id is None:
        return f"profile {profile.name!r} has no table"
    if profile.workspace_bytes is None:
        return f"the workspace of profile {profile.name!r} is unknown"
    if query.is_symbolic:
        return "a dimension is symbolic"
    setting = Setting(
        query.format_a.name,
        query.format_b.name,
        query.out_dtype.name,
        query.use_fast_accum,
        profile.workspace_bytes,
    )
    return load_table(profile.table_id), setting


def _check_modelled(query: SplitQuery, row: Row) -> None:
    profile = query.profile
    rule = profile.split_rule if profile.splits else None
    if row.S == 1 or (rule is not None and row.scheme in rule.schemes):
        return
    raise UnsupportedFeatureError(
        message(
            f"{query.function}: table {profile.table_id} says that the GPU splits {query} into "
            f"S = {row.S} parts, scheme {row.scheme!r}, which profile {profile.name!r} does not "
            f"model.",
            ["give the profile the split_rule of its GPU", "pass splitk=1 for the unsplit bits"],
        )
    )
