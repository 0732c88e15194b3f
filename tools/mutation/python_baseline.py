"""What the tests do without a mutant: that they pass, what they cost, which lines they run.

Each test file runs in a process of its own and is remembered in build/mutation until it, a helper
of the tests or the package changes.
"""

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Collection

from tools.mutation.mutant import ROOT
from tools.mutation.python_process import LOG, watch
from tools.mutation.python_session import Session, Tracer, run_tests
from tools.mutation.python_targets import LEFT_OUT

CACHE = ROOT / "build" / "mutation" / "python_baseline.json"
#: Processor seconds; what takes longer is no test for mutants.
LONGEST = 60


@dataclasses.dataclass
class Baseline:
    """Several tests together.

    Attributes:
        seconds: of processor time, of each test.
        executed: of each test, the lines of each traced file.
    """

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    executed: dict[str, dict[str, list[int]]] = dataclasses.field(default_factory=dict)

    def lines(self, file: str) -> dict[str, set[int]]:
        """Of each test, the lines of one file that it runs."""
        return {test: set(files.get(file, ())) for test, files in self.executed.items()}


def read(session: Session, paths: Collection[str], traced: Collection[str]) -> Baseline:
    """The baseline of ``paths``, run now where nothing valid is remembered.

    Raises:
        RuntimeError: a test fails without a mutant.
    """
    cache = json.loads(CACHE.read_text()) if CACHE.exists() else {}
    baseline = Baseline()
    for path in paths:
        key = _key(path, traced)
        if cache.get(path, {}).get("key") != key:
            cache[path] = {"key": key, **_measure(session, path, traced)}
            CACHE.write_text(json.dumps(cache))
        baseline.seconds |= cache[path]["seconds"]
        baseline.executed |= cache[path]["executed"]
    return baseline


def remembered(paths: Collection[str]) -> Baseline:
    """What the last :func:`read` of the same paths gave."""
    cache = json.loads(CACHE.read_text())
    baseline = Baseline()
    for path in paths:
        baseline.seconds |= cache[path]["seconds"]
        baseline.executed |= cache[path]["executed"]
    return baseline


def _measure(session: Session, path: str, traced: Collection[str]) -> dict:
    print(f"baseline of {path}", file=sys.stderr, flush=True)
    names = [name for name in session.items if name.startswith(path) and name not in LEFT_OUT]
    outcome = watch(lambda tell: run_tests(session, names, tell, Tracer(traced)), lambda _: LONGEST)
    if outcome.status != "passed":
        raise RuntimeError(
            f"{path} does not pass without a mutant: {outcome.status} {outcome.test}; see {LOG}"
        )
    return {"seconds": outcome.seconds, "executed": outcome.lines}


def _key(path: str, traced: Collection[str]) -> str:
    digest = hashlib.sha256(_sources())
    digest.update((ROOT / path.split("::")[0]).read_bytes())
    digest.update(repr(sorted(traced)).encode())
    return digest.hexdigest()


@functools.cache
def _sources() -> bytes:
    """A digest of the package and of what tests share."""
    package = sorted((ROOT / "mmaemu_jax").rglob("*.py"))
    helpers = sorted(p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_"))
    digest = hashlib.sha256()
    for source in (*package, *helpers):
        digest.update(source.read_bytes())
    return digest.digest()
