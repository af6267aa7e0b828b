"""A proxy on loopback that stands between the operator and a server and does what networks do on bad days.

``http1`` reads and writes HTTP/1.1, ``proxy`` listens, forwards and picks the rule for each request,
``faults`` holds what can go wrong. It knows nothing of the operator.
"""
