"""Spark looks into packages of this name for data sources: it makes `format("tailrace")` known without a word more."""

from tailrace.spark.data_source import TailraceSource as DefaultSource

__all__ = ["DefaultSource"]
