"""Carries out removals of logs, step by step, and retries those that a disk has refused.

renamed        the files are deleted at once, also where the offset checkpoint, which still names the log, cannot be
               saved: that makes room on a full disk
and saved      the name is free
if either fails    the removal is tried again every few seconds (`Checkpointer`)
"""

import logging

from tailrace.broker.core.delayed import StartJob
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.directory.removal import DeleteJob, RemoveJob
from tailrace.log.layout.errors import StorageError

logger = logging.getLogger("tailrace.broker.background")


def finish_removal(directory: DataDirectory, job: RemoveJob, start_job: StartJob) -> None:
    """Afterwards the names are free, and the files are being deleted; or a line in the log says why not."""
    try:
        delete = job.finish()
    except StorageError as error:
        logger.error("%s: it is tried again in a while", error)
        delete = directory.begin_delete_leftovers()
    if delete is not None:
        start_job(delete, lambda: finish_deletion(delete))


def finish_deletion(job: DeleteJob) -> None:
    """Afterwards the files are gone; or a line in the log says why not."""
    try:
        job.finish()
    except StorageError as error:
        logger.error("%s: the next start tries again", error)


def remove_again(directory: DataDirectory, start_job: StartJob) -> None:
    """Afterwards the removals that have failed are under way again."""
    if failed := directory.failed_removals:
        job = directory.begin_remove(failed)
        start_job(job, lambda: finish_removal(directory, job, start_job))
