"""Looking at a node from Windows, and at Windows from here: the interface qmmgmt (MS-MQMR), with the caller's rights.

* :mod:`~qmnode.remote_management.qmmgmt`: its two methods;
* :mod:`~qmnode.remote_management.variants`: PROPVARIANT as stub data;
* :mod:`~qmnode.remote_management.properties`: the values of the machine's and of queues' properties;
* :mod:`~qmnode.remote_management.qmmgmt_server`: the checks of rights, and the audit of each action;
* :mod:`~qmnode.remote_management.client`: the other side, which reads.
"""
