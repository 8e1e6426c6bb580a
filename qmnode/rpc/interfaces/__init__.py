"""The interfaces as data: qm2qm (MS-MQQP), what of qmcomm (MS-MQMP) is served, and the endpoint mapper (C706)."""
