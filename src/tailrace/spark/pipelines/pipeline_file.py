"""Finds the pipelines that a Python file defines."""

import os
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tailrace.spark.pipelines.pipeline import Pipeline
from tailrace.spark.source.options import BadOptions

_PREFIX = "_tailrace_pipelines_"  # of the modules that files become


def pipelines_in(path: Path, names: Iterable[str] = ()) -> list[Pipeline]:
    """Those with these names, or all, in the order of the file. Raises BadOptions where there is none, where two have
    one name, and where the file cannot be run.
    """
    found: dict[str, Pipeline] = {}
    for one in vars(_loaded(path)).values():
        if isinstance(one, Pipeline) and found.setdefault(one.name, one) is not one:
            raise BadOptions(
                f"{path} has two pipelines {one.name!r}: name= tells them apart, and what they keep on disk"
            )
    if not found:
        raise BadOptions(f"{path} has no pipeline in it: a function with @tailrace.spark.pipeline(…)")
    if missing := [name for name in names if name not in found]:
        raise BadOptions(f"{path} has no pipeline {missing[0]!r}; there are {', '.join(found)}")
    return [found[name] for name in dict.fromkeys(names)] or list(found.values())


def place_of(error: BaseException) -> str | None:
    """The line of a file with pipelines where it was raised, or from which it was called."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}:{error.lineno}"
    place, trace = None, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).startswith(_PREFIX):
            place = f"{frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _loaded(path: Path) -> ModuleType:
    """The file, which may import what is beside it, in Spark's workers, too. What they need of the file itself is sent
    to them, as that of a program is.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (beside, os.environ.get("PYTHONPATH"))))
    name = f"{_PREFIX}{path.stem}"
    spec = spec_from_file_location(name, path)
    if not path.exists():
        raise BadOptions(f"{path} does not exist")
    if not path.is_file() or spec is None or spec.loader is None:
        raise BadOptions(f"{path} is not a Python file: its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        said = str(error) if isinstance(error, BadOptions) else f"{type(error).__name__}: {error}"
        raise BadOptions(f"{place_of(error) or path}: {said}") from error
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
