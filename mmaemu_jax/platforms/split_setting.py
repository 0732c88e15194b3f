"""Settings: what a recorded split-K decision depends on besides M, N and K."""

import dataclasses
import typing


class Setting(typing.NamedTuple):
    """One way of calling the library, by the names of the package's formats and dtypes."""

    format_a: str
    format_b: str
    out_dtype: str
    use_fast_accum: bool
    workspace_bytes: int

    def __str__(self) -> str:
        mode = "fast" if self.use_fast_accum else "slow"
        return (
            f"{self.format_a} x {self.format_b} -> {self.out_dtype}, {mode} accumulation, "
            f"workspace {self.workspace_bytes} bytes"
        )


@dataclasses.dataclass(frozen=True)
class SettingFacts:
    """What a table holds of one setting.

    Attributes:
        rows: recorded keys.
        split_rows: those with S > 1.
        S_values: the values of S > 1 among them.
        max_split_MN: the largest M * N that split, or None.
        min_split_K: the smallest K that split, or None.
    """

    rows: int
    split_rows: int
    S_values: tuple[int, ...]
    max_split_MN: int | None
    min_split_K: int | None
