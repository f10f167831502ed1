"""Reported values in SQL; what is kept of them is decided in ``curves``."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from carrel_scheduler.ledger.curves import Curve, thinned
from carrel_scheduler.ledger.records import MetricPoint
from carrel_scheduler.ledger.schema import curves, metrics

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


def add(connection: Connection, uid: str, points: Iterable[MetricPoint]) -> None:
    """Append values in their order and thin what has become too long."""
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
