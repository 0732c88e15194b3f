"""Puts a mutated source in the place of a module's: when it is imported, or afterwards.

Afterwards is much quicker, since package and tests stay imported, but works only for the inside of
functions that have not run: :meth:`Functions.swap` says whether it did.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
import types
from collections.abc import Iterator

from tools.mutation.mutant import ROOT

#: Of a code object's flags: it is a function's, no module's or class's.
IS_FUNCTION = 0x2


def module_name(file: str) -> str:
    """The dotted name of a source file of the package."""
    parts = list(pathlib.PurePath(file).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from a text instead of its file."""

    def __init__(self, name: str, path: str, source: str):
        super().__init__(name, path)
        self.text = source

    def get_code(self, fullname: str):
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, before anything else can."""

    def __init__(self, file: str, source: str):
        self.name, self.path, self.source = module_name(file), ROOT / file, source

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        folder = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        loader = _Loader(fullname, str(self.path), self.source)
        return importlib.util.spec_from_file_location(
            fullname, self.path, loader=loader, submodule_search_locations=folder
        )


def at_import(file: str, source: str) -> None:
    """From now on the module of ``file`` is imported from ``source``."""
    if module_name(file) in sys.modules:
        raise RuntimeError(f"{file} is imported already")
    sys.meta_path.insert(0, _Finder(file, source))


class Functions:
    """The functions that an imported module defines, whoever holds them."""

    def __init__(self, file: str, source: str):
        self.path, self.source = str(ROOT / file), source
        self.codes = self._compile(source)
        self.living = [
            (function, self.codes.index(function.__code__))
            for function in gc.get_objects()
            if isinstance(function, types.FunctionType)
            and function.__code__.co_filename == self.path
            and function.__code__ in self.codes
        ]

    def swap(self, source: str) -> bool:
        """Gives every function its code of ``source``.

        False, with nothing changed, where more than the inside of functions differs.
        """
        codes = self._compile(source)
        if len(codes) != len(self.codes):
            return False
        for before, after in zip(self.codes, codes, strict=True):
            inside = bool(before.co_flags & IS_FUNCTION)
            if before.co_freevars != after.co_freevars or not (
                inside or _own(before) == _own(after)
            ):
                return False
        for function, index in self.living:
            function.__code__ = codes[index]
        return True

    def _compile(self, source: str) -> list[types.CodeType]:
        return list(_codes(compile(source, self.path, "exec", dont_inherit=True)))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _own(code: types.CodeType) -> tuple:
    """What a module or class body itself does, without the functions it defines."""
    constants = [repr(c) for c in code.co_consts if not isinstance(c, types.CodeType)]
    return code.co_code, code.co_names, constants
