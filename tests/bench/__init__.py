"""Benchmarks: the operator as a whole process beside a floor that makes only the unavoidable calls.

`python -m tests.bench`, or `make bench`. Nothing here is a test; the figures to quote are ratios of one run.
"""
