"""Mutants of a module: the places of faults, and their kinds.

The operators are Cosmic Ray's, but not every replacement of theirs: of arithmetic the usual
counterpart only, comparisons among themselves, ``is`` with ``is not``. What is left out mostly
raises an error at once (``a ** b`` of large arrays, ``"x" < None``) and would flatter the figure,
or, as ``==`` for ``is``, changes nothing and would blacken it. Nothing is put into declarations:
annotations and their imports, names of types, decorators, and the ``strict`` of ``zip``.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.plugins  # type: ignore[import-untyped]
from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-untyped]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-untyped]
from cosmic_ray.operators.operator import Operator  # type: ignore[import-untyped]
from parso.python.tree import IfStmt, Name
from parso.tree import BaseNode, NodeOrLeaf

COUNTERPARTS = frozenset(
    {
        *(
            "Add_Sub",
            "Sub_Add",
            "Mul_FloorDiv",
            "Mul_Add",
            "FloorDiv_Mul",
            "Div_Mul",
            "Mod_FloorDiv",
        ),
        *(
            "Pow_Mul",
            "RShift_LShift",
            "LShift_RShift",
            "BitOr_BitAnd",
            "BitAnd_BitOr",
            "BitXor_BitOr",
        ),
    }
)
RELATIONS = frozenset({"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"})
CHECKING = "TYPE_CHECKING"
LEFT_OUT = frozenset({"RemoveDecorator", "VariableReplacer", "VariableInserter"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant.

    ``module`` is the path below the core; ``operator`` and ``occurrence`` are Cosmic Ray's;
    ``before`` and ``after`` are the changed lines, stripped.
    """

    module: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str

    def source(self, original: str) -> str:
        """The text of the module with the fault in it."""
        mutated = mutate_code(original, _operator(self.operator), self.occurrence)
        return str(mutated)


@dataclass(frozen=True, slots=True)
class Site:
    """A place of a module: ``faults`` are (operator, occurrence), the ways to put a fault there."""

    module: str
    line: int
    column: int
    faults: tuple[tuple[str, int], ...]


def sites(core: Path, module: str) -> list[Site]:
    """The places of a module where faults can be put, in the order of its text."""
    nodes = list(ast_nodes(get_ast((core / module).read_text(encoding="utf-8"))))
    found: defaultdict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for name in _operators():
        operator, occurrence = _operator(name), 0
        for node in nodes:
            for start, _end in operator.mutation_positions(node):
                if not _declares(node):
                    found[start].append((name, occurrence))
                occurrence += 1
    return [Site(module, *start, tuple(faults)) for start, faults in sorted(found.items())]


def mutant(core: Path, site: Site, fault: tuple[str, int]) -> Mutant | None:
    """The mutant with this fault; nothing if it would read the same or not be Python."""
    original = (core / site.module).read_text(encoding="utf-8")
    mutated = mutate_code(original, _operator(fault[0]), fault[1])
    if mutated is None or not _differs(original, mutated):
        return None
    return Mutant(site.module, site.line, *fault, *_changed(original, mutated))


def _operators() -> list[str]:
    return [name for name in cosmic_ray.plugins.operator_names() if _wanted(name.split("/")[1])]


def _wanted(name: str) -> bool:
    kind, _, change = name.partition("_")
    if kind == "ReplaceBinaryOperator":
        return change in COUNTERPARTS
    if kind == "ReplaceComparisonOperator":
        return change in {"Is_IsNot", "IsNot_Is"} or set(change.split("_")) <= RELATIONS
    if kind == "ReplaceUnaryOperator":
        return change.startswith("Delete_")
    return name not in LEFT_OUT


def _operator(name: str) -> Operator:
    return cosmic_ray.plugins.get_operator(name)()


def _declares(node: NodeOrLeaf) -> bool:
    """Whether it says what something is: an annotation, a decorator, a type's name, ``strict=``."""
    if isinstance(node, IfStmt) and node.children[1].get_code(include_prefix=False) == CHECKING:
        return True
    child: NodeOrLeaf = node
    for parent in _above(node):
        if parent.type in {"decorator", "import_from"}:
            return True
        if parent.type == "argument" and _is_strict(parent):
            return True
        if parent.type == "tfpdef" and child is parent.children[2]:
            return True
        if parent.type == "annassign" and child is parent.children[1]:
            return True
        if parent.type == "funcdef" and child is getattr(parent, "annotation", None):
            return True
        if parent.type == "expr_stmt" and _names_a_type(parent):
            return True
        child = parent
    return False


def _is_strict(argument: BaseNode) -> bool:
    name = argument.children[0]
    return isinstance(name, Name) and name.value == "strict"


def _above(node: NodeOrLeaf) -> Iterator[BaseNode]:
    parent: BaseNode | None = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _names_a_type(statement: BaseNode) -> bool:
    """``Pair = tuple[int, int] | None``: at the top of a module, with a name in CapWords."""
    around = list(_above(statement))
    if [one.type for one in around] != ["simple_stmt", "file_input"]:
        return False
    name: NodeOrLeaf = statement.children[0]
    return isinstance(name, Name) and name.value[:1].isupper() and not name.value.isupper()


def _differs(original: str, mutated: str) -> bool:
    try:
        return compile(mutated, "m", "exec", dont_inherit=True) is not None and original != mutated
    except (SyntaxError, SyntaxWarning):
        return False


def _changed(original: str, mutated: str) -> tuple[str, str]:
    """The lines that differ, before and after, stripped and joined."""
    pairs = zip(original.splitlines(), mutated.splitlines(), strict=False)
    differing = [(old.strip(), new.strip()) for old, new in pairs if old != new]
    if not differing or len(original.splitlines()) != len(mutated.splitlines()):
        return "", ""
    return "\n".join(old for old, _ in differing), "\n".join(new for _, new in differing)
