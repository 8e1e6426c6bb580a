/* Creating, deleting and describing queues; names of queues. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "internal.h"

#define MOST_PROPERTIES 128
#define GUID_SIZE 16

void MQFreeMemory(void *memory) { free(memory); }

/* ---- Properties of queues ---- */

enum Use { AT_CREATION = 1, CHANGED = 2, READ = 4 };

typedef struct Row {
    QUEUEPROPID id;
    VARTYPE type;
    uint8_t use;
    const char *name; /* at the node */
} Row;

static const Row ROWS[] = {
    {PROPID_Q_INSTANCE, VT_CLSID, READ, "identifier"},
    {PROPID_Q_TYPE, VT_CLSID, AT_CREATION | CHANGED | READ, "type"},
    {PROPID_Q_PATHNAME, VT_LPWSTR, AT_CREATION | READ, "pathname"},
    {PROPID_Q_JOURNAL, VT_UI1, AT_CREATION | CHANGED | READ, "journaling"},
    {PROPID_Q_QUOTA, VT_UI4, AT_CREATION | CHANGED | READ, "quota"},
    {PROPID_Q_BASEPRIORITY, VT_I2, AT_CREATION | CHANGED | READ, "base_priority"},
    {PROPID_Q_JOURNAL_QUOTA, VT_UI4, AT_CREATION | CHANGED | READ, "journal_quota"},
    {PROPID_Q_LABEL, VT_LPWSTR, AT_CREATION | CHANGED | READ, "label"},
    {PROPID_Q_CREATE_TIME, VT_I4, READ, "create_time"},
    {PROPID_Q_MODIFY_TIME, VT_I4, READ, "modify_time"},
    {PROPID_Q_AUTHENTICATE, VT_UI1, AT_CREATION | CHANGED | READ, "authentication"},
    {PROPID_Q_PRIV_LEVEL, VT_UI4, AT_CREATION | CHANGED | READ, "privacy_level"},
    {PROPID_Q_TRANSACTION, VT_UI1, AT_CREATION | READ, "transactional"},
    {PROPID_Q_MULTICAST_ADDRESS, VT_LPWSTR, AT_CREATION | CHANGED | READ, "multicast_address"},
};

static const Row *row_of(QUEUEPROPID id)
{
    for (size_t at = 0; at < sizeof ROWS / sizeof *ROWS; at++)
        if (ROWS[at].id == id)
            return &ROWS[at];
    return NULL;
}

static bool is_duplicate(const MQQUEUEPROPS *properties, DWORD at)
{
    for (DWORD other = 0; other < at; other++)
        if (properties->aPropID[other] == properties->aPropID[at])
            return true;
    return false;
}

static HRESULT check(const MQQUEUEPROPS *properties)
{
    if (properties == NULL || properties->cProp == 0 || properties->aPropID == NULL || properties->aPropVar == NULL)
        return MQ_ERROR_ILLEGAL_MQQUEUEPROPS;
    return properties->cProp > MOST_PROPERTIES ? MQ_ERROR_TOO_MANY_PROPERTIES : MQ_OK;
}

static void set_status(MQQUEUEPROPS *properties, DWORD at, HRESULT status)
{
    if (properties->aStatus != NULL)
        properties->aStatus[at] = status;
}

/* A value on its way to the node; NULL if it cannot be one of the property. */
static json_t *to_node(const Row *row, const MQPROPVARIANT *value)
{
    switch (row->id) {
    case PROPID_Q_JOURNAL:
    case PROPID_Q_AUTHENTICATE:
    case PROPID_Q_TRANSACTION:
        return value->bVal > 1 ? NULL : json_boolean(value->bVal);
    case PROPID_Q_PRIV_LEVEL:
        return value->ulVal > MQ_PRIV_LEVEL_BODY ? NULL : json_integer(value->ulVal);
    case PROPID_Q_BASEPRIORITY:
        return json_integer(value->iVal);
    case PROPID_Q_INSTANCE:
    case PROPID_Q_TYPE:
        return value->puuid == NULL ? NULL : json_bytes(value->puuid, GUID_SIZE);
    case PROPID_Q_LABEL:
        if (value->pwszVal == NULL || length16(value->pwszVal) > MQ_MAX_Q_LABEL_LEN)
            return NULL;
        return json_text(value->pwszVal);
    case PROPID_Q_PATHNAME:
    case PROPID_Q_MULTICAST_ADDRESS:
        return value->pwszVal == NULL ? NULL : json_text(value->pwszVal);
    default:
        return json_integer(value->ulVal);
    }
}

/* The properties as keywords of a call; the path name is apart. */
static HRESULT to_keywords(MQQUEUEPROPS *properties, uint8_t use, json_t *keywords, json_t **path)
{
    HRESULT result = check(properties);
    bool failed = false;
    for (DWORD at = 0; !FAILED(result) && at < properties->cProp; at++) {
        const Row *row = row_of(properties->aPropID[at]);
        const MQPROPVARIANT *value = &properties->aPropVar[at];
        HRESULT status = MQ_OK;
        if (row == NULL)
            status = MQ_INFORMATION_UNSUPPORTED_PROPERTY;
        else if (!(row->use & use))
            status = MQ_ERROR_PROPERTY_NOTALLOWED;
        else if (is_duplicate(properties, at))
            status = MQ_INFORMATION_DUPLICATE_PROPERTY;
        else if (value->vt != row->type)
            status = MQ_ERROR_ILLEGAL_PROPERTY_VT;
        else {
            json_t *asked = to_node(row, value);
            if (asked == NULL)
                status = MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
            else if (row->id == PROPID_Q_PATHNAME)
                *path = asked;
            else
                json_object_set_new(keywords, row->name, asked);
        }
        set_status(properties, at, status);
        failed |= FAILED(status);
        if (status != MQ_OK)
            result = MQ_INFORMATION_PROPERTY;
    }
    return failed ? MQ_ERROR_PROPERTY : result;
}

/* A call that changes a queue, with the attributes of one as its result. */
static HRESULT call_manager(const char *method, json_t *arguments, json_t *keywords, json_t **information)
{
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code)) {
        json_decref(arguments);
        json_decref(keywords);
        return code;
    }
    code = connection_publishing(connection, method, arguments, keywords, information);
    connection_release(connection);
    return code;
}

HRESULT MQCreateQueue(void *security, MQQUEUEPROPS *properties, LPWSTR name, DWORD *length)
{
    set_sentence("");
    if (length == NULL || (name == NULL && *length > 0))
        return MQ_ERROR_INVALID_PARAMETER;
    json_t *keywords = json_object(), *path = NULL, *information = NULL;
    HRESULT result = to_keywords(properties, AT_CREATION, keywords, &path);
    if (!FAILED(result) && path == NULL)
        result = MQ_ERROR_INSUFFICIENT_PROPERTIES;
    if (!FAILED(result) && security != NULL) {
        size_t size = 0;
        uint8_t *bytes = security_of(security, &size);
        if (bytes == NULL)
            result = MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR;
        else
            json_object_set_new(keywords, "security", json_bytes(bytes, size));
        free(bytes);
    }
    if (FAILED(result)) {
        json_decref(keywords);
        json_decref(path);
        return result;
    }
    HRESULT code = call_manager("create_queue", json_pack("[o]", path), keywords, &information);
    if (FAILED(code))
        return code;
    const char *made = json_string_value(json_object_get(json_object_get(information, "$queue"), "format_name"));
    code = made == NULL ? MQ_ERROR : give_name(made, name, length, MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL);
    json_decref(information);
    return code == MQ_OK ? result : code;
}

HRESULT MQDeleteQueue(LPCWSTR name)
{
    set_sentence("");
    if (name == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    json_t *text = json_format_name(name);
    if (text == NULL)
        return MQ_ERROR_ILLEGAL_FORMATNAME;
    return call_manager("delete_queue", json_pack("[o]", text), NULL, NULL);
}

HRESULT MQSetQueueProperties(LPCWSTR name, MQQUEUEPROPS *properties)
{
    set_sentence("");
    json_t *text = name == NULL ? NULL : json_format_name(name);
    if (text == NULL)
        return MQ_ERROR_ILLEGAL_FORMATNAME;
    json_t *keywords = json_object(), *path = NULL;
    HRESULT result = to_keywords(properties, CHANGED, keywords, &path);
    if (FAILED(result)) {
        json_decref(keywords);
        json_decref(text);
        return result;
    }
    HRESULT code = call_manager("set_queue", json_pack("[o]", text), keywords, NULL);
    return FAILED(code) ? code : result;
}

static HRESULT from_node(const Row *row, MQPROPVARIANT *value, const json_t *attributes)
{
    const json_t *found = json_object_get(attributes, row->name);
    if (row->type == VT_LPWSTR) { /* allocated here: MQFreeMemory */
        WCHAR *text = to_utf16(json_is_string(found) ? json_string_value(found) : "", NULL);
        if (text == NULL)
            return E_OUTOFMEMORY;
        value->pwszVal = text;
    } else if (row->type == VT_CLSID) {
        size_t size = 0;
        uint8_t *guid = bytes_of_json(found, &size);
        if (guid == NULL || size != GUID_SIZE) {
            free(guid);
            return MQ_ERROR;
        }
        if (value->vt == VT_NULL) {
            value->puuid = (CLSID *)guid;
        } else {
            memcpy(value->puuid, guid, GUID_SIZE);
            free(guid);
        }
    } else {
        json_int_t number = json_is_boolean(found) ? json_is_true(found) : json_integer_value(found);
        if (row->type == VT_UI1)
            value->bVal = (UCHAR)number;
        else if (row->type == VT_I2)
            value->iVal = (SHORT)number;
        else
            value->ulVal = (ULONG)number;
    }
    value->vt = row->type;
    return MQ_OK;
}

VARTYPE queue_property_type(QUEUEPROPID id)
{
    const Row *row = row_of(id);
    return row == NULL ? VT_EMPTY : row->type;
}

HRESULT queue_property(QUEUEPROPID id, const json_t *attributes, MQPROPVARIANT *value)
{
    value->vt = VT_NULL;
    return from_node(row_of(id), value, attributes);
}

json_t *queue_property_to_node(QUEUEPROPID id, const MQPROPVARIANT *value) { return to_node(row_of(id), value); }

const json_t *queue_attribute(QUEUEPROPID id, const json_t *attributes)
{
    return json_object_get(attributes, row_of(id)->name);
}

int queue_property_compare(QUEUEPROPID id, const json_t *attributes, const json_t *other)
{
    const json_t *found = queue_attribute(id, attributes);
    if (json_is_string(found) && json_is_string(other))
        return strcasecmp(json_string_value(found), json_string_value(other));
    if (json_is_object(found) && json_is_object(other)) { /* bytes */
        const char *ours = json_string_value(json_object_get(found, "$bytes"));
        const char *theirs = json_string_value(json_object_get(other, "$bytes"));
        return strcmp(ours == NULL ? "" : ours, theirs == NULL ? "" : theirs);
    }
    json_int_t one = json_is_boolean(found) ? json_is_true(found) : json_integer_value(found);
    json_int_t two = json_is_boolean(other) ? json_is_true(other) : json_integer_value(other);
    return (one > two) - (one < two);
}

HRESULT MQGetQueueProperties(LPCWSTR name, MQQUEUEPROPS *properties)
{
    set_sentence("");
    HRESULT result = check(properties);
    if (FAILED(result))
        return result;
    json_t *text = name == NULL ? NULL : json_format_name(name), *information = NULL;
    if (text == NULL)
        return MQ_ERROR_ILLEGAL_FORMATNAME;
    bool failed = false;
    for (DWORD at = 0; at < properties->cProp; at++) {
        const Row *row = row_of(properties->aPropID[at]);
        VARTYPE type = properties->aPropVar[at].vt;
        HRESULT status = MQ_OK;
        if (row == NULL)
            status = MQ_INFORMATION_UNSUPPORTED_PROPERTY;
        else if (is_duplicate(properties, at))
            status = MQ_INFORMATION_DUPLICATE_PROPERTY;
        else if (type != VT_NULL && (type != row->type || type == VT_LPWSTR))
            status = MQ_ERROR_ILLEGAL_PROPERTY_VT;
        else if (type == VT_CLSID && properties->aPropVar[at].puuid == NULL)
            status = MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
        set_status(properties, at, status);
        failed |= FAILED(status);
        if (status != MQ_OK)
            result = MQ_INFORMATION_PROPERTY;
    }
    if (failed) {
        json_decref(text);
        return MQ_ERROR_PROPERTY;
    }
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code)) {
        json_decref(text);
        return code;
    }
    code = connection_method(connection, "manager", 0, "queue", json_pack("[o]", text), NULL, &information);
    connection_release(connection);
    json_t *attributes = FAILED(code) ? NULL : json_incref(json_object_get(information, "$queue"));
    json_decref(information);
    if (code == MQ_ERROR_QUEUE_NOT_FOUND)
        code = directory_queue(name, &attributes);
    if (FAILED(code))
        return code;
    for (DWORD at = 0; at < properties->cProp && !FAILED(result); at++) {
        const Row *row = row_of(properties->aPropID[at]);
        if (row != NULL && !is_duplicate(properties, at)) {
            code = from_node(row, &properties->aPropVar[at], attributes);
            if (FAILED(code)) {
                set_status(properties, at, code);
                result = code;
            }
        }
    }
    json_decref(attributes);
    return result;
}

/* ---- Names ---- */

static bool equal_names(const char *one, size_t length, const char *other)
{
    if (strlen(other) != length)
        return false;
    for (size_t at = 0; at < length; at++)
        if ((one[at] | 32) != (other[at] | 32))
            return false;
    return true;
}

/* A public queue elsewhere, by its path name. */
static HRESULT find_public(LPCWSTR path, LPWSTR name, DWORD *length)
{
    MQPROPERTYRESTRICTION part = {PREQ, PROPID_Q_PATHNAME, {.vt = VT_LPWSTR, .pwszVal = (LPWSTR)path}};
    MQRESTRICTION restriction = {1, &part};
    PROPID identifier = PROPID_Q_INSTANCE;
    MQCOLUMNSET columns = {1, &identifier};
    MQPROPVARIANT found;
    DWORD count = 1;
    HANDLE search;
    HRESULT code = MQLocateBegin(NULL, &restriction, &columns, NULL, &search);
    if (FAILED(code))
        return code;
    code = MQLocateNext(search, &count, &found);
    MQLocateEnd(search);
    if (FAILED(code) || count == 0)
        return FAILED(code) ? code : MQ_ERROR_QUEUE_NOT_FOUND;
    code = MQInstanceToFormatName(found.puuid, name, length);
    MQFreeMemory(found.puuid);
    return code;
}

HRESULT MQPathNameToFormatName(LPCWSTR path, LPWSTR name, DWORD *length)
{
    set_sentence("");
    if (path == NULL || length == NULL || (name == NULL && *length > 0))
        return MQ_ERROR_INVALID_PARAMETER;
    char *text = to_utf8(path);
    const char *local = text == NULL ? NULL : strchr(text, '\\');
    if (local == NULL || local == text || local[1] == 0 || local[strlen(local) - 1] == '\\') {
        free(text);
        return MQ_ERROR_ILLEGAL_QUEUE_PATHNAME;
    }
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code)) {
        free(text);
        return code;
    }
    size_t computer = (size_t)(local - text);
    bool here = equal_names(text, computer, ".") ||
                equal_names(text, computer, connection_computer_name(connection));
    bool private = begins_with(path + (size_t)(length16(path) > computer ? computer + 1 : 0), "PRIVATE$\\");
    if (!here && !private) {
        code = find_public(path, name, length);
    } else if (here) {
        json_t *information = NULL;
        code = connection_method(connection, "manager", 0, "queue", json_pack("[s]", text), NULL, &information);
        const char *found = json_string_value(json_object_get(json_object_get(information, "$queue"), "format_name"));
        if (!FAILED(code))
            code = found == NULL ? MQ_ERROR
                                 : give_name(found, name, length, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL);
        json_decref(information);
    } else { /* a private queue elsewhere: it is not asked for */
        char *direct = malloc(strlen(text) + 11);
        if (direct == NULL)
            code = E_OUTOFMEMORY;
        else {
            sprintf(direct, "DIRECT=OS:%s", text);
            code = give_name(direct, name, length, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL);
        }
        free(direct);
    }
    connection_release(connection);
    free(text);
    return code;
}

HRESULT MQInstanceToFormatName(GUID *instance, LPWSTR name, DWORD *length)
{
    set_sentence("");
    if (instance == NULL || length == NULL || (name == NULL && *length > 0))
        return MQ_ERROR_INVALID_PARAMETER;
    WCHAR guid[37];
    write_guid((const uint8_t *)instance, guid);
    char text[7 + 37] = "PUBLIC=";
    for (size_t at = 0; at < 37; at++)
        text[7 + at] = (char)guid[at];
    return give_name(text, name, length, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL);
}
