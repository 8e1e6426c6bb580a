"""A survey of an estate of Windows Message Queuing: what is there, how hard it is to move, and in which order.

It reads and changes nothing.

* :mod:`~mqenterprise.survey.estate`: what is known of machines and queues, and where it comes from;
* :mod:`~mqenterprise.survey.directories`: Active Directory, also of several domains;
* :mod:`~mqenterprise.survey.machines`: each queue manager over MS-MQMR and RemoteRead;
* :mod:`~mqenterprise.survey.exports`: files of PowerShell, of spreadsheets and of NServiceBus;
* :mod:`~mqenterprise.survey.judgement`: features that nodes do not have, risk, effort, and the order of moves;
* :mod:`~mqenterprise.survey.declaring`: the declaration, with comments where it guesses;
* :mod:`~mqenterprise.survey.report` and :mod:`~mqenterprise.survey.report`: the report as JSON and as a page;
* :mod:`~mqenterprise.survey.run`: all of it, in order.
"""
