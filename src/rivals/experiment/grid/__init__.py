"""Many runs: methods x seeds x benchmarks, on the cores of this machine or on a cluster."""
