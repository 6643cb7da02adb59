"""Failures of the Spark verbs as messages: a missing extra, no Java, wrong options, a failed query."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tailrace.cli.common.output import ExitCode, Failure


def require_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "numba") if find_spec(name) is None]
    if missing:
        raise Failure(f"{missing[0]} is not installed: pip install 'tailrace[spark]'", ExitCode.USAGE)


@contextmanager
def in_words() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from tailrace.spark.pipelines.failures import RunFailed, is_of_client, reason_of
    from tailrace.spark.pipelines.pipeline_file import place_of
    from tailrace.spark.pipelines.replay.exact_replay import NotExact
    from tailrace.spark.pipelines.session.java import NoJava
    from tailrace.spark.pipelines.state.state import AlreadyRunning
    from tailrace.spark.pipelines.stores import StoreError
    from tailrace.spark.source.options import BadOptions

    try:
        yield
    except (BadOptions, NoJava) as error:
        raise Failure(str(error), ExitCode.USAGE) from error
    except AlreadyRunning as error:
        raise Failure(str(error), ExitCode.REFUSED) from error
    except RunFailed as error:
        raise Failure(str(error), _code(error.__cause__ or error)) from error
    except (NotExact, StoreError) as error:
        raise Failure(str(error), ExitCode.FAILED) from error
    except Failure:
        raise
    except Exception as error:
        place = place_of(error)
        if place is not None:  # what is wrong there is the user's to see
            raise Failure(f"{place}: {type(error).__name__}: {reason_of(error)}") from error
        if is_of_client(error) or isinstance(error, PySparkException | Py4JJavaError):
            raise Failure(reason_of(error), _code(error)) from error
        raise


def _code(error: BaseException) -> ExitCode:
    from tailrace.spark.pipelines.failures import Kind, kind_of

    codes = {
        Kind.NOT_REACHABLE: ExitCode.NOT_REACHABLE,
        Kind.NOT_FOUND: ExitCode.NOT_FOUND,
        Kind.OPTIONS: ExitCode.USAGE,
        Kind.OTHER: ExitCode.FAILED,
    }
    return codes[kind_of(error)]
