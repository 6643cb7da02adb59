"""Errors without their tracebacks, for errors that are kept, or that are in a cycle with what they are about."""


def forget(error: BaseException) -> None:
    """Removes the frames from an error and from those that have caused it.

    An error that is handed to a future has the frames that it has passed, and these may have the future: then all that
    they are about, such as the body of a request, stays in memory until the next collection of garbage.
    """
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one.__traceback__ is not None:
            one.__traceback__ = None
            left += [one.__cause__, one.__context__]
