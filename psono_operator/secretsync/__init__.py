"""One PsonoSecret in, one Kubernetes Secret and one status out.

The domain joins the rooms ``runtime``, ``api`` and ``psono`` and refuses to know sockets and JSON framing.
In the order in which data flows:

``resources``, ``indexes``, ``triggers``       which objects matter, and which notification concerns whom
``visit``, ``need``, ``memory``, ``schedule``  whether anything is to be done now, and when next
``finalizer``                                  our own entry in the finalizers
``source``, ``sources``                        a backend behind a small protocol, one per credentials
``psono_source``, ``refusals``                 Psono as that backend, and what its bare refusals mean
``fetch``, ``render``                          entries, once each; then all values or none
``target``, ``secrettypes``, ``managedkeys``, ``provenance``   what a target is, and whose its keys are
``delivery``                                   a visit's values on their way, if they are still asked for
``owner_policy``, ``merge_policy``, ``writer`` may it be written, and with which single request
``release``, ``releaser``, ``cleanup``         letting go of targets, and of the PsonoSecret itself
``outcome``, ``failures``, ``attempts``        what happened, in the documented words, and what follows
``status``, ``reporter``                       what is said of it
``reconciler``                                 the only place that knows the order
"""
