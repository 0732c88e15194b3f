"""A package whose public names are imported when they are first used."""

import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """The class of a package with lazy names; :func:`make_lazy` gives it to one.

    A function may have the name of its module (``identify`` in ``mmaemu_jax.identify``). The import
    system makes every submodule an attribute of its package, whoever imports it and when, and
    ``__setattr__`` is where it does; there the function's name is kept for the function.
    ``from mmaemu_jax.identify import ...`` and ``sys.modules`` find the module all the same.
    """

    _home_of: dict[str, str]
    _public_modules: frozenset[str]

    def __getattr__(self, name: str) -> Any:
        if name in self._home_of:
            home = importlib.import_module(f"{self.__name__}.{self._home_of[name]}")
            value = getattr(home, name)
            setattr(self, name, value)
            return value
        if name in self._public_modules:
            return importlib.import_module(f"{self.__name__}.{name}")
        if name == "__all__":  # of a star import
            return sorted({*self._home_of, *self._public_modules})
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self._home_of):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._home_of, *self._public_modules})


def make_lazy(
    package: ModuleType, modules: Iterable[str], names: Mapping[str, Iterable[str]]
) -> None:
    """Makes names of ``package`` lazy.

    Args:
        package: being imported.
        modules: public modules of it.
        names: of each of its modules, the names there that are the package's own too.
    """
    package.__class__ = LazyPackage
    assert isinstance(package, LazyPackage)
    package._public_modules = frozenset(modules)
    package._home_of = {name: module for module, own in names.items() for name in own}
