"""What is done once for a queue, before it is worked on: blocking calls."""

from tailrace.client.admin.configs import alter_group_configs, group_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.share.groups import describe

_RESET = "share.auto.offset.reset"
_OURS = "tailrace.share.retry.delay.ms"  # a config of groups that other brokers do not have
_FROM_GROUP = 8  # where a value was set: for this group


def prepare(cluster: Cluster, group: str) -> bool:
    """Has a group that does not exist yet begin with the first message of its topics. Returns whether the brokers are
    tailrace: lease times and delays of a request's own need that. Raises ClientError.
    """
    configs = group_configs(cluster, group)
    reset = configs.get(_RESET)
    if reset is not None and reset.source != _FROM_GROUP and describe(cluster, group) is None:
        alter_group_configs(cluster, group, {_RESET: "earliest"})
    return _OURS in configs
