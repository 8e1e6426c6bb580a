/*
 * The properties of messages: what each is, which a sender sets and which a receiver gets, and their statuses.
 *
 * Buffers that are too small get nothing, or of a body as much as they hold; each length is the one that is needed.
 */
#include <stdlib.h>

#include "internal.h"

#define MOST_PROPERTIES 128
#define GUID_SIZE 16
#define HIGHEST_PROPERTY PROPID_M_LAST_MOVE_TIME
#define DEFAULT_TIME_TO_REACH_QUEUE 345600u
#define DEFAULT_HASH 0x800Eu
#define DEFAULT_ENCRYPTION 0x6610u
#define BYTES (VT_VECTOR | VT_UI1)

enum Use {
    SENT = 1,       /* a sender sets it */
    RECEIVED = 2,   /* a receiver gets it */
    RETURNED = 4,   /* the sender gets it back */
};

typedef struct Row {
    VARTYPE type;
    uint8_t use;
    uint8_t length; /* the property with the length of its buffer */
    HRESULT too_small;
} Row;

#define NUMBER(t, u) {(t), (u), 0, 0}
#define BUFFER(t, u, l, e) {(t), (u), (l), (e)}
#define NAME(u, l) BUFFER(VT_LPWSTR, u, l, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL)

static const Row ROWS[HIGHEST_PROPERTY + 1] = {
    [PROPID_M_CLASS] = NUMBER(VT_UI2, SENT | RECEIVED),
    [PROPID_M_MSGID] = NUMBER(BYTES, RETURNED | RECEIVED),
    [PROPID_M_CORRELATIONID] = NUMBER(BYTES, SENT | RECEIVED),
    [PROPID_M_PRIORITY] = NUMBER(VT_UI1, SENT | RECEIVED),
    [PROPID_M_DELIVERY] = NUMBER(VT_UI1, SENT | RECEIVED),
    [PROPID_M_ACKNOWLEDGE] = NUMBER(VT_UI1, SENT | RECEIVED),
    [PROPID_M_JOURNAL] = NUMBER(VT_UI1, SENT | RECEIVED),
    [PROPID_M_APPSPECIFIC] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_BODY] = NUMBER(BYTES, SENT | RECEIVED),
    [PROPID_M_BODY_SIZE] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_LABEL] =
        BUFFER(VT_LPWSTR, SENT | RECEIVED, PROPID_M_LABEL_LEN, MQ_ERROR_LABEL_BUFFER_TOO_SMALL),
    [PROPID_M_LABEL_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_TIME_TO_REACH_QUEUE] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_TIME_TO_BE_RECEIVED] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_RESP_QUEUE] = NAME(SENT | RECEIVED, PROPID_M_RESP_QUEUE_LEN),
    [PROPID_M_RESP_QUEUE_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_ADMIN_QUEUE] = NAME(SENT | RECEIVED, PROPID_M_ADMIN_QUEUE_LEN),
    [PROPID_M_ADMIN_QUEUE_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_VERSION] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_SENDERID] =
        BUFFER(BYTES, SENT | RECEIVED, PROPID_M_SENDERID_LEN, MQ_ERROR_SENDERID_BUFFER_TOO_SMALL),
    [PROPID_M_SENDERID_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_SENDERID_TYPE] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_PRIV_LEVEL] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_AUTH_LEVEL] = NUMBER(VT_UI4, SENT),
    [PROPID_M_AUTHENTICATED] = NUMBER(VT_UI1, RECEIVED),
    [PROPID_M_HASH_ALG] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_ENCRYPTION_ALG] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_SENDER_CERT] =
        BUFFER(BYTES, SENT | RECEIVED, PROPID_M_SENDER_CERT_LEN, MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL),
    [PROPID_M_SENDER_CERT_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_SRC_MACHINE_ID] = NUMBER(VT_CLSID, RECEIVED),
    [PROPID_M_SENTTIME] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_ARRIVEDTIME] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_DEST_QUEUE] = NAME(RECEIVED, PROPID_M_DEST_QUEUE_LEN),
    [PROPID_M_DEST_QUEUE_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_EXTENSION] = BUFFER(BYTES, SENT | RECEIVED, PROPID_M_EXTENSION_LEN, MQ_ERROR_BUFFER_OVERFLOW),
    [PROPID_M_EXTENSION_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_CONNECTOR_TYPE] = NUMBER(VT_CLSID, SENT | RECEIVED),
    [PROPID_M_TRACE] = NUMBER(VT_UI1, SENT | RECEIVED),
    [PROPID_M_BODY_TYPE] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_DEST_SYMM_KEY] =
        BUFFER(BYTES, SENT | RECEIVED, PROPID_M_DEST_SYMM_KEY_LEN, MQ_ERROR_SYMM_KEY_BUFFER_TOO_SMALL),
    [PROPID_M_DEST_SYMM_KEY_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_SIGNATURE] =
        BUFFER(BYTES, SENT | RECEIVED, PROPID_M_SIGNATURE_LEN, MQ_ERROR_SIGNATURE_BUFFER_TOO_SMALL),
    [PROPID_M_SIGNATURE_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_PROV_TYPE] = NUMBER(VT_UI4, SENT | RECEIVED),
    [PROPID_M_PROV_NAME] =
        BUFFER(VT_LPWSTR, SENT | RECEIVED, PROPID_M_PROV_NAME_LEN, MQ_ERROR_PROV_NAME_BUFFER_TOO_SMALL),
    [PROPID_M_PROV_NAME_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_FIRST_IN_XACT] = NUMBER(VT_UI1, RECEIVED),
    [PROPID_M_LAST_IN_XACT] = NUMBER(VT_UI1, RECEIVED),
    [PROPID_M_XACTID] = NUMBER(BYTES, RECEIVED),
    [PROPID_M_AUTHENTICATED_EX] = NUMBER(VT_UI1, RECEIVED),
    [PROPID_M_RESP_FORMAT_NAME] = NAME(SENT | RECEIVED, PROPID_M_RESP_FORMAT_NAME_LEN),
    [PROPID_M_RESP_FORMAT_NAME_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_DEST_FORMAT_NAME] = NAME(RECEIVED, PROPID_M_DEST_FORMAT_NAME_LEN),
    [PROPID_M_DEST_FORMAT_NAME_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_LOOKUPID] = NUMBER(VT_UI8, RECEIVED),
    [PROPID_M_SOAP_HEADER] = NUMBER(VT_LPWSTR, SENT),
    [PROPID_M_SOAP_BODY] = NUMBER(VT_LPWSTR, SENT),
    [PROPID_M_DEADLETTER_QUEUE] = NAME(SENT | RECEIVED, PROPID_M_DEADLETTER_QUEUE_LEN),
    [PROPID_M_DEADLETTER_QUEUE_LEN] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_ABORT_COUNT] = NUMBER(VT_UI4, RECEIVED),
    [PROPID_M_MOVE_COUNT] = NUMBER(VT_UI4, RECEIVED),
};

static const Row *row_of(MSGPROPID id) { return id <= HIGHEST_PROPERTY && ROWS[id].use ? &ROWS[id] : NULL; }

/* Lengths of buffers; a sender may give them, and nobody reads them. */
static bool is_length(MSGPROPID id) { return id <= HIGHEST_PROPERTY && ROWS[id].use == RECEIVED && ROWS[id].type == VT_UI4; }

/* The places of the properties, by their identifiers. */
typedef struct Places {
    uint8_t place[HIGHEST_PROPERTY + 1]; /* from 1 on */
} Places;

static HRESULT set_status(MQMSGPROPS *properties, DWORD at, HRESULT status)
{
    if (properties->aStatus != NULL)
        properties->aStatus[at] = status;
    return status;
}

/* Find the properties, and set the statuses of those that no call for this use reads. */
static HRESULT find(MQMSGPROPS *properties, uint8_t use, Places *places)
{
    HRESULT result = MQ_OK;
    memset(places, 0, sizeof *places);
    if (properties->cProp > MOST_PROPERTIES)
        return MQ_ERROR_TOO_MANY_PROPERTIES;
    if (properties->cProp == 0 || properties->aPropID == NULL || properties->aPropVar == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    for (DWORD at = 0; at < properties->cProp; at++) {
        MSGPROPID id = properties->aPropID[at];
        const Row *row = row_of(id);
        HRESULT status = MQ_OK;
        if (row == NULL)
            status = MQ_INFORMATION_UNSUPPORTED_PROPERTY;
        else if (!(row->use & use))
            status = is_length(id) ? MQ_OK : MQ_INFORMATION_PROPERTY_IGNORED;
        else if (places->place[id])
            status = MQ_INFORMATION_DUPLICATE_PROPERTY;
        else
            places->place[id] = (uint8_t)(at + 1);
        set_status(properties, at, status);
        if (status != MQ_OK)
            result = MQ_INFORMATION_PROPERTY;
    }
    return result;
}

static MQPROPVARIANT *value_of(const MQMSGPROPS *properties, const Places *places, MSGPROPID id)
{
    return places->place[id] ? &properties->aPropVar[places->place[id] - 1] : NULL;
}

/* ---- Sending ---- */

static HRESULT text_fault(const MQPROPVARIANT *value)
{
    if (value->pwszVal == NULL)
        return MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
    char *text = to_utf8(value->pwszVal);
    free(text);
    return text == NULL ? MQ_ERROR_ILLEGAL_PROPERTY_VALUE : MQ_OK;
}

static HRESULT name_fault(const MQPROPVARIANT *value, bool several)
{
    HRESULT fault = text_fault(value);
    if (fault != MQ_OK || *value->pwszVal == 0)
        return fault;
    return check_format_name(value->pwszVal, several);
}

static HRESULT value_fault(MSGPROPID id, const MQPROPVARIANT *value)
{
    bool sound = true;
    switch (id) {
    case PROPID_M_PRIORITY:
        sound = value->bVal <= MQ_MAX_PRIORITY;
        break;
    case PROPID_M_DELIVERY:
    case PROPID_M_TRACE:
        sound = value->bVal <= 1;
        break;
    case PROPID_M_ACKNOWLEDGE:
        sound = value->bVal <= 0x0F;
        break;
    case PROPID_M_JOURNAL:
        sound = value->bVal <= (MQMSG_DEADLETTER | MQMSG_JOURNAL);
        break;
    case PROPID_M_PRIV_LEVEL:
        sound = value->ulVal == MQMSG_PRIV_LEVEL_NONE || value->ulVal == MQMSG_PRIV_LEVEL_BODY_BASE ||
                value->ulVal == MQMSG_PRIV_LEVEL_BODY_ENHANCED || value->ulVal == MQMSG_PRIV_LEVEL_BODY_AES;
        break;
    case PROPID_M_AUTH_LEVEL:
        sound = value->ulVal == MQMSG_AUTH_LEVEL_NONE || value->ulVal == MQMSG_AUTH_LEVEL_ALWAYS ||
                value->ulVal == MQMSG_AUTH_LEVEL_SIG10 || value->ulVal == MQMSG_AUTH_LEVEL_SIG20 ||
                value->ulVal == MQMSG_AUTH_LEVEL_SIG30;
        break;
    case PROPID_M_SENDERID_TYPE:
        sound = value->ulVal <= MQMSG_SENDERID_TYPE_SID;
        break;
    case PROPID_M_LABEL:
        if (text_fault(value) != MQ_OK)
            return MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
        return length16(value->pwszVal) > MQ_MAX_MSG_LABEL_LEN ? MQ_ERROR_LABEL_TOO_LONG : MQ_OK;
    case PROPID_M_PROV_NAME:
    case PROPID_M_SOAP_HEADER:
    case PROPID_M_SOAP_BODY:
        return text_fault(value);
    case PROPID_M_RESP_QUEUE:
    case PROPID_M_ADMIN_QUEUE:
    case PROPID_M_DEADLETTER_QUEUE:
        return name_fault(value, false);
    case PROPID_M_RESP_FORMAT_NAME:
        return name_fault(value, true);
    case PROPID_M_CORRELATIONID:
        if (value->caub.cElems != IDENTIFIER_SIZE)
            return MQ_ERROR_ILLEGAL_PROPERTY_SIZE;
        sound = value->caub.pElems != NULL;
        break;
    case PROPID_M_CONNECTOR_TYPE:
        sound = value->puuid != NULL;
        break;
    case PROPID_M_BODY:
    case PROPID_M_EXTENSION:
    case PROPID_M_SENDERID:
    case PROPID_M_SENDER_CERT:
    case PROPID_M_DEST_SYMM_KEY:
    case PROPID_M_SIGNATURE:
        sound = value->caub.cElems == 0 || value->caub.pElems != NULL;
        break;
    default:
        break;
    }
    return sound ? MQ_OK : MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
}

static void request(Outgoing *message, const char *name, json_t *value)
{
    if (message->requests == NULL)
        message->requests = json_object();
    json_object_set_new(message->requests, name, value);
}

static void request_bytes(Outgoing *message, const char *name, const MQPROPVARIANT *value)
{
    if (value != NULL && value->caub.cElems > 0)
        request(message, name, json_bytes(value->caub.pElems, value->caub.cElems));
}

static int signature_of(ULONG level)
{
    switch (level) {
    case MQMSG_AUTH_LEVEL_NONE:
        return 0;
    case MQMSG_AUTH_LEVEL_SIG10:
        return 1;
    case MQMSG_AUTH_LEVEL_SIG30:
        return 5;
    default:
        return 3;
    }
}

/* The node knows the queue for dead letters by its path name. */
static HRESULT request_dead_letter(Outgoing *message, Connection *connection, const WCHAR *name)
{
    if (*name == 0)
        return MQ_OK;
    if (begins_with(name, "DIRECT=OS:")) {
        request(message, "application_dead_letter_queue", json_text(name + 10));
        return MQ_OK;
    }
    json_t *information = NULL;
    HRESULT code = connection_method(connection, "manager", 0, "queue", json_pack("[o]", json_text(name)), NULL,
                                     &information);
    const char *path = json_string_value(json_object_get(json_object_get(information, "$queue"), "pathname"));
    if (!FAILED(code) && path == NULL)
        code = MQ_ERROR_ILLEGAL_FORMATNAME;
    if (!FAILED(code))
        request(message, "application_dead_letter_queue", json_string(path));
    json_decref(information);
    return code;
}

HRESULT properties_to_send(MQMSGPROPS *properties, Connection *connection, Outgoing *message)
{
    *message = (Outgoing){
        .priority = DEFAULT_M_PRIORITY,
        .time_to_reach_queue = DEFAULT_TIME_TO_REACH_QUEUE,
        .time_to_be_received = INFINITE,
        .hash = DEFAULT_HASH,
        .encryption = DEFAULT_ENCRYPTION,
    };
    Places places;
    if (properties == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    HRESULT result = find(properties, SENT | RETURNED, &places);
    if (FAILED(result))
        return result;
    bool failed = false;
    for (MSGPROPID id = 1; id <= HIGHEST_PROPERTY; id++) {
        MQPROPVARIANT *value = value_of(properties, &places, id);
        if (value == NULL)
            continue;
        HRESULT fault = MQ_OK;
        if (ROWS[id].use & RETURNED) { /* a buffer for the identifier */
            if (value->vt != BYTES)
                fault = MQ_ERROR_ILLEGAL_PROPERTY_VT;
            else if (value->caub.cElems < IDENTIFIER_SIZE || value->caub.pElems == NULL)
                fault = MQ_ERROR_ILLEGAL_PROPERTY_SIZE;
        } else if (value->vt != ROWS[id].type) {
            fault = MQ_ERROR_ILLEGAL_PROPERTY_VT;
        } else {
            fault = value_fault(id, value);
        }
        if (FAILED(fault)) {
            set_status(properties, (DWORD)(places.place[id] - 1), fault);
            failed = true;
        }
    }
    if (failed)
        return MQ_ERROR_PROPERTY;
#define GIVEN(id, field, member) \
    if ((value = value_of(properties, &places, id)) != NULL) \
        message->field = value->member
#define GIVEN_SPAN(id, field) \
    if ((value = value_of(properties, &places, id)) != NULL) \
        message->field = (Span){value->caub.pElems, value->caub.cElems}
    MQPROPVARIANT *value;
    GIVEN(PROPID_M_CLASS, class, uiVal);
    GIVEN(PROPID_M_PRIORITY, priority, bVal);
    GIVEN(PROPID_M_DELIVERY, delivery, bVal);
    GIVEN(PROPID_M_ACKNOWLEDGE, acknowledge, bVal);
    GIVEN(PROPID_M_JOURNAL, journal, bVal);
    GIVEN(PROPID_M_APPSPECIFIC, app_specific, ulVal);
    GIVEN(PROPID_M_BODY_TYPE, body_type, ulVal);
    GIVEN(PROPID_M_TIME_TO_BE_RECEIVED, time_to_be_received, ulVal);
    GIVEN(PROPID_M_TIME_TO_REACH_QUEUE, time_to_reach_queue, ulVal);
    if (message->time_to_reach_queue == LONG_LIVED)
        message->time_to_reach_queue = DEFAULT_TIME_TO_REACH_QUEUE;
    GIVEN(PROPID_M_PRIV_LEVEL, privacy, ulVal);
    GIVEN(PROPID_M_HASH_ALG, hash, ulVal);
    GIVEN(PROPID_M_ENCRYPTION_ALG, encryption, ulVal);
    GIVEN(PROPID_M_CORRELATIONID, correlation, caub.pElems);
    GIVEN(PROPID_M_CONNECTOR_TYPE, connector, puuid == NULL ? NULL : (const uint8_t *)value->puuid);
    GIVEN(PROPID_M_LABEL, label, pwszVal);
    GIVEN(PROPID_M_ADMIN_QUEUE, administration, pwszVal);
    GIVEN(PROPID_M_RESP_QUEUE, response, pwszVal);
    GIVEN(PROPID_M_SOAP_HEADER, soap_header, pwszVal);
    GIVEN(PROPID_M_SOAP_BODY, soap_body, pwszVal);
    GIVEN_SPAN(PROPID_M_BODY, body);
    GIVEN_SPAN(PROPID_M_EXTENSION, extension);
    if ((value = value_of(properties, &places, PROPID_M_RESP_FORMAT_NAME)) != NULL && *value->pwszVal != 0) {
        if (check_format_name(value->pwszVal, false) == MQ_OK)
            message->response = value->pwszVal;
        else
            message->responses = value->pwszVal;
    }
    if ((value = value_of(properties, &places, PROPID_M_AUTH_LEVEL)) != NULL && value->ulVal != MQMSG_AUTH_LEVEL_NONE)
        request(message, "authentication_level", json_integer(signature_of(value->ulVal)));
    if ((value = value_of(properties, &places, PROPID_M_SENDERID_TYPE)) != NULL)
        request(message, "sender_identifier_type", json_integer(value->ulVal));
    if ((value = value_of(properties, &places, PROPID_M_TRACE)) != NULL && value->bVal)
        request(message, "tracing_requested", json_true());
    if ((value = value_of(properties, &places, PROPID_M_PROV_TYPE)) != NULL)
        request(message, "authentication_provider_type", json_integer(value->ulVal));
    if ((value = value_of(properties, &places, PROPID_M_PROV_NAME)) != NULL && *value->pwszVal != 0)
        request(message, "authentication_provider_name", json_text(value->pwszVal));
    request_bytes(message, "sender_identifier", value_of(properties, &places, PROPID_M_SENDERID));
    request_bytes(message, "sender_certificate", value_of(properties, &places, PROPID_M_SENDER_CERT));
    request_bytes(message, "signature", value_of(properties, &places, PROPID_M_SIGNATURE));
    request_bytes(message, "symmetric_key", value_of(properties, &places, PROPID_M_DEST_SYMM_KEY));
    if ((value = value_of(properties, &places, PROPID_M_DEADLETTER_QUEUE)) != NULL) {
        HRESULT code = request_dead_letter(message, connection, value->pwszVal);
        if (FAILED(code)) {
            set_status(properties, (DWORD)(places.place[PROPID_M_DEADLETTER_QUEUE] - 1), code);
            return MQ_ERROR_PROPERTY;
        }
    }
    return result;
}

void outgoing_free(Outgoing *message) { json_decref(message->requests); }

void properties_sent(MQMSGPROPS *properties, const uint8_t identifier[IDENTIFIER_SIZE])
{
    for (DWORD at = 0; at < properties->cProp; at++)
        if (properties->aPropID[at] == PROPID_M_MSGID && properties->aPropVar[at].vt == BYTES) {
            memcpy(properties->aPropVar[at].caub.pElems, identifier, IDENTIFIER_SIZE);
            properties->aPropVar[at].caub.cElems = IDENTIFIER_SIZE;
            return;
        }
}

/* ---- Receiving ---- */

static bool is_identifier(MSGPROPID id)
{
    return id == PROPID_M_MSGID || id == PROPID_M_CORRELATIONID || id == PROPID_M_XACTID;
}

HRESULT properties_check_received(MQMSGPROPS *properties)
{
    Places places;
    if (properties == NULL)
        return MQ_OK;
    HRESULT result = find(properties, RECEIVED, &places);
    if (FAILED(result))
        return result;
    bool failed = false, insufficient = false;
    for (MSGPROPID id = 1; id <= HIGHEST_PROPERTY; id++) {
        MQPROPVARIANT *value = value_of(properties, &places, id);
        if (value == NULL)
            continue;
        const Row *row = &ROWS[id];
        HRESULT fault = MQ_OK;
        bool buffer = row->type == BYTES || row->type == VT_LPWSTR || row->type == VT_CLSID;
        if (value->vt != row->type && (buffer || value->vt != VT_NULL))
            fault = MQ_ERROR_ILLEGAL_PROPERTY_VT;
        else if (is_identifier(id) && (value->caub.cElems < IDENTIFIER_SIZE || value->caub.pElems == NULL))
            fault = MQ_ERROR_ILLEGAL_PROPERTY_SIZE;
        else if (row->type == VT_CLSID && value->puuid == NULL)
            fault = MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
        else if (row->type == BYTES && value->caub.cElems > 0 && value->caub.pElems == NULL)
            fault = MQ_ERROR_ILLEGAL_PROPERTY_VALUE;
        else if (row->length && !places.place[row->length])
            insufficient = true;
        if (FAILED(fault)) {
            set_status(properties, (DWORD)(places.place[id] - 1), fault);
            failed = true;
        }
    }
    return failed ? MQ_ERROR_PROPERTY : insufficient ? MQ_ERROR_INSUFFICIENT_PROPERTIES : result;
}

/* The room that the buffer of a property has, in its elements. */
static size_t room_of(const MQMSGPROPS *properties, const Places *places, MSGPROPID id)
{
    const MQPROPVARIANT *value = value_of(properties, places, id);
    const MQPROPVARIANT *length = value_of(properties, places, ROWS[id].length);
    if (ROWS[id].type == VT_LPWSTR) /* the length is given in and out; of bytes it is only given out */
        return length == NULL || value->pwszVal == NULL ? 0 : length->ulVal;
    return value->caub.cElems;
}

/* Bytes that each stored message has beside its body, its names, its label and the like. */
#define LEAST (RECORD_SIZE + BASE_HEADER_SIZE + USER_HEADER_SIZE + MESSAGE_PROPERTIES_HEADER_SIZE)
#define LONGEST_GUID_NAME 54 /* PRIVATE=, a GUID and a number: 20 bytes of a packet */

/* The bytes of a stored message beside its body that certainly fit into a buffer. */
static uint64_t certain(MSGPROPID id, VARTYPE type, uint64_t room)
{
    if (type == BYTES)
        return LEAST + room;
    if (room == 0)
        return 0;
    switch (id) {
    case PROPID_M_LABEL:
        return room >= MAXIMUM_LABEL ? UINT32_MAX : LEAST + 2 * (room - 1);
    case PROPID_M_RESP_QUEUE:
    case PROPID_M_ADMIN_QUEUE:
    case PROPID_M_DEST_QUEUE: /* DIRECT= and two bytes for a character, or of a GUID */
        return room < LONGEST_GUID_NAME ? 0 : LEAST + 2 * (room - 8);
    default: /* lists of names have at most three characters for a byte */
        return LEAST + (room - 1) / 3;
    }
}

bool properties_room(const MQMSGPROPS *properties, uint32_t *body, uint32_t *rest)
{
    *body = *rest = UINT32_MAX;
    if (properties == NULL)
        return true;
    Places places = {0};
    for (DWORD at = 0; at < properties->cProp; at++)
        if (row_of(properties->aPropID[at]) != NULL && !places.place[properties->aPropID[at]])
            places.place[properties->aPropID[at]] = (uint8_t)(at + 1);
    for (DWORD at = 0; at < properties->cProp; at++) {
        MSGPROPID id = properties->aPropID[at];
        const Row *row = row_of(id);
        if (row == NULL || !(row->use & RECEIVED) || is_identifier(id) || (row->type != BYTES && row->type != VT_LPWSTR))
            continue;
        uint64_t room = room_of(properties, &places, id);
        if (room >= MAXIMUM_PACKET && row->type == BYTES)
            continue;
        uint32_t *bound = id == PROPID_M_BODY ? body : rest;
        uint64_t bytes = id == PROPID_M_BODY ? room : certain(id, row->type, room);
        if (bytes < *bound)
            *bound = (uint32_t)bytes;
    }
    return *body == UINT32_MAX && *rest == UINT32_MAX;
}

typedef struct Filling {
    MQMSGPROPS *properties;
    Places places;
    HRESULT result;
} Filling;

static void fill_length(Filling *filling, MSGPROPID id, size_t needed)
{
    MQPROPVARIANT *length = value_of(filling->properties, &filling->places, id);
    if (length != NULL) {
        length->vt = VT_UI4;
        length->ulVal = (ULONG)needed;
    }
}

static void too_small(Filling *filling, MSGPROPID id, HRESULT code)
{
    set_status(filling->properties, (DWORD)(filling->places.place[id] - 1), code);
    if (!FAILED(filling->result) || code == MQ_ERROR_BUFFER_OVERFLOW) /* the body counts first */
        filling->result = code;
}

static void fill_bytes(Filling *filling, MSGPROPID id, Span bytes)
{
    MQPROPVARIANT *value = value_of(filling->properties, &filling->places, id);
    const Row *row = &ROWS[id];
    MSGPROPID length = id == PROPID_M_BODY ? PROPID_M_BODY_SIZE : row->length;
    if (value != NULL) {
        size_t room = room_of(filling->properties, &filling->places, id);
        if (bytes.size > room)
            too_small(filling, id, id == PROPID_M_BODY ? MQ_ERROR_BUFFER_OVERFLOW : row->too_small);
        if (bytes.size > 0 && room > 0 && (bytes.size <= room || id == PROPID_M_BODY))
            memcpy(value->caub.pElems, bytes.data, bytes.size < room ? bytes.size : room);
    }
    fill_length(filling, length, bytes.size);
}

/* `prefix` is one of a format name. The text has no null. */
static void fill_text(Filling *filling, MSGPROPID id, const char *prefix, Span text)
{
    MQPROPVARIANT *value = value_of(filling->properties, &filling->places, id);
    size_t before = text.size == 0 ? 0 : strlen(prefix), needed = before + text.size / 2 + 1;
    if (text.size == 0)
        needed = 0;
    if (value != NULL) {
        size_t room = room_of(filling->properties, &filling->places, id);
        if (needed > room)
            too_small(filling, id, ROWS[id].too_small);
        else if (room > 0) {
            for (size_t at = 0; at < before; at++)
                value->pwszVal[at] = (WCHAR)prefix[at];
            for (size_t at = 0; at < text.size / 2; at++)
                value->pwszVal[before + at] = read16(text.data + 2 * at);
            value->pwszVal[before + text.size / 2] = 0;
        }
    }
    fill_length(filling, ROWS[id].length, needed);
}

static void fill_name(Filling *filling, MSGPROPID id, const WCHAR *name)
{
    fill_text(filling, id, "", (Span){(const uint8_t *)name, name == NULL ? 0 : 2 * length16(name)});
}

static void fill_identifier(Filling *filling, MSGPROPID id, const uint8_t *identifier)
{
    MQPROPVARIANT *value = value_of(filling->properties, &filling->places, id);
    if (value != NULL) {
        memcpy(value->caub.pElems, identifier, IDENTIFIER_SIZE);
        value->caub.cElems = IDENTIFIER_SIZE;
    }
}

static void fill_guid(Filling *filling, MSGPROPID id, const uint8_t *guid)
{
    MQPROPVARIANT *value = value_of(filling->properties, &filling->places, id);
    if (value != NULL)
        memcpy(value->puuid, guid, GUID_SIZE);
}

static void fill_number(Filling *filling, MSGPROPID id, uint64_t number)
{
    MQPROPVARIANT *value = value_of(filling->properties, &filling->places, id);
    if (value == NULL)
        return;
    value->vt = ROWS[id].type;
    switch (ROWS[id].type) {
    case VT_UI1:
        value->bVal = (UCHAR)number;
        break;
    case VT_UI2:
        value->uiVal = (USHORT)number;
        break;
    case VT_UI8:
        value->uhVal = number;
        break;
    default:
        value->ulVal = (ULONG)number;
    }
}

HRESULT properties_fill(MQMSGPROPS *properties, const Message *message)
{
    Filling filling = {.properties = properties};
    if (properties == NULL)
        return MQ_OK;
    filling.result = find(properties, RECEIVED, &filling.places);
    if (FAILED(filling.result))
        return filling.result;
    fill_number(&filling, PROPID_M_CLASS, message->class);
    fill_number(&filling, PROPID_M_PRIORITY, message->priority);
    fill_number(&filling, PROPID_M_DELIVERY, message->delivery);
    fill_number(&filling, PROPID_M_ACKNOWLEDGE, message->acknowledge);
    fill_number(&filling, PROPID_M_JOURNAL, message->journal);
    fill_number(&filling, PROPID_M_APPSPECIFIC, message->app_specific);
    fill_number(&filling, PROPID_M_TIME_TO_REACH_QUEUE, message->time_to_reach_queue);
    fill_number(&filling, PROPID_M_TIME_TO_BE_RECEIVED, message->time_to_be_received);
    fill_number(&filling, PROPID_M_VERSION, message->version);
    fill_number(&filling, PROPID_M_SENDERID_TYPE, message->sender_type);
    fill_number(&filling, PROPID_M_PRIV_LEVEL, message->privacy);
    fill_number(&filling, PROPID_M_AUTHENTICATED, message->authenticated);
    fill_number(&filling, PROPID_M_AUTHENTICATED_EX, message->signature_level);
    fill_number(&filling, PROPID_M_HASH_ALG, message->hash);
    fill_number(&filling, PROPID_M_ENCRYPTION_ALG, message->encryption);
    fill_number(&filling, PROPID_M_SENTTIME, message->sent_time);
    fill_number(&filling, PROPID_M_ARRIVEDTIME, message->arrival / 1000000);
    fill_number(&filling, PROPID_M_TRACE, message->trace);
    fill_number(&filling, PROPID_M_BODY_TYPE, message->body_type);
    fill_number(&filling, PROPID_M_PROV_TYPE, message->provider_type);
    fill_number(&filling, PROPID_M_FIRST_IN_XACT, message->first);
    fill_number(&filling, PROPID_M_LAST_IN_XACT, message->last);
    fill_number(&filling, PROPID_M_LOOKUPID, message->lookup);
    fill_number(&filling, PROPID_M_ABORT_COUNT, message->aborts);
    fill_number(&filling, PROPID_M_MOVE_COUNT, message->moves);
    fill_identifier(&filling, PROPID_M_MSGID, message->identifier);
    fill_identifier(&filling, PROPID_M_CORRELATIONID, message->correlation);
    fill_identifier(&filling, PROPID_M_XACTID, message->transaction);
    fill_guid(&filling, PROPID_M_SRC_MACHINE_ID, message->source);
    fill_guid(&filling, PROPID_M_CONNECTOR_TYPE, message->connector);
    fill_text(&filling, PROPID_M_LABEL, "", message->label);
    fill_name(&filling, PROPID_M_RESP_QUEUE, message->response);
    fill_name(&filling, PROPID_M_ADMIN_QUEUE, message->administration);
    fill_name(&filling, PROPID_M_DEST_QUEUE, message->destination);
    fill_name(&filling, PROPID_M_DEST_FORMAT_NAME,
              message->destinations == NULL ? message->destination : message->destinations);
    fill_name(&filling, PROPID_M_RESP_FORMAT_NAME,
              message->responses == NULL ? message->response : message->responses);
    fill_text(&filling, PROPID_M_DEADLETTER_QUEUE, "DIRECT=OS:", message->dead_letter);
    fill_text(&filling, PROPID_M_PROV_NAME, "", message->provider);
    fill_bytes(&filling, PROPID_M_EXTENSION, message->extension);
    fill_bytes(&filling, PROPID_M_SENDERID, message->sender);
    fill_bytes(&filling, PROPID_M_SENDER_CERT, message->certificate);
    fill_bytes(&filling, PROPID_M_SIGNATURE, message->signature);
    fill_bytes(&filling, PROPID_M_DEST_SYMM_KEY, message->symmetric_key);
    fill_bytes(&filling, PROPID_M_BODY, message->body); /* last: its error is the one returned */
    return filling.result;
}
