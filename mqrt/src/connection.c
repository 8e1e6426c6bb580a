/*
 * The connection of the process to its node: frames out, answers in, calls of many threads under way at a time.
 *
 * There is no thread of its own. A caller that waits for its answer reads the socket if nobody else does, and hands
 * answers of others to them; when it has its own, another waiting caller goes on reading. In the same way one caller
 * writes what all have to say. Callers whose answers came together mostly call again together: the writer waits for them
 * for a moment, so that the node gets their calls at once, and messages for one queue in one frame.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define DEFAULT_SOCKET "/run/qmnode/qmnode.sock"
#define SOCKET_VARIABLE "QMNODE_SOCKET"
#define BUFFER_SIZE 65536
#define BUCKETS 64
#define MOST_PARTS 8
#define MOST_VECTORS 512
#define MOST_JOINED 1024
#define MOST_JOINED_BYTES 262144
#define MOMENT 100000 /* nanoseconds that a writer waits for callers that were answered together */

typedef struct Call {
    struct Call *next, **place; /* in its bucket; not of one that was joined to another's frame */
    struct Call *later, *earlier; /* among all calls */
    struct Call *following; /* behind it among those to be written */
    struct Call *joined; /* the next in its frame */
    struct Call *woken; /* the next of those to be woken */
    sem_t turn;
    uint32_t number;
    int kind;
    const struct iovec *parts;
    int count;
    size_t size;
    /* written: or being so; borrowed: the writer still looks at it; waiting: for its turn, or its answer. */
    bool written, borrowed, waiting, done, ended; /* ended: done, and nobody looks at it */
    HRESULT failure;
    Answer answer;
    uint8_t head[FRAME_HEAD_SIZE + SEND_HEAD_SIZE];
} Call;

struct Connection {
    atomic_uint references;
    int socket;
    pid_t process;
    pthread_mutex_t mutex; /* guards what follows */
    Call *buckets[BUCKETS];
    Call calls; /* head of the list of all calls */
    uint32_t last_number, last_transaction;
    bool reading, writing;
    atomic_bool lost;
    HRESULT failure;
    Call *woken; /* to be woken when the mutex is let go */
    Call *unwritten, **last_unwritten;
    size_t unwritten_count, expected; /* expected: callers that were answered together, and may call again */
    struct timespec answered;
    pthread_cond_t more; /* the writer waits for more */
    struct iovec vectors[MOST_VECTORS]; /* of the caller that writes */
    /* Only for the caller that reads. */
    uint8_t buffer[BUFFER_SIZE];
    size_t filled;
    uint8_t *body; /* of a frame that is larger than the buffer */
    size_t body_size, body_filled;
    int body_kind;
    uint32_t body_number;
    uint8_t identifier[16];
    char *computer_name;
};

static pthread_mutex_t current_mutex = PTHREAD_MUTEX_INITIALIZER;
static Connection *current;
static _Thread_local char sentence[512];

const char *mqrt_last_sentence(void) { return sentence; }

void set_sentence(const char *text) { snprintf(sentence, sizeof sentence, "%s", text); }

/* After a fork, the child makes a connection of its own. */
static void before_fork(void) { pthread_mutex_lock(&current_mutex); }
static void after_fork(void) { pthread_mutex_unlock(&current_mutex); }
static void in_child(void)
{
    pthread_mutex_init(&current_mutex, NULL);
    if (current != NULL) {
        close(current->socket); /* the parent's stays open */
        current->socket = -1;
        pthread_mutex_init(&current->mutex, NULL);
        pthread_cond_init(&current->more, NULL);
        current->reading = current->writing = false;
        current->lost = true;
        connection_release(current); /* handles that were opened before keep it */
        current = NULL;
    }
}
__attribute__((constructor)) static void prepare(void) { pthread_atfork(before_fork, after_fork, in_child); }

__attribute__((destructor)) static void finish(void)
{
    pthread_mutex_lock(&current_mutex);
    Connection *connection = current;
    current = NULL;
    pthread_mutex_unlock(&current_mutex);
    if (connection != NULL)
        connection_release(connection);
}

Connection *connection_keep(Connection *connection)
{
    atomic_fetch_add(&connection->references, 1);
    return connection;
}

void connection_release(Connection *connection)
{
    if (atomic_fetch_sub(&connection->references, 1) > 1)
        return;
    if (connection->socket >= 0)
        close(connection->socket);
    pthread_mutex_destroy(&connection->mutex);
    pthread_cond_destroy(&connection->more);
    free(connection->body);
    free(connection->computer_name);
    free(connection);
}

bool connection_is_lost(Connection *connection) { return connection->lost; }

bool connection_is_of_parent(const Connection *connection) { return connection->process != getpid(); }

const uint8_t *connection_identifier(const Connection *connection) { return connection->identifier; }
const char *connection_computer_name(const Connection *connection) { return connection->computer_name; }

uint32_t connection_new_transaction(Connection *connection)
{
    pthread_mutex_lock(&connection->mutex);
    do
        connection->last_transaction++;
    while (connection->last_transaction == NO_TRANSACTION || connection->last_transaction == SINGLE_TRANSACTION);
    uint32_t number = connection->last_transaction;
    pthread_mutex_unlock(&connection->mutex);
    return number;
}

void answer_free(Answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

/* ---- Turns ---- */

/* With the mutex held: let a caller go on that waits. */
static void wake(Connection *connection, Call *call)
{
    if (!call->waiting)
        return;
    call->waiting = false;
    call->ended = call->done && !call->borrowed;
    call->woken = connection->woken;
    connection->woken = call;
}

/* Let the mutex go, and then wake those that would only wait for it. */
static void unlock(Connection *connection)
{
    Call *woken = connection->woken;
    connection->woken = NULL;
    pthread_mutex_unlock(&connection->mutex);
    while (woken != NULL) {
        Call *call = woken;
        woken = call->woken;
        sem_post(&call->turn);
    }
}

/* ---- Reading ---- */

static void finish_call(Connection *connection, Call *call)
{
    if (call->place != NULL) {
        *call->place = call->next;
        if (call->next != NULL)
            call->next->place = call->place;
    }
    call->later->earlier = call->earlier;
    call->earlier->later = call->later;
    call->done = true;
    if (!call->borrowed)
        wake(connection, call);
}

/* With the mutex held. */
static void fail(Connection *connection, HRESULT failure)
{
    if (!connection->lost) {
        connection->lost = true;
        connection->failure = failure;
        shutdown(connection->socket, SHUT_RDWR);
    }
    connection->unwritten = NULL;
    connection->last_unwritten = &connection->unwritten;
    connection->unwritten_count = 0;
    while (connection->calls.later != &connection->calls) {
        Call *call = connection->calls.later;
        call->failure = connection->failure;
        finish_call(connection, call);
    }
}

static HRESULT error_of(const uint8_t *body, size_t size)
{
    json_t *value = json_loadb((const char *)body, size, 0, NULL);
    HRESULT code = MQ_ERROR;
    if (json_is_array(value) && json_array_size(value) == 2 && json_is_integer(json_array_get(value, 0))) {
        code = (HRESULT)(uint32_t)json_integer_value(json_array_get(value, 0));
        if (!FAILED(code))
            code = MQ_ERROR;
        const char *text = json_string_value(json_array_get(value, 1));
        set_sentence(text == NULL ? "" : text);
    }
    json_decref(value);
    return code;
}

static uint8_t *copied(const void *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    if (copy != NULL)
        memcpy(copy, data, size);
    return copy;
}

/* One part of the answer that several senders share: the identifier of its message, or its error. */
static Answer part_of(const Answer *answer, const json_t *mixed, size_t at)
{
    Answer part = {KIND_FAILED, NULL, 0};
    size_t size = 0;
    if (answer->kind == KIND_IDENTIFIERS && answer->size >= IDENTIFIER_SIZE * (at + 1)) {
        part = (Answer){KIND_IDENTIFIERS, copied(answer->body + IDENTIFIER_SIZE * at, IDENTIFIER_SIZE), IDENTIFIER_SIZE};
    } else if (answer->kind == KIND_MIXED) {
        const json_t *own = json_array_get(mixed, at);
        uint8_t *identifier = bytes_of_json(own, &size);
        char *error = identifier == NULL ? json_dumps(own, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        part = identifier != NULL ? (Answer){KIND_IDENTIFIERS, identifier, size}
                                  : (Answer){KIND_FAILED, (uint8_t *)error, error == NULL ? 0 : strlen(error)};
    } else {
        part.size = answer->kind == KIND_FAILED ? answer->size : 0;
        part.body = copied(answer->body, part.size);
    }
    if (part.body == NULL)
        part.size = 0;
    return part;
}

/* Give each sender of a frame its part. */
static void divide(Connection *connection, Call *first, const Answer *answer)
{
    json_t *mixed = answer->kind == KIND_MIXED ? json_loadb((const char *)answer->body, answer->size, 0, NULL) : NULL;
    size_t at = 0;
    for (Call *call = first, *following; call != NULL; call = following, at++) {
        following = call->joined;
        call->answer = part_of(answer, mixed, at);
        connection->expected++;
        finish_call(connection, call);
    }
    json_decref(mixed);
    free(answer->body);
}

/* With the mutex held: give a frame, whose body is allocated, to its caller. */
static void dispatch(Connection *connection, int kind, uint32_t number, uint8_t *body, size_t size)
{
    Call *call = connection->buckets[number % BUCKETS];
    while (call != NULL && call->number != number)
        call = call->next;
    if (call == NULL) {
        if (number == 0 && kind == KIND_FAILED) /* about the connection as a whole */
            fail(connection, error_of(body, size));
        free(body);
        return;
    }
    if (call->joined != NULL) {
        divide(connection, call, &(Answer){kind, body, size});
        return;
    }
    call->answer = (Answer){kind, body, size};
    connection->expected++;
    finish_call(connection, call);
}

/* With the mutex held. Those that wait to be written have come. */
static void begin_answers(Connection *connection)
{
    connection->expected = connection->unwritten_count;
    clock_gettime(CLOCK_MONOTONIC, &connection->answered);
}

/* Take the frames that are whole out of the buffer. False if the other side sent none of this protocol. */
static bool take_frames(Connection *connection)
{
    size_t start = 0, end = connection->filled;
    const uint8_t *buffer = connection->buffer;
    bool sound = true;
    pthread_mutex_lock(&connection->mutex);
    begin_answers(connection);
    while (end - start >= FRAME_HEAD_SIZE) {
        uint32_t size = read32(buffer + start);
        if (size < FRAME_HEAD_SIZE - FRAME_SIZE_FIELD || size > MAXIMUM_FRAME) {
            sound = false;
            break;
        }
        int kind = buffer[start + FRAME_SIZE_FIELD];
        uint32_t number = read32(buffer + start + 8);
        size_t body_size = size - (FRAME_HEAD_SIZE - FRAME_SIZE_FIELD);
        size_t there = end - start - FRAME_HEAD_SIZE;
        if (there < body_size && FRAME_HEAD_SIZE + body_size <= BUFFER_SIZE)
            break;
        uint8_t *body = malloc(body_size + 1);
        if (body == NULL) {
            sound = false;
            break;
        }
        size_t copied = there < body_size ? there : body_size;
        memcpy(body, buffer + start + FRAME_HEAD_SIZE, copied);
        start += FRAME_HEAD_SIZE + copied;
        if (copied < body_size) { /* the rest is read to its place */
            connection->body = body;
            connection->body_size = body_size;
            connection->body_filled = copied;
            connection->body_kind = kind;
            connection->body_number = number;
            break;
        }
        dispatch(connection, kind, number, body, body_size);
    }
    unlock(connection);
    memmove(connection->buffer, connection->buffer + start, end - start);
    connection->filled = end - start;
    return sound;
}

/* Read once, without the mutex. False when the connection is at its end. */
static bool read_some(Connection *connection)
{
    uint8_t *place = connection->buffer + connection->filled;
    size_t room = BUFFER_SIZE - connection->filled;
    if (connection->body != NULL) {
        place = connection->body + connection->body_filled;
        room = connection->body_size - connection->body_filled;
    }
    ssize_t count;
    do
        count = recv(connection->socket, place, room, 0);
    while (count < 0 && errno == EINTR);
    if (count <= 0)
        return false;
    if (connection->body == NULL) {
        connection->filled += (size_t)count;
        return take_frames(connection);
    }
    connection->body_filled += (size_t)count;
    if (connection->body_filled == connection->body_size) {
        uint8_t *body = connection->body;
        connection->body = NULL;
        pthread_mutex_lock(&connection->mutex);
        dispatch(connection, connection->body_kind, connection->body_number, body, connection->body_size);
        unlock(connection);
    }
    return true;
}

/* ---- Calling ---- */

static bool write_all(int socket, struct iovec *parts, size_t count)
{
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t done = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        size_t left = (size_t)done;
        while (count > 0 && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (uint8_t *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return true;
}

/* Whether a call sends one message outside of transactions: such messages travel together. */
static bool can_join(const Call *call)
{
    return call->kind == KIND_SEND && read32((const uint8_t *)call->parts[0].iov_base + SEND_AT_TRANSACTION) == NO_TRANSACTION;
}

static bool joins(const Call *first, const Call *call)
{
    return can_join(call) &&
           memcmp(first->parts[0].iov_base, call->parts[0].iov_base, SEND_AT_TRANSACTION) == 0; /* the same queue */
}

/* With the mutex held: join sends for one queue to the first of them. Those that were joined are no longer in the list. */
static void join_sends(Call *first)
{
    Call **end = &first->joined, **place = &first->following;
    size_t joined = 1;
    while (*place != NULL && joined < MOST_JOINED && first->size < MOST_JOINED_BYTES) {
        Call *call = *place;
        if (!joins(first, call)) {
            place = &call->following;
            continue;
        }
        *place = call->following;
        *call->place = call->next;
        if (call->next != NULL)
            call->next->place = call->place;
        call->place = NULL;
        *end = call;
        end = &call->joined;
        first->size += call->size - FRAME_HEAD_SIZE - SEND_HEAD_SIZE;
        joined++;
    }
    if (joined == 1)
        return;
    uint8_t *head = first->head + FRAME_HEAD_SIZE;
    memcpy(head, first->parts[0].iov_base, SEND_HEAD_SIZE);
    write32(head + SEND_AT_TOGETHER, 0); /* each stands for itself */
    write32(head + SEND_AT_COUNT, (uint32_t)joined);
}

static size_t add_parts(struct iovec *vectors, size_t count, const Call *call, size_t skipped)
{
    for (int at = 0; at < call->count; at++) {
        struct iovec part = call->parts[at];
        size_t left = skipped < part.iov_len ? skipped : part.iov_len;
        skipped -= left;
        if (part.iov_len > left)
            vectors[count++] = (struct iovec){(uint8_t *)part.iov_base + left, part.iov_len - left};
    }
    return count;
}

/* Write the frames of a list, without the mutex. */
static bool write_frames(Connection *connection, Call *list)
{
    struct iovec *vectors = connection->vectors;
    size_t count = 0;
    for (Call *first = list; first != NULL; first = first->following) {
        write32(first->head, (uint32_t)(first->size - FRAME_SIZE_FIELD));
        first->head[FRAME_SIZE_FIELD] = (uint8_t)first->kind;
        write32(first->head + 8, first->number);
        size_t own_head = first->joined == NULL ? 0 : SEND_HEAD_SIZE;
        vectors[count++] = (struct iovec){first->head, FRAME_HEAD_SIZE + own_head};
        for (Call *call = first; call != NULL; call = call->joined) {
            count = add_parts(vectors, count, call, own_head);
            if (count > MOST_VECTORS - MOST_PARTS - 1) {
                if (!write_all(connection->socket, vectors, count))
                    return false;
                count = 0;
            }
        }
    }
    return write_all(connection->socket, vectors, count);
}

/* With the mutex held: wait a moment for callers that were answered together. */
static void wait_for_more(Connection *connection)
{
    struct timespec until = connection->answered;
    until.tv_nsec += MOMENT;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    while (connection->unwritten_count < connection->expected && !connection->lost)
        if (pthread_cond_timedwait(&connection->more, &connection->mutex, &until) != 0)
            break;
}

/* With the mutex held, which is let go meanwhile: write what all callers have to say. */
static void write_calls(Connection *connection)
{
    connection->writing = true;
    if (connection->unwritten_count < connection->expected)
        wait_for_more(connection);
    Call *list = connection->unwritten, *other = NULL;
    connection->unwritten = NULL;
    connection->last_unwritten = &connection->unwritten;
    connection->unwritten_count = connection->expected = 0;
    for (Call *call = list; call != NULL; call = call->following) {
        if (can_join(call))
            join_sends(call);
        for (Call *one = call; one != NULL; one = one->joined) {
            one->written = one->borrowed = true;
            if (one->waiting)
                other = one;
        }
    }
    if (!connection->reading && other != NULL) /* the node may stop reading until its answers are read */
        wake(connection, other);
    if (list != NULL) {
        unlock(connection);
        bool sent = write_frames(connection, list);
        pthread_mutex_lock(&connection->mutex);
        if (!sent)
            fail(connection, MQ_ERROR_SERVICE_NOT_AVAILABLE);
        for (Call *first = list; first != NULL; first = first->following)
            for (Call *call = first; call != NULL; call = call->joined) {
                call->borrowed = false;
                if (call->done)
                    wake(connection, call);
            }
    }
    connection->writing = false;
    for (other = connection->unwritten; other != NULL && !other->waiting;)
        other = other->following;
    if (other != NULL)
        wake(connection, other);
}

/* With the mutex held, which is let go at the end. */
static void wait_for(Connection *connection, Call *call)
{
    while (!call->done || call->borrowed) {
        if (!call->written && !connection->writing) {
            write_calls(connection);
            continue;
        }
        if (!call->written || connection->reading || call->done) {
            call->waiting = true;
            unlock(connection);
            while (sem_wait(&call->turn) != 0)
                continue; /* a signal */
            if (call->ended)
                return;
            pthread_mutex_lock(&connection->mutex);
            continue;
        }
        connection->reading = true;
        while (!call->done) {
            unlock(connection);
            bool goes_on = read_some(connection);
            pthread_mutex_lock(&connection->mutex);
            if (!goes_on)
                fail(connection, MQ_ERROR_SERVICE_NOT_AVAILABLE);
        }
        connection->reading = false;
        Call *other = connection->calls.later; /* one that is not written becomes no reader */
        while (other != &connection->calls && !(other->waiting && other->written))
            other = other->later;
        if (other != &connection->calls)
            wake(connection, other);
    }
    unlock(connection);
}

HRESULT connection_call(Connection *connection, int kind, const struct iovec *parts, int count, Answer *answer)
{
    Call call = {.kind = kind, .parts = parts, .count = count,
                 .size = FRAME_HEAD_SIZE};
    for (int at = 0; at < count; at++)
        call.size += parts[at].iov_len;
    if (call.size > MAXIMUM_FRAME)
        return MQ_ERROR_INSUFFICIENT_RESOURCES;
    sentence[0] = 0;
    pthread_mutex_lock(&connection->mutex);
    if (connection->lost) {
        pthread_mutex_unlock(&connection->mutex);
        return MQ_ERROR_SERVICE_NOT_AVAILABLE;
    }
    if (++connection->last_number == 0)
        connection->last_number = 1;
    call.number = connection->last_number;
    Call **bucket = &connection->buckets[call.number % BUCKETS];
    call.next = *bucket;
    if (call.next != NULL)
        call.next->place = &call.next;
    call.place = bucket;
    *bucket = &call;
    call.later = &connection->calls;
    call.earlier = connection->calls.earlier;
    call.earlier->later = &call;
    connection->calls.earlier = &call;
    *connection->last_unwritten = &call;
    connection->last_unwritten = &call.following;
    if (++connection->unwritten_count == connection->expected)
        pthread_cond_signal(&connection->more);
    sem_init(&call.turn, 0, 0);
    wait_for(connection, &call);
    sem_destroy(&call.turn);
    if (FAILED(call.failure)) {
        set_sentence("the connection to the node is closed");
        return call.failure;
    }
    if (call.answer.kind == KIND_FAILED) {
        HRESULT failure = error_of(call.answer.body, call.answer.size);
        answer_free(&call.answer);
        return failure;
    }
    *answer = call.answer;
    return MQ_OK;
}

static HRESULT method(Connection *connection, const char *what, uint32_t handle, const char *name, json_t *arguments,
                      json_t *keywords, Answer *answer)
{
    json_t *call = json_pack("[s, I, s, o, o]", what, (json_int_t)handle, name,
                             arguments == NULL ? json_array() : arguments,
                             keywords == NULL ? json_object() : keywords);
    char *text = call == NULL ? NULL : json_dumps(call, JSON_COMPACT);
    json_decref(call);
    if (text == NULL)
        return E_OUTOFMEMORY;
    struct iovec part = {text, strlen(text)};
    HRESULT result = connection_call(connection, KIND_CALL, &part, 1, answer);
    free(text);
    return result;
}

HRESULT connection_method(Connection *connection, const char *what, uint32_t handle, const char *name,
                          json_t *arguments, json_t *keywords, json_t **result)
{
    Answer answer = {0};
    HRESULT code = method(connection, what, handle, name, arguments, keywords, &answer);
    if (FAILED(code))
        return code;
    if (result != NULL) {
        *result = json_loadb((const char *)answer.body, answer.size, JSON_DECODE_ANY, NULL);
        if (*result == NULL || answer.kind != KIND_RESULT) {
            json_decref(*result);
            *result = NULL;
            code = MQ_ERROR;
            set_sentence("the node answered with what is no value of the protocol");
        }
    }
    answer_free(&answer);
    return code;
}

HRESULT connection_publishing(Connection *connection, const char *name, json_t *arguments, json_t *keywords,
                              json_t **result)
{
    json_t *login = NULL;
    HRESULT code = login_of_environment(&login);
    if (FAILED(code)) {
        json_decref(arguments);
        json_decref(keywords);
        return code;
    }
    if (login != NULL) {
        keywords = keywords == NULL ? json_object() : keywords;
        json_object_set_new(keywords, LOGIN, login);
    }
    return connection_method(connection, "manager", 0, name, arguments, keywords, result);
}

HRESULT connection_messages(Connection *connection, const char *what, uint32_t handle, const char *name,
                            json_t *arguments, json_t *keywords, Answer *answer)
{
    HRESULT code = method(connection, what, handle, name, arguments, keywords, answer);
    if (!FAILED(code) && answer->kind != KIND_MESSAGES) {
        answer_free(answer);
        return MQ_ERROR;
    }
    return code;
}

/* ---- Connecting ---- */

static HRESULT greet(Connection *connection)
{
    json_t *hello = json_pack("{s: i, s: b}", "version", (int)PROTOCOL_VERSION, ADDED_FIELDS, 1);
    char *text = hello == NULL ? NULL : json_dumps(hello, JSON_COMPACT);
    json_decref(hello);
    if (text == NULL)
        return E_OUTOFMEMORY;
    struct iovec part = {text, strlen(text)};
    Answer answer = {0};
    HRESULT code = connection_call(connection, KIND_HELLO, &part, 1, &answer);
    free(text);
    if (FAILED(code))
        return code;
    json_t *told = json_loadb((const char *)answer.body, answer.size, 0, NULL);
    answer_free(&answer);
    size_t size = 0;
    uint8_t *identifier = bytes_of_json(json_object_get(told, "identifier"), &size);
    const char *name = json_string_value(json_object_get(told, "computer_name"));
    if (identifier == NULL || size != 16 || name == NULL) {
        set_sentence("the program that answers on the socket is no node");
        code = MQ_ERROR_SERVICE_NOT_AVAILABLE;
    } else {
        memcpy(connection->identifier, identifier, 16);
        connection->computer_name = strdup(name);
        code = connection->computer_name == NULL ? E_OUTOFMEMORY : MQ_OK;
    }
    free(identifier);
    json_decref(told);
    return code;
}

static HRESULT connect_to_node(Connection **made)
{
    const char *path = getenv(SOCKET_VARIABLE);
    if (path == NULL || *path == 0)
        path = DEFAULT_SOCKET;
    if (strncmp(path, "unix:", 5) == 0)
        path += 5;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        set_sentence("the path of the node's socket is too long");
        return MQ_ERROR_SERVICE_NOT_AVAILABLE;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    Connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return E_OUTOFMEMORY;
    connection->references = 1;
    connection->calls.later = connection->calls.earlier = &connection->calls;
    connection->last_unwritten = &connection->unwritten;
    pthread_mutex_init(&connection->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&connection->more, &attributes);
    pthread_condattr_destroy(&attributes);
    connection->process = getpid();
    connection->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    HRESULT code = MQ_ERROR_SERVICE_NOT_AVAILABLE;
    int outcome;
    do
        outcome = connection->socket < 0 ? -1
                                         : connect(connection->socket, (struct sockaddr *)&address, sizeof address);
    while (outcome < 0 && errno == EINTR);
    if (outcome == 0) {
        code = greet(connection);
    } else {
        char text[256];
        snprintf(text, sizeof text, "no node answers on %.108s (%s): start it, or set " SOCKET_VARIABLE, path,
                 strerror(errno));
        code = errno == EACCES ? MQ_ERROR_ACCESS_DENIED : MQ_ERROR_SERVICE_NOT_AVAILABLE;
        set_sentence(text);
    }
    if (FAILED(code)) {
        connection_release(connection);
        return code;
    }
    *made = connection;
    return MQ_OK;
}

HRESULT connection_get(Connection **found)
{
    HRESULT code = MQ_OK;
    pthread_mutex_lock(&current_mutex);
    if (current != NULL && connection_is_lost(current)) {
        connection_release(current);
        current = NULL;
    }
    if (current == NULL)
        code = connect_to_node(&current);
    if (!FAILED(code))
        *found = connection_keep(current);
    pthread_mutex_unlock(&current_mutex);
    return code;
}

/* ---- Values ---- */

json_t *json_bytes(const void *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(2 * size + 1);
    if (text == NULL)
        return NULL;
    for (size_t at = 0; at < size; at++) {
        text[2 * at] = digits[((const uint8_t *)data)[at] >> 4];
        text[2 * at + 1] = digits[((const uint8_t *)data)[at] & 15];
    }
    json_t *value = json_pack("{s: s%}", "$bytes", text, 2 * size);
    free(text);
    return value;
}

static int digit(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    if (letter >= 'a' && letter <= 'f')
        return letter - 'a' + 10;
    return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : -1;
}

uint8_t *bytes_of_json(const json_t *value, size_t *size)
{
    const json_t *text = json_object_get(value, "$bytes");
    if (!json_is_string(text) || json_string_length(text) % 2)
        return NULL;
    const char *digits = json_string_value(text);
    *size = json_string_length(text) / 2;
    uint8_t *data = malloc(*size + 1);
    for (size_t at = 0; data != NULL && at < *size; at++) {
        int high = digit(digits[2 * at]), low = digit(digits[2 * at + 1]);
        if (high < 0 || low < 0) {
            free(data);
            return NULL;
        }
        data[at] = (uint8_t)(high << 4 | low);
    }
    return data;
}
