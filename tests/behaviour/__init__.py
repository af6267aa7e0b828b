"""What a user notices: the whole operator against an API server and a Psono server.

Each test runs twice, on the sandbox (virtual time) and on a real control plane (real time); see ``world``.
"""
