/*
 * The directory: the node finds public queues of the enterprise, and registers a user's certificate with the user's own
 * login (login.c).
 */
#include <stdlib.h>

#include "internal.h"

#define MOST_SEARCHED 100
#define DER_SEQUENCE 0x30
#define LARGEST_CERTIFICATE 0xFFFF

/* ---- Searches ---- */

typedef struct Search {
    Object object;
    pthread_mutex_t mutex;
    json_t **rows; /* attributes of the queues that were found */
    size_t count, next;
    ULONG width;
    PROPID columns[MOST_SEARCHED];
} Search;

/* What a program asks for, as the node has it. A value that the node has compared is NULL. */
typedef struct Condition {
    PROPID id;
    ULONG relation;
    json_t *value;
} Condition;

static void search_destroy(Object *object)
{
    Search *search = (Search *)object;
    for (size_t at = 0; at < search->count; at++)
        json_decref(search->rows[at]);
    free(search->rows);
    pthread_mutex_destroy(&search->mutex);
    free(search);
}

static bool is_text_or_guid(PROPID id)
{
    return queue_property_type(id) == VT_LPWSTR || queue_property_type(id) == VT_CLSID;
}

/* Read the conditions; `keywords` gets those that the node compares: one of a kind. */
static HRESULT read_restriction(const MQRESTRICTION *restriction, Condition *conditions, json_t *keywords)
{
    for (ULONG at = 0; at < restriction->cRes; at++) {
        const MQPROPERTYRESTRICTION *one = &restriction->paPropRes[at];
        Condition *condition = &conditions[at];
        VARTYPE type = queue_property_type(one->prop);
        if (one->rel > PRNE)
            return MQ_ERROR_ILLEGAL_RELATION;
        if (type == VT_EMPTY)
            return MQ_ERROR_ILLEGAL_RESTRICTION_PROPID;
        if (type == VT_CLSID && one->rel != PREQ && one->rel != PRNE)
            return MQ_ERROR_ILLEGAL_RELATION;
        if (one->prval.vt != type)
            return MQ_ERROR_ILLEGAL_PROPERTY_VT;
        condition->id = one->prop;
        condition->relation = one->rel;
        condition->value = queue_property_to_node(one->prop, &one->prval);
        if (condition->value == NULL)
            return MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
        if (one->prop == PROPID_Q_PATHNAME && one->rel == PREQ) { /* the node looks at the queues of its computer alone */
            const char *path = json_string_value(condition->value), *end = strchr(path, '\\');
            if (end != NULL)
                json_object_set_new(keywords, "computer", json_stringn(path, (size_t)(end - path)));
        }
        const char *name = one->prop == PROPID_Q_LABEL      ? "label"
                           : one->prop == PROPID_Q_TYPE     ? "type"
                           : one->prop == PROPID_Q_INSTANCE ? "identifier"
                                                            : NULL;
        if (name != NULL && one->rel == PREQ && json_object_get(keywords, name) == NULL) {
            json_object_set_new(keywords, name, condition->value);
            condition->value = NULL;
        }
    }
    return MQ_OK;
}

static bool holds(const Condition *condition, const json_t *attributes)
{
    if (condition->value == NULL)
        return true;
    int order = queue_property_compare(condition->id, attributes, condition->value);
    switch (condition->relation) {
    case PRLT: return order < 0;
    case PRLE: return order <= 0;
    case PRGT: return order > 0;
    case PRGE: return order >= 0;
    case PREQ: return order == 0;
    default: return order != 0;
    }
}

static HRESULT keep(Search *search, json_t *attributes)
{
    if ((search->count & (search->count - 1)) == 0) { /* 0, 1, 2, 4, ...: all places are taken */
        json_t **more = realloc(search->rows, (search->count == 0 ? 1 : 2 * search->count) * sizeof *more);
        if (more == NULL)
            return E_OUTOFMEMORY;
        search->rows = more;
    }
    search->rows[search->count++] = json_incref(attributes);
    return MQ_OK;
}

/* Ask the node, and keep the queues for which the conditions hold. Takes over `keywords`. */
static HRESULT fill(Search *search, json_t *keywords, const Condition *conditions, ULONG count)
{
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code)) {
        json_decref(keywords);
        return code;
    }
    json_t *handle = NULL;
    code = connection_method(connection, "manager", 0, "find_queues", NULL, keywords, &handle);
    uint32_t number = (uint32_t)json_integer_value(handle);
    bool is_open = !FAILED(code);
    if (code == MQ_ERROR_MACHINE_NOT_FOUND) /* it has no queues either */
        code = MQ_OK;
    json_decref(handle);
    while (!FAILED(code) && is_open) {
        json_t *page = NULL, *one;
        size_t at;
        code = connection_method(connection, "search", number, "next", NULL, NULL, &page);
        is_open = !FAILED(code) && json_array_size(page) > 0;
        json_array_foreach(page, at, one)
        {
            json_t *attributes = json_object_get(one, "$queue");
            bool all = attributes != NULL;
            for (ULONG condition = 0; all && condition < count; condition++)
                all = holds(&conditions[condition], attributes);
            if (all && !FAILED(code))
                code = keep(search, attributes);
        }
        json_decref(page);
    }
    if (is_open) /* this side has failed */
        connection_method(connection, "search", number, "close", NULL, NULL, NULL);
    connection_release(connection);
    return code;
}

HRESULT directory_queue(const WCHAR *name, json_t **attributes)
{
    GUID instance;
    if (!begins_with(name, "PUBLIC=") || !read_guid(name + 7, (uint8_t *)&instance) || name[7 + 36] != 0)
        return MQ_ERROR_QUEUE_NOT_FOUND;
    Search found = {0};
    HRESULT code = fill(&found, json_pack("{s: o}", "identifier", json_bytes(&instance, sizeof instance)), NULL, 0);
    if (!FAILED(code))
        code = found.count > 0 ? MQ_OK : MQ_ERROR_QUEUE_NOT_FOUND;
    if (code == MQ_ERROR_NO_DS) /* as for any name that is not known here */
        code = MQ_ERROR_QUEUE_NOT_FOUND;
    *attributes = FAILED(code) ? NULL : json_incref(found.rows[0]);
    for (size_t at = 0; at < found.count; at++)
        json_decref(found.rows[at]);
    free(found.rows);
    return code;
}

static int in_order(const void *one, const void *other, void *sort)
{
    const MQSORTSET *keys = sort;
    for (ULONG at = 0; at < keys->cCol; at++) {
        PROPID id = keys->aCol[at].propColumn;
        const json_t *attributes = *(json_t *const *)one;
        int order = queue_property_compare(id, attributes, queue_attribute(id, *(json_t *const *)other));
        if (order != 0)
            return keys->aCol[at].dwOrder == QUERY_SORTDESCEND ? -order : order;
    }
    return 0;
}

static HRESULT check_asked(const MQRESTRICTION *restriction, const MQCOLUMNSET *columns, const MQSORTSET *sort)
{
    if (restriction != NULL && (restriction->cRes > MOST_SEARCHED || (restriction->cRes > 0 && restriction->paPropRes == NULL)))
        return MQ_ERROR_ILLEGAL_RESTRICTION_PROPID;
    if (columns == NULL || columns->cCol == 0 || columns->cCol > MOST_SEARCHED || columns->aCol == NULL)
        return MQ_ERROR_ILLEGAL_MQCOLUMNS;
    for (ULONG at = 0; at < columns->cCol; at++)
        if (queue_property_type(columns->aCol[at]) == VT_EMPTY)
            return MQ_ERROR_ILLEGAL_PROPID;
    if (sort != NULL && (sort->cCol > MOST_SEARCHED || (sort->cCol > 0 && sort->aCol == NULL)))
        return MQ_ERROR_ILLEGAL_SORT;
    for (ULONG at = 0; sort != NULL && at < sort->cCol; at++) {
        if (queue_property_type(sort->aCol[at].propColumn) == VT_EMPTY)
            return MQ_ERROR_ILLEGAL_SORT_PROPID;
        if (sort->aCol[at].dwOrder > QUERY_SORTDESCEND)
            return MQ_ERROR_ILLEGAL_SORT;
    }
    return MQ_OK;
}

HRESULT MQLocateBegin(LPCWSTR context, MQRESTRICTION *restriction, MQCOLUMNSET *columns, MQSORTSET *sort, HANDLE *found)
{
    set_sentence("");
    if (context != NULL)
        return MQ_ERROR_ILLEGAL_CONTEXT;
    if (found == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    *found = NULL;
    HRESULT code = check_asked(restriction, columns, sort);
    if (FAILED(code))
        return code;
    Condition conditions[MOST_SEARCHED] = {0};
    ULONG count = restriction == NULL ? 0 : restriction->cRes;
    json_t *keywords = json_object();
    Search *search = calloc(1, sizeof *search);
    if (search == NULL || keywords == NULL)
        code = E_OUTOFMEMORY;
    else if (count > 0)
        code = read_restriction(restriction, conditions, keywords);
    if (FAILED(code)) {
        json_decref(keywords);
        free(search);
    } else {
        search->object = (Object){1, SEARCH_HANDLE, search_destroy};
        pthread_mutex_init(&search->mutex, NULL);
        search->width = columns->cCol;
        memcpy(search->columns, columns->aCol, columns->cCol * sizeof *columns->aCol);
        code = fill(search, keywords, conditions, count);
        if (!FAILED(code) && sort != NULL && search->count > 0)
            qsort_r(search->rows, search->count, sizeof *search->rows, in_order, sort);
        if (!FAILED(code) && (*found = handle_add(&search->object)) == NULL)
            code = MQ_ERROR_INSUFFICIENT_RESOURCES;
        if (FAILED(code))
            object_release(&search->object);
    }
    for (ULONG at = 0; at < count; at++)
        json_decref(conditions[at].value);
    return code;
}

/* The columns of one queue; nothing is left allocated when it fails. */
static HRESULT give_row(const Search *search, MQPROPVARIANT *values)
{
    for (ULONG at = 0; at < search->width; at++) {
        HRESULT code = queue_property(search->columns[at], search->rows[search->next], &values[at]);
        if (FAILED(code)) {
            while (at-- > 0)
                if (is_text_or_guid(search->columns[at]))
                    MQFreeMemory(values[at].pwszVal);
            return code;
        }
    }
    return MQ_OK;
}

HRESULT MQLocateNext(HANDLE handle, DWORD *count, MQPROPVARIANT *values)
{
    set_sentence("");
    if (count == NULL || values == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    Search *search = (Search *)handle_get(handle, SEARCH_HANDLE);
    if (search == NULL)
        return MQ_ERROR_INVALID_HANDLE;
    HRESULT code = MQ_OK;
    DWORD room = *count, given = 0;
    pthread_mutex_lock(&search->mutex);
    if (room < search->width && search->next < search->count)
        code = MQ_ERROR_RESULT_BUFFER_TOO_SMALL;
    while (!FAILED(code) && search->next < search->count && room - given >= search->width) {
        code = give_row(search, values + given);
        if (FAILED(code))
            break;
        search->next++;
        given += search->width;
    }
    pthread_mutex_unlock(&search->mutex);
    object_release(&search->object);
    if (code == MQ_ERROR_RESULT_BUFFER_TOO_SMALL)
        return code;
    *count = given; /* what came before a failure is the program's */
    return given > 0 ? MQ_OK : code;
}

HRESULT MQLocateEnd(HANDLE handle)
{
    set_sentence("");
    Object *search = handle_remove(handle, SEARCH_HANDLE);
    if (search == NULL)
        return MQ_ERROR_INVALID_HANDLE;
    object_release(search);
    return MQ_OK;
}

/* ---- Certificates ---- */

/* A certificate that is registered already is left as it is, so both flags are the same for it. */
HRESULT MQRegisterCertificate(DWORD flags, void *certificate, DWORD size)
{
    set_sentence("");
    if (flags != MQCERT_REGISTER_ALWAYS && flags != MQCERT_REGISTER_IF_NOT_EXIST)
        return MQ_ERROR_INVALID_PARAMETER;
    if (certificate == NULL && size > 0)
        return MQ_ERROR_INVALID_PARAMETER;
    if (certificate == NULL) {
        set_sentence("there are no internal certificates: give one of your own");
        return MQ_ERROR_NO_INTERNAL_USER_CERT;
    }
    if (size < 2 || size > LARGEST_CERTIFICATE || *(const uint8_t *)certificate != DER_SEQUENCE)
        return MQ_ERROR_INVALID_CERTIFICATE;
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code))
        return code;
    code = connection_publishing(connection, "register_certificate", json_pack("[o]", json_bytes(certificate, size)), NULL,
                                 NULL);
    connection_release(connection);
    return code;
}

/* A security context holds the keys with which Windows signs for a program. Here the node signs. */
HRESULT MQGetSecurityContextEx(void *certificate, DWORD size, HANDLE *context)
{
    set_sentence("");
    if (context == NULL || (certificate == NULL && size > 0))
        return MQ_ERROR_INVALID_PARAMETER;
    *context = NULL;
    set_sentence("there are no security contexts: the node signs messages that ask for it");
    return MQ_ERROR_NO_INTERNAL_USER_CERT;
}

HRESULT MQGetSecurityContext(void *certificate, DWORD size, HANDLE *context)
{
    set_sentence("");
    return MQGetSecurityContextEx(certificate, size, context);
}

void MQFreeSecurityContext(HANDLE context) { (void)context; }
