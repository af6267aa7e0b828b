"""The commands: ``run``, ``demo``, ``crd``, ``finalize``.

They parse words into settings, start what was asked for, and turn its end into an exit code: 0 for a clean
stop, 1 for a failure, 2 for wrong usage or configuration, each with one line that says what to do.
"""
