"""Whether a query gives the same result when it runs again, told from its analysed plan.

`current_timestamp`, `rand`, `uuid` and their like give another answer each time; some operators keep state between
batches, and some of those exist in streams only.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_OPERATORS = "org.apache.spark.sql.catalyst.plans.logical."

_EACH_TIME_ANOTHER = {
    "CurrentTimestamp": "current_timestamp",
    "Now": "now",
    "LocalTimestamp": "localtimestamp",
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "Rand": "rand",
    "Randn": "randn",
    "RandStr": "randstr",
    "Uniform": "uniform",
    "Uuid": "uuid",
    "Shuffle": "shuffle",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
}
_STATEFUL = {
    "Aggregate": "an aggregation",
    "Distinct": "distinct",
    "Deduplicate": "dropDuplicates",
    "Join": "a join",
    "GlobalLimit": "a limit",
}
_ONLY_IN_STREAMS = {
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
}


@dataclass(frozen=True, slots=True)
class Repeatability:
    """Each by the name that a user knows it by."""

    unrepeatable: tuple[str, ...] = ()
    stateful: tuple[str, ...] = ()
    streaming_only: tuple[str, ...] = ()


def repeatability(frame: Any) -> Repeatability:
    """Returns the repeatability of a DataFrame, batch or stream, which is analysed but not run."""
    return repeatability_of(frame._jdf.queryExecution().analyzed().toJSON())


def repeatability_of(plan_json: str) -> Repeatability:
    """Returns the repeatability of a plan in Spark's JSON."""
    nodes = list(_nodes(json.loads(plan_json)))
    names = {node["class"] for node in nodes}
    expressions = {name.removeprefix(_EXPRESSIONS).rpartition(".")[2] for name in names if _EXPRESSIONS in name}
    operators = {name.removeprefix(_OPERATORS).rpartition(".")[2] for name in names if _OPERATORS in name}
    with_state = {name: name for name in operators if "WithState" in name} | _STATEFUL | _ONLY_IN_STREAMS
    unsure = ("a function that is said not to be deterministic",) if any(map(_is_unsure, nodes)) else ()
    return Repeatability(
        unrepeatable=_named(_EACH_TIME_ANOTHER, expressions) + unsure,
        stateful=_named(with_state, operators),
        streaming_only=_named(_ONLY_IN_STREAMS, operators),
    )


def _named(known: Mapping[str, str], found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(known[name] for name in found if name in known))


def _is_unsure(node: Mapping[str, Any]) -> bool:
    return node.get("udfDeterministic") is False


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Every node of the tree, whatever it is nested in."""
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str):
            yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)
