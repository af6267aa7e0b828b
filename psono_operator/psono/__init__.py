"""The Psono read path: one entry, read with a restricted API key and decrypted here.

It knows Psono's wire format and cryptography and refuses to know Kubernetes. In the order in which data
flows:

``credentials``  server URL, API key id, secret key, CA bundle, parsed from bytes
``proxies``      which proxy stands before a server
``sessions``     HTTP sessions, one per server and CA bundle
``client``       the two calls, read and inspect; answers into values or typed errors
``answers``      what an answer of the server means
``strictjson``   JSON to the letter
``sealed``       an encrypted entry and its two layers
``entry``        a decrypted entry and the selection of one value
``secretbytes``  the wrapper every secret travels in
``errors``       what can go wrong, value-free
"""
