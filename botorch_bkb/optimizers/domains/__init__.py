r"""Where an optimizer looks for its picks: a finite set of arms, a box, or a tree over a box."""

from botorch_bkb.optimizers.domains.arms import Arms
from botorch_bkb.optimizers.domains.box import Box
from botorch_bkb.optimizers.domains.domain import Domain, Situation, Strategy
from botorch_bkb.optimizers.domains.tree import Tree

__all__ = ["Arms", "Box", "Domain", "Situation", "Strategy", "Tree"]
