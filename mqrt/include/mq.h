/*
 * mq.h: the C interface of Message Queuing, for programs on Linux beside a node.
 *
 * Written from the public documentation of Message Queuing. Names, numbers and contracts are those that it gives;
 * `mq_values.h` has the error codes, property identifiers and rights. What differs on Linux:
 *
 *  - WCHAR has 16 bits: write u"text" in C11.
 *  - OVERLAPPED.hEvent is the descriptor of an eventfd, as a HANDLE. It becomes readable when the operation ends.
 *  - QMNODE_SOCKET names the socket of the node; without it, /run/qmnode/qmnode.sock.
 *  - QMNODE_DIRECTORY_USER names the user of the directory as whom public queues and certificates are written there, and
 *    QMNODE_DIRECTORY_PASSWORD_FILE a file of mode 0600 with the password.
 *  - A handle that was opened before the node was started again fails with MQ_ERROR_STALE_HANDLE: close it, open again.
 */
#ifndef MQ_H
#define MQ_H

#include <stddef.h>
#include <stdint.h>
#include <uchar.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MQRT_API
#define MQRT_API __attribute__((visibility("default")))
#endif

typedef int32_t HRESULT;
typedef uint32_t DWORD;
typedef uint32_t ULONG;
typedef uint16_t WORD;
typedef uint16_t USHORT;
typedef int32_t LONG;
typedef int16_t SHORT;
typedef uint8_t UCHAR;
typedef int32_t BOOL;
typedef int16_t VARIANT_BOOL;
typedef void *HANDLE;
typedef char16_t WCHAR;
typedef WCHAR *LPWSTR;
typedef const WCHAR *LPCWSTR;
typedef uintptr_t ULONG_PTR;
typedef uint16_t VARTYPE;

typedef struct GUID {
    uint32_t Data1;
    uint16_t Data2;
    uint16_t Data3;
    uint8_t Data4[8];
} GUID, CLSID, IID;

typedef struct OVERLAPPED {
    ULONG_PTR Internal;     /* the HRESULT; MQ_INFORMATION_OPERATION_PENDING until it is known */
    ULONG_PTR InternalHigh;
    DWORD Offset;
    DWORD OffsetHigh;
    HANDLE hEvent;          /* the descriptor of an eventfd, or NULL */
} OVERLAPPED, *LPOVERLAPPED;

#ifndef INFINITE
#define INFINITE 0xFFFFFFFFu
#endif
#ifndef FAILED
#define SUCCEEDED(hr) ((HRESULT)(hr) >= 0)
#define FAILED(hr) ((HRESULT)(hr) < 0)
#endif

#include "mq_values.h"

#define E_NOINTERFACE ((HRESULT)0x80004002)
#define E_POINTER ((HRESULT)0x80004003)
#define E_OUTOFMEMORY ((HRESULT)0x8007000E)
#define XACT_E_NOTRANSACTION ((HRESULT)0x8004D00E)
#define XACT_E_NOTSUPPORTED ((HRESULT)0x8004D00F)

/* ---- Properties ---- */

typedef DWORD MSGPROPID, QUEUEPROPID, QMPROPID, MGMTPROPID, PROPID;

typedef struct CAUB { ULONG cElems; UCHAR *pElems; } CAUB;
typedef struct CAUI { ULONG cElems; USHORT *pElems; } CAUI;
typedef struct CAL { ULONG cElems; LONG *pElems; } CAL;
typedef struct CAUL { ULONG cElems; ULONG *pElems; } CAUL;
typedef struct CACLSID { ULONG cElems; CLSID *pElems; } CACLSID;
typedef struct CALPWSTR { ULONG cElems; LPWSTR *pElems; } CALPWSTR;
typedef struct BLOB { ULONG cbSize; UCHAR *pBlobData; } BLOB;

typedef struct MQPROPVARIANT MQPROPVARIANT, PROPVARIANT;
typedef struct CAPROPVARIANT { ULONG cElems; MQPROPVARIANT *pElems; } CAPROPVARIANT;

struct MQPROPVARIANT {
    VARTYPE vt;
    WORD wReserved1;
    WORD wReserved2;
    WORD wReserved3;
    union {
        UCHAR bVal;
        SHORT iVal;
        USHORT uiVal;
        VARIANT_BOOL boolVal;
        LONG lVal;
        ULONG ulVal;
        int64_t hVal;
        uint64_t uhVal;
        CLSID *puuid;
        BLOB blob;
        LPWSTR pwszVal;
        CAUB caub;
        CAUI caui;
        CAL cal;
        CAUL caul;
        CACLSID cauuid;
        CALPWSTR calpwstr;
        CAPROPVARIANT capropvar;
    };
};

#define MQ_PROPERTIES(name, id) \
    typedef struct name { DWORD cProp; id *aPropID; MQPROPVARIANT *aPropVar; HRESULT *aStatus; } name
MQ_PROPERTIES(MQMSGPROPS, MSGPROPID);
MQ_PROPERTIES(MQQUEUEPROPS, QUEUEPROPID);
MQ_PROPERTIES(MQQMPROPS, QMPROPID);
MQ_PROPERTIES(MQMGMTPROPS, MGMTPROPID);
#undef MQ_PROPERTIES

/* Properties of messages. */
#define PROPID_M_CLASS 1                    /* VT_UI2 */
#define PROPID_M_MSGID 2                    /* VT_UI1 | VT_VECTOR */
#define PROPID_M_CORRELATIONID 3            /* VT_UI1 | VT_VECTOR */
#define PROPID_M_PRIORITY 4                 /* VT_UI1 */
#define PROPID_M_DELIVERY 5                 /* VT_UI1 */
#define PROPID_M_ACKNOWLEDGE 6              /* VT_UI1 */
#define PROPID_M_JOURNAL 7                  /* VT_UI1 */
#define PROPID_M_APPSPECIFIC 8              /* VT_UI4 */
#define PROPID_M_BODY 9                     /* VT_UI1 | VT_VECTOR */
#define PROPID_M_BODY_SIZE 10               /* VT_UI4 */
#define PROPID_M_LABEL 11                   /* VT_LPWSTR */
#define PROPID_M_LABEL_LEN 12               /* VT_UI4 */
#define PROPID_M_TIME_TO_REACH_QUEUE 13     /* VT_UI4 */
#define PROPID_M_TIME_TO_BE_RECEIVED 14     /* VT_UI4 */
#define PROPID_M_RESP_QUEUE 15              /* VT_LPWSTR */
#define PROPID_M_RESP_QUEUE_LEN 16          /* VT_UI4 */
#define PROPID_M_ADMIN_QUEUE 17             /* VT_LPWSTR */
#define PROPID_M_ADMIN_QUEUE_LEN 18         /* VT_UI4 */
#define PROPID_M_VERSION 19                 /* VT_UI4 */
#define PROPID_M_SENDERID 20                /* VT_UI1 | VT_VECTOR */
#define PROPID_M_SENDERID_LEN 21            /* VT_UI4 */
#define PROPID_M_SENDERID_TYPE 22           /* VT_UI4 */
#define PROPID_M_PRIV_LEVEL 23              /* VT_UI4 */
#define PROPID_M_AUTH_LEVEL 24              /* VT_UI4 */
#define PROPID_M_AUTHENTICATED 25           /* VT_UI1 */
#define PROPID_M_HASH_ALG 26                /* VT_UI4 */
#define PROPID_M_ENCRYPTION_ALG 27          /* VT_UI4 */
#define PROPID_M_SENDER_CERT 28             /* VT_UI1 | VT_VECTOR */
#define PROPID_M_SENDER_CERT_LEN 29         /* VT_UI4 */
#define PROPID_M_SRC_MACHINE_ID 30          /* VT_CLSID */
#define PROPID_M_SENTTIME 31                /* VT_UI4 */
#define PROPID_M_ARRIVEDTIME 32             /* VT_UI4 */
#define PROPID_M_DEST_QUEUE 33              /* VT_LPWSTR */
#define PROPID_M_DEST_QUEUE_LEN 34          /* VT_UI4 */
#define PROPID_M_EXTENSION 35               /* VT_UI1 | VT_VECTOR */
#define PROPID_M_EXTENSION_LEN 36           /* VT_UI4 */
#define PROPID_M_SECURITY_CONTEXT 37        /* VT_UI4 */
#define PROPID_M_CONNECTOR_TYPE 38          /* VT_CLSID */
#define PROPID_M_XACT_STATUS_QUEUE 39       /* VT_LPWSTR */
#define PROPID_M_XACT_STATUS_QUEUE_LEN 40   /* VT_UI4 */
#define PROPID_M_TRACE 41                   /* VT_UI1 */
#define PROPID_M_BODY_TYPE 42               /* VT_UI4 */
#define PROPID_M_DEST_SYMM_KEY 43           /* VT_UI1 | VT_VECTOR */
#define PROPID_M_DEST_SYMM_KEY_LEN 44       /* VT_UI4 */
#define PROPID_M_SIGNATURE 45               /* VT_UI1 | VT_VECTOR */
#define PROPID_M_SIGNATURE_LEN 46           /* VT_UI4 */
#define PROPID_M_PROV_TYPE 47               /* VT_UI4 */
#define PROPID_M_PROV_NAME 48               /* VT_LPWSTR */
#define PROPID_M_PROV_NAME_LEN 49           /* VT_UI4 */
#define PROPID_M_FIRST_IN_XACT 50           /* VT_UI1 */
#define PROPID_M_LAST_IN_XACT 51            /* VT_UI1 */
#define PROPID_M_XACTID 52                  /* VT_UI1 | VT_VECTOR */
#define PROPID_M_AUTHENTICATED_EX 53        /* VT_UI1 */
#define PROPID_M_RESP_FORMAT_NAME 54        /* VT_LPWSTR */
#define PROPID_M_RESP_FORMAT_NAME_LEN 55    /* VT_UI4 */
#define PROPID_M_DEST_FORMAT_NAME 58        /* VT_LPWSTR */
#define PROPID_M_DEST_FORMAT_NAME_LEN 59    /* VT_UI4 */
#define PROPID_M_LOOKUPID 60                /* VT_UI8 */
#define PROPID_M_SOAP_ENVELOPE 61           /* VT_LPWSTR */
#define PROPID_M_SOAP_ENVELOPE_LEN 62       /* VT_UI4 */
#define PROPID_M_COMPOUND_MESSAGE 63        /* VT_UI1 | VT_VECTOR */
#define PROPID_M_COMPOUND_MESSAGE_SIZE 64   /* VT_UI4 */
#define PROPID_M_SOAP_HEADER 65             /* VT_LPWSTR */
#define PROPID_M_SOAP_BODY 66               /* VT_LPWSTR */
#define PROPID_M_DEADLETTER_QUEUE 67        /* VT_LPWSTR */
#define PROPID_M_DEADLETTER_QUEUE_LEN 68    /* VT_UI4 */
#define PROPID_M_ABORT_COUNT 69             /* VT_UI4 */
#define PROPID_M_MOVE_COUNT 70              /* VT_UI4 */
#define PROPID_M_LAST_MOVE_TIME 75          /* VT_UI4 */

#define PROPID_M_MSGID_SIZE 20
#define PROPID_M_CORRELATIONID_SIZE 20
#define PROPID_M_XACTID_SIZE 20

#define MQ_MIN_PRIORITY 0
#define MQ_MAX_PRIORITY 7
#define DEFAULT_M_PRIORITY 3
#define MQMSG_DELIVERY_EXPRESS 0
#define MQMSG_DELIVERY_RECOVERABLE 1
#define MQMSG_ACKNOWLEDGMENT_NONE 0x00
#define MQMSG_ACKNOWLEDGMENT_POS_ARRIVAL 0x01
#define MQMSG_ACKNOWLEDGMENT_POS_RECEIVE 0x02
#define MQMSG_ACKNOWLEDGMENT_NEG_ARRIVAL 0x04
#define MQMSG_ACKNOWLEDGMENT_NEG_RECEIVE 0x08
#define MQMSG_ACKNOWLEDGMENT_NACK_REACH_QUEUE 0x04
#define MQMSG_ACKNOWLEDGMENT_FULL_REACH_QUEUE 0x05
#define MQMSG_ACKNOWLEDGMENT_NACK_RECEIVE 0x0C
#define MQMSG_ACKNOWLEDGMENT_FULL_RECEIVE 0x0E
#define MQMSG_JOURNAL_NONE 0
#define MQMSG_DEADLETTER 1
#define MQMSG_JOURNAL 2
#define MQMSG_TRACE_NONE 0
#define MQMSG_SEND_ROUTE_TO_REPORT_QUEUE 1
#define MQMSG_SENDERID_TYPE_NONE 0
#define MQMSG_SENDERID_TYPE_SID 1
#define MQMSG_PRIV_LEVEL_NONE 0
#define MQMSG_PRIV_LEVEL_BODY_BASE 1
#define MQMSG_PRIV_LEVEL_BODY_ENHANCED 3
#define MQMSG_PRIV_LEVEL_BODY_AES 5
#define MQMSG_AUTH_LEVEL_NONE 0
#define MQMSG_AUTH_LEVEL_ALWAYS 1
#define MQMSG_AUTH_LEVEL_SIG10 2
#define MQMSG_AUTH_LEVEL_SIG20 4
#define MQMSG_AUTH_LEVEL_SIG30 8
#define MQMSG_NOT_FIRST_IN_XACT 0
#define MQMSG_FIRST_IN_XACT 1
#define MQMSG_NOT_LAST_IN_XACT 0
#define MQMSG_LAST_IN_XACT 1
#define LONG_LIVED 0xFFFFFFFEu

#define MQ_JOURNAL_NONE 0
#define MQ_JOURNAL 1
#define MQ_AUTHENTICATE_NONE 0
#define MQ_AUTHENTICATE 1
#define MQ_PRIV_LEVEL_NONE 0
#define MQ_PRIV_LEVEL_OPTIONAL 1
#define MQ_PRIV_LEVEL_BODY 2
#define MQ_TRANSACTIONAL_NONE 0
#define MQ_TRANSACTIONAL 1
#define MQ_MAX_Q_NAME_LEN 124
#define MQ_MAX_Q_LABEL_LEN 124
#define MQ_MAX_MSG_LABEL_LEN 249

/* ---- Opening, sending, receiving ---- */

typedef HANDLE QUEUEHANDLE;

#define MQ_RECEIVE_ACCESS 0x00000001
#define MQ_SEND_ACCESS 0x00000002
#define MQ_MOVE_ACCESS 0x00000004
#define MQ_PEEK_ACCESS 0x00000020
#define MQ_ADMIN_ACCESS 0x00000080
#define MQ_DENY_NONE 0
#define MQ_DENY_RECEIVE_SHARE 1

#define MQ_ACTION_RECEIVE 0x00000000u
#define MQ_ACTION_PEEK_CURRENT 0x80000000u
#define MQ_ACTION_PEEK_NEXT 0x80000001u

#define MQ_LOOKUP_PEEK_CURRENT 0x40000010u
#define MQ_LOOKUP_PEEK_NEXT 0x40000011u
#define MQ_LOOKUP_PEEK_PREV 0x40000012u
#define MQ_LOOKUP_PEEK_FIRST 0x40000014u
#define MQ_LOOKUP_PEEK_LAST 0x40000018u
#define MQ_LOOKUP_RECEIVE_CURRENT 0x40000020u
#define MQ_LOOKUP_RECEIVE_NEXT 0x40000021u
#define MQ_LOOKUP_RECEIVE_PREV 0x40000022u
#define MQ_LOOKUP_RECEIVE_FIRST 0x40000024u
#define MQ_LOOKUP_RECEIVE_LAST 0x40000028u

/* An internal transaction: an object with a table of functions, as COM lays it out. */
typedef struct BOID { UCHAR rgb[16]; } BOID;
typedef struct XACTTRANSINFO {
    BOID uow;
    LONG isoLevel;
    ULONG isoFlags;
    DWORD grfTCSupported;
    DWORD grfRMSupported;
    DWORD grfTCSupportedRetaining;
    DWORD grfRMSupportedRetaining;
} XACTTRANSINFO;
typedef struct ITransaction ITransaction;
typedef struct ITransactionVtbl {
    HRESULT (*QueryInterface)(ITransaction *self, const IID *iid, void **found);
    ULONG (*AddRef)(ITransaction *self);
    ULONG (*Release)(ITransaction *self); /* the last one aborts what was not committed */
    HRESULT (*Commit)(ITransaction *self, BOOL fRetaining, DWORD grfTC, DWORD grfRM);
    HRESULT (*Abort)(ITransaction *self, BOID *pboidReason, BOOL fRetaining, BOOL fAsync);
    HRESULT (*GetTransactionInfo)(ITransaction *self, XACTTRANSINFO *pinfo);
} ITransactionVtbl;
struct ITransaction { const ITransactionVtbl *lpVtbl; };

#define MQ_NO_TRANSACTION ((ITransaction *)0)
#define MQ_MTS_TRANSACTION ((ITransaction *)1)
#define MQ_XA_TRANSACTION ((ITransaction *)2)
#define MQ_SINGLE_MESSAGE ((ITransaction *)3)

typedef void (*PMQRECEIVECALLBACK)(HRESULT hrStatus, QUEUEHANDLE hSource, DWORD dwTimeout, DWORD dwAction,
                                   MQMSGPROPS *pMessageProps, LPOVERLAPPED lpOverlapped, HANDLE hCursor);

MQRT_API HRESULT MQOpenQueue(LPCWSTR lpwcsFormatName, DWORD dwAccess, DWORD dwShareMode, QUEUEHANDLE *phQueue);
MQRT_API HRESULT MQCloseQueue(QUEUEHANDLE hQueue);
MQRT_API HRESULT MQSendMessage(QUEUEHANDLE hDestinationQueue, MQMSGPROPS *pMessageProps, ITransaction *pTransaction);
MQRT_API HRESULT MQReceiveMessage(QUEUEHANDLE hSource, DWORD dwTimeout, DWORD dwAction, MQMSGPROPS *pMessageProps,
                                  LPOVERLAPPED lpOverlapped, PMQRECEIVECALLBACK fnReceiveCallback, HANDLE hCursor,
                                  ITransaction *pTransaction);
MQRT_API HRESULT MQReceiveMessageByLookupId(QUEUEHANDLE hSource, uint64_t ullLookupId, DWORD dwLookupAction,
                                            MQMSGPROPS *pMessageProps, LPOVERLAPPED lpOverlapped,
                                            PMQRECEIVECALLBACK fnReceiveCallback, ITransaction *pTransaction);
MQRT_API HRESULT MQGetOverlappedResult(LPOVERLAPPED lpOverlapped);
MQRT_API HRESULT MQCreateCursor(QUEUEHANDLE hQueue, HANDLE *phCursor);
MQRT_API HRESULT MQCloseCursor(HANDLE hCursor);
MQRT_API HRESULT MQMoveMessage(QUEUEHANDLE hSourceQueue, QUEUEHANDLE hDestinationQueue, uint64_t ullLookupId,
                               ITransaction *pTransaction);
MQRT_API HRESULT MQPurgeQueue(QUEUEHANDLE hQueue);
MQRT_API HRESULT MQBeginTransaction(ITransaction **ppTransaction);

/* ---- Queues ---- */

MQRT_API HRESULT MQCreateQueue(void *pSecurityDescriptor, MQQUEUEPROPS *pQueueProps, LPWSTR lpwcsFormatName,
                               DWORD *lpdwFormatNameLength);
MQRT_API HRESULT MQDeleteQueue(LPCWSTR lpwcsFormatName);
MQRT_API HRESULT MQGetQueueProperties(LPCWSTR lpwcsFormatName, MQQUEUEPROPS *pQueueProps);
MQRT_API HRESULT MQSetQueueProperties(LPCWSTR lpwcsFormatName, MQQUEUEPROPS *pQueueProps);
MQRT_API HRESULT MQPathNameToFormatName(LPCWSTR lpwcsPathName, LPWSTR lpwcsFormatName, DWORD *lpdwFormatNameLength);
MQRT_API HRESULT MQHandleToFormatName(QUEUEHANDLE hQueue, LPWSTR lpwcsFormatName, DWORD *lpdwFormatNameLength);
MQRT_API HRESULT MQInstanceToFormatName(GUID *pGuid, LPWSTR lpwcsFormatName, DWORD *lpdwFormatNameLength);
MQRT_API HRESULT MQGetQueueSecurity(LPCWSTR lpwcsFormatName, DWORD RequestedInformation, void *pSecurityDescriptor,
                                    DWORD nLength, DWORD *lpnLengthNeeded);
MQRT_API HRESULT MQSetQueueSecurity(LPCWSTR lpwcsFormatName, DWORD SecurityInformation, void *pSecurityDescriptor);
MQRT_API void MQFreeMemory(void *pvMemory);

/* ---- The queue manager ---- */

/* `pObjectName` is u"MACHINE", or u"QUEUE=" and a format name. Texts and arrays are freed with MQFreeMemory. */
MQRT_API HRESULT MQMgmtGetInfo(LPCWSTR pComputerName, LPCWSTR pObjectName, MQMGMTPROPS *pMgmtProps);
/* u"CONNECT" and u"DISCONNECT" of the machine, u"PAUSE" and u"RESUME" of a queue. */
MQRT_API HRESULT MQMgmtAction(LPCWSTR pComputerName, LPCWSTR pObjectName, LPCWSTR pAction);
MQRT_API HRESULT MQGetMachineProperties(LPCWSTR lpwcsMachineName, const GUID *pguidMachineId, MQQMPROPS *pQMProps);

/* ---- The directory: public queues are found by the node, certificates are registered with the user's login ---- */

#define PRLT 0
#define PRLE 1
#define PRGT 2
#define PRGE 3
#define PREQ 4
#define PRNE 5
#define QUERY_SORTASCEND 0
#define QUERY_SORTDESCEND 1
typedef struct MQPROPERTYRESTRICTION { ULONG rel; PROPID prop; MQPROPVARIANT prval; } MQPROPERTYRESTRICTION;
typedef struct MQRESTRICTION { ULONG cRes; MQPROPERTYRESTRICTION *paPropRes; } MQRESTRICTION;
typedef struct MQCOLUMNSET { ULONG cCol; PROPID *aCol; } MQCOLUMNSET;
typedef struct MQSORTKEY { PROPID propColumn; ULONG dwOrder; } MQSORTKEY;
typedef struct MQSORTSET { ULONG cCol; MQSORTKEY *aCol; } MQSORTSET;
#define MQCERT_REGISTER_ALWAYS 0x01
#define MQCERT_REGISTER_IF_NOT_EXIST 0x02

MQRT_API HRESULT MQLocateBegin(LPCWSTR lpwcsContext, MQRESTRICTION *pRestriction, MQCOLUMNSET *pColumns,
                               MQSORTSET *pSort, HANDLE *phEnum);
MQRT_API HRESULT MQLocateNext(HANDLE hEnum, DWORD *pcProps, MQPROPVARIANT *aPropVar);
MQRT_API HRESULT MQLocateEnd(HANDLE hEnum);
MQRT_API HRESULT MQRegisterCertificate(DWORD dwFlags, void *lpCertBuffer, DWORD dwCertBufferLength);
MQRT_API HRESULT MQGetSecurityContext(void *lpCertBuffer, DWORD dwCertBufferLength, HANDLE *phSecurityContext);
MQRT_API HRESULT MQGetSecurityContextEx(void *lpCertBuffer, DWORD dwCertBufferLength, HANDLE *phSecurityContext);
MQRT_API void MQFreeSecurityContext(HANDLE hSecurityContext);

/* Not of Message Queuing: what the node said about the last failure in this thread, in UTF-8; empty if nothing. */
MQRT_API const char *mqrt_last_sentence(void);

#ifdef __cplusplus
}
#endif
#endif /* MQ_H */
