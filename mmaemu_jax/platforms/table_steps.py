"""The resolvers that read a profile's recorded table: by its rows, then by its envelope."""

from mmaemu_jax.platforms.envelope import infer_unsplit
from mmaemu_jax.platforms.split_decision import SplitDecision, SplitQuery, check_modelled
from mmaemu_jax.platforms.split_setting import Setting
from mmaemu_jax.platforms.split_table import Combination, SplitTable, load_table


def table_step(query: SplitQuery) -> SplitDecision | str:
    """The recorded decision of exactly this GEMM.

    Raises:
        UnsupportedFeatureError: it is split in a way that the profile does not model.
    """
    found = _table_and_setting(query)
    if isinstance(found, str):
        return f"table: {found}"
    table, setting = found
    row = table.lookup(*query.key, *setting)
    if row is None:
        return f"table: {table.table_id} has no row for this shape and setting"
    check_modelled(query, row.S, row.scheme, f"table {table.table_id}")
    note = f"recorded on {table.gpu}, {table.library}"
    if not row.custom_verified:
        note = f"no split with customOption {row.custom}, {note}, was ever verified"
    note = _padded(query, note)
    return SplitDecision(row.S, row.scheme, "table", row.custom_verified, table.table_id, note)


def envelope_step(query: SplitQuery) -> SplitDecision | str:
    """S = 1, where the profile's table lets infer it."""
    if query.request.mode == "table":
        return "envelope: splitk='table' infers nothing"
    found = _table_and_setting(query)
    if isinstance(found, str):
        return f"envelope: {found}"
    table, setting = found
    inferred = infer_unsplit(table.envelope, setting, *query.key)
    if isinstance(inferred, str):
        return f"envelope: {inferred}"
    note = inferred.note if inferred.caveat is None else f"{inferred.caveat}; {inferred.note}"
    note = _padded(query, note)
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


def without_scale_result(query: SplitQuery, decision: SplitDecision) -> str | None:
    """Why a scale_result may change a decision that a table gave; None where it cannot."""
    table_id = query.profile.table_id
    if not query.to_scaled_fp8 or decision.table_id is None or table_id is None:
        return None
    if load_table(table_id).scale_result_recorded:
        return None
    return f"table {decision.table_id} was recorded without scale_result for FP8 outputs"


def _padded(query: SplitQuery, note: str) -> str:
    """``note``, with the shape that was looked up where it is not the GEMM's own."""
    M, N, K = query.key
    if query.key == (query.M, query.N, query.K):
        return note
    return f"{note}; looked up as M={M} N={N} K={K}, padded by {query.profile.caller}"


def _table_and_setting(query: SplitQuery) -> tuple[SplitTable, Setting] | str:
    if query.profile.table_id is None:
        return f"profile {query.profile.name!r} has no table"
    setting = query.setting
    return setting if isinstance(setting, str) else (load_table(query.profile.table_id), setting)
