"""The pipelines of a Python file."""

import os
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tailrace.spark.options import BadOptions
from tailrace.spark.pipelines.pipeline import Pipeline


def pipelines_in(path: Path, names: Iterable[str] = ()) -> list[Pipeline]:
    """Those with these names, or all, in the order of the file. Raises BadOptions where there is none, and whatever the
    file raises.
    """
    found = {one.name: one for one in vars(_loaded(path)).values() if isinstance(one, Pipeline)}
    if not found:
        raise BadOptions(f"{path} has no pipeline in it: a function with @tailrace.spark.pipeline(…)")
    if missing := [name for name in names if name not in found]:
        raise BadOptions(f"{path} has no pipeline {missing[0]!r}; there are {', '.join(found)}")
    return [found[name] for name in dict.fromkeys(names)] or list(found.values())


def _loaded(path: Path) -> ModuleType:
    """The file, which may import what is beside it, in Spark's workers, too. What they need of the file itself is sent
    to them, as that of a program is.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (beside, os.environ.get("PYTHONPATH"))))
    name = f"_tailrace_pipelines_{path.stem}"
    spec = spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise BadOptions(f"{path} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
