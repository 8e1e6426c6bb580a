"""Translate Spark's filters into Arrow's, so that unwanted rows never travel to the query."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, eq, ge, gt, le, lt
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import datasource as spark

_COMPARISONS: Final[dict[type[spark.Filter], Callable[[Any, Any], Any]]] = {
    spark.EqualTo: eq,
    spark.GreaterThan: gt,
    spark.GreaterThanOrEqual: ge,
    spark.LessThan: lt,
    spark.LessThanOrEqual: le,
}


def expression(filters: Sequence[spark.Filter], schema: pa.Schema) -> Any:
    """Return one expression for the filters that can be translated, or None. Spark checks every row again."""
    known = [one for each in filters if (one := _translated(each, schema)) is not None]
    return reduce(and_, known) if known else None


def _translated(condition: spark.Filter, schema: pa.Schema) -> Any:
    path: tuple[str, ...] | None = getattr(condition, "attribute", None)
    if path is None or len(path) != 1 or path[0] not in schema.names:
        return None
    column, kind = compute.field(path[0]), schema.field(path[0]).type
    match condition:
        case spark.IsNotNull():
            return column.is_valid()
        case spark.IsNull():
            return column.is_null()
        case spark.In(value=values):
            return column.isin(pa.array(list(values), kind))
    compare = _COMPARISONS.get(type(condition))
    return None if compare is None else compare(column, pa.scalar(getattr(condition, "value", None), kind))
