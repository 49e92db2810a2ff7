"""Run jobs: lease, collect, commit, finish."""
