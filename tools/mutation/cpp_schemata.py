"""One program that holds every mutant of a file, each switched on by the environment.

The expressions are rewritten into calls of schemata.h; MUTANT=<index> then chooses. What has to be
a constant expression cannot be switched and is left as it is.
"""

import collections

from tools.mutation import cpp_source
from tools.mutation.cpp_build import RUNTIME
from tools.mutation.cpp_sites import Site, in_table, is_table

_OPERATORS = {
    "+": "Plus",
    "-": "Minus",
    "*": "Times",
    "/": "Over",
    "%": "Modulo",
    "<<": "ShiftLeft",
    ">>": "ShiftRight",
    "&": "And",
    "|": "Or",
    "^": "Xor",
    "<": "Less",
    "<=": "LessEqual",
    ">": "Greater",
    ">=": "GreaterEqual",
    "==": "Equal",
    "!=": "NotEqual",
}
_UNARY = {"!": "Not", "-": "Negate", "~": "Complement", "": "Same"}


def schemata(file: str, source: str, sites: list[Site]) -> str:
    """``source`` with every switchable mutant in it; MUTANT is the index into ``sites``."""
    by_node = collections.defaultdict(list)
    for index, site in enumerate(sites):
        if site.switchable:
            by_node[site.node.start_byte, site.node.end_byte, site.node.type].append((index, site))
    text = _Rewriter(source, by_node).text(cpp_source.parse(file, source))
    return f'#include "{RUNTIME}"\n#line 1 "{file}"\n{text}'


class _Rewriter:
    def __init__(self, source: str, by_node):
        self.source = source
        self.by_node = by_node

    def text(self, node) -> str:
        """The node's source, rewritten."""
        if node.type == "type_qualifier" and node.text == b"constexpr" and is_table(node.parent):
            return "const" if node.parent.type == "declaration" else "inline const"
        found = self.by_node.get((node.start_byte, node.end_byte, node.type))
        if not found:
            return self.children(node)
        return getattr(self, f"_{node.type}")(node, found)

    def children(self, node) -> str:
        parts = []
        at = node.start_byte if node.parent is not None else 0
        end = node.end_byte if node.parent is not None else len(self.source)
        for child in node.children:
            parts += [self.source[at : child.start_byte], self.text(child)]
            at = child.end_byte
        return "".join([*parts, self.source[at:end]])

    def field(self, node, name: str) -> str:
        return self.text(node.child_by_field_name(name))

    def _binary_expression(self, node, found) -> str:
        left, right = self.field(node, "left"), self.field(node, "right")
        op = found[0][1].mutant.before
        if op in ("&&", "||"):
            kind = f"{found[0][0]}, {'true' if op == '&&' else 'false'}"
            return f"::mutation::logical<{kind}>(bool({left}), [&] {{ return bool({right}); }})"
        kinds = f"::mutation::{_OPERATORS[op]}, {_cases(found, _OPERATORS)}"
        return f"::mutation::operation<{kinds}>({left}, {right})"

    def _unary_expression(self, node, found) -> str:
        kinds = f"::mutation::{_UNARY[found[0][1].mutant.before]}, {_cases(found, _UNARY)}"
        return f"::mutation::operation<{kinds}>({self.field(node, 'argument')})"

    def _assignment_expression(self, node, found) -> str:
        left, right = self.field(node, "left"), self.field(node, "right")
        names = {f"{op}=": f"Assign{name}" for op, name in _OPERATORS.items()}
        kinds = f"::mutation::{names[found[0][1].mutant.before]}, {_cases(found, names)}"
        return f"::mutation::assign<{kinds}>({left}, {right})"

    def _update_expression(self, node, found) -> str:
        (index, site), argument = found[0], node.child_by_field_name("argument")
        place = "prefix" if node.children[0] != argument else "postfix"
        increment = "true" if site.mutant.before == "++" else "false"
        return f"::mutation::{place}<{index}, {increment}>({self.text(argument)})"

    def _conditional_expression(self, node, found) -> str:
        condition, yes, no = (
            self.field(node, n) for n in ("condition", "consequence", "alternative")
        )
        return f"::mutation::condition<{found[0][0]}>(bool({condition})) ? {yes} : {no}"

    def _number_literal(self, node, found) -> str:
        ids = ", ".join(str(index) for index, _ in found)
        values = ", ".join([node.text.decode(), *(site.mutant.after for _, site in found)])
        name = "late_constant" if in_table(node) else "constant"
        return f"::mutation::{name}<{ids}>({values})"

    _true = _false = _identifier = _number_literal

    def _call_expression(self, node, found) -> str:
        """The call in a function of its arguments, so that these are not repeated."""
        function = node.child_by_field_name("function")
        original = self.source[function.start_byte : function.end_byte]
        ways = ""
        for index, site in found:
            before = self.source[function.start_byte : site.token.start_byte]
            after = self.source[site.token.end_byte : function.end_byte]
            called = f"{before}{site.mutant.after}{after}"
            ways += f"if (::mutation::on<{index}>()) return {called}(x...); "
        arguments = self.children(node.child_by_field_name("arguments"))
        head = "[&](auto&&... x) __attribute__((always_inline))"
        return f"{head} {{ {ways}return {original}(x...); }}{arguments}"


def _cases(found, names: dict[str, str]) -> str:
    cases = (f"::mutation::Case<{i}, ::mutation::{names[s.mutant.after]}>" for i, s in found)
    return f"::mutation::Cases<{', '.join(cases)}>"
