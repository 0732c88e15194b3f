"""The package as a whole: versions, the compiled part's age, the table of contents, typing."""

import ast
import dataclasses
import hashlib
import importlib.resources
import inspect
import pathlib
import sys

import pytest

import mmaemu_jax as mj
from mmaemu_jax import _native

ROOT = pathlib.Path(__file__).parent.parent


def test_compiled_part_belongs_to_this_checkout():
    """As csrc/ffi/source_digest.cmake computes it."""
    sources = (("numerics", "*.h"), ("cpu", "*.[hc]*"), ("ffi", "*.[hc]*"))
    paths = sorted(
        path.relative_to(ROOT).as_posix()
        for folder, pattern in sources
        for path in (ROOT / "csrc" / folder).glob(pattern)
        if path.suffix in (".h", ".cc")
    )
    digests = "".join(hashlib.sha256((ROOT / p).read_bytes()).hexdigest() for p in paths)
    assert hashlib.sha256(digests.encode()).hexdigest() == _native.SOURCE_DIGEST, (
        "mmaemu_jax._native was built from other sources than csrc: run `pip install .` again"
    )


def test_version_is_pyproject_s():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert mj.__version__ == project["version"]


def test_package_is_typed():
    assert (importlib.resources.files("mmaemu_jax") / "py.typed").is_file()


PUBLIC = [name for name in dir(mj) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_documented(name):
    value = getattr(mj, name)
    if inspect.isfunction(value) or inspect.isclass(value):
        assert inspect.getdoc(value)
        assert value.__module__.startswith("mmaemu_jax")


def test_lazy_names_are_those_that_type_checkers_see():
    tree = ast.parse((ROOT / "mmaemu_jax" / "__init__.py").read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {(node.module, alias.name) for node in checked.body for alias in node.names}
    modules = {("mmaemu_jax", name) for name in mj._public_modules}
    assert seen == modules | {(f"mmaemu_jax.{home}", name) for name, home in mj._home_of.items()}


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match="module 'mmaemu_jax' has no attribute 'emulated'"):
        _ = mj.emulated


def test_dataclasses_are_frozen():
    """Plans, profiles and requests are arguments of jit: hashable, and never changed.

    Flax makes its own dataclasses of its modules.
    """
    assert mj.training
    assert mj.emulate
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("mmaemu_jax.") and name != "mmaemu_jax.training.flax"
    ]
    values = {value for module in modules for value in vars(module).values() if is_class(value)}
    assert len(values) > 20
    assert [value for value in values if not value.__dataclass_params__.frozen] == []


def is_class(value) -> bool:
    return isinstance(value, type) and dataclasses.is_dataclass(value)
