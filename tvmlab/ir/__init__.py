"""The base of every room above: operators, graphs, patterns, partitions and Relay's text.

`dialect` registers operators with TVM, and `table` says how Relay and Relax spell each of them.
`graph` walks and rebuilds expressions, `module` turns graphs into bindings, `patterns` matches and
rewrites, `partition` has Relay's four passes, and `text` reads and prints Relay's text.
"""
