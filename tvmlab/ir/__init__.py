"""The basis of the other packages: operators, graphs, patterns, partitions and Relay text.

`dialect` registers operators with TVM, and `table` maps Relay's operators to Relax's and back.
`graph` walks and rebuilds expressions, `module` turns graphs into bindings, `patterns` matches and
rewrites, `partition` has Relay's four passes, and `text` reads and prints Relay text.
"""
