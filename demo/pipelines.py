"""The pipelines of act two: what anybody could have written, and all of it.

`traffic` counts page views and orders of each four seconds, by the time that the events carry, into a topic. An event
may come four seconds late; then its window is closed. `archive` keeps those counts as Parquet. `revenue` is `traffic` a
month later, to count money, too: it is replayed from the beginning.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.spark import Json, Parquet, Topic, pipeline

EVENT = Json("kind STRING, at TIMESTAMP, amount DECIMAL(9,2)", corrupt="drop")
COUNTS = Json("window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, views BIGINT, orders BIGINT")


@pipeline(source="events", decode=EVENT, sink=Topic("traffic"))
def traffic(events: DataFrame) -> DataFrame:
    timely = events.withWatermark("at", "4 seconds")
    return timely.groupBy(F.window("at", "4 seconds")).agg(
        F.expr("count_if(kind = 'view')").alias("views"),
        F.expr("count_if(kind = 'order')").alias("orders"),
    )


@pipeline(source="traffic", decode=COUNTS, sink=Parquet("out/traffic"))
def archive(counts: DataFrame) -> DataFrame:
    return counts.select("window", "views", "orders")


@pipeline(source="events", decode=EVENT, sink=Parquet("out/revenue"))
def revenue(events: DataFrame) -> DataFrame:
    timely = events.withWatermark("at", "4 seconds")
    return timely.groupBy(F.window("at", "4 seconds")).agg(
        F.expr("count_if(kind = 'view')").alias("views"),
        F.expr("count_if(kind = 'order')").alias("orders"),
        F.sum("amount").alias("revenue"),
    )
