"""Many runs: grids, seeds and their statistics, worker processes, tables and plots of a sweep."""
