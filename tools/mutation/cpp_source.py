"""C++ files as the mutation tools parse them: directives and what this build skips, blanked."""

import functools
import re
from collections.abc import Iterator

# What `#if defined(...)` says where the C++ mutants run: an x86-64 host, no CUDA compiler.
DEFINED = {
    "__CUDACC__": False,
    "__CUDA_ARCH__": False,
    "__aarch64__": False,
    "__clang__": False,
    "__x86_64__": True,
    "MMAEMU_CUDA_NO_MMA_SYNC": False,
    "MMAEMU_CUDA_ON_CPU": True,
    "MMAEMU_NEON_TARGET": False,
    "MMAEMU_X86_TARGETS": True,
}
# Macros that are no C++ to a parser, and what they stand for.
MACROS = {"MMAEMU_HD": "", "MMAEMU_CONSTANT": "constexpr"}
# CUDA's, as csrc/tests/cuda_on_cpu.h has them.
MACROS |= dict.fromkeys(("__global__", "__device__", "__host__", "__grid_constant__"), "")
MACROS |= {"__forceinline__": "inline", "__noinline__": ""}
# A macro with arguments that stand for nothing where the C++ mutants run.
_FOR_DEVICES = re.compile(r"\b__launch_bounds__\([^()]*\)")

_BRANCHES = ("#if", "#ifdef", "#ifndef", "#elif", "#else", "#endif")
_CONDITION = re.compile(r"(!?)defined\((\w+)\)")


@functools.cache
def parser():
    """A tree-sitter parser of C++ (the extra `mutation`)."""
    import tree_sitter
    import tree_sitter_cpp

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def parse(file: str, source: str):
    """The syntax tree of what this build compiles; ValueError where it cannot be parsed."""
    if not source.isascii():
        raise ValueError(f"{file}: mutation needs plain ASCII, so that bytes are characters.")
    tree = parser().parse(compiled_part(source).encode())
    if tree.root_node.has_error:
        bad = next(node for node in walk(tree.root_node) if node.is_error or node.is_missing)
        line = bad.start_point[0] + 1
        raise ValueError(f"{file}:{line}: tree-sitter-cpp does not understand this line.")
    return tree.root_node


def walk(node):
    """The node and everything below it, in source order."""
    yield node
    for child in node.children:
        yield from walk(child)


def compiled_part(source: str) -> str:
    """``source``, of the same length, without directives and the branches not compiled here."""
    kept = (
        line if on and not directive else " " * (len(line) - 1) + "\n"
        for line, on, directive in _lines(source)
    )
    text = _FOR_DEVICES.sub(_blank, "".join(kept))
    for name, meaning in MACROS.items():
        text = re.sub(rf"\b{name}\b", meaning.ljust(len(name)), text)
    return text


def left_out(source: str) -> int:
    """How many lines of code no mutant is made of, as this build compiles other branches."""
    return sum(
        bool(line.split("//")[0].strip()) and (not on or bool(_FOR_DEVICES.search(line)))
        for line, on, _ in _lines(source)
    )


def _lines(source: str) -> Iterator[tuple[str, bool, bool]]:
    """Each line, whether this build compiles it (an #if, #else or #endif: yes), whether it is a
    directive's.
    """
    stack: list[tuple[bool, bool]] = []  # of each open #if: this branch is on, one was on before
    continued = False
    for line in source.splitlines(keepends=True):
        directive = continued or line.lstrip().startswith("#")
        words = line.split("//")[0].split()
        branch = directive and not continued and words[0] in _BRANCHES
        if branch:
            _follow(words, stack)
        continued = directive and line.rstrip().endswith("\\")
        yield line, branch or all(on for on, _ in stack), directive


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _follow(words: list[str], stack: list[tuple[bool, bool]]) -> None:
    """Follows one directive that opens, changes or closes a branch."""
    name = words[0]
    if name in ("#if", "#ifdef", "#ifndef"):
        compiled = all(on for on, _ in stack)
        on = compiled and _holds(words)
        stack.append((on, on or not compiled))
    elif name in ("#elif", "#else"):
        _, before = stack.pop()
        on = not before and (name == "#else" or _holds(words))
        stack.append((on, before or on))
    else:
        stack.pop()


def _holds(words: list[str]) -> bool:
    condition = _CONDITION.fullmatch(words[1])
    if len(words) != 2 or condition is None or condition[2] not in DEFINED:
        raise ValueError(f"compiled_part: not known here: {' '.join(words)}.")
    return DEFINED[condition[2]] != bool(condition[1])
