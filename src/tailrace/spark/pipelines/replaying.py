"""`.replay`: a pipeline over a closed range of its topics, or over the batches that live had."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.pipelines.pipeline import Pipeline


def replay(pipeline: "Pipeline", *arguments: Any, **settings: Any) -> Any:
    raise NotImplementedError
