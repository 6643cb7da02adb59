from tailrace.broker.core.clients import Clients


def test_what_is_to_be_done_at_the_end_of_a_connection_is_done_once_and_in_order() -> None:
    connection = Clients(lambda: 0).connect()
    done: list[str] = []
    first, second, third = (lambda: done.append("first"), lambda: done.append("second"), lambda: done.append("third"))
    for action in (first, second, third, first):
        connection.when_closed(action)
    connection.forget(second)
    assert connection.close()
    assert done == ["first", "third"]
    assert connection.is_closed
    assert not connection.close()
    assert done == ["first", "third"]


def test_a_connection_for_which_nothing_is_to_be_done_says_so() -> None:
    connection = Clients(lambda: 0).connect()
    action = list[int]().clear
    connection.when_closed(action)
    connection.forget(action)
    connection.forget(action)
    assert not connection.close()
