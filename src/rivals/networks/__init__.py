"""Networks, each in three kinds: of rivals, dense, and of a ticket's shape."""

from rivals.networks import alexnet, lenet, resnet, small
from rivals.networks.dense_network import DenseNetwork
from rivals.networks.kinds import Dense, Kind, Rival
from rivals.networks.network import Network
from rivals.networks.plan import NetworkPlan, NetworkSettings, networks
from rivals.networks.rival_network import RivalNetwork

__all__ = [
    "Dense", "DenseNetwork", "Kind", "Network", "NetworkPlan", "NetworkSettings", "Rival",
    "RivalNetwork", "alexnet", "lenet", "networks", "resnet", "small",
]  # fmt: skip
