"""Cut a graph into the parts that other compilers take: Relay's four passes.

In order: `MergeComposite` makes one function of each match of a pattern, `AnnotateTarget` marks
what a compiler supports, `MergeCompilerRegions` joins what it marked into regions, and
`PartitionGraph` lifts each region into a global function of its own. `LowerRegions` takes those
functions on to code.

Upstream's counterparts are `FuseOpsByPattern` and `MergeCompositeFunctions`; they leave other
regions than Relay did in the cases that `tvmlab.ir.partition.passes` names.
"""

from .annotate import AnnotateTarget, compiler_begin, compiler_end
from .partition_graph import PartitionGraph
from .passes import InlineRegions, LowerRegions, MergeComposite
from .regions import MergeCompilerRegions

__all__ = [
    "AnnotateTarget",
    "InlineRegions",
    "LowerRegions",
    "MergeCompilerRegions",
    "MergeComposite",
    "PartitionGraph",
    "compiler_begin",
    "compiler_end",
]
