"""The benchmark's report as text."""

from collections.abc import Iterator
from typing import Any

from mmaemu_jax.accumulate import SplitK
from mmaemu_jax.bench.case import Mode

_HEADS = (
    ("M x N x K", 20), ("profile", 11), ("formats", 10), ("mode", 20), ("backend", 11),
    ("thr", -3), ("GMAC/s", -8), ("f32 dot", -8), ("ratio", -6), ("extra MiB", -10), ("  bits", 8),
)  # fmt: skip


def header() -> str:
    """The line above the rows."""
    return _line([name for name, _ in _HEADS])


def row_line(row: dict[str, Any]) -> str:
    """One row."""
    case = row["case"]
    extra, checked = row["extra_bytes"], row["check"]
    return _line(
        [
            " x ".join(map(str, case["shape"])),
            case["profile"],
            "x".join(case["formats"]),
            _mode(row),
            row["backend"],
            str(row["threads"]),
            f"{row['gmacs']:.2f}",
            f"{row['dot_gmacs']:.2f}",
            f"{row['ratio']:.3f}",
            "?" if extra is None else f"{extra / 2**20:.1f}",
            f"  {'equal to' if checked['equal'] else 'DIFFER from'} {checked['backend']} "
            f"on {checked['rows']} rows",
        ]
    )


def notes(report: dict[str, Any]) -> Iterator[str]:
    """The lines below the rows."""
    for row in report["rows"]:
        if not row["check"]["equal"]:
            yield f"{row_line(row)}\n  {row['check']['difference']}"
    yield ""
    for entry in report["overhead"]:
        m, n, k = entry["shape"]
        yield (
            f"Overhead of a jitted call of {m} x {n} x {k}, {entry['backend']}, "
            f"{entry['threads']} thread(s): {entry['seconds'] * 1e6:.1f} us; XLA's float32 dot "
            f"{entry['dot_seconds'] * 1e6:.1f} us ({entry['ratio_of_times']:.2f} times)"
        )
    yield from _peer_notes(report["rows"])
    yield from _trace_notes(report["rows"])
    yield ""
    yield "ratio: GMAC/s over that of XLA's float32 dot of this shape, process and threads."
    yield "extra: rise of resident memory in the first call, less the result ('?': not known here)."


def _peer_notes(rows: list[dict[str, Any]]) -> Iterator[str]:
    peers = [(row, row["peer"]) for row in rows if row["peer"] is not None]
    if peers:
        yield "\nThe torch package mmaemu on the same operands, same threads, its CPU path:"
    for row, peer in peers:
        if "refused" in peer:
            yield f"  {_name(row)}: {peer['refused']}"
            continue
        bits = "equal bits" if peer["equal"] else f"DIFFERENT bits: {peer['difference']}"
        yield (
            f"  {_name(row)}: {peer['gmacs']:.3f} GMAC/s on {peer['rows']} rows, ours "
            f"{row['gmacs'] / peer['gmacs']:.0f} times that; {bits}"
        )


def _trace_notes(rows: list[dict[str, Any]]) -> Iterator[str]:
    traced = [row for row in rows if row["trace"] is not None]
    if traced:
        yield ""
        title = "time per emulated GEMM, from the trace"
        yield f"{title:<40}{'calls':>5}{'mean ms':>10}{'best':>10}"
    for row in traced:
        for gemm in row["trace"]:
            yield (
                f"{gemm['name']:<40}{gemm['calls']:>5}{gemm['mean_seconds'] * 1e3:>10.3f}"
                f"{gemm['best_seconds'] * 1e3:>10.3f}  {gemm['op_name']}"
            )
        if not row["trace"]:
            yield f"{_name(row)}: no row; {row['backend']} runs as ordinary XLA operations"


def _name(row: dict[str, Any]) -> str:
    case = row["case"]
    shape, formats = ("x".join(map(str, case[key])) for key in ("shape", "formats"))
    return f"{shape} {case['profile']} {formats} {_mode(row)}"


def _mode(row: dict[str, Any]) -> str:
    mode = row["case"]["mode"]
    return str(Mode(mode["use_fast_accum"], SplitK(**mode["split"])))


def _line(cells: list[str]) -> str:
    text = ""
    for cell, (_, width) in zip(cells, _HEADS, strict=True):
        text += f"{cell:>{-width}}" if width < 0 else f"{cell:<{width}}"
    return text.rstrip()
