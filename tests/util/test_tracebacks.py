"""An error loses its frames, and so do those that have caused it."""

import pytest

from tailrace.util import tracebacks


def test_frames_of_an_error_and_of_its_causes_are_forgotten() -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            try:
                raise ValueError("second")
            except ValueError:
                raise TypeError("third") from error

    with pytest.raises(TypeError) as raised:
        fail()
    error = raised.value
    causes = [error, error.__cause__, error.__context__]
    assert all(one is not None and one.__traceback__ is not None for one in causes)
    tracebacks.forget(error)
    assert [one.__traceback__ for one in causes if one is not None] == [None] * 3
