/*
 * What a program asks of the directory. The node has no door for it: whoever may search the directory, or put a certificate
 * in, does so there. So these functions check what they are given, and then say that there is no directory service here.
 */
#include "internal.h"

#define MOST_SEARCHED 100
#define DER_SEQUENCE 0x30
#define NO_DIRECTORY(what) "the node has no door to the directory for programs: " what

static bool is_queue_property(PROPID id) { return id >= PROPID_Q_INSTANCE && id <= PROPID_Q_MULTICAST_ADDRESS; }

static HRESULT check_restriction(const MQRESTRICTION *restriction)
{
    if (restriction == NULL)
        return MQ_OK;
    if (restriction->cRes > MOST_SEARCHED || (restriction->cRes > 0 && restriction->paPropRes == NULL))
        return MQ_ERROR_ILLEGAL_RESTRICTION_PROPID;
    for (ULONG at = 0; at < restriction->cRes; at++) {
        if (restriction->paPropRes[at].rel > PRNE)
            return MQ_ERROR_ILLEGAL_RELATION;
        if (!is_queue_property(restriction->paPropRes[at].prop))
            return MQ_ERROR_ILLEGAL_RESTRICTION_PROPID;
    }
    return MQ_OK;
}

static HRESULT no_directory(const char *sentence)
{
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code))
        return code;
    connection_release(connection);
    set_sentence(sentence);
    return MQ_ERROR_NO_DS;
}

HRESULT MQLocateBegin(LPCWSTR context, MQRESTRICTION *restriction, MQCOLUMNSET *columns, MQSORTSET *sort, HANDLE *search)
{
    if (context != NULL)
        return MQ_ERROR_ILLEGAL_CONTEXT;
    if (search == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    *search = NULL;
    HRESULT code = check_restriction(restriction);
    if (FAILED(code))
        return code;
    if (columns == NULL || columns->cCol == 0 || columns->cCol > MOST_SEARCHED || columns->aCol == NULL)
        return MQ_ERROR_ILLEGAL_MQCOLUMNS;
    for (ULONG at = 0; at < columns->cCol; at++)
        if (!is_queue_property(columns->aCol[at]))
            return MQ_ERROR_ILLEGAL_PROPID;
    if (sort != NULL && (sort->cCol > MOST_SEARCHED || (sort->cCol > 0 && sort->aCol == NULL)))
        return MQ_ERROR_ILLEGAL_SORT;
    for (ULONG at = 0; sort != NULL && at < sort->cCol; at++) {
        if (!is_queue_property(sort->aCol[at].propColumn))
            return MQ_ERROR_ILLEGAL_SORT_PROPID;
        if (sort->aCol[at].dwOrder > QUERY_SORTDESCEND)
            return MQ_ERROR_ILLEGAL_SORT;
    }
    return no_directory(NO_DIRECTORY("'mqenterprise queue find' finds public queues"));
}

/* There is never a search, so no handle is one. */
HRESULT MQLocateNext(HANDLE search, DWORD *count, MQPROPVARIANT *values)
{
    (void)search;
    return count == NULL || values == NULL ? MQ_ERROR_INVALID_PARAMETER : MQ_ERROR_INVALID_HANDLE;
}

HRESULT MQLocateEnd(HANDLE search)
{
    (void)search;
    return MQ_ERROR_INVALID_HANDLE;
}

HRESULT MQRegisterCertificate(DWORD flags, void *certificate, DWORD size)
{
    if (flags != MQCERT_REGISTER_ALWAYS && flags != MQCERT_REGISTER_IF_NOT_EXIST)
        return MQ_ERROR_INVALID_PARAMETER;
    if (certificate == NULL && size > 0)
        return MQ_ERROR_INVALID_PARAMETER;
    if (certificate != NULL && (size < 2 || *(const uint8_t *)certificate != DER_SEQUENCE))
        return MQ_ERROR_INVALID_CERTIFICATE;
    return no_directory(NO_DIRECTORY("'mqenterprise certificate register' registers a user's certificate"));
}

/* A security context holds the keys with which Windows signs for a program. Here the node signs. */
HRESULT MQGetSecurityContextEx(void *certificate, DWORD size, HANDLE *context)
{
    if (context == NULL || (certificate == NULL && size > 0))
        return MQ_ERROR_INVALID_PARAMETER;
    *context = NULL;
    set_sentence("there are no security contexts: the node signs messages that ask for it");
    return MQ_ERROR_NO_INTERNAL_USER_CERT;
}

HRESULT MQGetSecurityContext(void *certificate, DWORD size, HANDLE *context)
{
    return MQGetSecurityContextEx(certificate, size, context);
}

void MQFreeSecurityContext(HANDLE context) { (void)context; }
