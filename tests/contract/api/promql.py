"""Labels in PromQL: those that a query needs and gives, for metrics of a real scrape.

``labels(query, scraped)`` gives the labels of what the query finds. It raises ``QueryError`` where
a metric is not scraped, a label is asked for that the metric has not, or two sides of an operation
can never match because their labels differ.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    parse,
)

TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus gives every sample; all samples of a scrape have the same."""
KEEPING = frozenset({"topk", "bottomk"})
Labels = frozenset[str]
SCALAR: Labels | None = None


class QueryError(AssertionError):
    """A query that finds nothing, or says nothing."""


def labels(query: str, scraped: Mapping[str, AbstractSet[str]]) -> Labels | None:
    """The labels of what it finds, without those of the target; ``None``: a number."""
    return _Reader(scraped, query).read(parse(query))


@dataclass(frozen=True, slots=True)
class _Reader:
    scraped: Mapping[str, AbstractSet[str]]
    query: str

    def read(self, found: object) -> Labels | None:
        match found:
            case NumberLiteral() | StringLiteral():
                return SCALAR
            case VectorSelector():
                return self._selected(found)
            case MatrixSelector():
                return self._selected(found.vector_selector)
            case ParenExpr() | UnaryExpr() | SubqueryExpr():
                return self.read(found.expr)
            case Call():
                return self._called(found)
            case AggregateExpr():
                return self._aggregated(found)
            case BinaryExpr():
                return self._joined(found)
        raise QueryError(f"{found!r} in {self.query}")

    def _need(self, wanted: AbstractSet[str], there: AbstractSet[str]) -> None:
        if missing := wanted - there - TARGET:
            raise QueryError(f"no labels {sorted(missing)} in {self.query}")

    def _selected(self, one: VectorSelector) -> Labels:
        if one.name is None or one.name not in self.scraped:
            raise QueryError(f"{one.name} is not scraped, in {self.query}")
        there = frozenset(self.scraped[one.name])
        self._need({matcher.name for matcher in one.matchers.matchers}, there)
        return there

    def _called(self, call: Call) -> Labels | None:
        given = [self.read(one) for one in call.args]
        match call.func.name:
            case "absent" | "vector":
                return frozenset()
            case "histogram_quantile":
                there = given[1] or frozenset()
                self._need({"le"}, there)
                return there - {"le"}
        return next((one for one in given if one is not None), SCALAR)

    def _aggregated(self, one: AggregateExpr) -> Labels:
        there = self.read(one.expr) or frozenset()
        if str(one.op) in KEEPING:
            return there
        if one.modifier is None:
            return frozenset()
        assert one.modifier.type == AggModifierType.By
        by = frozenset(one.modifier.labels)
        self._need(by, there)
        return by

    def _joined(self, one: BinaryExpr) -> Labels | None:
        left, right = self.read(one.lhs), self.read(one.rhs)
        if left is None or right is None:
            return right if left is None else left
        modifier = one.modifier
        if modifier is not None and modifier.matching is not None:
            assert modifier.matching.type == LabelModifierType.Include
            wanted = set(modifier.matching.labels)
            self._need(wanted, left)
            self._need(wanted | set(modifier.group_labels or ()), right)
            return left | frozenset(modifier.group_labels or ())
        if str(one.op) != "or" and left != right:
            sides = f"{sorted(left)} and {sorted(right)}"
            raise QueryError(f"sides with labels {sides} never match in {self.query}")
        return left | right
