"""A pytest session in which mutants are tested: collected once, then one forked child per mutant.

Collection imports the package and the tests. Whatever the mutated file did then, a mutant of it
would have done otherwise; so a mutant of a line that ran during collection needs a session of its
own.
"""

import sys
import threading
import time
from collections.abc import Callable, Collection

import pytest

from tools.mutation.mutant import ROOT
from tools.mutation.python_process import LOG, Teller
from tools.mutation.python_replace import IS_FUNCTION

OPTIONS = ("-q", "--no-header", "--tb=line", "-rN", "-pno:cacheprovider", "-pno:xdist")


class Tracer:
    """Which lines of some files are executed inside functions; a context manager."""

    def __init__(self, files: Collection[str]):
        self.files = {str(ROOT / file): file for file in files}
        self.lines: dict[str, set[int]] = {}

    def __enter__(self) -> "Tracer":
        self.lines = {}
        if self.files:
            sys.settrace(self._call)
        return self

    def __exit__(self, *exception) -> None:
        sys.settrace(None)

    def _call(self, frame, event, argument):
        file = self.files.get(frame.f_code.co_filename)
        if file is None or not frame.f_code.co_flags & IS_FUNCTION:
            return None
        lines = self.lines.setdefault(file, set())

        def line(frame, event, argument):
            lines.add(frame.f_lineno)
            return line

        return line


class Session:
    """The pytest plugin: instead of running the tests, calls ``work`` with itself.

    Attributes:
        items: the collected tests, by id.
        imported: of each traced file, the lines that ran while tests were collected.
    """

    def __init__(self, work: Callable[["Session"], None], traced: Collection[str]):
        self.work, self.tracer = work, Tracer(traced)
        self.items: dict[str, pytest.Item] = {}
        self.imported: dict[str, set[int]] = {}

    def run(self, paths: Collection[str]) -> None:
        """Collects the tests of ``paths``, then works; RuntimeError where collection fails."""
        temporary = f"--basetemp={LOG.parent / 'tmp'}"
        files = [str(ROOT / path) for path in dict.fromkeys(paths)]
        with self.tracer:
            code = pytest.main([*OPTIONS, temporary, *files], [self])
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"pytest ended with {code!r}; see {LOG}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        self.imported = self.tracer.lines
        self.items = {item.nodeid: item for item in session.items}
        if session.testsfailed:
            raise session.Failed("a test file was not collected")
        if threading.active_count() > 1 or _backend_runs():
            raise RuntimeError("collecting the tests started threads, which no fork survives")
        self.work(self)
        return True


def _backend_runs() -> bool:
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


def run_tests(session: Session, names: Collection[str], tell: Teller, tracer: Tracer) -> None:
    """Runs tests in this process, in their order, until one fails; ends with "end" if none does."""
    items = [session.items[name] for name in names]
    reporter = _Reporter(tell)
    items[0].config.pluginmanager.register(reporter)
    for item, following in zip(items, [*items[1:], None], strict=True):
        tell("start", item.nodeid)
        started = time.process_time()
        with tracer:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        lines = {file: sorted(lines) for file, lines in tracer.lines.items()}
        if reporter.failed:
            return
        tell("done", [item.nodeid, time.process_time() - started, lines])
    tell("end")


class _Reporter:
    """The pytest plugin that tells which test failed."""

    def __init__(self, tell: Teller):
        self.tell, self.failed = tell, False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> None:
        """As soon as a test fails: its report would take longer than many tests."""
        if call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
            self.failed = True
            self.tell("failed", item.nodeid)
