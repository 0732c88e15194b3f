"""The mutants of the Python package, and whether tests kill them.

A mutant meets the tests that its file names (python_targets.py), those that run its line first; so
a survivor passed all of them. Mutants are put into the functions of an imported package; those
outside of functions, and survivors whose line runs during the import, are imported.
"""

import gc
import importlib
import platform
from collections.abc import Iterator
from importlib.metadata import version

from tools.mutation import python_baseline, python_process
from tools.mutation.mutant import ROOT, Mutant
from tools.mutation.python_choice import Choice
from tools.mutation.python_process import LOG, Outcome, Teller, watch
from tools.mutation.python_replace import Functions, at_import, module_name
from tools.mutation.python_session import Session, Tracer, run_tests
from tools.mutation.python_sites import mutants_of
from tools.mutation.python_targets import TARGETS
from tools.mutation.results import Result

#: Processor seconds of tests that the first process of a mutant runs.
FIRST = 10
#: A test may take SPARE seconds and SLOWER times what it takes without a mutant.
SPARE, SLOWER = 5, 4
#: Who kills a mutant that the package or its tests cannot be imported with.
IMPORT = "import"


def files() -> list[str]:
    """The files to be covered, most wanted first."""
    return list(TARGETS)


def mutants(file: str) -> list[Mutant]:
    """All mutants of a file."""
    return mutants_of(file, (ROOT / file).read_text())


def left_out(_: str) -> int:
    """No line of Python is left out."""
    return 0


def versions() -> dict[str, str]:
    """What results depend on besides the sources."""
    return {"Python": platform.python_version(), "jax": version("jax")}


def run(chosen: list[Mutant]) -> Iterator[tuple[Mutant, Result]]:
    """Tests mutants of one file."""
    python_process.prepare()
    file = chosen[0].file
    child, reading = python_process.fork(
        lambda tell: _serve(file, chosen, tell), LOG.with_name("python_session.log")
    )
    later, ended = [], False
    try:
        for what, value in filter(None, python_process.messages(reading, every=60)):
            if what == "result":
                yield chosen[value[0]], Result(*value[1:])  # type: ignore[index]
            elif what == "later":
                later.append(chosen[value])  # type: ignore[index]
            ended = what == "end"
    finally:
        python_process.end(child, reading)
    if not ended:
        raise RuntimeError(f"the tests of {file} could not be run; see {LOG.parent}")
    yield from _run_imported(file, later)


def _serve(file: str, chosen: list[Mutant], tell: Teller) -> None:
    """In one session: the results of mutants inside functions, and which mutants are others."""
    source = (ROOT / file).read_text()

    def work(session: Session) -> None:
        choice = Choice(file, python_baseline.read(session, TARGETS[file], TARGETS))
        imported = session.imported.get(file, set())
        importlib.import_module(module_name(file))  # tests may leave that to their first use
        functions = Functions(file, source)
        gc.freeze()  # a collection in a child would copy every page
        for index, mutant in enumerate(chosen):
            changed = mutant.apply(source)
            if compile(changed, file, "exec") == compile(source, file, "exec"):
                tell("result", [index, "identical"])
                continue
            result = None
            if functions.swap(changed):
                result = _result(choice, mutant, lambda names: _in(session, names))
                functions.swap(source)
            if result is None or (result.by == "" and choice.statement(mutant.line) & imported):
                tell("later", index)
            else:
                tell("result", [index, result.status, result.by])

    Session(work, TARGETS).run(TARGETS[file])
    tell("end")


def _in(session: Session, names: list[str]):
    return lambda tell: run_tests(session, names, tell, Tracer(()))


def _run_imported(file: str, chosen: list[Mutant]) -> Iterator[tuple[Mutant, Result]]:
    """Tests mutants, each in an interpreter that imports it."""
    if not chosen:
        return
    source = (ROOT / file).read_text()
    choice = Choice(file, python_baseline.remembered(TARGETS[file]))

    def importing(text: str, names: list[str]):
        def body(tell: Teller) -> None:
            at_import(file, text)
            paths = dict.fromkeys(name.split("::")[0] for name in names)
            session = Session(lambda s: run_tests(s, names, tell, Tracer(())), ())
            try:
                session.run(paths)
            except Exception as error:
                tell("broken", repr(error))

        return body

    first = min(choice.seconds, key=choice.seconds.__getitem__)
    if watch(importing(source, [first]), lambda _: SPARE).status != "passed":
        raise RuntimeError(f"{first} does not pass without a mutant; see {LOG}")
    for mutant in chosen:
        changed = mutant.apply(source)
        yield mutant, _result(choice, mutant, lambda names, text=changed: importing(text, names))


def _result(choice: Choice, mutant: Mutant, body) -> Result:
    """The result of a mutant; ``body(names)`` is what a process does to run these tests."""
    for part in _parts(choice, choice.order(mutant.line)):
        outcome = watch(body(part), lambda test: SPARE + SLOWER * choice.seconds.get(test, 0))
        choice.learn(outcome.seconds, outcome.test if outcome.status == "failed" else "")
        if outcome.status != "passed":
            return _killed(outcome)
    return Result("survived")


def _parts(choice: Choice, tests: list[str]) -> list[list[str]]:
    """The tests of the first process and of the second: most mutants need only one."""
    total, first = choice.seconds[tests[0]], 1
    while first < len(tests) and (total := total + choice.seconds[tests[first]]) <= FIRST:
        first += 1
    return [part for part in (tests[:first], tests[first:]) if part]


def _killed(outcome: Outcome) -> Result:
    if outcome.status == "timeout":
        return Result("timeout")
    return Result("killed", outcome.test.split("::")[0] if outcome.status == "failed" else IMPORT)
