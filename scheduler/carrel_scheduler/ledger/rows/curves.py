"""Reported values in SQL, thinned out as they arrive.

Of a curve every ``stride``-th value of all that ever arrived is kept, and the last one; the stride
doubles when there are too many, so a curve stays small however long its job runs.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from carrel_scheduler.ledger.columns.tables import curves, metrics, objects
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import MetricPoint

_CURVE: Final = select(curves.c.received, curves.c.stride).where(
    curves.c.workload_uid == bindparam("uid"), curves.c.name == bindparam("name")
)
_NEW_CURVE: Final = insert(curves)
_GROW: Final = (
    update(curves)
    .where(curves.c.workload_uid == bindparam("uid"), curves.c.name == bindparam("which"))
    .values(received=bindparam("received"), stride=bindparam("stride"))
)
_NEW_POINTS: Final = insert(metrics)
_THIN: Final = delete(metrics).where(
    metrics.c.workload_uid == bindparam("uid"),
    metrics.c.name == bindparam("name"),
    metrics.c.ordinal >= bindparam("first"),
    metrics.c.ordinal < bindparam("last"),
    metrics.c.ordinal % bindparam("stride") != 0,
)


_ORPHANS: Final = (
    select(curves.c.workload_uid)
    .where(~select(objects.c.uid).where(objects.c.uid == curves.c.workload_uid).exists())
    .distinct()
    .limit(bindparam("most"))
)
_REMOVE: Final = tuple(
    delete(table).where(table.c.workload_uid.in_(bindparam("uids", expanding=True)))
    for table in (metrics, curves)
)


def remove_orphans(connection: Connection, most: int) -> int:
    """Remove the values of at most so many workloads that are gone; returns of how many."""
    uids = list(connection.scalars(_ORPHANS, {"most": most}))
    for statement in _REMOVE if uids else ():
        connection.execute(statement, {"uids": uids})
    return len(uids)


def add(connection: Connection, uid: str, points: Iterable[MetricPoint]) -> None:
    """Append values in order, and thin out series that have become too long."""
    by_name: defaultdict[str, list[MetricPoint]] = defaultdict(list)
    for point in points:
        by_name[point.name].append(point)
    for name, arrivals in by_name.items():
        _extend(connection, uid, name, arrivals)


def _extend(connection: Connection, uid: str, name: str, points: Sequence[MetricPoint]) -> None:
    key = {"uid": uid, "name": name}
    row = connection.execute(_CURVE, key).one_or_none()
    old = Curve() if row is None else Curve(*row)
    new = old.after(len(points))
    sizes = {"received": new.received, "stride": new.stride}
    if row is None:
        connection.execute(_NEW_CURVE, {"workload_uid": uid, "name": name, **sizes})
    else:
        connection.execute(_GROW, {"uid": uid, "which": name, **sizes})
    rows = [
        {
            "workload_uid": uid,
            "name": name,
            "ordinal": ordinal,
            "at": point.at,
            "step": point.step,
            "value": None if math.isnan(point.value) else point.value,
        }
        for ordinal, point in enumerate(points, start=old.received)
        if new.keeps(ordinal)
    ]
    connection.execute(_NEW_POINTS, rows)
    # With the old stride only the former last value may have to go.
    first = 0 if new.stride != old.stride else old.received - 1
    span = {"first": first, "last": old.received, "stride": new.stride}
    connection.execute(_THIN, {**key, **span})


def read(
    connection: Connection, uid: str, names: Sequence[str] | None, max_points: int
) -> Mapping[str, Sequence[MetricPoint]]:
    """Curves by name, thinned to ``max_points``."""
    query = select(metrics).where(metrics.c.workload_uid == uid)
    if names is not None:
        query = query.where(metrics.c.name.in_(names))
    found: defaultdict[str, list[MetricPoint]] = defaultdict(list)
    for row in connection.execute(query.order_by(metrics.c.name, metrics.c.ordinal)):
        value = math.nan if row.value is None else row.value
        found[row.name].append(MetricPoint(at=row.at, step=row.step, name=row.name, value=value))
    return {name: thinned(points, max_points) for name, points in found.items()}


T = TypeVar("T")
MOST: Final = 2000


class Curve(NamedTuple):
    """The number of values that have arrived, and which of them are kept."""

    received: int = 0
    stride: int = 1

    @property
    def kept(self) -> int:
        """The number of points that are kept."""
        if not self.received:
            return 0
        last = self.received - 1
        return last // self.stride + 1 + bool(last % self.stride)

    def keeps(self, ordinal: int) -> bool:
        """Whether the value with number ``ordinal`` (from 0) is kept."""
        return ordinal % self.stride == 0 or ordinal == self.received - 1

    def after(self, arrivals: int, most: int = MOST) -> "Curve":
        """The curve when so many more values have arrived."""
        grown = Curve(self.received + arrivals, self.stride)
        while grown.kept > most:
            grown = Curve(grown.received, grown.stride * 2)
        return grown


def thinned(points: Sequence[T], most: int) -> Sequence[T]:
    """At most ``most`` points, evenly spaced, with the first and the last.

    One point is the last one. Raises ``InvalidArgument`` below 1.
    """
    if most < 1:
        raise InvalidArgument("max_points", most, "at least 1")
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]
