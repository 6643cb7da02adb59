"""What keeps a Spark verb from working, in words: an extra that is missing, or Java; options; a query that failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tailrace.cli.output import ExitCode, Failure


def require_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "numba") if find_spec(name) is None]
    if missing:
        raise Failure(f"{missing[0]} is not installed: pip install 'tailrace[spark]'", ExitCode.USAGE)


@contextmanager
def in_words() -> Iterator[None]:
    from pyspark.errors import PySparkException

    from tailrace.spark.options import BadOptions
    from tailrace.spark.pipelines.exact import NotExact
    from tailrace.spark.pipelines.failures import RunFailed, reason_of
    from tailrace.spark.pipelines.java import NoJava
    from tailrace.spark.pipelines.state import AlreadyRunning

    try:
        yield
    except (BadOptions, NoJava) as error:
        raise Failure(str(error), ExitCode.USAGE) from error
    except AlreadyRunning as error:
        raise Failure(str(error), ExitCode.REFUSED) from error
    except (RunFailed, NotExact) as error:
        raise Failure(str(error), ExitCode.FAILED) from error
    except PySparkException as error:
        raise Failure(reason_of(error), ExitCode.FAILED) from error
