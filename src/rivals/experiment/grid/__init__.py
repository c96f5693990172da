"""Many runs: methods × seeds × benchmarks, on the cores of this machine or on a cluster.

`comparison.compare` is the function behind `rivals compare`.
"""
