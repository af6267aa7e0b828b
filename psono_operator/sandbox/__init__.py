"""A Kubernetes API server and a Psono server in memory, so that demo and tests need neither.

Nothing in here imports the operator's code: a mistake cannot be made once on both sides of a wire.
"""
