"""Topics, by the admin client of confluent-kafka: the same on any broker."""

from confluent_kafka.admin import AdminClient, NewTopic


def make_topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    admin = _admin(bootstrap)  # has to live until it has the answer
    admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=120)[name].result(120)
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    admin = _admin(bootstrap)
    admin.delete_topics([name])[name].result(60)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
