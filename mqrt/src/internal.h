/* What the files of the library share. */
#ifndef MQRT_INTERNAL_H
#define MQRT_INTERNAL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "frames.h"
#include "mq.h"

#define IDENTIFIER_SIZE 20

/* Fields of SEND_HEAD, which begins a frame with messages. */
enum { SEND_AT_TRANSACTION = 4, SEND_AT_TOGETHER = 8, SEND_AT_COUNT = 12 };

/* ---- login.c: the user of the directory that the environment names ---- */

/* A pair of account and password; NULL if there is none, which is no error. */
HRESULT login_of_environment(json_t **login);

/* ---- connection.c: calls to the node ---- */

typedef struct Connection Connection;

/* The answer of a call. `body` is in `memory`, which the caller frees. */
typedef struct Answer {
    int kind;
    uint8_t *body;
    size_t size;
} Answer;

/* The connection of this process, made if there is none. */
HRESULT connection_get(Connection **found);
Connection *connection_keep(Connection *connection);
void connection_release(Connection *connection);
bool connection_is_lost(Connection *connection);
/* Whether it was made before the fork that began this process. */
bool connection_is_of_parent(const Connection *connection);
const uint8_t *connection_identifier(const Connection *connection);
const char *connection_computer_name(const Connection *connection);
uint32_t connection_new_transaction(Connection *connection);

/* Make a call and wait for its answer; an error of the node is returned as its code. */
HRESULT connection_call(Connection *connection, int kind, const struct iovec *parts, int count, Answer *answer);
void answer_free(Answer *answer);

/* A call of any method: takes over `arguments` and `keywords`, which may be NULL. The result may be NULL as well. */
HRESULT connection_method(Connection *connection, const char *what, uint32_t handle, const char *method,
                          json_t *arguments, json_t *keywords, json_t **result);
/* The same for a method that writes to the directory: with the login of the environment, if that has one. */
HRESULT connection_publishing(Connection *connection, const char *method, json_t *arguments, json_t *keywords,
                              json_t **result);
/* The same for a method that answers with messages. */
HRESULT connection_messages(Connection *connection, const char *what, uint32_t handle, const char *method,
                            json_t *arguments, json_t *keywords, Answer *answer);

/* Keep a sentence about the failure of this thread's call. Each call of a program begins without one. */
void set_sentence(const char *sentence);
json_t *json_bytes(const void *data, size_t size);
/* Bytes of a tagged value, allocated; NULL if it is none. */
uint8_t *bytes_of_json(const json_t *value, size_t *size);

/* ---- text.c ---- */

size_t length16(const WCHAR *text);
/* UTF-8, allocated. NULL for half of a surrogate pair, or without memory. */
char *to_utf8(const WCHAR *text);
WCHAR *to_utf16(const char *text, size_t *length);
json_t *json_text(const WCHAR *text);
/* The same of a format name; NULL for a path name, which the node would take as well. */
json_t *json_format_name(const WCHAR *text);
bool begins_with(const WCHAR *text, const char *word);
bool is_word(const WCHAR *text, const char *word);
void write_guid(const uint8_t guid[16], WCHAR text[37]);
bool read_guid(const WCHAR *text, uint8_t guid[16]);
/* Put a name into the buffer of a caller; `length` counts the null. */
HRESULT give_name(const char *name, LPWSTR buffer, DWORD *length, HRESULT too_small);

/* ---- queues.c: properties of queues ---- */

/* VT_EMPTY if it is no property of a queue. */
VARTYPE queue_property_type(QUEUEPROPID id);
/* One of the attributes that the node tells of a queue; texts and GUIDs are allocated. */
HRESULT queue_property(QUEUEPROPID id, const json_t *attributes, MQPROPVARIANT *value);
/* A value of a program as the node has it; NULL if it cannot be one of the property. */
json_t *queue_property_to_node(QUEUEPROPID id, const MQPROPVARIANT *value);
const json_t *queue_attribute(QUEUEPROPID id, const json_t *attributes);
/* Below, at or above 0; texts are compared without case, and GUIDs are equal or not. */
int queue_property_compare(QUEUEPROPID id, const json_t *attributes, const json_t *other);

/* ---- directory.c ---- */

/* The attributes of a public queue elsewhere, by its format name. */
HRESULT directory_queue(const WCHAR *name, json_t **attributes);

/* ---- handles.c ---- */

typedef enum HandleKind { QUEUE_HANDLE = 1, CURSOR_HANDLE, SEARCH_HANDLE } HandleKind;

typedef struct Object {
    atomic_uint references;
    HandleKind kind;
    void (*destroy)(struct Object *object);
} Object;

typedef struct OpenQueue {
    Object object;
    Connection *connection;
    uint32_t handle;
    atomic_bool closed; /* also while the node closes it */
    char *format_name;
    DWORD access;
} OpenQueue;

typedef struct Cursor {
    Object object;
    OpenQueue *queue;
    uint32_t handle;
} Cursor;

HANDLE handle_add(Object *object);
/* The object of a handle, kept; NULL if there is none of the kind. */
Object *handle_get(HANDLE handle, HandleKind kind);
/* The same, and the handle is no longer one. */
Object *handle_remove(HANDLE handle, HandleKind kind);
void object_keep(Object *object);
void object_release(Object *object);

/* ---- transactions.c ---- */

/* The number of a transaction at the connection of a queue; `*kept` is to be released after the call. */
HRESULT transaction_number(ITransaction *transaction, Connection *connection, uint32_t *number, ITransaction **kept);
void transaction_done(ITransaction *kept);

/* ---- security.c ---- */

/* A security descriptor of a program, self-relative and allocated; NULL if it is none. */
uint8_t *security_of(const void *descriptor, size_t *size);

/* ---- message.c: the packet of a message ---- */

typedef struct Span {
    const uint8_t *data;
    size_t size;
} Span;

/* A received message; the spans are views of its packet, texts are UTF-16 without their null. */
typedef struct Message {
    uint64_t lookup;
    uint64_t arrival; /* microseconds since 1970 */
    uint8_t aborts, moves;
    uint8_t priority, delivery, journal, acknowledge, version, trace;
    uint16_t class;
    uint32_t time_to_reach_queue, time_to_be_received, sent_time, app_specific, body_type;
    uint32_t privacy, hash, encryption;
    uint8_t identifier[20], correlation[20], transaction[20];
    uint8_t source[16], connector[16];
    bool has_connector, is_transactional, first, last, authenticated;
    uint8_t signature_level;
    uint32_t sender_type, provider_type;
    Span label, body, extension, sender, certificate, signature, symmetric_key, provider, soap_header, soap_body;
    Span dead_letter;
    Span packet;
    WCHAR *destination, *administration, *response, *destinations, *responses; /* format names, allocated */
} Message;

/* Read a stored message. False if its bytes are no message. Free it in any case. */
bool message_read(Message *message, uint64_t lookup, const uint8_t *value, size_t size);
void message_free(Message *message);

/* A message to send: its packet, and what it asks for beside that. */
typedef struct Outgoing {
    uint8_t priority, delivery, journal, acknowledge;
    uint16_t class;
    uint32_t time_to_reach_queue, time_to_be_received, app_specific, body_type, privacy, hash, encryption;
    const uint8_t *correlation, *connector;
    Span body, extension;
    const WCHAR *label, *administration, *response, *responses, *soap_header, *soap_body;
    json_t *requests; /* NULL if there are none */
} Outgoing;

/* The bytes of a packet before its body, and behind it; allocated. */
typedef struct Packed {
    uint8_t *head;
    size_t head_size;
    uint8_t *tail;
    size_t tail_size;
    size_t size;
} Packed;

HRESULT message_pack(const Outgoing *message, const uint8_t source[16], Packed *packed);
void packed_free(Packed *packed);
/* MQ_OK if a text is the format name of one queue, or of several. */
HRESULT check_format_name(const WCHAR *text, bool several);

/* ---- properties.c: the properties of messages ---- */

HRESULT properties_to_send(MQMSGPROPS *properties, Connection *connection, Outgoing *message);
void outgoing_free(Outgoing *message);
void properties_sent(MQMSGPROPS *properties, const uint8_t identifier[20]);
/* Check what a receiver asks for. */
HRESULT properties_check_received(MQMSGPROPS *properties);
/* Whether each message has room in the buffers of a receiver; otherwise, the bytes of a body, and of all else that is
 * stored with it, that certainly have. */
bool properties_room(const MQMSGPROPS *properties, uint32_t *body, uint32_t *rest);
/* Fill the buffers; an error for the first one that is too small. */
HRESULT properties_fill(MQMSGPROPS *properties, const Message *message);

static inline uint16_t read16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static inline uint32_t read32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline uint64_t read64(const uint8_t *at) { return read32(at) | (uint64_t)read32(at + 4) << 32; }
static inline void write16(uint8_t *at, uint32_t value) { at[0] = (uint8_t)value; at[1] = (uint8_t)(value >> 8); }
static inline void write32(uint8_t *at, uint32_t value) { write16(at, value); write16(at + 2, value >> 16); }
static inline void write_double(uint8_t *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    write32(at, (uint32_t)bits);
    write32(at + 4, (uint32_t)(bits >> 32));
}

#endif
