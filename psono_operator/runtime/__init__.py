"""A generic controller runtime: list, watch, cache, queue, reconcile.

It knows Kubernetes and nothing else: no resource by name, no Psono. In the order in which data flows:

``clock``, ``errors``, ``resources``, ``gate``   the words everything else is written in
``credentials``, ``kubeconfig``, ``plugintoken``, ``transport``   who we are; one request with a deadline
``client``                                       one method per verb, on raw objects
``linebuffer``, ``watchevents``, ``backoff``, ``transforms``, ``reflector``   list-and-watch
``store``, ``notifications``, ``informer``       the local cache, its indexes and its listeners
``predicates``, ``workqueue``, ``retries``, ``controller``   from notifications to keys to reconciles
``ownwrites``                                    our own writes, recognised when they come back
``tracebacks``                                   exceptions as log lines without what they say
``lease``, ``leader``                            who may write, decided through a Lease
``recorder``                                     events about objects, best effort
``supervisor``, ``health``, ``metrics``, ``http``  the process around it
"""
