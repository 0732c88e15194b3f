"""Set-up of the test run: four CPU devices, exhaustive tests on request, and the censuses.

A test reports what it compared by ``record_property``, which pytest-xdist carries to the process
that prints; each census module turns the rows of its own property into one section.
"""

import agreement_census
import census_file
import hypothesis
import jax
import pytest
import recordings_census

# Before any backend starts; sharding is tested on these, everything else uses the first.
jax.config.update("jax_num_cpu_devices", 4)

# Property tests: few examples, always the same, or on request many and new ones each time.
hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=60, print_blob=True
)
hypothesis.settings.register_profile(
    "exhaustive", deadline=None, max_examples=3000, print_blob=True, database=None
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--census", metavar="FILE", help="write the censuses of this run, as JSON")


def is_exhaustive(config: pytest.Config) -> bool:
    """The -m expression names that marker."""
    return "exhaustive" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("exhaustive" if is_exhaustive(config) else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects ``exhaustive`` tests unless asked for them; property tests then count as such."""
    if is_exhaustive(config):
        for item in items:
            if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("exhaustive")
        return
    deselected = [item for item in items if item.get_closest_marker("exhaustive")]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for census in (agreement_census, recordings_census):
        census.write_census(terminalreporter)
    if file := terminalreporter.config.option.census:
        census_file.write(terminalreporter, file)
