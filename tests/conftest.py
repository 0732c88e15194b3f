"""Set-up of the test run: four CPU devices, exhaustive tests on request, and the censuses.

A test reports what it compared by ``record_property``, which pytest-xdist carries to the process
that prints; each census module turns the rows of its own property into one section.
"""

import agreement_census
import census_file
import jax
import pytest
import recordings_census

# Before any backend starts; sharding is tested on these, everything else uses the first.
jax.config.update("jax_num_cpu_devices", 4)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--census", metavar="FILE", help="write the censuses of this run, as JSON")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects ``exhaustive`` tests unless the -m expression names that marker."""
    if "exhaustive" in config.option.markexpr:
        return
    deselected = [item for item in items if item.get_closest_marker("exhaustive")]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for census in (agreement_census, recordings_census):
        census.write_census(terminalreporter)
    if file := terminalreporter.config.option.census:
        census_file.write(terminalreporter, file)
