"""Where a C++ file can be mutated, and into what: operators, constants, calls that are operators.

An operator becomes those it is commonly mistaken for. A constant n becomes n + 1, n - 1 and 0. In
SIMD code operators are function names, so these are exchanged where the types allow.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from tools.mutation import cpp_source
from tools.mutation.cpp_files import COMPILED
from tools.mutation.mutant import COMPARISONS, Mutant, make_mutants

OPERATORS = {
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("/",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "^": ("|",),
    **COMPARISONS,
    "&&": ("||",),
    "||": ("&&",),
}
ASSIGNMENTS = {f"{op}=": tuple(f"{new}=" for new in OPERATORS[op]) for op in "+-*/%&|^"}
ASSIGNMENTS |= {"<<=": (">>=",), ">>=": ("<<=",)}

#: Functions that are operators: of Lanes, of the standard library, of CUDA.
CALLS = {
    "add_bytes": ("max_bytes", "subtract_bytes_saturating"),
    "max_bytes": ("min_bytes", "add_bytes"),
    "min_bytes": ("max_bytes",),
    "subtract_bytes_saturating": ("add_bytes",),
    "and_": ("or_",),
    "or_": ("and_",),
    "add_words": ("or_",),
    "shift_left": ("shift_right",),
    "shift_right": ("shift_left",),
    "multiply_add_toward_zero": ("multiply_add_nearest",),
    "multiply_add_nearest": ("multiply_add_toward_zero",),
    "add_truncated": ("add_nearest",),
    "add_nearest": ("subtract_exact",),
    "subtract_exact": ("add_nearest",),
    "min_floats": ("add_nearest",),
    "interleave_first": ("interleave_last",),
    "interleave_last": ("interleave_first",),
    "min": ("max",),
    "max": ("min",),
    "all_of": ("any_of",),
    "any_of": ("all_of",),
    "__fadd_rn": ("__fsub_rn",),
    "__fadd_ru": ("__fadd_rz",),
    "__fadd_rz": ("__fadd_ru",),
    "__fmaf_rz": ("__fmaf_rn",),
    "__fmul_rn": ("__fadd_rn",),
    "fmaxf": ("fminf",),
    "__syncthreads": ("__syncwarp",),
}
#: Instructions of NEON.
CALLS |= {
    "vaddq_f32": ("vsubq_f32",),
    "vaddq_u32": ("vsubq_u32",),
    "vaddq_u8": ("vsubq_u8",),
    "vandq_u32": ("vorrq_u32",),
    "vcgtq_s8": ("vcgeq_s8",),
    "vcleq_u8": ("vcltq_u8",),
    "vfmaq_f32": ("vfmsq_f32",),
    "vmaxq_u8": ("vminq_u8",),
    "vminq_f32": ("vmaxq_f32",),
    "vminq_u8": ("vmaxq_u8",),
    "vorrq_u32": ("vandq_u32",),
    "vqsubq_u8": ("vqaddq_u8",),
    "vsubq_f32": ("vaddq_f32",),
    "vsubq_u8": ("vaddq_u8",),
    "vzip1q_u8": ("vzip2q_u8",),
    "vzip2q_u8": ("vzip1q_u8",),
}
#: Those of x86: part of an intrinsic's name, and what it becomes.
INSTRUCTIONS = {
    "add": "sub",
    "sub": "add",
    "subs": "adds",
    "max": "min",
    "min": "max",
    "and": "or",
    "or": "and",
    "andnot": "and",
    "slli": "srli",
    "srli": "slli",
    "cmplt": "cmple",
    "cmple": "cmplt",
    "cmpgt": "cmpeq",
    "cmpeq": "cmpgt",
    "test": "testn",
    "unpacklo": "unpackhi",
    "unpackhi": "unpacklo",
    "fmadd": "fmsub",
}
#: Names that are constants of an instruction.
NAMES = {
    "_MM_FROUND_TO_ZERO": "_MM_FROUND_TO_NEAREST_INT",
    "_MM_FROUND_TO_POS_INF": "_MM_FROUND_TO_NEG_INF",
}

_NUMBER = re.compile(r"(-?)(0[xX][0-9a-fA-F']+|[0-9][0-9']*)([uUlLzZ]*)")
_FLOAT = re.compile(r"-?[0-9]*\.[0-9]*([fF]?)")


@dataclasses.dataclass(frozen=True)
class Site:
    """One mutant and the node it is an edit of."""

    mutant: Mutant
    node: Any  # tree_sitter.Node: what a schema replaces
    token: Any  # tree_sitter.Node: what the mutant replaces
    switchable: bool  # at run time; else it takes a compilation of its own


def find_sites(file: str, source: str) -> list[Site]:
    """Every mutant of a file, in its order; ValueError where it cannot be parsed."""
    edits = {}
    for node, switchable in _nodes(cpp_source.parse(file, source), True):
        for token, before, after in _edits(node):
            line, column = token.start_point
            edits[line + 1, column, before, after] = node, token, switchable
    mutants = make_mutants(file, source, edits)
    return [
        Site(mutant, *edits[mutant.line, mutant.column, mutant.before, mutant.after])
        for mutant in mutants
    ]


def find_mutants(file: str, source: str) -> list[Mutant]:
    """The mutants alone."""
    return [site.mutant for site in find_sites(file, source)]


#: What no mutant is made of: a check is not what is checked, and a type or a name is no value. (The
#: bound and the alignment of an array belong to its type: changed, it does not fit, or is a guard.)
_EXCLUDED = {
    "static_assert_declaration",
    "requires_clause",
    "requires_expression",
    "template_parameter_list",
    "attribute_declaration",
    "alignas_qualifier",
    "gnu_asm_expression",
    "string_literal",
    "char_literal",
    "comment",
    "operator_name",
}
#: Where a constant expression is needed, so that nothing can be switched at run time.
_CONSTANT = {
    "template_argument_list",
    "enumerator",
    "optional_parameter_declaration",
    "field_declaration",
}
_IMMEDIATE = re.compile(r"ternarylogic|gf2p8affine|_round_ps$|__builtin_prefetch")


def _nodes(node, switchable: bool) -> Iterator[tuple]:
    """The nodes that may be mutated, and whether at run time."""
    if node.type in _EXCLUDED:
        return
    if node.type in _CONSTANT or _is_constant_declaration(node):
        switchable = False
    yield node, switchable
    body = None
    if node.type == "function_definition":
        body = node.child_by_field_name("body")
        if _is_compiled(node):
            body, switchable = None, False
    for child in node.children:
        if node.type == "array_declarator" and child == node.child_by_field_name("size"):
            continue
        if child == body or in_table(child):
            yield from _nodes(child, True)
        else:
            yield from _nodes(child, switchable and not _is_constant_child(node, child))


def _is_compiled(function) -> bool:
    """Whether a function definition is one that the compiler evaluates (COMPILED)."""
    declarator = function.child_by_field_name("declarator")
    names = (n for n in cpp_source.walk(declarator) if n.type in ("identifier", "field_identifier"))
    return next((name.text.decode() in COMPILED for name in names), False)


def in_table(node) -> bool:
    """Whether a node is the initializer of a static constexpr array, or is in one.

    Such a table is read at run time alone, so that a schema may make it one that starts late.
    """
    while node is not None and node.type not in ("declaration", "field_declaration"):
        if node.type == "initializer_list":
            above = node.parent
            above = above.parent if above.type == "init_declarator" else above
            if is_table(above):
                return True
        node = node.parent
    return False


def is_table(node) -> bool:
    """Whether a node declares a static constexpr array."""
    words = {child.text for child in node.children if child.type != "initializer_list"}
    parts = [node, *node.children]
    arrays = any(child.type == "array_declarator" for part in parts for child in part.children)
    return {b"static", b"constexpr"} <= words and arrays


def _is_constant_declaration(node) -> bool:
    """A constexpr variable, a const one of literals alone, which the compiler evaluates as well, or
    any that is not in a function (its value may be needed early)."""
    if node.type != "declaration":
        return False
    words = {child.text for child in node.children if child.type == "type_qualifier"}
    values = [child.child_by_field_name("value") for child in node.children]
    inside = (n.type for value in values if value is not None for n in cpp_source.walk(value))
    if b"const" in words and "identifier" not in inside:
        return True
    parents = []
    above = node.parent
    while above is not None:
        parents.append(above.type)
        above = above.parent
    return b"constexpr" in words or "compound_statement" not in parents


def _is_constant_child(node, child) -> bool:
    if node.type == "case_statement":
        return child == node.child_by_field_name("value")
    if node.type == "if_statement" and any(c.type == "constexpr" for c in node.children):
        return child == node.child_by_field_name("condition")
    if node.type == "call_expression" and child == node.child_by_field_name("arguments"):
        return bool(_IMMEDIATE.search(node.child_by_field_name("function").text.decode()))
    return False


def _edits(node) -> Iterator[tuple]:
    """(node of the token, before, after) of every mutant made at a node."""
    kind = node.type
    if kind in ("binary_expression", "assignment_expression"):
        token = node.child_by_field_name("operator")
        table = OPERATORS if kind == "binary_expression" else ASSIGNMENTS
        yield from ((token, token.text.decode(), new) for new in table.get(token.text.decode(), ()))
    elif kind == "unary_expression":
        token = node.child_by_field_name("operator")
        if token.text in (b"!", b"-", b"~"):
            yield token, token.text.decode(), ""
    elif kind == "update_expression":
        token = node.child_by_field_name("operator")
        yield token, token.text.decode(), "--" if token.text == b"++" else "++"
    elif kind == "conditional_expression":
        condition = node.child_by_field_name("condition")
        before = condition.text.decode()
        yield condition, before, f"!({before})"
    elif kind == "number_literal":
        before = node.text.decode()
        apart = template_choices(node)
        yield from ((node, before, new) for new in other_constants(before) if new not in apart)
    elif kind in ("true", "false"):
        yield node, kind, "false" if kind == "true" else "true"
    elif kind == "call_expression":
        yield from _call_edits(node)
    elif kind == "identifier" and node.text.decode() in NAMES:
        yield node, node.text.decode(), NAMES[node.text.decode()]


def called_name(call):
    """The node of the name that a call calls, without qualifiers and template arguments."""
    name = call.child_by_field_name("function")
    while name.type in ("qualified_identifier", "template_function", "dependent_name"):
        inner = name.child_by_field_name("name")
        name = inner if inner is not None else name.named_children[-1]
    return name


def template_choices(literal) -> list[str]:
    """What f<0> .. f<3> become where f is called: f<0> .. f<3>, of which a schema can choose."""
    arguments = literal.parent
    if arguments.type != "template_argument_list" or literal.text not in (b"0", b"1", b"2", b"3"):
        return []
    above = arguments.parent
    while above.type in ("qualified_identifier", "template_function", "template_method"):
        above = above.parent
    if above.type != "call_expression":
        return []
    return [new for new in other_constants(literal.text.decode()) if new in ("0", "1", "2", "3")]


def _call_edits(call) -> Iterator[tuple]:
    for node in cpp_source.walk(call.child_by_field_name("function")):
        if node.type == "number_literal":
            yield from ((node, node.text.decode(), new) for new in template_choices(node))
    token = called_name(call)
    name = token.text.decode()
    for new in CALLS.get(name, ()):
        yield token, name, new
    if name.startswith("_mm"):
        prefix, operation, rest = re.fullmatch(
            r"(_mm\d*_(?:maskz?_)?)([a-z0-9]+)(.*)", name
        ).groups()
        if operation in INSTRUCTIONS:
            yield token, name, prefix + INSTRUCTIONS[operation] + rest


def other_constants(text: str) -> list[str]:
    """What a numeric literal becomes: one more, one less, zero; in its own base and type."""
    if number := _NUMBER.fullmatch(text):
        sign, digits, suffix = number[1], number[2].replace("'", ""), number[3]
        value = int(sign + digits, 0)
        spell = "0x{:X}".format if digits[:2] in ("0x", "0X") and value > 1 else str
        new = [
            spell(n) + (suffix if n >= 0 else "") for n in (value + 1, value - 1, 0) if n != value
        ]
        return list(dict.fromkeys(new))
    if number := _FLOAT.fullmatch(text):
        value = float(text.rstrip("fF"))
        new = [value + 1, value - 1, 0.0]
        return list(dict.fromkeys(f"{n!r}{number[1]}" for n in new if n != value))
    raise ValueError(f"other_constants: not a number: {text!r}.")
