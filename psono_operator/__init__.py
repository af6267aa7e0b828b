"""Copies chosen values out of Psono into Kubernetes Secrets.

The rooms, in the order in which data flows through them:

``runtime``     watches Kubernetes and hands keys to workers; knows no resource by name
``api``         the PsonoSecret as typed data: spec, status, validation
``psono``       reads one entry from a Psono server and decrypts it
``secretsync``  joins the three: one PsonoSecret in, one Secret and one status out
``app``         the wiring diagram
``cli``         the commands
``sandbox``     a Kubernetes API server and a Psono server in memory, for the demo and the tests
"""

__version__ = "0.1.0"
