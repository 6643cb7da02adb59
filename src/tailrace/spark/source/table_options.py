"""The options of a table in Spark's catalog: `CREATE TABLE orders USING tailrace OPTIONS (…)`.

Spark gives the options of a table to a data source in Python once, when the table is created. A query of the table gets
its schema, and only the options of the query itself (`SELECT … FROM orders WITH ('startingOffsets' = '…')`). So the
options are kept in the schema, as metadata of its first column. Metadata goes wherever the column goes, such as into
the footer of Parquet files: therefore a table takes no passwords.
"""

import json
from collections.abc import Mapping

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.spark.columns.schema import schema_of
from tailrace.spark.source.options import BadOptions

_ADDED_BY_SPARK = "provider"  # to the options of a table, and to nothing else
_PREFIX = "option."  # Spark passes each option also under this prefix, and properties of the table without it
_METADATA = "tailrace.options"
_SECRETS = ("password", "jaas")


def table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options in a user's CREATE TABLE, from what Spark passes; None if no table is created. Raises
    BadOptions for passwords.
    """
    if _ADDED_BY_SPARK not in given:
        return None
    found = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    if secret := [name for name in found if any(word in name.lower() for word in _SECRETS)]:
        raise BadOptions(
            f"{secret[0]} cannot be an option of a table: it would be copied wherever the rows go. "
            f"Give it to each query instead: the_table WITH ('{secret[0]}' = '…')"
        )
    return found


def schema_with(options: Mapping[str, str], columns: tuple[str, ...]) -> StructType:
    """The schema of a table that has these options."""
    schema = from_arrow_schema(schema_of(columns))
    schema.fields[0].metadata = {_METADATA: json.dumps(dict(options))}
    return schema


def has_options(schema: StructType) -> bool:
    return any(_METADATA in column.metadata for column in schema.fields)


def query_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of a query: its own, which count more, and those of the table, where the schema is that of one."""
    found: dict[str, str] = {}
    for column in schema.fields:
        found |= json.loads(column.metadata.get(_METADATA, "{}"))
    return found | {name.lower(): value for name, value in given.items()}
