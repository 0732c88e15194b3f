"""Proofs that a mutant computes what the original does, so that no test can kill it.

tools/mutation/equivalent/<language>.toml holds them, in groups that share one reason:

    [[equivalent]]
    why = "One sentence that says why no input can tell."
    mutants = ['''file | text of the line | before -> after''']

``python -m tools.mutation --survivors`` prints the mutants in that form.
"""

import pathlib
import tomllib

FOLDER = pathlib.Path(__file__).with_name("equivalent")


def proofs(language: str, folder: pathlib.Path = FOLDER) -> dict[str, str]:
    """Of each equivalent mutant, by id, why; ValueError for one with two proofs."""
    path = folder / f"{language}.toml"
    found: dict[str, str] = {}
    for group in tomllib.loads(path.read_text())["equivalent"] if path.exists() else ():
        for name in group["mutants"]:
            if name in found:
                raise ValueError(f"{path.name}: two proofs for {name}")
            found[name] = group["why"]
    return found
