"""Bytes of MS-MQMQ and MS-MQQB: one small file per family, each structure declared once as data.

The modules, with the specifications' names of their contents:

access_masks                MQQMACCESSMASK, MQQUEUEACCESSMASK, MQSITEACCESSMASK, MQENTACCESSMASK, MQCNACCESSMASK,
                            SECURITY_INFORMATION
acks                        OrderAck, FinalAck
base_header                 BaseHeader
change_notification         Change Notification Message (MS-MQCN)
debug_header                DebugHeader
guid                        GUID
internal_packets            InternalHeader, EstablishConnectionHeader, ConnectionParametersHeader,
                            EstablishConnection, ConnectionParameters, SessionAck
key_blobs                   BLOBHEADER, RSAPUBKEY, PUBLICKEYBLOB, SIMPLEBLOB
message_classes             MESSAGE_CLASS_VALUES
message_properties_header   MessagePropertiesHeader
multi_queue_format_header   MQFPublicQueueFormatName, MQFPrivateQueueFormatName, MQFDirectQueueFormatName,
                            MQFDistributionQueueFormatName, MQFFormatNameElement, MQFAddressHeader,
                            MQFSignatureHeader, MultiQueueFormatHeader
object_identifiers          OBJECTID, DL_ID, MULTICAST_ID, LPWSTR
ping                        Ping
public_keys                 MQDSPUBLICKEY, MQDSPUBLICKEYS
queue_format_types          QUEUE_FORMAT_TYPE, QUEUE_SUFFIX_TYPE
queue_format_union          QUEUE_FORMAT
queue_formats               PrivateQueueFormatNameId, DirectQueueFormatName, PublicQueueFormatName,
                            PrivateQueueFormatName
security_descriptor         ACCESS_ALLOWED_ACE, ACCESS_ALLOWED_OBJECT_ACE, Reserved ACE, ACE, ACL,
                            SECURITY_DESCRIPTOR
security_header             ProviderInfo, SecurityHeader
sequence_info               SEQUENCE_INFO
session_header              SessionHeader
sid                         SID
soap_header                 SoapHeader
stored_headers              ExtensionHeader, SubqueueHeader, ExtendedAddressHeader (MS-MQRR)
transaction_header          TransactionHeader
user_certificates           MQUSERSIGNCERT, MQUSERSIGNCERTS
user_header                 UserHeader
user_message                UserMessage
variant_types               VARENUM
names/                      path names and format names (MS-MQMQ 2.1)
property_ids                every PROPID (2.3); values of properties in property_values
error_codes                 every error code (2.4)
signature_properties        the input of digital signatures (2.5)
packets                     the kinds of packets
packet_view                 where the fields of a UserMessage are, for code that reads a few of them
fields, layout              declarations of structures; generate*, plan, construct, annotate implement them
"""
