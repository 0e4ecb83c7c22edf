"""Pure orders: sample index -> extents. Nothing here opens a file, reads a clock or keeps global random state."""

from tokenreel.order.protocol import Hits, Node, Order
from tokenreel.order.stream import StreamOrder

__all__ = ["Hits", "Node", "Order", "StreamOrder"]
