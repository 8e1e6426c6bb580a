/*
 * The packet of a message (UserMessage, MS-MQMQ 2.2.20): written for a message on its way to the node, which fills in
 * its destination and numbers, and read in a message from a queue. Every size of a received one is checked.
 */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

#define GUID_SIZE 16
#define MQF_HEAD_SIZE 12
#define SOAP_HEADER_SECTION 0x0320
#define SOAP_BODY_SECTION 0x0384
#define MOST_ELEMENTS 1000
#define LONGEST_DIRECT_NAME 0x7FFEu /* its size in a packet, with the null, has 16 bits */

enum NameKind { NO_NAME = 0, SAME_AS_ADMINISTRATION = 1, OF_SOURCE = 2, OF_DESTINATION = 3, OF_ADMINISTRATION = 4,
                PUBLIC_NAME = 5, PRIVATE_NAME = 6, DIRECT_NAME = 7 };

/* ---- Writing ---- */

typedef struct Buffer {
    uint8_t *data;
    size_t size, room;
    bool failed;
} Buffer;

static uint8_t *extend(Buffer *buffer, size_t count)
{
    if (buffer->size + count > buffer->room) {
        size_t room = 2 * (buffer->size + count) + 256;
        uint8_t *data = buffer->failed ? NULL : realloc(buffer->data, room);
        if (data == NULL) {
            buffer->failed = true;
            return NULL;
        }
        buffer->data = data;
        buffer->room = room;
    }
    if (count == 0)
        return buffer->data;
    uint8_t *place = buffer->data + buffer->size;
    memset(place, 0, count);
    buffer->size += count;
    return place;
}

static void put(Buffer *buffer, const void *data, size_t size)
{
    uint8_t *place = extend(buffer, size);
    if (place != NULL && size > 0)
        memcpy(place, data, size);
}

static void put16(Buffer *buffer, uint32_t value)
{
    uint8_t bytes[2];
    write16(bytes, value);
    put(buffer, bytes, sizeof bytes);
}

static void put32(Buffer *buffer, uint32_t value)
{
    uint8_t bytes[4];
    write32(bytes, value);
    put(buffer, bytes, sizeof bytes);
}

static void align(Buffer *buffer) { extend(buffer, -buffer->size & 3); }

/* One name among several: its text without the prefix, and what it is. */
typedef struct Name {
    enum NameKind kind;
    const WCHAR *text; /* of a direct name */
    size_t length;
    uint8_t guid[GUID_SIZE];
    uint32_t number;
} Name;

#define LIST_NAME ((enum NameKind)8)

static bool is_direct(const WCHAR *text, size_t length)
{
    static const char *const protocols[] = {"OS:", "TCP:", "SPX:", "HTTP://", "HTTPS://"};
    for (size_t at = 0; at < sizeof protocols / sizeof *protocols; at++) {
        size_t size = strlen(protocols[at]);
        if (length <= size || !begins_with(text, protocols[at]))
            continue;
        for (size_t place = size + 1; place < length; place++) /* a computer, and a queue */
            if ((text[place] == u'\\' || (at > 2 && text[place] == u'/')) && place + 1 < length)
                return true;
    }
    return false;
}

/* Read the name up to a comma or the end; NULL if it is none. The rest of the list. */
static const WCHAR *read_name(const WCHAR *text, Name *name)
{
    size_t length = 0;
    while (text[length] != 0 && text[length] != u',')
        length++;
    if (begins_with(text, "DIRECT=")) {
        name->kind = DIRECT_NAME;
        name->text = text + 7;
        name->length = length - 7;
        return name->length <= LONGEST_DIRECT_NAME && is_direct(name->text, name->length) ? text + length : NULL;
    }
    if (begins_with(text, "PUBLIC=") && length == 7 + 36 && read_guid(text + 7, name->guid)) {
        name->kind = PUBLIC_NAME;
        return text + length;
    }
    if (begins_with(text, "DL=") && length == 3 + 36 && read_guid(text + 3, name->guid)) {
        name->kind = LIST_NAME;
        return text + length;
    }
    if (begins_with(text, "PRIVATE=") && length > 8 + 37 && length <= 8 + 37 + 8 && read_guid(text + 8, name->guid) &&
        text[8 + 36] == u'\\') {
        name->kind = PRIVATE_NAME;
        name->number = 0;
        for (size_t at = 8 + 37; at < length; at++) {
            WCHAR letter = text[at];
            int digit = letter >= u'0' && letter <= u'9'   ? letter - u'0'
                        : letter >= u'a' && letter <= u'f' ? letter - u'a' + 10
                        : letter >= u'A' && letter <= u'F' ? letter - u'A' + 10
                                                           : -1;
            if (digit < 0)
                return NULL;
            name->number = name->number << 4 | (uint32_t)digit;
        }
        return text + length;
    }
    return NULL;
}


HRESULT check_format_name(const WCHAR *text, bool several)
{
    Name name;
    size_t count = 0;
    do {
        text = read_name(text, &name);
        if (text == NULL || (name.kind == LIST_NAME && !several) || ++count > (several ? MOST_ELEMENTS : 1))
            return MQ_ERROR_ILLEGAL_FORMATNAME;
    } while (*text++ == u',');
    return MQ_OK;
}

static void put_direct(Buffer *buffer, const WCHAR *text, size_t length)
{
    put16(buffer, (uint32_t)(2 * (length + 1)));
    put(buffer, text, 2 * length);
    put16(buffer, 0);
    align(buffer);
}

/* The name of a queue in the UserHeader; its kind. */
static enum NameKind put_name(Buffer *buffer, const WCHAR *text)
{
    Name name;
    if (text == NULL || *text == 0 || read_name(text, &name) == NULL || name.kind == LIST_NAME)
        return NO_NAME;
    if (name.kind == DIRECT_NAME)
        put_direct(buffer, name.text, name.length);
    else
        put(buffer, name.guid, GUID_SIZE);
    if (name.kind == PRIVATE_NAME)
        put32(buffer, name.number);
    return name.kind;
}

/* A list of the MultiQueueFormatHeader (2.2.20.2). */
static void put_list(Buffer *buffer, uint32_t identifier, const WCHAR *text)
{
    size_t start = buffer->size;
    extend(buffer, MQF_HEAD_SIZE);
    uint32_t count = 0;
    while (text != NULL && *text != 0) {
        Name name;
        text = read_name(text, &name);
        if (text == NULL)
            break;
        count++;
        put16(buffer, name.kind == PUBLIC_NAME ? 1 : name.kind == PRIVATE_NAME ? 2 : name.kind == DIRECT_NAME ? 3 : 6);
        if (name.kind == DIRECT_NAME) {
            put(buffer, name.text, 2 * name.length);
            put16(buffer, 0);
        } else {
            align(buffer);
            put(buffer, name.guid, GUID_SIZE);
            if (name.kind == PRIVATE_NAME)
                put32(buffer, name.number);
        }
        text += *text == u',';
    }
    align(buffer);
    if (buffer->failed)
        return;
    write32(buffer->data + start, (uint32_t)(buffer->size - start));
    write16(buffer->data + start + 4, identifier);
    write32(buffer->data + start + 8, count);
}

static void put_soap(Buffer *buffer, uint32_t section, const WCHAR *text)
{
    size_t length = text == NULL || *text == 0 ? 0 : length16(text) + 1;
    put16(buffer, section);
    put16(buffer, 0);
    put32(buffer, (uint32_t)length);
    put(buffer, text, 2 * length);
    align(buffer);
}

/* The node puts the destination in: this one stands for it. */
static const WCHAR PLACEHOLDER[] = u"OS:.\\private$\\.";

HRESULT message_pack(const Outgoing *message, const uint8_t source[16], Packed *packed)
{
    Buffer head = {0}, tail = {0};
    size_t label = message->label == NULL ? 0 : length16(message->label);
    bool several = message->responses != NULL && *message->responses != 0;
    bool soap = (message->soap_header != NULL && *message->soap_header != 0) ||
                (message->soap_body != NULL && *message->soap_body != 0);
    extend(&head, BASE_HEADER_SIZE + USER_HEADER_SIZE);
    put_direct(&head, PLACEHOLDER, sizeof PLACEHOLDER / sizeof *PLACEHOLDER - 1);
    uint32_t flags = DIRECT_NAME << USER_FLAGS_DQ_SHIFT | USER_FLAGS_MP;
    flags |= (uint32_t)message->delivery << USER_FLAGS_DM_SHIFT;
    if (message->journal & MQMSG_DEADLETTER)
        flags |= USER_FLAGS_JN;
    if (message->journal & MQMSG_JOURNAL)
        flags |= USER_FLAGS_JP;
    flags |= (uint32_t)put_name(&head, message->administration) << USER_FLAGS_AQ_SHIFT;
    flags |= (uint32_t)put_name(&head, several ? message->responses : message->response) << USER_FLAGS_RQ_SHIFT;
    if (message->connector != NULL) {
        flags |= USER_FLAGS_CQ;
        put(&head, message->connector, GUID_SIZE);
    }
    if (soap)
        flags |= USER_FLAGS_HH;
    if (several)
        flags |= USER_FLAGS_MQ;
    size_t properties = head.size;
    extend(&head, MESSAGE_PROPERTIES_HEADER_SIZE);
    put(&head, message->label, label ? 2 * (label + 1) : 0);
    put(&head, message->extension.data, message->extension.size);
    size_t size = head.size + message->body.size;
    extend(&tail, -size & 3);
    Buffer rare = {0}; /* headers behind the body, from a multiple of four on */
    if (soap) {
        put_soap(&rare, SOAP_HEADER_SECTION, message->soap_header);
        put_soap(&rare, SOAP_BODY_SECTION, message->soap_body);
    }
    if (several) {
        put_list(&rare, MQF_DESTINATION, u"DIRECT=OS:.\\private$\\.");
        put_list(&rare, MQF_ADMIN, message->administration);
        put_list(&rare, MQF_RESPONSE, message->responses);
        put16(&rare, MQF_SIGNATURE);
        put16(&rare, 0);
        put32(&rare, 0);
    }
    put(&tail, rare.data, rare.size);
    tail.failed |= rare.failed;
    free(rare.data);
    size += tail.size;
    if (head.failed || tail.failed || size > MAXIMUM_PACKET) {
        HRESULT code = head.failed || tail.failed ? E_OUTOFMEMORY : MQ_ERROR_INSUFFICIENT_RESOURCES;
        free(head.data);
        free(tail.data);
        if (code != E_OUTOFMEMORY)
            set_sentence("a message has at most 4 MiB with its properties");
        return code;
    }
    uint8_t *at = head.data;
    at[BASE_HEADER_VERSION_NUMBER] = PACKET_VERSION;
    write16(at + BASE_HEADER_FLAGS, message->priority);
    write32(at + BASE_HEADER_SIGNATURE, PACKET_SIGNATURE);
    write32(at + BASE_HEADER_PACKET_SIZE, (uint32_t)size);
    write32(at + BASE_HEADER_TIME_TO_REACH_QUEUE, message->time_to_reach_queue);
    at += BASE_HEADER_SIZE;
    memcpy(at + USER_HEADER_SOURCE_QUEUE_MANAGER, source, GUID_SIZE);
    write32(at + USER_HEADER_TIME_TO_BE_RECEIVED, message->time_to_be_received);
    write32(at + USER_HEADER_FLAGS, flags);
    at = head.data + properties;
    at[MESSAGE_PROPERTIES_HEADER_FLAGS] = message->acknowledge;
    at[MESSAGE_PROPERTIES_HEADER_LABEL_LENGTH] = (uint8_t)(label ? label + 1 : 0);
    write16(at + MESSAGE_PROPERTIES_HEADER_MESSAGE_CLASS, message->class);
    if (message->correlation != NULL)
        memcpy(at + MESSAGE_PROPERTIES_HEADER_CORRELATION_ID, message->correlation, 20);
    write32(at + MESSAGE_PROPERTIES_HEADER_BODY_TYPE, message->body_type);
    write32(at + MESSAGE_PROPERTIES_HEADER_APPLICATION_TAG, message->app_specific);
    write32(at + MESSAGE_PROPERTIES_HEADER_MESSAGE_SIZE, (uint32_t)message->body.size);
    write32(at + MESSAGE_PROPERTIES_HEADER_ALLOCATION_BODY_SIZE, (uint32_t)message->body.size);
    write32(at + MESSAGE_PROPERTIES_HEADER_PRIVACY_LEVEL, message->privacy);
    write32(at + MESSAGE_PROPERTIES_HEADER_HASH_ALGORITHM, message->hash);
    write32(at + MESSAGE_PROPERTIES_HEADER_ENCRYPTION_ALGORITHM, message->encryption);
    write32(at + MESSAGE_PROPERTIES_HEADER_EXTENSION_SIZE, (uint32_t)message->extension.size);
    *packed = (Packed){head.data, head.size, tail.data, tail.size, size};
    return MQ_OK;
}

void packed_free(Packed *packed)
{
    free(packed->head);
    free(packed->tail);
}

/* ---- Reading ---- */

typedef struct Reader {
    const uint8_t *data;
    size_t size, place;
    bool failed;
} Reader;

static const uint8_t *take(Reader *reader, size_t count)
{
    if (reader->failed || count > reader->size - reader->place) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *at = reader->data + reader->place;
    reader->place += count;
    return at;
}

static void skip_padding(Reader *reader)
{
    size_t padding = -reader->place & 3;
    take(reader, padding < reader->size - reader->place ? padding : reader->size - reader->place);
}

static Span take_span(Reader *reader, size_t count)
{
    const uint8_t *at = take(reader, count);
    return (Span){at, at == NULL ? 0 : count};
}

static WCHAR *text_of(const char *prefix, Span text)
{
    size_t before = strlen(prefix), length = text.size / 2;
    WCHAR *made = malloc((before + length + 1) * sizeof *made);
    if (made == NULL)
        return NULL;
    for (size_t at = 0; at < before; at++)
        made[at] = (WCHAR)prefix[at];
    for (size_t at = 0; at < length; at++)
        made[before + at] = read16(text.data + 2 * at);
    made[before + length] = 0;
    return made;
}

static WCHAR *guid_name(const char *prefix, const uint8_t *guid, const uint32_t *number)
{
    size_t before = strlen(prefix);
    WCHAR *made = malloc((before + 36 + 10) * sizeof *made);
    if (made == NULL)
        return NULL;
    for (size_t at = 0; at < before; at++)
        made[at] = (WCHAR)prefix[at];
    write_guid(guid, made + before);
    if (number != NULL) {
        WCHAR *to = made + before + 36;
        *to++ = u'\\';
        for (int shift = 28; shift >= 0; shift -= 4)
            *to++ = u"0123456789abcdef"[*number >> shift & 15];
        *to = 0;
    }
    return made;
}

static Span without_null(Span text)
{
    while (text.size >= 2 && read16(text.data + text.size - 2) == 0)
        text.size -= 2;
    return text;
}

/* A queue of the UserHeader, as a format name; NULL for none. */
static WCHAR *read_queue(Reader *reader, uint32_t kind, const uint8_t *source, const uint8_t *address,
                         const WCHAR *administration)
{
    const uint8_t *guid = NULL;
    uint8_t other[GUID_SIZE];
    switch (kind) {
    case SAME_AS_ADMINISTRATION:
        return administration == NULL ? NULL : text_of("", (Span){(const uint8_t *)administration,
                                                                  2 * length16(administration)});
    case PUBLIC_NAME:
        guid = take(reader, GUID_SIZE);
        return guid == NULL ? NULL : guid_name("PUBLIC=", guid, NULL);
    case DIRECT_NAME: {
        const uint8_t *count = take(reader, 2);
        Span text = take_span(reader, count == NULL ? 0 : read16(count));
        skip_padding(reader);
        return reader->failed ? NULL : text_of("DIRECT=", without_null(text));
    }
    case PRIVATE_NAME:
        guid = take(reader, GUID_SIZE);
        break;
    case OF_SOURCE:
        guid = source;
        break;
    case OF_DESTINATION:
        guid = address;
        break;
    case OF_ADMINISTRATION: /* on the computer of the administration queue */
        guid = source;
        if (administration != NULL && begins_with(administration, "PRIVATE=") && read_guid(administration + 8, other))
            guid = other;
        break;
    default:
        return NULL;
    }
    const uint8_t *number = take(reader, 4);
    if (number == NULL || guid == NULL)
        return NULL;
    uint32_t value = read32(number);
    return guid_name("PRIVATE=", guid, &value);
}

/* The names of a list of the MultiQueueFormatHeader, joined by commas; NULL for fewer than `least`. */
static WCHAR *read_list(Reader *reader, uint32_t least)
{
    const uint8_t *head = take(reader, MQF_HEAD_SIZE);
    if (head == NULL)
        return NULL;
    size_t end = reader->place - MQF_HEAD_SIZE + read32(head);
    uint32_t count = read32(head + 8);
    if (count > MOST_ELEMENTS || end > reader->size || end < reader->place) {
        reader->failed = true;
        return NULL;
    }
    WCHAR *joined = NULL;
    size_t length = 0;
    for (uint32_t at = 0; at < count && !reader->failed; at++) {
        const uint8_t *type = take(reader, 2);
        uint32_t kind = type == NULL ? 0 : read16(type);
        WCHAR *name = NULL;
        if (kind == 3) {
            size_t start = reader->place;
            const uint8_t *letter;
            while ((letter = take(reader, 2)) != NULL && read16(letter) != 0)
                ;
            if (!reader->failed)
                name = text_of("DIRECT=", (Span){reader->data + start, reader->place - 2 - start});
        } else {
            skip_padding(reader);
            const uint8_t *guid = take(reader, GUID_SIZE);
            const uint8_t *number = kind == 2 ? take(reader, 4) : NULL;
            uint32_t value = number == NULL ? 0 : read32(number);
            if (!reader->failed && kind != 1 && kind != 2 && kind != 6)
                reader->failed = true;
            if (!reader->failed)
                name = guid_name(kind == 1 ? "PUBLIC=" : kind == 2 ? "PRIVATE=" : "DL=", guid, number ? &value : NULL);
        }
        if (name == NULL)
            break;
        size_t more = length16(name);
        WCHAR *longer = realloc(joined, (length + more + 2) * sizeof *joined);
        if (longer == NULL) {
            free(name);
            break;
        }
        joined = longer;
        if (length > 0)
            joined[length++] = u',';
        memcpy(joined + length, name, (more + 1) * sizeof *name);
        length += more;
        free(name);
    }
    if (!reader->failed) {
        reader->place = end;
        skip_padding(reader);
    }
    if (count < least) {
        free(joined);
        return NULL;
    }
    return joined;
}

static void read_security_header(Reader *reader, Message *message)
{
    const uint8_t *at = take(reader, SECURITY_HEADER_SIZE);
    if (at == NULL)
        return;
    uint32_t flags = read16(at + SECURITY_HEADER_FLAGS);
    message->sender = take_span(reader, read16(at + SECURITY_HEADER_SENDER_ID_SIZE));
    skip_padding(reader);
    message->symmetric_key = take_span(reader, read16(at + SECURITY_HEADER_ENCRYPTION_KEY_SIZE));
    skip_padding(reader);
    message->signature = take_span(reader, read16(at + SECURITY_HEADER_SIGNATURE_SIZE));
    skip_padding(reader);
    message->certificate = take_span(reader, read32(at + SECURITY_HEADER_SENDER_CERT_SIZE));
    skip_padding(reader);
    Span provider = take_span(reader, read32(at + SECURITY_HEADER_PROVIDER_INFO_SIZE));
    skip_padding(reader);
    if (provider.size >= 4) {
        message->provider_type = read32(provider.data);
        message->provider = without_null((Span){provider.data + 4, (provider.size - 4) & ~(size_t)1});
    }
    message->sender_type = message->sender.size == 0 ? 0 : flags & SECURITY_FLAGS_ST;
    message->authenticated = (flags & SECURITY_FLAGS_AU) != 0 && message->sender_type != 0;
    if (message->authenticated)
        message->signature_level = (uint8_t)((flags & SECURITY_FLAGS_AS) >> SECURITY_FLAGS_AS_SHIFT);
}

static Span read_soap(Reader *reader)
{
    const uint8_t *at = take(reader, 8);
    uint32_t length = at == NULL ? 0 : read32(at + 4);
    if (length > MAXIMUM_PACKET) {
        reader->failed = true;
        return (Span){0};
    }
    Span text = take_span(reader, 2 * (size_t)length);
    skip_padding(reader);
    return without_null(text);
}

bool message_read(Message *message, uint64_t lookup, const uint8_t *value, size_t size)
{
    memset(message, 0, sizeof *message);
    message->lookup = lookup;
    if (size < RECORD_SIZE + BASE_HEADER_SIZE + USER_HEADER_SIZE)
        return false;
    message->aborts = value[RECORD_AT_ABORTS];
    message->moves = value[RECORD_AT_MOVES];
    message->arrival = read64(value + RECORD_AT_ARRIVAL);
    const uint8_t *base = value + RECORD_SIZE, *user = base + BASE_HEADER_SIZE;
    size_t packet_size = read32(base + BASE_HEADER_PACKET_SIZE);
    if (packet_size > size - RECORD_SIZE || packet_size < BASE_HEADER_SIZE + USER_HEADER_SIZE)
        return false;
    uint32_t base_flags = read16(base + BASE_HEADER_FLAGS), flags = read32(user + USER_HEADER_FLAGS);
    message->packet = (Span){base, packet_size};
    message->version = base[BASE_HEADER_VERSION_NUMBER];
    message->priority = base_flags & BASE_FLAGS_PR;
    message->trace = (base_flags & BASE_FLAGS_TR) != 0;
    message->time_to_reach_queue = read32(base + BASE_HEADER_TIME_TO_REACH_QUEUE);
    message->time_to_be_received = read32(user + USER_HEADER_TIME_TO_BE_RECEIVED);
    message->sent_time = read32(user + USER_HEADER_SENT_TIME);
    message->delivery = (uint8_t)((flags & USER_FLAGS_DM) >> USER_FLAGS_DM_SHIFT);
    message->journal = (uint8_t)((flags & USER_FLAGS_JN ? MQMSG_DEADLETTER : 0) |
                                 (flags & USER_FLAGS_JP ? MQMSG_JOURNAL : 0));
    const uint8_t *source = user + USER_HEADER_SOURCE_QUEUE_MANAGER;
    const uint8_t *address = user + USER_HEADER_QUEUE_MANAGER_ADDRESS;
    memcpy(message->source, source, GUID_SIZE);
    memcpy(message->identifier, source, GUID_SIZE);
    memcpy(message->identifier + GUID_SIZE, user + USER_HEADER_MESSAGE_ID, 4);

    Reader reader = {base, packet_size, BASE_HEADER_SIZE + USER_HEADER_SIZE, false};
    message->destination =
        read_queue(&reader, (flags & USER_FLAGS_DQ) >> USER_FLAGS_DQ_SHIFT, source, address, NULL);
    message->administration =
        read_queue(&reader, (flags & USER_FLAGS_AQ) >> USER_FLAGS_AQ_SHIFT, source, address, NULL);
    message->response = read_queue(&reader, (flags & USER_FLAGS_RQ) >> USER_FLAGS_RQ_SHIFT, source, address,
                                   message->administration);
    const uint8_t *at;
    if (flags & USER_FLAGS_CQ && (at = take(&reader, GUID_SIZE)) != NULL) {
        memcpy(message->connector, at, GUID_SIZE);
        message->has_connector = true;
    }
    if (flags & USER_FLAGS_TH && (at = take(&reader, TRANSACTION_HEADER_SIZE)) != NULL) {
        uint32_t of = read32(at + TRANSACTION_HEADER_FLAGS);
        message->is_transactional = true;
        message->first = (of & TRANSACTION_FLAGS_FM) != 0;
        message->last = (of & TRANSACTION_FLAGS_LM) != 0;
        memcpy(message->transaction, source, GUID_SIZE);
        write32(message->transaction + GUID_SIZE, (of & TRANSACTION_FLAGS_ID) >> TRANSACTION_FLAGS_ID_SHIFT);
        if (of & TRANSACTION_FLAGS_CG)
            take(&reader, GUID_SIZE);
    }
    if (flags & USER_FLAGS_SH)
        read_security_header(&reader, message);
    at = take(&reader, MESSAGE_PROPERTIES_HEADER_SIZE);
    if (at == NULL)
        return false;
    message->acknowledge = at[MESSAGE_PROPERTIES_HEADER_FLAGS] & 0x0F;
    message->class = read16(at + MESSAGE_PROPERTIES_HEADER_MESSAGE_CLASS);
    memcpy(message->correlation, at + MESSAGE_PROPERTIES_HEADER_CORRELATION_ID, 20);
    message->body_type = read32(at + MESSAGE_PROPERTIES_HEADER_BODY_TYPE);
    message->app_specific = read32(at + MESSAGE_PROPERTIES_HEADER_APPLICATION_TAG);
    message->privacy = read32(at + MESSAGE_PROPERTIES_HEADER_PRIVACY_LEVEL);
    message->hash = read32(at + MESSAGE_PROPERTIES_HEADER_HASH_ALGORITHM);
    message->encryption = read32(at + MESSAGE_PROPERTIES_HEADER_ENCRYPTION_ALGORITHM);
    message->label = without_null(take_span(&reader, 2 * (size_t)at[MESSAGE_PROPERTIES_HEADER_LABEL_LENGTH]));
    message->extension = take_span(&reader, read32(at + MESSAGE_PROPERTIES_HEADER_EXTENSION_SIZE));
    message->body = take_span(&reader, read32(at + MESSAGE_PROPERTIES_HEADER_MESSAGE_SIZE));
    if (reader.failed)
        return false;
    skip_padding(&reader);
    if (base_flags & BASE_FLAGS_DH && (at = take(&reader, 4)) != NULL && read16(at) & 3)
        take(&reader, GUID_SIZE);
    if (flags & USER_FLAGS_HH) {
        message->soap_header = read_soap(&reader);
        message->soap_body = read_soap(&reader);
    }
    if (flags & USER_FLAGS_MQ) {
        message->destinations = read_list(&reader, 1);
        free(read_list(&reader, 1));
        message->responses = read_list(&reader, 2);
    }
    if (value[RECORD_AT_RECORD_FLAGS] & RECORD_FLAG_NAMED_DEAD_LETTER && size - RECORD_SIZE - packet_size > 4) {
        const uint8_t *name = base + packet_size + 4;
        size_t length = 0, room = size - RECORD_SIZE - packet_size - 4;
        while (length + 2 <= room && read16(name + length) != 0)
            length += 2;
        message->dead_letter = (Span){name, length};
    }
    return true; /* what is behind the body may be broken: the message has it all the same */
}

void message_free(Message *message)
{
    free(message->destination);
    free(message->administration);
    free(message->response);
    free(message->destinations);
    free(message->responses);
}
