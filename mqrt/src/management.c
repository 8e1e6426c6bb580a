/* The queue manager itself: its properties, the state of it and of its queues, and what administrators do to both. */
#include <stdlib.h>

#include <strings.h>

#include "internal.h"

#define MOST_PROPERTIES 128
#define GUID_SIZE 16

/* All families have this layout. */
typedef struct Properties {
    DWORD count;
    DWORD *ids;
    MQPROPVARIANT *values;
    HRESULT *statuses;
} Properties;

static HRESULT give_text(MQPROPVARIANT *value, const char *text)
{
    value->pwszVal = to_utf16(text, NULL);
    if (value->pwszVal == NULL)
        return E_OUTOFMEMORY;
    value->vt = VT_LPWSTR;
    return MQ_OK;
}

/* Texts that a choice picks out of a list, allocated: MQFreeMemory for each and for the array. */
static HRESULT give_texts(MQPROPVARIANT *value, const json_t *list, const char *(*choose)(const json_t *one))
{
    LPWSTR *texts = calloc(json_array_size(list) + 1, sizeof *texts);
    ULONG count = 0;
    for (size_t at = 0; texts != NULL && at < json_array_size(list); at++) {
        const char *text = choose(json_array_get(list, at));
        if (text == NULL)
            continue;
        texts[count] = to_utf16(text, NULL);
        if (texts[count] == NULL)
            break;
        count++;
    }
    if (texts == NULL)
        return E_OUTOFMEMORY;
    value->vt = VT_VECTOR | VT_LPWSTR;
    value->calpwstr = (CALPWSTR){count, texts};
    return MQ_OK;
}

static const json_t *attributes_of(const json_t *queue) { return json_object_get(queue, "$queue"); }
static const char *text_of(const json_t *attributes, const char *name)
{
    const char *text = json_string_value(json_object_get(attributes, name));
    return text == NULL ? "" : text;
}
static json_int_t number_of(const json_t *attributes, const char *name)
{
    return json_integer_value(json_object_get(attributes, name));
}
static bool is_of_kind(const json_t *attributes, const char *kind)
{
    return strcmp(text_of(attributes, "queue_type"), kind) == 0;
}

static const char *active_name(const json_t *queue)
{
    const json_t *one = attributes_of(queue);
    bool active = json_is_true(json_object_get(one, "active")) || number_of(one, "message_count") > 0;
    return active ? text_of(one, "format_name") : NULL;
}
static const char *private_name(const json_t *queue)
{
    const json_t *one = attributes_of(queue);
    const char *path = text_of(one, "pathname");
    return is_of_kind(one, "private") && strchr(path, ';') == NULL ? path : NULL;
}
static const char *itself(const json_t *text) { return json_string_value(text); }

static HRESULT of_machine(DWORD id, MQPROPVARIANT *value, const json_t *status, const json_t *queues)
{
    switch (id) {
    case PROPID_MGMT_MSMQ_ACTIVEQUEUES:
        return give_texts(value, queues, active_name);
    case PROPID_MGMT_MSMQ_PRIVATEQ:
        return give_texts(value, queues, private_name);
    case PROPID_MGMT_MSMQ_DSSERVER: /* a node reads the directory itself */
        value->vt = VT_NULL;
        return MQ_OK;
    case PROPID_MGMT_MSMQ_CONNECTED:
        return give_text(value, json_is_true(json_object_get(status, "online")) ? "CONNECTED" : "DISCONNECTED");
    case PROPID_MGMT_MSMQ_TYPE:
        return give_text(value, "qmnode");
    case PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES:
        value->vt = VT_I8;
        value->hVal = number_of(status, "total_bytes");
        return MQ_OK;
    default:
        return MQ_INFORMATION_UNSUPPORTED_PROPERTY;
    }
}

static const char *kind_name(const json_t *one)
{
    if (is_of_kind(one, "system"))
        return "MACHINE";
    if (is_of_kind(one, "connector"))
        return "CONNECTOR";
    const char *name = text_of(one, "format_name");
    if (strncmp(name, "MULTICAST=", 10) == 0)
        return "MULTICAST";
    if (is_of_kind(one, "outgoing"))
        return strncmp(name, "PRIVATE=", 8) == 0 || strstr(name, "rivate$") || strstr(name, "RIVATE$") ? "PRIVATE"
                                                                                                      : "PUBLIC";
    return is_of_kind(one, "public") ? "PUBLIC" : "PRIVATE";
}

static const char *state_name(const json_t *one)
{
    static const struct { const char *node, *name; } STATES[] = QUEUE_STATES;
    if (!is_of_kind(one, "outgoing"))
        return LOCAL_QUEUE_STATE;
    for (size_t at = 0; at < sizeof STATES / sizeof *STATES; at++)
        if (strcmp(text_of(one, "state"), STATES[at].node) == 0)
            return STATES[at].name;
    return "";
}

static HRESULT give_count(MQPROPVARIANT *value, json_int_t number)
{
    value->vt = VT_UI4;
    value->ulVal = number > 0xFFFFFFFF ? 0xFFFFFFFF : (ULONG)number;
    return MQ_OK;
}

static HRESULT of_queue(DWORD id, MQPROPVARIANT *value, const json_t *one)
{
    bool outgoing = is_of_kind(one, "outgoing");
    switch (id) {
    case PROPID_MGMT_QUEUE_PATHNAME:
        return give_text(value, text_of(one, "pathname"));
    case PROPID_MGMT_QUEUE_FORMATNAME:
        return give_text(value, text_of(one, "format_name"));
    case PROPID_MGMT_QUEUE_TYPE:
        return give_text(value, kind_name(one));
    case PROPID_MGMT_QUEUE_LOCATION:
        return give_text(value, outgoing ? "REMOTE" : "LOCAL");
    case PROPID_MGMT_QUEUE_XACT:
        return give_text(value, json_is_true(json_object_get(one, "transactional")) ? "YES" : "NO");
    case PROPID_MGMT_QUEUE_FOREIGN:
        return give_text(value, "NO");
    case PROPID_MGMT_QUEUE_MESSAGE_COUNT:
        return give_count(value, number_of(one, "message_count"));
    case PROPID_MGMT_QUEUE_BYTES_IN_QUEUE:
        return give_count(value, number_of(one, "total_bytes"));
    case PROPID_MGMT_QUEUE_JOURNAL_MESSAGE_COUNT:
        return give_count(value, number_of(one, "journal_message_count"));
    case PROPID_MGMT_QUEUE_BYTES_IN_JOURNAL:
        return give_count(value, number_of(one, "journal_total_bytes"));
    case PROPID_MGMT_QUEUE_STATE:
        return give_text(value, state_name(one));
    case PROPID_MGMT_QUEUE_NEXTHOPS:
        if (!outgoing) {
            value->vt = VT_NULL;
            return MQ_OK;
        }
        return give_texts(value, json_object_get(one, "next_hops"), itself);
    case PROPID_MGMT_QUEUE_SUBQUEUE_COUNT:
        return give_count(value, (json_int_t)json_array_size(json_object_get(one, "subqueues")));
    case PROPID_MGMT_QUEUE_SUBQUEUE_NAMES:
        return give_texts(value, json_object_get(one, "subqueues"), itself);
    default: /* the socket of the node does not tell how far a sequence is */
        return MQ_INFORMATION_UNSUPPORTED_PROPERTY;
    }
}

static HRESULT check(const Properties *properties)
{
    if (properties == NULL || properties->count == 0 || properties->ids == NULL || properties->values == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    return properties->count > MOST_PROPERTIES ? MQ_ERROR_TOO_MANY_PROPERTIES : MQ_OK;
}

static void set_status(Properties *properties, DWORD at, HRESULT status, HRESULT *result)
{
    if (properties->statuses != NULL)
        properties->statuses[at] = status;
    if (FAILED(status))
        *result = FAILED(*result) ? *result : status;
    else if (status != MQ_OK && !FAILED(*result))
        *result = MQ_INFORMATION_PROPERTY;
}

static bool is_own(const Connection *connection, LPCWSTR name)
{
    char *text = name == NULL || *name == 0 ? NULL : to_utf8(name);
    bool own = text == NULL ? name == NULL || *name == 0
                            : strcmp(text, ".") == 0 || strcasecmp(text, connection_computer_name(connection)) == 0;
    free(text);
    return own;
}

/* The connection, if a name means its computer. */
static HRESULT own_computer(LPCWSTR name, Connection **connection)
{
    HRESULT code = connection_get(connection);
    if (FAILED(code) || is_own(*connection, name))
        return code;
    connection_release(*connection);
    set_sentence("a node answers for its own computer alone: run the program beside the other node");
    return MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE;
}

HRESULT MQMgmtGetInfo(LPCWSTR computer, LPCWSTR object, MQMGMTPROPS *given)
{
    set_sentence("");
    Properties *properties = (Properties *)given;
    HRESULT result = check(properties);
    if (FAILED(result))
        return result;
    bool machine = object != NULL && is_word(object, "MACHINE");
    if (!machine && (object == NULL || !begins_with(object, "QUEUE=")))
        return MQ_ERROR_INVALID_PARAMETER;
    json_t *name = machine ? NULL : json_format_name(object + 6), *found = NULL, *queues = NULL;
    if (!machine && name == NULL)
        return MQ_ERROR_ILLEGAL_FORMATNAME;
    Connection *connection;
    result = own_computer(computer, &connection);
    if (FAILED(result)) {
        json_decref(name);
        return result;
    }
    if (machine) {
        result = connection_method(connection, "manager", 0, "status", NULL, NULL, &found);
        if (!FAILED(result))
            result = connection_method(connection, "manager", 0, "queues", NULL, NULL, &queues);
    } else {
        result = connection_method(connection, "manager", 0, "queue", json_pack("[o]", name), NULL, &found);
    }
    for (DWORD at = 0; !FAILED(result) && at < properties->count; at++) {
        MQPROPVARIANT *value = &properties->values[at];
        HRESULT status = machine ? of_machine(properties->ids[at], value, json_object_get(found, "$status"), queues)
                                 : of_queue(properties->ids[at], value, attributes_of(found));
        set_status(properties, at, status, &result);
    }
    json_decref(found);
    json_decref(queues);
    connection_release(connection);
    return result;
}

HRESULT MQMgmtAction(LPCWSTR computer, LPCWSTR object, LPCWSTR action)
{
    set_sentence("");
    if (object == NULL || action == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    bool machine = is_word(object, "MACHINE");
    const char *method = NULL;
    json_t *arguments = NULL;
    if (machine && (is_word(action, "CONNECT") || is_word(action, "DISCONNECT"))) {
        method = "set_online";
        arguments = json_pack("[b]", is_word(action, "CONNECT"));
    } else if (begins_with(object, "QUEUE=") && (is_word(action, "PAUSE") || is_word(action, "RESUME"))) {
        method = is_word(action, "PAUSE") ? "pause_queue" : "resume_queue";
        json_t *name = json_format_name(object + 6);
        if (name == NULL)
            return MQ_ERROR_ILLEGAL_FORMATNAME;
        arguments = json_pack("[o]", name);
    } else if (machine || begins_with(object, "QUEUE=")) {
        set_sentence("a node has no such action: it tidies its store, and sends again, by itself");
        return MQ_ERROR_UNSUPPORTED_OPERATION;
    } else {
        return MQ_ERROR_INVALID_PARAMETER;
    }
    Connection *connection;
    HRESULT code = own_computer(computer, &connection);
    if (FAILED(code)) {
        json_decref(arguments);
        return code;
    }
    code = connection_method(connection, "manager", 0, method, arguments, NULL, NULL);
    connection_release(connection);
    return code;
}

/* A machine of the enterprise, as the directory has it: by its name, or else by its identifier. */
static HRESULT find_machine(Connection *connection, LPCWSTR name, const GUID *identifier, json_t **found)
{
    json_t *wanted = identifier == NULL ? json_text(name) : json_bytes(identifier, GUID_SIZE);
    if (wanted == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    return connection_method(connection, "manager", 0, "find_machine", json_pack("[o]", wanted), NULL, found);
}

static HRESULT give_identifier(MQPROPVARIANT *value, const uint8_t *identifier)
{
    if (value->vt != VT_NULL && value->vt != VT_CLSID)
        return MQ_ERROR_ILLEGAL_PROPERTY_VT;
    if (value->vt == VT_NULL)
        value->puuid = malloc(GUID_SIZE);
    if (value->puuid == NULL)
        return MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
    memcpy(value->puuid, identifier, GUID_SIZE);
    value->vt = VT_CLSID;
    return MQ_OK;
}

HRESULT MQGetMachineProperties(LPCWSTR name, const GUID *identifier, MQQMPROPS *given)
{
    set_sentence("");
    Properties *properties = (Properties *)given;
    HRESULT result = properties == NULL || properties->count == 0 || properties->ids == NULL ||
                             properties->values == NULL
                         ? MQ_ERROR_ILLEGAL_MQQMPROPS
                         : check(properties);
    if (!FAILED(result) && name != NULL && identifier != NULL)
        result = MQ_ERROR_INVALID_PARAMETER;
    Connection *connection;
    if (!FAILED(result))
        result = connection_get(&connection);
    if (FAILED(result))
        return result;
    const uint8_t *own = connection_identifier(connection);
    const char *computer = connection_computer_name(connection);
    json_t *found = NULL;
    uint8_t *other = NULL;
    size_t size = 0;
    if (identifier != NULL ? memcmp(identifier, own, GUID_SIZE) != 0 : !is_own(connection, name)) {
        result = find_machine(connection, name, identifier, &found);
        computer = json_string_value(json_object_get(found, "computer_name"));
        own = other = bytes_of_json(json_object_get(found, "identifier"), &size);
        if (!FAILED(result) && (computer == NULL || other == NULL || size != GUID_SIZE))
            result = MQ_ERROR;
    }
    for (DWORD at = 0; !FAILED(result) && at < properties->count; at++) {
        MQPROPVARIANT *value = &properties->values[at];
        HRESULT status = MQ_INFORMATION_UNSUPPORTED_PROPERTY;
        if (properties->ids[at] == PROPID_QM_PATHNAME)
            status = value->vt != VT_NULL ? MQ_ERROR_ILLEGAL_PROPERTY_VT : give_text(value, computer);
        else if (properties->ids[at] == PROPID_QM_MACHINE_ID)
            status = give_identifier(value, own);
        set_status(properties, at, status, &result);
    }
    free(other);
    json_decref(found);
    connection_release(connection);
    return result;
}
