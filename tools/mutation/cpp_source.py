"""C++ files as the mutation tools parse them: directives and what this build skips, blanked."""

import functools
import re

# What `#if defined(...)` says where the C++ mutants run: an x86-64 host, no CUDA compiler.
DEFINED = {
    "__CUDACC__": False,
    "__CUDA_ARCH__": False,
    "__aarch64__": False,
    "__clang__": False,
    "__x86_64__": True,
    "MMAEMU_NEON_TARGET": False,
    "MMAEMU_X86_TARGETS": True,
}
# Macros that are no C++ to a parser, and what they stand for.
MACROS = {"MMAEMU_HD": "", "MMAEMU_CONSTANT": "constexpr"}

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
    lines = []
    stack: list[tuple[bool, bool]] = []  # of each open #if: this branch is on, one was on before
    continued = False
    for line in source.splitlines(keepends=True):
        directive = continued or line.lstrip().startswith("#")
        if directive and not continued:
            _branch(line.split("//")[0].split(), stack)
        continued = directive and line.rstrip().endswith("\\")
        on = all(on for on, _ in stack)
        lines.append(line if on and not directive else " " * (len(line) - 1) + "\n")
    text = "".join(lines)
    for name, meaning in MACROS.items():
        text = re.sub(rf"\b{name}\b", meaning.ljust(len(name)), text)
    return text


def _branch(words: list[str], stack: list[tuple[bool, bool]]) -> None:
    """Follows one directive."""
    name = words[0]
    if name in ("#if", "#ifdef", "#ifndef"):
        on = _holds(words)
        stack.append((on, on))
    elif name in ("#elif", "#else"):
        _, before = stack.pop()
        on = not before and (name == "#else" or _holds(words))
        stack.append((on, before or on))
    elif name == "#endif":
        stack.pop()


def _holds(words: list[str]) -> bool:
    condition = _CONDITION.fullmatch(words[1])
    if len(words) != 2 or condition is None or condition[2] not in DEFINED:
        raise ValueError(f"compiled_part: not known here: {' '.join(words)}.")
    return DEFINED[condition[2]] != bool(condition[1])
