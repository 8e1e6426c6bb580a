"""Bytes of MS-MQMQ and MS-MQQB: each structure declared once, as data.

The modules, with the specifications' names of their contents:

user_message           UserMessage and its headers: BaseHeader, UserHeader, MessagePropertiesHeader, SecurityHeader,
                       ProviderInfo, TransactionHeader, SessionHeader, SoapHeader, DebugHeader,
                       MultiQueueFormatHeader, MQFSignatureHeader, MQFAddressHeader, MQFFormatNameElement,
                       MQFPublicQueueFormatName, MQFPrivateQueueFormatName, MQFDirectQueueFormatName,
                       MQFDistributionQueueFormatName, PrivateQueueFormatNameId, DirectQueueFormatName,
                       PublicQueueFormatName, PrivateQueueFormatName
packets                InternalHeader, EstablishConnectionHeader, ConnectionParametersHeader, EstablishConnection,
                       ConnectionParameters, SessionAck, OrderAck, FinalAck, Ping
packet_view            where the fields of a UserMessage are, for code that reads a few of them
signature_properties   the input of digital signatures (2.5)
stored_headers         ExtensionHeader, SubqueueHeader, ExtendedAddressHeader (MS-MQRR)
change_notification    Change Notification Message (MS-MQCN)
conformance            the rules that a packet MUST keep beyond its layout
names                  path names and format names (MS-MQMQ 2.1)
queue_format           QUEUE_FORMAT, OBJECTID, DL_ID, MULTICAST_ID, LPWSTR
security_descriptor    SID, ACCESS_ALLOWED_ACE, ACCESS_ALLOWED_OBJECT_ACE, Reserved ACE, ACE, ACL,
                       SECURITY_DESCRIPTOR, MQQMACCESSMASK, MQQUEUEACCESSMASK, MQSITEACCESSMASK, MQENTACCESSMASK,
                       MQCNACCESSMASK, SECURITY_INFORMATION
public_keys            BLOBHEADER, RSAPUBKEY, MQDSPUBLICKEY, MQDSPUBLICKEYS, PUBLICKEYBLOB, SIMPLEBLOB, MQUSERSIGNCERT,
                       MQUSERSIGNCERTS
guid                   GUID
enumerations           MESSAGE_CLASS_VALUES, QUEUE_FORMAT_TYPE, QUEUE_SUFFIX_TYPE, VARENUM, numbers of security
properties             every PROPID (2.3), and the values of properties; SEQUENCE_INFO
error_codes            every error code (2.4); errors of the operating system as HRESULTs
fields, layout         declarations of structures; generate makes their parsers and writers
"""
