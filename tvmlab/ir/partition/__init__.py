"""Cut a graph into the parts that other compilers take: Relay's four passes.

In order: `MergeComposite` makes one function of each match of a pattern, `AnnotateTarget` marks
what a compiler supports, `MergeCompilerRegions` joins what it marked into regions, and
`PartitionGraph` lifts each region into a global function of its own. `LowerRegions` takes those
functions on to code. Upstream's `FuseOpsByPattern` and `MergeCompositeFunctions` leave other
regions than Relay's passes.
"""

from .passes import (
    AnnotateTarget,
    InlineRegions,
    LowerRegions,
    MergeComposite,
    compiler_begin,
    compiler_end,
)
from .regions import MergeCompilerRegions, PartitionGraph

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
