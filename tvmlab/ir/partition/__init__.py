"""Partition a graph into regions for other compilers: Relay's four passes.

The passes, in order: `MergeComposite` groups each match of a pattern into a function,
`AnnotateTarget` annotates the calls that a compiler supports, `MergeCompilerRegions` merges
annotated calls into regions, and `PartitionGraph` moves each region into a global function.
`LowerRegions` then generates code for these functions. Upstream's `FuseOpsByPattern` and
`MergeCompositeFunctions` make other regions than Relay's passes.
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
