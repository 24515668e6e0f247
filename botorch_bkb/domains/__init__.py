r"""Domains: a finite set of arms, a box, or a tree of cells over a box. Nothing of the belief."""

from botorch_bkb.domains.arms import Arms
from botorch_bkb.domains.box import Box
from botorch_bkb.domains.domain import Domain
from botorch_bkb.domains.partition import PartitionTree, kernel_metric
from botorch_bkb.domains.suggestion import Suggestion
from botorch_bkb.domains.tree import Tree
from botorch_bkb.domains.trust_region import TrustRegion

__all__ = [
    "Arms",
    "Box",
    "Domain",
    "PartitionTree",
    "Suggestion",
    "Tree",
    "TrustRegion",
    "kernel_metric",
]
