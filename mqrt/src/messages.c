/*
 * Opening queues, sending and receiving.
 *
 * A receiver whose buffers may be too small must not lose the message. So the node is told how much has room, and leaves a
 * message that is larger. Such a one is locked or looked at first, and taken when its properties are in the buffers.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define FOR_EVER -1.0
#define TAKE_ATTEMPTS 1000

/* ---- Queues and cursors ---- */

static void destroy_queue(Object *object)
{
    OpenQueue *queue = (OpenQueue *)object;
    if (!connection_is_lost(queue->connection) && !queue->closed)
        connection_method(queue->connection, "queue", queue->handle, "close", NULL, NULL, NULL);
    connection_release(queue->connection);
    free(queue->format_name);
    free(queue);
}

HRESULT MQOpenQueue(LPCWSTR name, DWORD access, DWORD share, QUEUEHANDLE *handle)
{
    set_sentence("");
    if (name == NULL || handle == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    json_t *text = json_text(name), *opened = NULL;
    if (text == NULL)
        return MQ_ERROR_ILLEGAL_FORMATNAME;
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code)) {
        json_decref(text);
        return code;
    }
    code = connection_method(connection, "manager", 0, "open_queue",
                             json_pack("[o, I, I]", text, (json_int_t)access, (json_int_t)share), NULL, &opened);
    OpenQueue *queue = FAILED(code) ? NULL : calloc(1, sizeof *queue);
    const char *format_name = json_string_value(json_array_get(opened, 1));
    if (queue != NULL && format_name != NULL) {
        queue->object = (Object){.references = 1, .kind = QUEUE_HANDLE, .destroy = destroy_queue};
        queue->connection = connection_keep(connection);
        queue->handle = (uint32_t)json_integer_value(json_array_get(opened, 0));
        queue->format_name = strdup(format_name);
        queue->access = access;
        *handle = handle_add(&queue->object);
        if (*handle == NULL) {
            object_release(&queue->object);
            code = MQ_ERROR_INSUFFICIENT_RESOURCES;
        }
    } else if (!FAILED(code)) {
        free(queue);
        code = E_OUTOFMEMORY;
    }
    json_decref(opened);
    connection_release(connection);
    return code;
}

HRESULT MQCloseQueue(QUEUEHANDLE handle)
{
    set_sentence("");
    OpenQueue *queue = (OpenQueue *)handle_remove(handle, QUEUE_HANDLE);
    if (queue == NULL)
        return MQ_ERROR_INVALID_HANDLE;
    /* At once, although cursors and waiting receives keep the object: these end with it. */
    queue->closed = true;
    if (!connection_is_lost(queue->connection))
        connection_method(queue->connection, "queue", queue->handle, "close", NULL, NULL, NULL);
    object_release(&queue->object);
    return MQ_OK;
}

/* What a handle of an earlier node fails with: the node may run again, or not. */
static HRESULT lost(const Connection *own)
{
    Connection *connection;
    if (connection_is_of_parent(own)) {
        set_sentence("the handle is of the parent process: open the queue in this one");
        return MQ_ERROR_STALE_HANDLE;
    }
    HRESULT code = connection_get(&connection);
    if (FAILED(code))
        return code;
    connection_release(connection);
    set_sentence("the node was started again since the queue was opened: close the handle and open the queue again");
    return MQ_ERROR_STALE_HANDLE;
}

static HRESULT queue_of(QUEUEHANDLE handle, OpenQueue **queue)
{
    *queue = (OpenQueue *)handle_get(handle, QUEUE_HANDLE);
    if (*queue == NULL)
        return MQ_ERROR_INVALID_HANDLE;
    if (!connection_is_lost((*queue)->connection))
        return MQ_OK;
    HRESULT code = lost((*queue)->connection);
    object_release(&(*queue)->object);
    *queue = NULL;
    return code;
}

HRESULT MQHandleToFormatName(QUEUEHANDLE handle, LPWSTR name, DWORD *length)
{
    set_sentence("");
    OpenQueue *queue = (OpenQueue *)handle_get(handle, QUEUE_HANDLE);
    if (queue == NULL)
        return MQ_ERROR_INVALID_HANDLE;
    HRESULT code = length == NULL ? MQ_ERROR_INVALID_PARAMETER
                                  : give_name(queue->format_name, name, length, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL);
    object_release(&queue->object);
    return code;
}

HRESULT MQPurgeQueue(QUEUEHANDLE handle)
{
    set_sentence("");
    OpenQueue *queue;
    HRESULT code = queue_of(handle, &queue);
    if (FAILED(code))
        return code;
    code = connection_method(queue->connection, "queue", queue->handle, "purge", NULL, NULL, NULL);
    object_release(&queue->object);
    return code;
}

static void destroy_cursor(Object *object)
{
    Cursor *cursor = (Cursor *)object;
    if (cursor->handle != 0 && !connection_is_lost(cursor->queue->connection))
        connection_method(cursor->queue->connection, "cursor", cursor->handle, "close", NULL, NULL, NULL);
    object_release(&cursor->queue->object);
    free(cursor);
}

HRESULT MQCreateCursor(QUEUEHANDLE handle, HANDLE *made)
{
    set_sentence("");
    if (made == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    OpenQueue *queue;
    HRESULT code = queue_of(handle, &queue);
    if (FAILED(code))
        return code;
    json_t *number = NULL;
    Cursor *cursor = NULL;
    code = connection_method(queue->connection, "queue", queue->handle, "cursor", NULL, NULL, &number);
    if (!FAILED(code) && (cursor = calloc(1, sizeof *cursor)) == NULL)
        code = E_OUTOFMEMORY;
    if (cursor != NULL) {
        cursor->object = (Object){.references = 1, .kind = CURSOR_HANDLE, .destroy = destroy_cursor};
        object_keep(&queue->object);
        cursor->queue = queue;
        cursor->handle = (uint32_t)json_integer_value(number);
        *made = handle_add(&cursor->object);
        if (*made == NULL) {
            object_release(&cursor->object);
            code = MQ_ERROR_INSUFFICIENT_RESOURCES;
        }
    }
    json_decref(number);
    object_release(&queue->object);
    return code;
}

HRESULT MQCloseCursor(HANDLE handle)
{
    set_sentence("");
    Cursor *cursor = (Cursor *)handle_remove(handle, CURSOR_HANDLE);
    if (cursor == NULL)
        return MQ_ERROR_INVALID_HANDLE;
    object_release(&cursor->object);
    return MQ_OK;
}

/* ---- Sending ---- */

static HRESULT send_packet(OpenQueue *queue, uint32_t transaction, const Outgoing *message, uint8_t identifier[20])
{
    Packed packed;
    HRESULT code = message_pack(message, connection_identifier(queue->connection), &packed);
    if (FAILED(code))
        return code;
    char *requests = message->requests == NULL ? NULL : json_dumps(message->requests, JSON_COMPACT);
    uint8_t head[SEND_HEAD_SIZE + SENT_HEAD_SIZE] = {0};
    write32(head, queue->handle);
    write32(head + SEND_AT_TRANSACTION, transaction);
    write32(head + SEND_AT_COUNT, 1);
    write32(head + SEND_HEAD_SIZE, (uint32_t)packed.size);
    write32(head + SEND_HEAD_SIZE + 4, requests == NULL ? 0 : (uint32_t)strlen(requests));
    struct iovec parts[] = {
        {head, sizeof head},
        {packed.head, packed.head_size},
        {(void *)message->body.data, message->body.size},
        {packed.tail, packed.tail_size},
        {requests, requests == NULL ? 0 : strlen(requests)},
    };
    Answer answer = {0};
    code = connection_call(queue->connection, KIND_SEND, parts, sizeof parts / sizeof *parts, &answer);
    if (!FAILED(code)) {
        if (answer.kind == KIND_IDENTIFIERS && answer.size == 20)
            memcpy(identifier, answer.body, 20);
        else
            code = MQ_ERROR;
        answer_free(&answer);
    }
    free(requests);
    packed_free(&packed);
    return code;
}

HRESULT MQSendMessage(QUEUEHANDLE handle, MQMSGPROPS *properties, ITransaction *transaction)
{
    set_sentence("");
    OpenQueue *queue;
    HRESULT code = queue_of(handle, &queue);
    if (FAILED(code))
        return code;
    uint32_t number;
    ITransaction *kept;
    code = transaction_number(transaction, queue->connection, &number, &kept);
    if (!FAILED(code)) {
        Outgoing message;
        uint8_t identifier[20];
        HRESULT found = properties_to_send(properties, queue->connection, &message);
        code = FAILED(found) ? found : send_packet(queue, number, &message, identifier);
        outgoing_free(&message);
        if (!FAILED(code)) {
            properties_sent(properties, identifier);
            code = found;
        }
        transaction_done(kept);
    }
    object_release(&queue->object);
    return code;
}

/* ---- Receiving ---- */

/* A message in an answer: the first, and mostly the only one. */
static bool message_of(const Answer *answer, Message *message)
{
    if (answer->kind != KIND_MESSAGES || answer->size < RECEIVED_HEAD_SIZE)
        return false;
    size_t size = read32(answer->body + 8);
    if (size > answer->size - RECEIVED_HEAD_SIZE)
        return false;
    return message_read(message, read64(answer->body), answer->body + RECEIVED_HEAD_SIZE, size);
}

/* Put the message of an answer into the buffers of the caller; its lookup identifier. */
static HRESULT deliver(Answer *answer, MQMSGPROPS *properties, uint64_t *lookup)
{
    Message message = {0};
    HRESULT code = MQ_ERROR_CORRUPTED_SECURITY_DATA;
    if (answer->size >= 8)
        *lookup = read64(answer->body);
    if (message_of(answer, &message))
        code = properties_fill(properties, &message);
    else
        set_sentence("the message cannot be read: its packet is broken");
    message_free(&message);
    answer_free(answer);
    return code;
}

static HRESULT ask(OpenQueue *queue, int kind, uint32_t transaction, double seconds, const uint32_t *room,
                   Answer *answer)
{
    uint8_t body[RECEIVE_HEAD_SIZE + ROOM_SIZE];
    write32(body, queue->handle);
    write32(body + 4, transaction);
    write32(body + 8, 1);
    write_double(body + 12, seconds);
    struct iovec part = {body, RECEIVE_HEAD_SIZE};
    if (room != NULL) {
        write32(body + RECEIVE_HEAD_SIZE, room[0]);
        write32(body + RECEIVE_HEAD_SIZE + 4, room[1]);
        part.iov_len = sizeof body;
    }
    return connection_call(queue->connection, kind, &part, 1, answer);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static json_t *seconds_json(double seconds) { return seconds < 0 ? json_null() : json_real(seconds); }

static json_t *in_transaction(uint32_t number) { return json_pack("{s: I}", "transaction", (json_int_t)number); }

static HRESULT take_locked(OpenQueue *queue, MQMSGPROPS *properties, double seconds)
{
    Answer answer = {0};
    HRESULT code = connection_messages(queue->connection, "queue", queue->handle, "receive_begin",
                                       json_pack("[o]", seconds_json(seconds)), NULL, &answer);
    if (FAILED(code))
        return code;
    uint64_t lookup = 0;
    HRESULT filled = deliver(&answer, properties, &lookup);
    code = connection_method(queue->connection, "queue", queue->handle, "receive_end",
                             json_pack("[I, b]", (json_int_t)lookup, !FAILED(filled)), NULL, NULL);
    return FAILED(filled) ? filled : FAILED(code) ? code : filled;
}

static HRESULT receive_by_lookup(OpenQueue *queue, uint64_t lookup, uint32_t transaction, Answer *answer)
{
    return connection_messages(queue->connection, "queue", queue->handle, "receive_by_lookup_id",
                               json_pack("[I]", (json_int_t)lookup), in_transaction(transaction), answer);
}

/* Take the message that was looked at. False if another receiver has it. */
static bool take_this(OpenQueue *queue, uint64_t lookup, uint32_t transaction, HRESULT *code)
{
    Answer answer = {0};
    *code = receive_by_lookup(queue, lookup, transaction, &answer);
    if (*code == MQ_ERROR_MESSAGE_ALREADY_RECEIVED || *code == MQ_ERROR_MESSAGE_NOT_FOUND ||
        *code == MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION)
        return false;
    answer_free(&answer);
    return true;
}

static HRESULT take_in_transaction(OpenQueue *queue, MQMSGPROPS *properties, double seconds, uint32_t transaction)
{
    HRESULT code = MQ_ERROR_IO_TIMEOUT, filled;
    do {
        Answer answer = {0};
        code = ask(queue, KIND_PEEK, NO_TRANSACTION, seconds, NULL, &answer);
        if (FAILED(code))
            return code;
        uint64_t lookup = 0;
        filled = deliver(&answer, properties, &lookup);
        if (FAILED(filled))
            return filled;
        if (take_this(queue, lookup, transaction, &code))
            return FAILED(code) ? code : filled;
    } while (true);
}

static HRESULT receive(OpenQueue *queue, Cursor *cursor, double seconds, DWORD action, MQMSGPROPS *properties,
                       uint32_t transaction)
{
    Answer answer = {0};
    uint64_t lookup = 0;
    HRESULT code;
    if (cursor != NULL) {
        const char *method = action == MQ_ACTION_PEEK_NEXT ? "peek_next" : "peek";
        code = connection_messages(queue->connection, "cursor", cursor->handle, method,
                                   json_pack("[o]", seconds_json(seconds)), NULL, &answer);
        if (FAILED(code))
            return code;
        HRESULT filled = deliver(&answer, properties, &lookup);
        if (FAILED(filled) || action != MQ_ACTION_RECEIVE)
            return filled;
        code = connection_messages(queue->connection, "cursor", cursor->handle, "receive", json_pack("[i]", 0),
                                   in_transaction(transaction), &answer);
        answer_free(&answer);
        return FAILED(code) ? code : filled;
    }
    if (action != MQ_ACTION_RECEIVE) {
        code = ask(queue, KIND_PEEK, transaction, seconds, NULL, &answer);
        return FAILED(code) ? code : deliver(&answer, properties, &lookup);
    }
    uint32_t room[2];
    bool any = properties_room(properties, &room[0], &room[1]);
    double began = seconds > 0 ? now() : 0;
    code = ask(queue, KIND_RECEIVE, transaction, seconds, any ? NULL : room, &answer);
    if (!any && code == MQ_ERROR_BUFFER_OVERFLOW) { /* a message that may not fit */
        if (seconds > 0)
            seconds = seconds > now() - began ? seconds - (now() - began) : 0;
        return transaction == NO_TRANSACTION ? take_locked(queue, properties, seconds)
                                             : take_in_transaction(queue, properties, seconds, transaction);
    }
    return FAILED(code) ? code : deliver(&answer, properties, &lookup);
}

static const char *direction(DWORD action)
{
    switch (action) {
    case MQ_LOOKUP_PEEK_NEXT:
    case MQ_LOOKUP_RECEIVE_NEXT:
        return "next";
    case MQ_LOOKUP_PEEK_PREV:
    case MQ_LOOKUP_RECEIVE_PREV:
        return "prev";
    case MQ_LOOKUP_PEEK_FIRST:
    case MQ_LOOKUP_RECEIVE_FIRST:
        return "first";
    case MQ_LOOKUP_PEEK_LAST:
    case MQ_LOOKUP_RECEIVE_LAST:
        return "last";
    case MQ_LOOKUP_PEEK_CURRENT:
    case MQ_LOOKUP_RECEIVE_CURRENT:
        return "current";
    default:
        return NULL;
    }
}

#define LOOKUP_RECEIVES 0x20u

static HRESULT look_up(OpenQueue *queue, uint64_t lookup, DWORD action, MQMSGPROPS *properties, uint32_t transaction)
{
    HRESULT code = MQ_ERROR_MESSAGE_NOT_FOUND;
    for (int attempt = 0; attempt < TAKE_ATTEMPTS; attempt++) {
        Answer answer = {0};
        uint64_t found = 0;
        code = connection_messages(queue->connection, "queue", queue->handle, "peek_by_lookup_id",
                                   json_pack("[I, s]", (json_int_t)lookup, direction(action)), NULL, &answer);
        if (FAILED(code))
            return code;
        HRESULT filled = deliver(&answer, properties, &found);
        if (FAILED(filled) || !(action & LOOKUP_RECEIVES))
            return filled;
        if (take_this(queue, found, transaction, &code))
            return FAILED(code) ? code : filled;
        if (action == MQ_LOOKUP_RECEIVE_CURRENT)
            return code;
    }
    return code;
}

/* One receive, as a caller asked for it. */
typedef struct Request {
    OpenQueue *queue;
    Cursor *cursor;
    QUEUEHANDLE handle;
    HANDLE cursor_handle;
    bool by_lookup;
    uint64_t lookup;
    DWORD timeout, action;
    MQMSGPROPS *properties;
    uint32_t transaction;
    LPOVERLAPPED overlapped;
    PMQRECEIVECALLBACK callback;
} Request;

static HRESULT perform(const Request *request)
{
    if (request->by_lookup)
        return look_up(request->queue, request->lookup, request->action, request->properties, request->transaction);
    double seconds = request->timeout == INFINITE ? FOR_EVER : request->timeout / 1000.0;
    HRESULT code = receive(request->queue, request->cursor, seconds, request->action, request->properties,
                           request->transaction);
    /* The node says that a read which waited on a closed handle was cancelled, or that there is no such handle. */
    if (code == MQ_ERROR_INVALID_HANDLE && request->queue->closed)
        code = MQ_ERROR_OPERATION_CANCELLED;
    return code;
}

static void release_request(Request *request)
{
    if (request->cursor != NULL)
        object_release(&request->cursor->object);
    object_release(&request->queue->object);
}

/* ---- Asynchronous receives: each has a thread that waits, and ends with the callback ---- */

static void complete(Request *request, HRESULT code)
{
    LPOVERLAPPED overlapped = request->overlapped;
    QUEUEHANDLE handle = request->handle;
    HANDLE cursor = request->cursor_handle;
    release_request(request);
    if (overlapped != NULL) {
        HANDLE event = overlapped->hEvent;
        __atomic_store_n(&overlapped->Internal, (ULONG_PTR)(uint32_t)code, __ATOMIC_RELEASE);
        if (event != NULL && request->callback == NULL) {
            uint64_t one = 1;
            if (write((int)(intptr_t)event, &one, sizeof one) < 0)
                set_sentence("the event of a receive is no eventfd");
        }
    }
    if (request->callback != NULL)
        request->callback(code, handle, request->timeout, request->action, request->properties, overlapped, cursor);
    free(request);
}

/* The thread is not used again: a runtime that knows it by its callback, as Mono, waits for its end before it exits. */
static void *work(void *given)
{
    Request *request = given;
    complete(request, perform(request));
    return NULL;
}

static HRESULT start(const Request *given)
{
    Request *request = malloc(sizeof *request);
    if (request == NULL)
        return E_OUTOFMEMORY;
    *request = *given;
    if (request->overlapped != NULL)
        __atomic_store_n(&request->overlapped->Internal, (ULONG_PTR)(uint32_t)MQ_INFORMATION_OPERATION_PENDING,
                         __ATOMIC_RELEASE);
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, work, request);
    pthread_attr_destroy(&attributes);
    if (failed) {
        free(request);
        return MQ_ERROR_INSUFFICIENT_RESOURCES;
    }
    return MQ_INFORMATION_OPERATION_PENDING;
}

HRESULT MQGetOverlappedResult(LPOVERLAPPED overlapped)
{
    set_sentence("");
    if (overlapped == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    return (HRESULT)(uint32_t)__atomic_load_n(&overlapped->Internal, __ATOMIC_ACQUIRE);
}

/* ---- The functions ---- */

static HRESULT run(Request *request, ITransaction *transaction)
{
    bool asynchronous = request->overlapped != NULL || request->callback != NULL;
    if (asynchronous && transaction != MQ_NO_TRANSACTION)
        return MQ_ERROR_INVALID_PARAMETER;
    HRESULT code = properties_check_received(request->properties);
    if (FAILED(code))
        return code;
    code = queue_of(request->handle, &request->queue);
    if (FAILED(code))
        return code;
    if (request->cursor_handle != NULL) {
        request->cursor = (Cursor *)handle_get(request->cursor_handle, CURSOR_HANDLE);
        if (request->cursor == NULL || request->cursor->queue != request->queue) {
            release_request(request);
            return MQ_ERROR_INVALID_HANDLE;
        }
    }
    if (asynchronous) {
        code = start(request);
        if (FAILED(code))
            release_request(request);
        return code;
    }
    ITransaction *kept;
    code = transaction_number(transaction, request->queue->connection, &request->transaction, &kept);
    if (!FAILED(code)) {
        code = perform(request);
        transaction_done(kept);
    }
    release_request(request);
    return code;
}

HRESULT MQReceiveMessage(QUEUEHANDLE handle, DWORD timeout, DWORD action, MQMSGPROPS *properties,
                         LPOVERLAPPED overlapped, PMQRECEIVECALLBACK callback, HANDLE cursor,
                         ITransaction *transaction)
{
    set_sentence("");
    if (action != MQ_ACTION_RECEIVE && action != MQ_ACTION_PEEK_CURRENT && action != MQ_ACTION_PEEK_NEXT)
        return MQ_ERROR_INVALID_PARAMETER;
    if (action == MQ_ACTION_PEEK_NEXT && cursor == NULL)
        return MQ_ERROR_ILLEGAL_CURSOR_ACTION;
    if (action != MQ_ACTION_RECEIVE && transaction != MQ_NO_TRANSACTION && transaction != MQ_MTS_TRANSACTION)
        return MQ_ERROR_TRANSACTION_USAGE;
    Request request = {
        .handle = handle, .cursor_handle = cursor, .timeout = timeout, .action = action, .properties = properties,
        .overlapped = overlapped, .callback = callback,
    };
    return run(&request, transaction);
}

HRESULT MQReceiveMessageByLookupId(QUEUEHANDLE handle, uint64_t lookup, DWORD action, MQMSGPROPS *properties,
                                   LPOVERLAPPED overlapped, PMQRECEIVECALLBACK callback, ITransaction *transaction)
{
    set_sentence("");
    if (direction(action) == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    if (!(action & LOOKUP_RECEIVES) && transaction != MQ_NO_TRANSACTION && transaction != MQ_MTS_TRANSACTION)
        return MQ_ERROR_TRANSACTION_USAGE;
    Request request = {
        .handle = handle, .by_lookup = true, .lookup = lookup, .action = action, .properties = properties,
        .overlapped = overlapped, .callback = callback,
    };
    return run(&request, transaction);
}

HRESULT MQMoveMessage(QUEUEHANDLE source, QUEUEHANDLE target, uint64_t lookup, ITransaction *transaction)
{
    set_sentence("");
    OpenQueue *from, *to;
    HRESULT code = queue_of(source, &from);
    if (FAILED(code))
        return code;
    code = queue_of(target, &to);
    if (!FAILED(code)) {
        uint32_t number = NO_TRANSACTION;
        ITransaction *kept = NULL;
        code = from->connection != to->connection
                   ? MQ_ERROR_STALE_HANDLE
                   : transaction_number(transaction, from->connection, &number, &kept);
        if (!FAILED(code))
            code = connection_method(from->connection, "queue", from->handle, "move",
                                     json_pack("[I, I]", (json_int_t)lookup, (json_int_t)to->handle),
                                     in_transaction(number), NULL);
        transaction_done(kept);
        object_release(&to->object);
    }
    object_release(&from->object);
    return code;
}
