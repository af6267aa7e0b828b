"""One PsonoSecret in, one Kubernetes Secret and one status out.

The domain joins the rooms ``runtime``, ``api`` and ``psono`` and refuses to know sockets and JSON framing.
In the order in which data flows:

``resources``, ``indexes``, ``triggers``   which objects matter, and which notification concerns whom
``need``, ``memory``, ``schedule``         whether anything is to be done now, and when next
``finalizer``                              our own entry in the finalizers
``source``, ``sources``, ``psono_source``  a backend behind a small protocol, one per authentication Secret
``fetch``, ``render``                      entries, once each; then all values or none
``ownership``, ``target``                  may this Secret be written, and with which single request
``outcome``, ``failures``, ``status``      what happened, in the words of the documented reasons
``reconciler``                             the only place that knows the order
"""
