"""The PsonoSecret as data: names, spec, status, conditions, validation. No I/O of any kind.

``names``       group, version, finalizer, annotations: everything others may rely on
``duration``    Go durations
``spec``        what a user asks for, validated by the same rules as the CRD
``status``      what the operator reports
``conditions``  reasons, and when a condition's transition time moves
``crd``         the CustomResourceDefinition that ships with this version
"""
