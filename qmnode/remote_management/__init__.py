"""Looking at a node from Windows: the interface qmmgmt (MS-MQMR), with the caller's own rights.

* :mod:`~qmnode.remote_management.qmmgmt`: its two methods;
* :mod:`~qmnode.remote_management.variants`: PROPVARIANT as stub data;
* :mod:`~qmnode.remote_management.properties`: the values of the machine's and of queues' properties;
* :mod:`~qmnode.remote_management.qmmgmt_server`: the checks of rights, and the audit of each action.
"""
