"""Carries out removals of logs, step by step, and retries those that the disk has refused.

renamed        the files are deleted at once, even if the offset checkpoint, which still names the log, cannot be
               saved: that frees space on a full disk
and saved      the name can be used again if either fails    the removal is retried every few seconds (`Checkpointer`)
"""

import logging

from tailrace.broker.core.delayed import StartJob
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.directory.removal import DeleteJob, RemoveJob
from tailrace.log.layout.errors import StorageError

logger = logging.getLogger("tailrace.broker.background")


def finish_removal(directory: DataDirectory, job: RemoveJob, start_job: StartJob) -> None:
    """Makes the names usable again, and starts deleting the files. Logs why if that fails."""
    try:
        delete = job.finish()
    except StorageError as error:
        logger.error("%s. It will be retried", error)
        delete = directory.begin_delete_leftovers()
    if delete is not None:
        start_job(delete, lambda: finish_deletion(delete))


def finish_deletion(job: DeleteJob) -> None:
    """Logs why if the files could not be deleted."""
    try:
        job.finish()
    except StorageError as error:
        logger.error("%s. The next start retries it", error)


def remove_again(directory: DataDirectory, start_job: StartJob) -> None:
    """Starts the removals that have failed again."""
    if failed := directory.failed_removals:
        job = directory.begin_remove(failed)
        start_job(job, lambda: finish_removal(directory, job, start_job))
