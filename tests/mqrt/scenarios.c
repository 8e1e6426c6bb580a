/*
 * Scenarios of the C interface against a node: `scenarios PREFIX [NAME ...]` prints a line for each. All need a node of
 * their own name ALPHA, whose socket QMNODE_SOCKET names; PREFIX keeps the queues of two runs apart.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenario.h"

jmp_buf stop_here;
char problem[1024];
static const char *prefix = "x";
static int number;
static List *lists[32];
static int list_count;

typedef struct Scenario {
    const char *name;
    void (*run)(void);
} Scenario;

#define SCENARIO(name) static void name(void)

/* ---- Arranging ---- */

static List *list(void)
{
    List *made = list_new();
    if (list_count < 32)
        lists[list_count++] = made;
    return made;
}

static void path_of(char *to, int at) { sprintf(to, ".\\private$\\%s-%d", prefix, at); }

static void widen(const char *text, WCHAR *to)
{
    do
        *to++ = (WCHAR)(unsigned char)*text;
    while (*text++);
}

static WCHAR *create_with(bool transactional, List *queue)
{
    static WCHAR path[256], name[256];
    char text[256];
    path_of(text, ++number);
    widen(text, path);
    add_text(queue, PROPID_Q_PATHNAME, path);
    add_ui1(queue, PROPID_Q_TRANSACTION, transactional);
    DWORD length = 256;
    MQQUEUEPROPS properties = {queue->properties.cProp, queue->ids, queue->values, queue->statuses};
    OK(MQCreateQueue(NULL, &properties, name, &length));
    return name;
}

static WCHAR *create(bool transactional) { return create_with(transactional, list()); }

static QUEUEHANDLE open_as(const WCHAR *name, DWORD access)
{
    QUEUEHANDLE handle;
    OK(MQOpenQueue(name, access, MQ_DENY_NONE, &handle));
    return handle;
}

typedef struct Pair {
    WCHAR name[256];
    QUEUEHANDLE out, in;
} Pair;

static Pair pair(bool transactional)
{
    Pair made;
    memcpy(made.name, create(transactional), sizeof made.name);
    made.out = open_as(made.name, MQ_SEND_ACCESS);
    made.in = open_as(made.name, MQ_RECEIVE_ACCESS);
    return made;
}

static void done(Pair *used)
{
    OK(MQCloseQueue(used->out));
    OK(MQCloseQueue(used->in));
    OK(MQDeleteQueue(used->name));
}

static HRESULT send_text(QUEUEHANDLE out, const char *body, ITransaction *transaction)
{
    List *message = list_new();
    add_bytes(message, PROPID_M_BODY, body, strlen(body));
    HRESULT code = MQSendMessage(out, &message->properties, transaction);
    free(message);
    return code;
}

/* The body of the next message in `body`, as a string. */
static HRESULT receive_with(QUEUEHANDLE in, DWORD timeout, DWORD action, HANDLE cursor, ITransaction *transaction,
                            char body[ROOM])
{
    List *message = list_new();
    add_buffer(message, PROPID_M_BODY, ROOM - 1);
    add_ui4(message, PROPID_M_BODY_SIZE, 0);
    HRESULT code = MQReceiveMessage(in, timeout, action, &message->properties, NULL, NULL, cursor, transaction);
    if (!FAILED(code)) {
        memcpy(body, message->bytes[0], ROOM);
        body[message->values[1].ulVal] = 0;
    }
    free(message);
    return code;
}

static HRESULT receive_text(QUEUEHANDLE in, char body[ROOM])
{
    return receive_with(in, 0, MQ_ACTION_RECEIVE, NULL, MQ_NO_TRANSACTION, body);
}

static uint64_t lookup_of_first(QUEUEHANDLE in)
{
    List *message = list();
    add(message, PROPID_M_LOOKUPID, VT_NULL);
    OK(MQReceiveMessage(in, 0, MQ_ACTION_PEEK_CURRENT, &message->properties, NULL, NULL, NULL, NULL));
    CHECK(message->values[0].vt == VT_UI8);
    return message->values[0].uhVal;
}

/* Send one property beside a body and get it back. */
static List *through(List *sent, List *received)
{
    Pair queue = pair(false);
    add_bytes(sent, PROPID_M_BODY, "body", 4);
    OK(MQSendMessage(queue.out, &sent->properties, NULL));
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &received->properties, NULL, NULL, NULL, NULL));
    done(&queue);
    return received;
}

static HRESULT send_list(List *sent)
{
    Pair queue = pair(false);
    HRESULT code = MQSendMessage(queue.out, &sent->properties, NULL);
    char body[ROOM];
    HRESULT after = receive_text(queue.in, body);
    done(&queue);
    CHECK(FAILED(code) == (after == MQ_ERROR_IO_TIMEOUT)); /* nothing was sent if that failed */
    return code;
}

static HRESULT receive_list(List *received)
{
    Pair queue = pair(false);
    OK(send_text(queue.out, "body", NULL));
    HRESULT code = MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &received->properties, NULL, NULL, NULL, NULL);
    char body[ROOM];
    HRESULT after = receive_text(queue.in, body);
    CHECK(FAILED(code) == (after == MQ_OK)); /* a failed receive leaves the message */
    done(&queue);
    return code;
}

/* ---- Opening and closing ---- */

SCENARIO(open_and_close)
{
    Pair queue = pair(false);
    done(&queue);
}
SCENARIO(open_without_a_name)
{
    QUEUEHANDLE handle;
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQOpenQueue(NULL, MQ_SEND_ACCESS, 0, &handle));
}
SCENARIO(open_without_a_place_for_the_handle)
{
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQOpenQueue(u"DIRECT=OS:.\\private$\\x", MQ_SEND_ACCESS, 0, NULL));
}
SCENARIO(open_an_illegal_format_name)
{
    QUEUEHANDLE handle;
    RETURNS(MQ_ERROR_ILLEGAL_FORMATNAME, MQOpenQueue(u"nonsense", MQ_SEND_ACCESS, 0, &handle));
}
SCENARIO(open_half_of_a_surrogate_pair)
{
    QUEUEHANDLE handle;
    WCHAR name[] = u"DIRECT=OS:.\\private$\\a?";
    name[22] = 0xD800;
    RETURNS(MQ_ERROR_ILLEGAL_FORMATNAME, MQOpenQueue(name, MQ_SEND_ACCESS, 0, &handle));
}
SCENARIO(open_a_queue_that_is_not_there)
{
    QUEUEHANDLE handle;
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQOpenQueue(u"DIRECT=OS:.\\private$\\none", MQ_RECEIVE_ACCESS, 0, &handle));
    CHECK(strstr(mqrt_last_sentence(), "there is no queue") != NULL);
}
SCENARIO(open_with_an_access_that_is_none)
{
    QUEUEHANDLE handle;
    RETURNS(MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
            MQOpenQueue(create(false), MQ_SEND_ACCESS | MQ_RECEIVE_ACCESS, 0, &handle));
}
SCENARIO(open_with_a_share_mode_that_is_none)
{
    QUEUEHANDLE handle;
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQOpenQueue(create(false), MQ_RECEIVE_ACCESS, 7, &handle));
}
SCENARIO(open_alone_keeps_other_receivers_out)
{
    WCHAR *name = create(false);
    QUEUEHANDLE one, other;
    OK(MQOpenQueue(name, MQ_RECEIVE_ACCESS, MQ_DENY_RECEIVE_SHARE, &one));
    RETURNS(MQ_ERROR_SHARING_VIOLATION, MQOpenQueue(name, MQ_RECEIVE_ACCESS, MQ_DENY_NONE, &other));
    OK(MQCloseQueue(one));
    OK(MQOpenQueue(name, MQ_RECEIVE_ACCESS, MQ_DENY_NONE, &other));
    OK(MQCloseQueue(other));
}
SCENARIO(open_a_queue_elsewhere_to_send)
{
    QUEUEHANDLE handle = open_as(u"DIRECT=OS:elsewhere\\private$\\orders", MQ_SEND_ACCESS);
    OK(send_text(handle, "on its way", NULL));
    OK(MQCloseQueue(handle));
}
SCENARIO(close_twice)
{
    Pair queue = pair(false);
    OK(MQCloseQueue(queue.in));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseQueue(queue.in));
    OK(MQCloseQueue(queue.out));
}
SCENARIO(close_what_is_no_handle)
{
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseQueue(NULL));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseQueue((QUEUEHANDLE)(uintptr_t)0x12345679));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseQueue(&number));
}
SCENARIO(a_closed_handle_does_not_become_another)
{
    WCHAR *name = create(false);
    QUEUEHANDLE old = open_as(name, MQ_SEND_ACCESS);
    OK(MQCloseQueue(old));
    QUEUEHANDLE fresh = open_as(name, MQ_SEND_ACCESS);
    CHECK(fresh != old);
    RETURNS(MQ_ERROR_INVALID_HANDLE, send_text(old, "x", NULL));
    OK(MQCloseQueue(fresh));
}

/* ---- Sending ---- */

SCENARIO(send_and_receive)
{
    Pair queue = pair(false);
    char body[ROOM];
    OK(send_text(queue.out, "first", NULL));
    OK(send_text(queue.out, "second", NULL));
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "first") == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "second") == 0);
    done(&queue);
}
SCENARIO(send_through_a_receiving_handle)
{
    Pair queue = pair(false);
    RETURNS(MQ_ERROR_ACCESS_DENIED, send_text(queue.in, "x", NULL));
    done(&queue);
}
SCENARIO(send_no_properties)
{
    Pair queue = pair(false);
    MQMSGPROPS none = {0};
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQSendMessage(queue.out, NULL, NULL));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQSendMessage(queue.out, &none, NULL));
    done(&queue);
}
SCENARIO(send_without_a_body)
{
    List *sent = list(), *got = list();
    add_text(sent, PROPID_M_LABEL, u"only a label");
    add_buffer(got, PROPID_M_BODY, ROOM);
    add_ui4(got, PROPID_M_BODY_SIZE, 77);
    Pair queue = pair(false);
    OK(MQSendMessage(queue.out, &sent->properties, NULL));
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(value(got, PROPID_M_BODY_SIZE)->ulVal == 0);
    done(&queue);
}
SCENARIO(send_a_large_body)
{
    enum { SIZE = 3 * 1024 * 1024 };
    Pair queue = pair(false);
    UCHAR *large = malloc(SIZE), *back = calloc(1, 4 * 1024 * 1024);
    for (size_t at = 0; at < SIZE; at++)
        large[at] = (UCHAR)(at * 7 >> 3);
    List *sent = list(), *got = list();
    add_bytes(sent, PROPID_M_BODY, large, SIZE);
    OK(MQSendMessage(queue.out, &sent->properties, NULL));
    add_bytes(got, PROPID_M_BODY, back, 4 * 1024 * 1024); /* it holds any message: taken in one step */
    add_ui4(got, PROPID_M_BODY_SIZE, 0);
    HRESULT code = MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL);
    bool same = memcmp(large, back, SIZE) == 0 && got->values[1].ulVal == SIZE;
    free(large);
    free(back);
    OK(code);
    CHECK(same);
    done(&queue);
}
SCENARIO(send_a_body_that_is_too_large)
{
    Pair queue = pair(false);
    UCHAR *large = calloc(1, 4 * 1024 * 1024);
    List *sent = list();
    add_bytes(sent, PROPID_M_BODY, large, 4 * 1024 * 1024);
    HRESULT code = MQSendMessage(queue.out, &sent->properties, NULL);
    free(large);
    RETURNS(MQ_ERROR_INSUFFICIENT_RESOURCES, code);
    done(&queue);
}
SCENARIO(send_gives_the_identifier)
{
    Pair queue = pair(false);
    List *sent = list(), *got = list();
    add_bytes(sent, PROPID_M_BODY, "x", 1);
    add_buffer(sent, PROPID_M_MSGID, 20);
    add_buffer(got, PROPID_M_MSGID, 20);
    OK(MQSendMessage(queue.out, &sent->properties, NULL));
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(memcmp(sent->bytes[1], got->bytes[0], 20) == 0);
    CHECK(got->bytes[0][16] | got->bytes[0][17]);
    done(&queue);
}
SCENARIO(send_with_a_buffer_for_the_identifier_that_is_too_small)
{
    List *sent = list();
    add_buffer(sent, PROPID_M_MSGID, 19);
    RETURNS(MQ_ERROR_PROPERTY, send_list(sent));
    CHECK(sent->statuses[0] == MQ_ERROR_ILLEGAL_PROPERTY_SIZE);
}
SCENARIO(send_an_unknown_property)
{
    List *sent = list();
    add_bytes(sent, PROPID_M_BODY, "x", 1);
    add_ui4(sent, 4711, 1);
    RETURNS(MQ_INFORMATION_PROPERTY, send_list(sent));
    CHECK(sent->statuses[0] == MQ_OK && sent->statuses[1] == MQ_INFORMATION_UNSUPPORTED_PROPERTY);
}
SCENARIO(send_a_property_twice)
{
    List *sent = list(), *got = list();
    add_ui4(sent, PROPID_M_APPSPECIFIC, 1);
    add_ui4(sent, PROPID_M_APPSPECIFIC, 2);
    add(got, PROPID_M_APPSPECIFIC, VT_NULL);
    Pair queue = pair(false);
    RETURNS(MQ_INFORMATION_PROPERTY, MQSendMessage(queue.out, &sent->properties, NULL));
    CHECK(sent->statuses[1] == MQ_INFORMATION_DUPLICATE_PROPERTY);
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(got->values[0].ulVal == 1);
    done(&queue);
}
SCENARIO(send_a_property_that_only_receivers_have)
{
    List *sent = list();
    add_ui4(sent, PROPID_M_SENTTIME, 1);
    add_guid(sent, PROPID_M_SRC_MACHINE_ID);
    RETURNS(MQ_INFORMATION_PROPERTY, send_list(sent));
    CHECK(status(sent, PROPID_M_SRC_MACHINE_ID) == MQ_INFORMATION_PROPERTY_IGNORED);
}
SCENARIO(send_without_statuses)
{
    List *sent = list();
    add_ui1(sent, PROPID_M_PRIORITY, 9);
    sent->properties.aStatus = NULL;
    RETURNS(MQ_ERROR_PROPERTY, send_list(sent));
}
SCENARIO(send_too_many_properties)
{
    DWORD ids[129] = {0};
    MQPROPVARIANT values[129];
    memset(values, 0, sizeof values);
    MQMSGPROPS properties = {129, ids, values, NULL};
    Pair queue = pair(false);
    RETURNS(MQ_ERROR_TOO_MANY_PROPERTIES, MQSendMessage(queue.out, &properties, NULL));
    done(&queue);
}

#define FAULTY(name, fault, adding) \
    SCENARIO(name) \
    { \
        List *sent = list(); \
        adding; \
        RETURNS(MQ_ERROR_PROPERTY, send_list(sent)); \
        CHECK(sent->statuses[0] == fault); \
    }
static WCHAR long_label[251];
static void fill_label(void)
{
    for (int at = 0; at < 250; at++)
        long_label[at] = u'x';
}
FAULTY(send_a_priority_above_seven, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui1(sent, PROPID_M_PRIORITY, 8))
FAULTY(send_a_delivery_that_is_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui1(sent, PROPID_M_DELIVERY, 2))
FAULTY(send_acknowledgments_that_are_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui1(sent, PROPID_M_ACKNOWLEDGE, 0x10))
FAULTY(send_journaling_that_is_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui1(sent, PROPID_M_JOURNAL, 4))
FAULTY(send_a_trace_that_is_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui1(sent, PROPID_M_TRACE, 2))
FAULTY(send_a_privacy_level_that_is_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui4(sent, PROPID_M_PRIV_LEVEL, 2))
FAULTY(send_an_authentication_level_that_is_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
       add_ui4(sent, PROPID_M_AUTH_LEVEL, 3))
FAULTY(send_a_type_of_sender_that_is_none, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_ui4(sent, PROPID_M_SENDERID_TYPE, 9))
FAULTY(send_a_correlation_of_another_size, MQ_ERROR_ILLEGAL_PROPERTY_SIZE,
       add_bytes(sent, PROPID_M_CORRELATIONID, "short", 5))
FAULTY(send_a_body_without_bytes, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_bytes(sent, PROPID_M_BODY, NULL, 5))
FAULTY(send_a_label_without_text, MQ_ERROR_ILLEGAL_PROPERTY_VALUE, add_text(sent, PROPID_M_LABEL, NULL))
FAULTY(send_a_label_that_is_too_long, MQ_ERROR_LABEL_TOO_LONG, (fill_label(), add_text(sent, PROPID_M_LABEL, long_label)))
FAULTY(send_a_number_as_text, MQ_ERROR_ILLEGAL_PROPERTY_VT, add_text(sent, PROPID_M_APPSPECIFIC, u"7"))
FAULTY(send_a_body_as_text, MQ_ERROR_ILLEGAL_PROPERTY_VT, add_text(sent, PROPID_M_BODY, u"7"))
FAULTY(send_a_priority_as_four_bytes, MQ_ERROR_ILLEGAL_PROPERTY_VT, add_ui4(sent, PROPID_M_PRIORITY, 3))
FAULTY(send_a_response_queue_that_is_none, MQ_ERROR_ILLEGAL_FORMATNAME,
       add_text(sent, PROPID_M_RESP_QUEUE, u".\\private$\\path"))
FAULTY(send_an_administration_queue_that_is_none, MQ_ERROR_ILLEGAL_FORMATNAME,
       add_text(sent, PROPID_M_ADMIN_QUEUE, u"DIRECT=OS:nothing"))
static WCHAR long_name[0x8000 + 16] = u"DIRECT=OS:x\\";
static void fill_name(void)
{
    for (size_t at = 12; at < 7 + 0x7FFF; at++)
        long_name[at] = u'q';
}
FAULTY(send_a_response_queue_whose_size_has_no_room, MQ_ERROR_ILLEGAL_FORMATNAME,
       (fill_name(), add_text(sent, PROPID_M_RESP_QUEUE, long_name)))
FAULTY(send_several_response_queues_as_one, MQ_ERROR_ILLEGAL_FORMATNAME,
       add_text(sent, PROPID_M_RESP_QUEUE, u"DIRECT=OS:.\\private$\\a,DIRECT=OS:.\\private$\\b"))
FAULTY(send_a_private_name_with_a_broken_guid, MQ_ERROR_ILLEGAL_FORMATNAME,
       add_text(sent, PROPID_M_RESP_QUEUE, u"PRIVATE=11111111-1111-1111-1111-11111111111\\0000000f"))
FAULTY(send_a_connector_without_guid, MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
       add(sent, PROPID_M_CONNECTOR_TYPE, VT_CLSID)->puuid = NULL)

/* ---- Properties that come through ---- */

#define NUMBER_COMES_THROUGH(name, id, adder, member, number_, type) \
    SCENARIO(name) \
    { \
        List *sent = list(), *got = list(); \
        adder(sent, id, number_); \
        add(got, id, VT_NULL); \
        through(sent, got); \
        CHECK(got->values[0].vt == type && got->values[0].member == number_); \
    }
NUMBER_COMES_THROUGH(class_comes_through, PROPID_M_CLASS, add_ui2, uiVal, 0xC001, VT_UI2)
NUMBER_COMES_THROUGH(priority_comes_through, PROPID_M_PRIORITY, add_ui1, bVal, 6, VT_UI1)
NUMBER_COMES_THROUGH(delivery_comes_through, PROPID_M_DELIVERY, add_ui1, bVal, MQMSG_DELIVERY_RECOVERABLE, VT_UI1)
NUMBER_COMES_THROUGH(acknowledge_comes_through, PROPID_M_ACKNOWLEDGE, add_ui1, bVal, 0x0D, VT_UI1)
NUMBER_COMES_THROUGH(journal_comes_through, PROPID_M_JOURNAL, add_ui1, bVal, 3, VT_UI1)
NUMBER_COMES_THROUGH(appspecific_comes_through, PROPID_M_APPSPECIFIC, add_ui4, ulVal, 0xDEADBEEF, VT_UI4)
NUMBER_COMES_THROUGH(body_type_comes_through, PROPID_M_BODY_TYPE, add_ui4, ulVal, VT_LPWSTR, VT_UI4)
NUMBER_COMES_THROUGH(time_to_be_received_comes_through, PROPID_M_TIME_TO_BE_RECEIVED, add_ui4, ulVal, 86400, VT_UI4)
NUMBER_COMES_THROUGH(time_to_reach_queue_comes_through, PROPID_M_TIME_TO_REACH_QUEUE, add_ui4, ulVal, 3600, VT_UI4)
NUMBER_COMES_THROUGH(infinite_time_comes_through, PROPID_M_TIME_TO_REACH_QUEUE, add_ui4, ulVal, INFINITE, VT_UI4)
NUMBER_COMES_THROUGH(hash_comes_through, PROPID_M_HASH_ALG, add_ui4, ulVal, 0x800C, VT_UI4)
NUMBER_COMES_THROUGH(encryption_comes_through, PROPID_M_ENCRYPTION_ALG, add_ui4, ulVal, 0x660E, VT_UI4)
NUMBER_COMES_THROUGH(trace_comes_through, PROPID_M_TRACE, add_ui1, bVal, MQMSG_SEND_ROUTE_TO_REPORT_QUEUE, VT_UI1)

#define TEXT_COMES_THROUGH(name, id, text) \
    SCENARIO(name) \
    { \
        List *sent = list(), *got = list(); \
        add_text(sent, id, text); \
        add_text_buffer(got, id, ROOM); \
        through(sent, got); \
        CHECK(equal(got->texts[0], text)); \
        CHECK(got->values[1].ulVal == sizeof text / sizeof(WCHAR)); \
    }
TEXT_COMES_THROUGH(label_comes_through, PROPID_M_LABEL, u"Gr\u00fc\u00dfe \U0001F4E8")
TEXT_COMES_THROUGH(response_queue_comes_through, PROPID_M_RESP_QUEUE, u"DIRECT=OS:ALPHA\\private$\\answers")
TEXT_COMES_THROUGH(public_response_queue_comes_through, PROPID_M_RESP_QUEUE,
                   u"PUBLIC=01234567-89ab-cdef-0123-456789abcdef")
TEXT_COMES_THROUGH(private_response_queue_comes_through, PROPID_M_RESP_QUEUE,
                   u"PRIVATE=01234567-89ab-cdef-0123-456789abcdef\\0000000f")
TEXT_COMES_THROUGH(administration_queue_comes_through, PROPID_M_ADMIN_QUEUE, u"DIRECT=OS:ALPHA\\private$\\admin")
TEXT_COMES_THROUGH(one_response_name_comes_through, PROPID_M_RESP_FORMAT_NAME, u"DIRECT=TCP:127.0.0.9\\private$\\a")
TEXT_COMES_THROUGH(several_response_names_come_through, PROPID_M_RESP_FORMAT_NAME,
                   u"DIRECT=OS:ALPHA\\private$\\a,DIRECT=OS:ALPHA\\private$\\bc,"
                   u"PUBLIC=01234567-89ab-cdef-0123-456789abcdef")

SCENARIO(correlation_comes_through)
{
    List *sent = list(), *got = list();
    add_bytes(sent, PROPID_M_CORRELATIONID, "01234567890123456789", 20);
    add_buffer(got, PROPID_M_CORRELATIONID, 20);
    through(sent, got);
    CHECK(memcmp(got->bytes[0], "01234567890123456789", 20) == 0);
}
SCENARIO(extension_comes_through)
{
    List *sent = list(), *got = list();
    add_bytes(sent, PROPID_M_EXTENSION, "exten\0sion", 10);
    add_buffer(got, PROPID_M_EXTENSION, ROOM);
    add_ui4(got, PROPID_M_EXTENSION_LEN, 0);
    through(sent, got);
    CHECK(got->values[1].ulVal == 10 && memcmp(got->bytes[0], "exten\0sion", 10) == 0);
}
SCENARIO(connector_type_comes_through)
{
    List *sent = list(), *got = list();
    CLSID kind = {0x01020304, 0x0506, 0x0708, {9, 10, 11, 12, 13, 14, 15, 16}};
    add(sent, PROPID_M_CONNECTOR_TYPE, VT_CLSID)->puuid = &kind;
    add_guid(got, PROPID_M_CONNECTOR_TYPE);
    through(sent, got);
    CHECK(memcmp(&got->guids[0], &kind, sizeof kind) == 0);
}
SCENARIO(everything_at_once_comes_through)
{
    List *sent = list(), *got = list();
    add_text(sent, PROPID_M_LABEL, u"label");
    add_ui1(sent, PROPID_M_PRIORITY, 5);
    add_text(sent, PROPID_M_RESP_QUEUE, u"DIRECT=OS:ALPHA\\private$\\answers");
    add_text(sent, PROPID_M_ADMIN_QUEUE, u"DIRECT=OS:ALPHA\\private$\\ad");
    add_bytes(sent, PROPID_M_EXTENSION, "abc", 3);
    add_bytes(sent, PROPID_M_CORRELATIONID, "01234567890123456789", 20);
    add_ui4(sent, PROPID_M_APPSPECIFIC, 7);
    add_text_buffer(got, PROPID_M_LABEL, ROOM);
    add(got, PROPID_M_PRIORITY, VT_UI1);
    add_text_buffer(got, PROPID_M_RESP_QUEUE, ROOM);
    add_text_buffer(got, PROPID_M_ADMIN_QUEUE, ROOM);
    add_buffer(got, PROPID_M_EXTENSION, ROOM);
    add_ui4(got, PROPID_M_EXTENSION_LEN, 0);
    add_buffer(got, PROPID_M_BODY, ROOM);
    add(got, PROPID_M_APPSPECIFIC, VT_NULL);
    through(sent, got);
    CHECK(equal(value(got, PROPID_M_LABEL)->pwszVal, u"label"));
    CHECK(value(got, PROPID_M_PRIORITY)->bVal == 5);
    CHECK(equal(value(got, PROPID_M_RESP_QUEUE)->pwszVal, u"DIRECT=OS:ALPHA\\private$\\answers"));
    CHECK(equal(value(got, PROPID_M_ADMIN_QUEUE)->pwszVal, u"DIRECT=OS:ALPHA\\private$\\ad"));
    CHECK(memcmp(value(got, PROPID_M_EXTENSION)->caub.pElems, "abc", 3) == 0);
    CHECK(memcmp(value(got, PROPID_M_BODY)->caub.pElems, "body", 4) == 0);
    CHECK(value(got, PROPID_M_APPSPECIFIC)->ulVal == 7);
}
SCENARIO(defaults_are_those_of_the_documentation)
{
    List *sent = list(), *got = list();
    static const DWORD ids[] = {PROPID_M_CLASS, PROPID_M_PRIORITY, PROPID_M_DELIVERY, PROPID_M_ACKNOWLEDGE,
                                PROPID_M_JOURNAL, PROPID_M_APPSPECIFIC, PROPID_M_BODY_TYPE, PROPID_M_PRIV_LEVEL,
                                PROPID_M_AUTHENTICATED, PROPID_M_TRACE, PROPID_M_FIRST_IN_XACT,
                                PROPID_M_LAST_IN_XACT, PROPID_M_ABORT_COUNT, PROPID_M_MOVE_COUNT};
    for (size_t at = 0; at < sizeof ids / sizeof *ids; at++)
        add(got, ids[at], VT_NULL);
    add(got, PROPID_M_TIME_TO_BE_RECEIVED, VT_NULL);
    add_text_buffer(got, PROPID_M_LABEL, ROOM);
    add_text_buffer(got, PROPID_M_RESP_QUEUE, ROOM);
    through(sent, got);
    for (size_t at = 0; at < sizeof ids / sizeof *ids; at++) {
        ULONG found = got->values[at].vt == VT_UI1   ? got->values[at].bVal
                      : got->values[at].vt == VT_UI2 ? got->values[at].uiVal
                                                     : got->values[at].ulVal;
        CHECK(found == (ids[at] == PROPID_M_PRIORITY ? 3 : 0));
    }
    CHECK(value(got, PROPID_M_TIME_TO_BE_RECEIVED)->ulVal == INFINITE);
    CHECK(value(got, PROPID_M_LABEL_LEN)->ulVal == 0 && value(got, PROPID_M_RESP_QUEUE_LEN)->ulVal == 0);
}
SCENARIO(the_node_says_where_and_when)
{
    List *sent = list(), *got = list();
    add(got, PROPID_M_SENTTIME, VT_NULL);
    add(got, PROPID_M_ARRIVEDTIME, VT_NULL);
    add_guid(got, PROPID_M_SRC_MACHINE_ID);
    add_text_buffer(got, PROPID_M_DEST_QUEUE, ROOM);
    add_text_buffer(got, PROPID_M_DEST_FORMAT_NAME, ROOM);
    add(got, PROPID_M_VERSION, VT_UI4);
    add(got, PROPID_M_LOOKUPID, VT_UI8);
    through(sent, got);
    CHECK(value(got, PROPID_M_SENTTIME)->ulVal > 1700000000);
    CHECK(value(got, PROPID_M_ARRIVEDTIME)->ulVal >= value(got, PROPID_M_SENTTIME)->ulVal);
    CHECK(got->guids[2].Data1 != 0);
    CHECK(contains(value(got, PROPID_M_DEST_QUEUE)->pwszVal, u"\\private$\\"));
    CHECK(equal(value(got, PROPID_M_DEST_QUEUE)->pwszVal, value(got, PROPID_M_DEST_FORMAT_NAME)->pwszVal));
    CHECK(value(got, PROPID_M_VERSION)->ulVal == 0x10 && value(got, PROPID_M_LOOKUPID)->uhVal != 0);
}
SCENARIO(security_properties_come_through)
{
    List *sent = list(), *got = list();
    Pair queue = pair(false);
    add_bytes(sent, PROPID_M_BODY, "x", 1);
    add_bytes(sent, PROPID_M_SENDER_CERT, "certificate", 11);
    add_buffer(got, PROPID_M_SENDER_CERT, ROOM);
    add_ui4(got, PROPID_M_SENDER_CERT_LEN, 0);
    add_buffer(got, PROPID_M_SIGNATURE, ROOM);
    add_ui4(got, PROPID_M_SIGNATURE_LEN, 9);
    OK(MQSendMessage(queue.out, &sent->properties, NULL));
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(value(got, PROPID_M_SENDER_CERT_LEN)->ulVal == 11);
    CHECK(memcmp(got->bytes[0], "certificate", 11) == 0);
    CHECK(value(got, PROPID_M_SIGNATURE_LEN)->ulVal == 0);
    done(&queue);
}
SCENARIO(a_higher_priority_is_received_first)
{
    Pair queue = pair(false);
    for (int at = 0; at < 3; at++) {
        List *sent = list();
        static const UCHAR priorities[] = {1, 7, 3};
        add_ui1(sent, PROPID_M_PRIORITY, priorities[at]);
        add_bytes(sent, PROPID_M_BODY, &"abc"[at], 1);
        OK(MQSendMessage(queue.out, &sent->properties, NULL));
    }
    char body[ROOM], all[4] = "";
    for (int at = 0; at < 3; at++) {
        OK(receive_text(queue.in, body));
        all[at] = body[0];
    }
    CHECK(strcmp(all, "bca") == 0);
    done(&queue);
}
SCENARIO(a_journal_keeps_what_was_received)
{
    List *made = list();
    add_ui1(made, PROPID_Q_JOURNAL, MQ_JOURNAL);
    WCHAR name[300];
    memcpy(name, create_with(false, made), 256 * sizeof *name);
    QUEUEHANDLE out = open_as(name, MQ_SEND_ACCESS), in = open_as(name, MQ_RECEIVE_ACCESS);
    char body[ROOM];
    OK(send_text(out, "kept", NULL));
    OK(receive_text(in, body));
    size_t length = 0;
    while (name[length])
        length++;
    memcpy(name + length, u";JOURNAL", 9 * sizeof *name);
    QUEUEHANDLE journal = open_as(name, MQ_RECEIVE_ACCESS);
    OK(receive_text(journal, body));
    CHECK(strcmp(body, "kept") == 0);
    OK(MQCloseQueue(journal));
    OK(MQCloseQueue(in));
    OK(MQCloseQueue(out));
}
SCENARIO(an_acknowledgment_names_its_message)
{
    Pair administration = pair(false), queue = pair(false);
    List *sent = list(), *got = list();
    add_bytes(sent, PROPID_M_BODY, "x", 1);
    add_ui1(sent, PROPID_M_ACKNOWLEDGE, MQMSG_ACKNOWLEDGMENT_FULL_REACH_QUEUE);
    add_text(sent, PROPID_M_ADMIN_QUEUE, administration.name);
    add_buffer(sent, PROPID_M_MSGID, 20);
    OK(MQSendMessage(queue.out, &sent->properties, NULL));
    add(got, PROPID_M_CLASS, VT_NULL);
    add_buffer(got, PROPID_M_CORRELATIONID, 20);
    OK(MQReceiveMessage(administration.in, 60000, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(got->values[0].uiVal == MQMSG_CLASS_ACK_REACH_QUEUE);
    CHECK(memcmp(got->bytes[1], sent->bytes[3], 20) == 0);
    done(&queue);
    done(&administration);
}

/* ---- Receiving ---- */

SCENARIO(receive_from_an_empty_queue)
{
    Pair queue = pair(false);
    char body[ROOM];
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_with(queue.in, 50, MQ_ACTION_RECEIVE, NULL, NULL, body));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_with(queue.in, 50, MQ_ACTION_PEEK_CURRENT, NULL, NULL, body));
    done(&queue);
}
SCENARIO(receive_nothing_but_the_message)
{
    Pair queue = pair(false);
    char body[ROOM];
    OK(send_text(queue.out, "x", NULL));
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, NULL, NULL, NULL, NULL, NULL));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    done(&queue);
}
SCENARIO(receive_through_a_sending_handle)
{
    Pair queue = pair(false);
    char body[ROOM];
    RETURNS(MQ_ERROR_ACCESS_DENIED, receive_text(queue.out, body));
    done(&queue);
}
SCENARIO(receive_through_a_peeking_handle)
{
    Pair queue = pair(false);
    char body[ROOM];
    QUEUEHANDLE peeking = open_as(queue.name, MQ_PEEK_ACCESS);
    OK(send_text(queue.out, "seen", NULL));
    RETURNS(MQ_ERROR_ACCESS_DENIED, receive_text(peeking, body));
    OK(receive_with(peeking, 0, MQ_ACTION_PEEK_CURRENT, NULL, NULL, body));
    CHECK(strcmp(body, "seen") == 0);
    OK(MQCloseQueue(peeking));
    done(&queue);
}
SCENARIO(receive_with_an_action_that_is_none)
{
    Pair queue = pair(false);
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQReceiveMessage(queue.in, 0, 5, NULL, NULL, NULL, NULL, NULL));
    done(&queue);
}
SCENARIO(peek_leaves_the_message)
{
    Pair queue = pair(false);
    char body[ROOM];
    OK(send_text(queue.out, "stays", NULL));
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, NULL, NULL, body));
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, NULL, NULL, body));
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "stays") == 0);
    done(&queue);
}
static void *send_later(void *name)
{
    QUEUEHANDLE out;
    usleep(50000);
    if (MQOpenQueue(name, MQ_SEND_ACCESS, 0, &out) == MQ_OK) {
        send_text(out, "late", NULL);
        MQCloseQueue(out);
    }
    return NULL;
}
SCENARIO(receive_waits_for_a_message)
{
    Pair queue = pair(false);
    pthread_t thread;
    char body[ROOM];
    pthread_create(&thread, NULL, send_later, queue.name);
    HRESULT code = receive_with(queue.in, INFINITE, MQ_ACTION_RECEIVE, NULL, NULL, body);
    pthread_join(thread, NULL);
    OK(code);
    CHECK(strcmp(body, "late") == 0);
    done(&queue);
}
static void *close_later(void *handle)
{
    usleep(100000);
    MQCloseQueue(handle);
    return NULL;
}
SCENARIO(closing_ends_a_receive)
{
    Pair queue = pair(false);
    pthread_t thread;
    char body[ROOM];
    pthread_create(&thread, NULL, close_later, queue.in);
    HRESULT code = receive_with(queue.in, INFINITE, MQ_ACTION_RECEIVE, NULL, NULL, body);
    pthread_join(thread, NULL);
    RETURNS(MQ_ERROR_OPERATION_CANCELLED, code);
    OK(MQCloseQueue(queue.out));
}
SCENARIO(an_unknown_property_is_said)
{
    List *got = list();
    add(got, PROPID_M_BODY_TYPE, VT_NULL);
    add(got, 4711, VT_NULL);
    add(got, PROPID_M_LAST_MOVE_TIME, VT_NULL);
    RETURNS(MQ_INFORMATION_PROPERTY, receive_list(got));
    CHECK(got->statuses[0] == MQ_OK && got->statuses[1] == MQ_INFORMATION_UNSUPPORTED_PROPERTY);
    CHECK(got->statuses[2] == MQ_INFORMATION_UNSUPPORTED_PROPERTY);
}
SCENARIO(a_senders_property_is_ignored)
{
    List *got = list();
    add(got, PROPID_M_AUTH_LEVEL, VT_NULL);
    RETURNS(MQ_INFORMATION_PROPERTY, receive_list(got));
    CHECK(got->statuses[0] == MQ_INFORMATION_PROPERTY_IGNORED);
}
SCENARIO(a_body_in_a_wrong_type_is_refused)
{
    List *got = list();
    add(got, PROPID_M_BODY, VT_NULL);
    RETURNS(MQ_ERROR_PROPERTY, receive_list(got));
    CHECK(got->statuses[0] == MQ_ERROR_ILLEGAL_PROPERTY_VT);
}
SCENARIO(a_number_in_a_wrong_type_is_refused)
{
    List *got = list();
    add(got, PROPID_M_PRIORITY, VT_UI4);
    RETURNS(MQ_ERROR_PROPERTY, receive_list(got));
    CHECK(got->statuses[0] == MQ_ERROR_ILLEGAL_PROPERTY_VT);
}
SCENARIO(an_identifier_needs_twenty_bytes)
{
    List *got = list();
    add_buffer(got, PROPID_M_MSGID, 10);
    RETURNS(MQ_ERROR_PROPERTY, receive_list(got));
    CHECK(got->statuses[0] == MQ_ERROR_ILLEGAL_PROPERTY_SIZE);
}
SCENARIO(a_guid_needs_a_place)
{
    List *got = list();
    add(got, PROPID_M_SRC_MACHINE_ID, VT_CLSID);
    RETURNS(MQ_ERROR_PROPERTY, receive_list(got));
}
SCENARIO(a_label_needs_its_length)
{
    List *got = list();
    add(got, PROPID_M_LABEL, VT_LPWSTR)->pwszVal = got->texts[0];
    RETURNS(MQ_ERROR_INSUFFICIENT_PROPERTIES, receive_list(got));
}
SCENARIO(a_small_buffer_leaves_the_message)
{
    List *got = list();
    add_buffer(got, PROPID_M_BODY, 3);
    add_ui4(got, PROPID_M_BODY_SIZE, 0);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW, receive_list(got));
    CHECK(got->values[1].ulVal == 4 && memcmp(got->bytes[0], "bod\0", 4) == 0);
    CHECK(got->statuses[0] == MQ_ERROR_BUFFER_OVERFLOW);
}
SCENARIO(a_small_buffer_leaves_the_place_in_the_queue)
{
    Pair queue = pair(false);
    char body[ROOM];
    OK(send_text(queue.out, "first", NULL));
    OK(send_text(queue.out, "second", NULL));
    List *got = list();
    add_buffer(got, PROPID_M_BODY, 1);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW,
            MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "first") == 0);
    done(&queue);
}
SCENARIO(peeking_tells_the_size)
{
    Pair queue = pair(false);
    List *got = list();
    OK(send_text(queue.out, "twelve bytes", NULL));
    add_buffer(got, PROPID_M_BODY, 0);
    add(got, PROPID_M_BODY_SIZE, VT_NULL);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW,
            MQReceiveMessage(queue.in, 0, MQ_ACTION_PEEK_CURRENT, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(got->values[1].ulVal == 12);
    done(&queue);
}

#define SMALL(name, id, sending, room, fault, needed) \
    SCENARIO(name) \
    { \
        List *sent = list(), *got = list(); \
        Pair queue = pair(false); \
        sending; \
        if (sent->values[0].vt == VT_LPWSTR) { \
            add_text_buffer(got, id, room); \
        } else { \
            add_buffer(got, id, room); \
            add_ui4(got, id + 1, room); \
        } \
        OK(MQSendMessage(queue.out, &sent->properties, NULL)); \
        RETURNS(fault, MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL)); \
        CHECK(got->values[1].ulVal == needed); \
        CHECK(got->statuses[0] == fault); \
        char body[ROOM]; \
        OK(receive_text(queue.in, body)); \
        done(&queue); \
    }
SMALL(a_small_label_is_said, PROPID_M_LABEL, add_text(sent, PROPID_M_LABEL, u"label"), 3,
      MQ_ERROR_LABEL_BUFFER_TOO_SMALL, 6)
SMALL(a_small_response_name_is_said, PROPID_M_RESP_QUEUE,
      add_text(sent, PROPID_M_RESP_QUEUE, u"DIRECT=OS:a\\private$\\b"), 3, MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, 23)
SMALL(a_small_extension_is_said, PROPID_M_EXTENSION, add_bytes(sent, PROPID_M_EXTENSION, "12345", 5), 4,
      MQ_ERROR_BUFFER_OVERFLOW, 5)
SMALL(a_small_certificate_is_said, PROPID_M_SENDER_CERT, add_bytes(sent, PROPID_M_SENDER_CERT, "12345", 5), 4,
      MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL, 5)

/* ---- Cursors ---- */

static void three(Pair *queue)
{
    OK(send_text(queue->out, "one", NULL));
    OK(send_text(queue->out, "two", NULL));
    OK(send_text(queue->out, "three", NULL));
}
SCENARIO(a_cursor_walks)
{
    Pair queue = pair(false);
    HANDLE cursor;
    char body[ROOM];
    three(&queue);
    OK(MQCreateCursor(queue.in, &cursor));
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, cursor, NULL, body));
    CHECK(strcmp(body, "one") == 0);
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_NEXT, cursor, NULL, body));
    CHECK(strcmp(body, "two") == 0);
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, cursor, NULL, body));
    CHECK(strcmp(body, "two") == 0);
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_NEXT, cursor, NULL, body));
    CHECK(strcmp(body, "three") == 0);
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_with(queue.in, 0, MQ_ACTION_PEEK_NEXT, cursor, NULL, body));
    OK(MQCloseCursor(cursor));
    done(&queue);
}
SCENARIO(a_cursor_takes_from_the_middle)
{
    Pair queue = pair(false);
    HANDLE cursor;
    char body[ROOM];
    three(&queue);
    OK(MQCreateCursor(queue.in, &cursor));
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, cursor, NULL, body));
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_NEXT, cursor, NULL, body));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, cursor, NULL, body));
    CHECK(strcmp(body, "two") == 0);
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, cursor, NULL, body));
    CHECK(strcmp(body, "three") == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "one") == 0);
    OK(MQCloseCursor(cursor));
    done(&queue);
}
SCENARIO(a_cursor_begins_with_the_current_message)
{
    Pair queue = pair(false);
    HANDLE cursor;
    char body[ROOM];
    three(&queue);
    OK(MQCreateCursor(queue.in, &cursor));
    RETURNS(MQ_ERROR_ILLEGAL_CURSOR_ACTION, receive_with(queue.in, 0, MQ_ACTION_PEEK_NEXT, cursor, NULL, body));
    OK(MQCloseCursor(cursor));
    done(&queue);
}
SCENARIO(the_next_message_needs_a_cursor)
{
    Pair queue = pair(false);
    char body[ROOM];
    RETURNS(MQ_ERROR_ILLEGAL_CURSOR_ACTION, receive_with(queue.in, 0, MQ_ACTION_PEEK_NEXT, NULL, NULL, body));
    done(&queue);
}
SCENARIO(a_cursor_knows_that_its_message_is_gone)
{
    Pair queue = pair(false);
    HANDLE cursor;
    char body[ROOM];
    three(&queue);
    OK(MQCreateCursor(queue.in, &cursor));
    OK(receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, cursor, NULL, body));
    OK(receive_text(queue.in, body));
    RETURNS(MQ_ERROR_MESSAGE_ALREADY_RECEIVED, receive_with(queue.in, 0, MQ_ACTION_RECEIVE, cursor, NULL, body));
    OK(MQCloseCursor(cursor));
    done(&queue);
}
SCENARIO(a_cursor_needs_a_queue)
{
    HANDLE cursor;
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCreateCursor(NULL, &cursor));
    Pair queue = pair(false);
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQCreateCursor(queue.in, NULL));
    done(&queue);
}
SCENARIO(a_cursor_is_closed_once)
{
    Pair queue = pair(false);
    HANDLE cursor;
    OK(MQCreateCursor(queue.in, &cursor));
    OK(MQCloseCursor(cursor));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseCursor(cursor));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseCursor(queue.in));
    done(&queue);
}
SCENARIO(a_cursor_belongs_to_its_queue)
{
    Pair one = pair(false), other = pair(false);
    HANDLE cursor;
    char body[ROOM];
    OK(MQCreateCursor(one.in, &cursor));
    RETURNS(MQ_ERROR_INVALID_HANDLE, receive_with(other.in, 0, MQ_ACTION_PEEK_CURRENT, cursor, NULL, body));
    OK(MQCloseCursor(cursor));
    done(&one);
    done(&other);
}
SCENARIO(a_cursor_with_a_small_buffer_leaves_the_message)
{
    Pair queue = pair(false);
    HANDLE cursor;
    char body[ROOM];
    List *got = list();
    three(&queue);
    add_buffer(got, PROPID_M_BODY, 1);
    OK(MQCreateCursor(queue.in, &cursor));
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW,
            MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, cursor, NULL));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, cursor, NULL, body));
    CHECK(strcmp(body, "one") == 0);
    OK(MQCloseCursor(cursor));
    done(&queue);
}

/* ---- Lookup identifiers ---- */

static HRESULT look(QUEUEHANDLE in, uint64_t lookup, DWORD action, char body[ROOM], uint64_t *found)
{
    List *got = list();
    add_buffer(got, PROPID_M_BODY, ROOM - 1);
    add(got, PROPID_M_LOOKUPID, VT_UI8);
    HRESULT code = MQReceiveMessageByLookupId(in, lookup, action, &got->properties, NULL, NULL, NULL);
    memcpy(body, got->bytes[0], ROOM);
    if (found != NULL)
        *found = got->values[1].uhVal;
    return code;
}
SCENARIO(lookup_looks_in_all_directions)
{
    Pair queue = pair(false);
    char body[ROOM];
    uint64_t first, second;
    three(&queue);
    OK(look(queue.in, 0, MQ_LOOKUP_PEEK_FIRST, body, &first));
    CHECK(strcmp(body, "one") == 0 && first == lookup_of_first(queue.in));
    OK(look(queue.in, first, MQ_LOOKUP_PEEK_NEXT, body, &second));
    CHECK(strcmp(body, "two") == 0);
    OK(look(queue.in, second, MQ_LOOKUP_PEEK_CURRENT, body, NULL));
    CHECK(strcmp(body, "two") == 0);
    OK(look(queue.in, second, MQ_LOOKUP_PEEK_PREV, body, NULL));
    CHECK(strcmp(body, "one") == 0);
    OK(look(queue.in, 0, MQ_LOOKUP_PEEK_LAST, body, NULL));
    CHECK(strcmp(body, "three") == 0);
    done(&queue);
}
SCENARIO(lookup_takes_from_all_directions)
{
    Pair queue = pair(false);
    char body[ROOM];
    uint64_t first;
    three(&queue);
    OK(send_text(queue.out, "four", NULL));
    OK(send_text(queue.out, "five", NULL));
    OK(look(queue.in, 0, MQ_LOOKUP_RECEIVE_LAST, body, NULL));
    CHECK(strcmp(body, "five") == 0);
    first = lookup_of_first(queue.in);
    OK(look(queue.in, first, MQ_LOOKUP_RECEIVE_NEXT, body, NULL));
    CHECK(strcmp(body, "two") == 0);
    OK(look(queue.in, first, MQ_LOOKUP_RECEIVE_CURRENT, body, NULL));
    CHECK(strcmp(body, "one") == 0);
    OK(look(queue.in, 0, MQ_LOOKUP_RECEIVE_FIRST, body, &first));
    CHECK(strcmp(body, "three") == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "four") == 0);
    done(&queue);
}
SCENARIO(lookup_of_nothing)
{
    Pair queue = pair(false);
    char body[ROOM];
    RETURNS(MQ_ERROR_MESSAGE_NOT_FOUND, look(queue.in, 12345, MQ_LOOKUP_PEEK_CURRENT, body, NULL));
    RETURNS(MQ_ERROR_MESSAGE_NOT_FOUND, look(queue.in, 12345, MQ_LOOKUP_RECEIVE_CURRENT, body, NULL));
    RETURNS(MQ_ERROR_MESSAGE_NOT_FOUND, look(queue.in, 0, MQ_LOOKUP_PEEK_FIRST, body, NULL));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, look(queue.in, 0, 7, body, NULL));
    done(&queue);
}
SCENARIO(lookup_with_a_small_buffer_leaves_the_message)
{
    Pair queue = pair(false);
    List *got = list();
    char body[ROOM];
    three(&queue);
    add_buffer(got, PROPID_M_BODY, 1);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW, MQReceiveMessageByLookupId(queue.in, 0, MQ_LOOKUP_RECEIVE_FIRST,
                                                                 &got->properties, NULL, NULL, NULL));
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "one") == 0);
    done(&queue);
}

/* ---- Transactions ---- */

SCENARIO(a_commit_sends)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    OK(MQBeginTransaction(&work));
    OK(send_text(queue.out, "one", work));
    OK(send_text(queue.out, "two", work));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    OK(work->lpVtbl->Commit(work, 0, 0, 0));
    CHECK(work->lpVtbl->Release(work) == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "one") == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "two") == 0);
    done(&queue);
}
SCENARIO(an_abort_sends_nothing)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    OK(MQBeginTransaction(&work));
    OK(send_text(queue.out, "never", work));
    OK(work->lpVtbl->Abort(work, NULL, 0, 0));
    work->lpVtbl->Release(work);
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    done(&queue);
}
SCENARIO(an_aborted_receive_gives_the_message_back)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    OK(send_text(queue.out, "comes back", MQ_SINGLE_MESSAGE));
    OK(MQBeginTransaction(&work));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    OK(work->lpVtbl->Abort(work, NULL, 0, 0));
    work->lpVtbl->Release(work);
    List *got = list();
    add(got, PROPID_M_ABORT_COUNT, VT_NULL);
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(got->values[0].ulVal == 1);
    done(&queue);
}
SCENARIO(the_last_release_aborts)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    OK(send_text(queue.out, "comes back", MQ_SINGLE_MESSAGE));
    OK(MQBeginTransaction(&work));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    CHECK(work->lpVtbl->Release(work) == 0);
    OK(receive_text(queue.in, body));
    done(&queue);
}
SCENARIO(one_transaction_moves_a_message)
{
    Pair from = pair(true), to = pair(true);
    ITransaction *work;
    char body[ROOM];
    OK(send_text(from.out, "order", MQ_SINGLE_MESSAGE));
    OK(MQBeginTransaction(&work));
    OK(receive_with(from.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    OK(send_text(to.out, body, work));
    OK(work->lpVtbl->Commit(work, 0, 0, 0));
    work->lpVtbl->Release(work);
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(from.in, body));
    OK(receive_text(to.in, body));
    CHECK(strcmp(body, "order") == 0);
    done(&from);
    done(&to);
}
SCENARIO(a_small_buffer_in_a_transaction_leaves_the_message)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    List *got = list();
    OK(send_text(queue.out, "long enough", MQ_SINGLE_MESSAGE));
    OK(MQBeginTransaction(&work));
    add_buffer(got, PROPID_M_BODY, 2);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW,
            MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, work));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    CHECK(strcmp(body, "long enough") == 0);
    OK(work->lpVtbl->Commit(work, 0, 0, 0));
    work->lpVtbl->Release(work);
    done(&queue);
}
SCENARIO(a_transaction_ends_once)
{
    ITransaction *work;
    OK(MQBeginTransaction(&work));
    OK(work->lpVtbl->Commit(work, 0, 0, 0));
    RETURNS(XACT_E_NOTRANSACTION, work->lpVtbl->Commit(work, 0, 0, 0));
    RETURNS(XACT_E_NOTRANSACTION, work->lpVtbl->Abort(work, NULL, 0, 0));
    Pair queue = pair(true);
    RETURNS(MQ_ERROR_TRANSACTION_SEQUENCE, send_text(queue.out, "x", work));
    work->lpVtbl->Release(work);
    done(&queue);
}
SCENARIO(a_transaction_does_not_go_on_after_its_end)
{
    ITransaction *work;
    OK(MQBeginTransaction(&work));
    RETURNS(XACT_E_NOTSUPPORTED, work->lpVtbl->Commit(work, 1, 0, 0));
    RETURNS(XACT_E_NOTSUPPORTED, work->lpVtbl->Abort(work, NULL, 1, 0));
    OK(work->lpVtbl->Abort(work, NULL, 0, 0));
    work->lpVtbl->Release(work);
}
SCENARIO(a_transaction_is_an_object_of_com)
{
    static const IID unknown = {0, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};
    static const IID transaction = {0x0FB15084, 0xAF41, 0x11CE, {0xBD, 0x2B, 0x20, 0x4C, 0x4F, 0x4F, 0x50, 0x20}};
    static const IID other = {1, 2, 3, {4}};
    ITransaction *work;
    void *found;
    XACTTRANSINFO info;
    OK(MQBeginTransaction(&work));
    OK(work->lpVtbl->QueryInterface(work, &unknown, &found));
    CHECK(found == work);
    OK(work->lpVtbl->QueryInterface(work, &transaction, &found));
    RETURNS(E_NOINTERFACE, work->lpVtbl->QueryInterface(work, &other, &found));
    CHECK(found == NULL);
    OK(work->lpVtbl->GetTransactionInfo(work, &info));
    CHECK(info.uow.rgb[0] | info.uow.rgb[1] | info.uow.rgb[2]);
    CHECK(work->lpVtbl->AddRef(work) == 4);
    for (ULONG left = 3; left > 0; left--)
        CHECK(work->lpVtbl->Release(work) == left);
    CHECK(work->lpVtbl->Release(work) == 0);
}
SCENARIO(a_transaction_needs_a_place) { RETURNS(MQ_ERROR_INVALID_PARAMETER, MQBeginTransaction(NULL)); }
SCENARIO(a_strangers_transaction_is_refused)
{
    Pair queue = pair(true);
    ITransaction strange = {NULL};
    RETURNS(MQ_ERROR_TRANSACTION_ENLIST, send_text(queue.out, "x", &strange));
    RETURNS(MQ_ERROR_TRANSACTION_ENLIST, send_text(queue.out, "x", MQ_XA_TRANSACTION));
    done(&queue);
}
SCENARIO(a_transactional_queue_needs_a_transaction)
{
    Pair queue = pair(true);
    RETURNS(MQ_ERROR_TRANSACTION_USAGE, send_text(queue.out, "x", MQ_NO_TRANSACTION));
    RETURNS(MQ_ERROR_TRANSACTION_USAGE, send_text(queue.out, "x", MQ_MTS_TRANSACTION));
    done(&queue);
}
SCENARIO(a_plain_queue_takes_no_transaction)
{
    Pair queue = pair(false);
    ITransaction *work;
    OK(MQBeginTransaction(&work));
    RETURNS(MQ_ERROR_TRANSACTION_USAGE, send_text(queue.out, "x", work));
    RETURNS(MQ_ERROR_TRANSACTION_USAGE, send_text(queue.out, "x", MQ_SINGLE_MESSAGE));
    work->lpVtbl->Release(work);
    OK(send_text(queue.out, "x", MQ_MTS_TRANSACTION));
    done(&queue);
}
SCENARIO(a_peek_takes_no_transaction)
{
    Pair queue = pair(true);
    char body[ROOM];
    RETURNS(MQ_ERROR_TRANSACTION_USAGE,
            receive_with(queue.in, 0, MQ_ACTION_PEEK_CURRENT, NULL, MQ_SINGLE_MESSAGE, body));
    done(&queue);
}
SCENARIO(single_messages_are_transactions)
{
    Pair queue = pair(true);
    char body[ROOM];
    List *got = list();
    OK(send_text(queue.out, "one", MQ_SINGLE_MESSAGE));
    OK(send_text(queue.out, "two", MQ_SINGLE_MESSAGE));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, MQ_SINGLE_MESSAGE, body));
    CHECK(strcmp(body, "one") == 0);
    add(got, PROPID_M_FIRST_IN_XACT, VT_NULL);
    add(got, PROPID_M_LAST_IN_XACT, VT_NULL);
    add_buffer(got, PROPID_M_XACTID, 20);
    OK(MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL));
    CHECK(got->values[0].bVal == MQMSG_FIRST_IN_XACT && got->values[1].bVal == MQMSG_LAST_IN_XACT);
    CHECK(got->bytes[2][16] | got->bytes[2][17] | got->bytes[2][18]);
    done(&queue);
}
SCENARIO(a_transaction_takes_by_lookup)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    List *got = list();
    OK(send_text(queue.out, "one", MQ_SINGLE_MESSAGE));
    OK(send_text(queue.out, "two", MQ_SINGLE_MESSAGE));
    OK(MQBeginTransaction(&work));
    add_buffer(got, PROPID_M_BODY, ROOM);
    OK(MQReceiveMessageByLookupId(queue.in, 0, MQ_LOOKUP_RECEIVE_LAST, &got->properties, NULL, NULL, work));
    CHECK(memcmp(got->bytes[0], "two", 3) == 0);
    OK(work->lpVtbl->Abort(work, NULL, 0, 0));
    work->lpVtbl->Release(work);
    OK(receive_text(queue.in, body));
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "two") == 0);
    done(&queue);
}

/* ---- Asynchronous receives ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int calls;
    HRESULT code;
    QUEUEHANDLE handle;
    MQMSGPROPS *properties;
    OVERLAPPED *overlapped;
    DWORD timeout, action;
} called = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_message(HRESULT code, QUEUEHANDLE handle, DWORD timeout, DWORD action, MQMSGPROPS *properties,
                       OVERLAPPED *overlapped, HANDLE cursor)
{
    (void)cursor;
    pthread_mutex_lock(&called.mutex);
    called.calls++;
    called.code = code;
    called.handle = handle;
    called.timeout = timeout;
    called.action = action;
    called.properties = properties;
    called.overlapped = overlapped;
    pthread_cond_signal(&called.changed);
    pthread_mutex_unlock(&called.mutex);
}
static void wait_called(int calls)
{
    pthread_mutex_lock(&called.mutex);
    while (called.calls < calls)
        pthread_cond_wait(&called.changed, &called.mutex);
    pthread_mutex_unlock(&called.mutex);
}
SCENARIO(a_callback_gets_the_message)
{
    Pair queue = pair(false);
    List *got = list();
    OVERLAPPED overlapped = {0};
    called.calls = 0;
    add_buffer(got, PROPID_M_BODY, ROOM);
    RETURNS(MQ_INFORMATION_OPERATION_PENDING, MQReceiveMessage(queue.in, 90000, MQ_ACTION_RECEIVE, &got->properties,
                                                               &overlapped, on_message, NULL, NULL));
    OK(send_text(queue.out, "called", NULL));
    wait_called(1);
    OK(called.code);
    CHECK(called.handle == queue.in && called.properties == &got->properties && called.overlapped == &overlapped);
    CHECK(called.timeout == 90000 && called.action == MQ_ACTION_RECEIVE);
    CHECK(memcmp(got->bytes[0], "called", 6) == 0);
    done(&queue);
}
SCENARIO(a_callback_hears_of_a_timeout)
{
    Pair queue = pair(false);
    called.calls = 0;
    RETURNS(MQ_INFORMATION_OPERATION_PENDING,
            MQReceiveMessage(queue.in, 20, MQ_ACTION_PEEK_CURRENT, NULL, NULL, on_message, NULL, NULL));
    wait_called(1);
    RETURNS(MQ_ERROR_IO_TIMEOUT, called.code);
    done(&queue);
}
SCENARIO(a_callback_hears_of_the_end_of_its_queue)
{
    Pair queue = pair(false);
    called.calls = 0;
    RETURNS(MQ_INFORMATION_OPERATION_PENDING,
            MQReceiveMessage(queue.in, INFINITE, MQ_ACTION_RECEIVE, NULL, NULL, on_message, NULL, NULL));
    OK(MQCloseQueue(queue.in));
    wait_called(1);
    RETURNS(MQ_ERROR_OPERATION_CANCELLED, called.code);
    OK(MQCloseQueue(queue.out));
}
SCENARIO(a_callback_hears_of_the_end_of_its_queue_at_any_moment)
{
    Pair queue = pair(false);
    for (int at = 0; at < 100; at++) { /* the receive is on its way to the node, or waits there */
        QUEUEHANDLE own;
        called.calls = 0;
        OK(MQOpenQueue(queue.name, MQ_RECEIVE_ACCESS, 0, &own));
        RETURNS(MQ_INFORMATION_OPERATION_PENDING,
                MQReceiveMessage(own, INFINITE, MQ_ACTION_RECEIVE, NULL, NULL, on_message, NULL, NULL));
        OK(MQCloseQueue(own));
        wait_called(1);
        RETURNS(MQ_ERROR_OPERATION_CANCELLED, called.code);
    }
    done(&queue);
}
SCENARIO(an_event_tells_of_the_message)
{
    Pair queue = pair(false);
    List *got = list();
    int event = eventfd(0, EFD_CLOEXEC);
    OVERLAPPED overlapped = {.hEvent = (HANDLE)(intptr_t)event};
    struct pollfd waiting = {.fd = event, .events = POLLIN};
    add_buffer(got, PROPID_M_BODY, ROOM);
    RETURNS(MQ_INFORMATION_OPERATION_PENDING, MQReceiveMessage(queue.in, INFINITE, MQ_ACTION_RECEIVE,
                                                               &got->properties, &overlapped, NULL, NULL, NULL));
    RETURNS(MQ_INFORMATION_OPERATION_PENDING, MQGetOverlappedResult(&overlapped));
    CHECK(poll(&waiting, 1, 0) == 0);
    OK(send_text(queue.out, "event", NULL));
    CHECK(poll(&waiting, 1, -1) == 1 && read(event, &(uint64_t){0}, 8) == 8);
    OK(MQGetOverlappedResult(&overlapped));
    CHECK(memcmp(got->bytes[0], "event", 5) == 0);
    close(event);
    done(&queue);
}
SCENARIO(an_event_tells_of_a_small_buffer)
{
    Pair queue = pair(false);
    List *got = list();
    char body[ROOM];
    int event = eventfd(0, EFD_CLOEXEC);
    OVERLAPPED overlapped = {.hEvent = (HANDLE)(intptr_t)event};
    struct pollfd waiting = {.fd = event, .events = POLLIN};
    add_buffer(got, PROPID_M_BODY, 2);
    add_ui4(got, PROPID_M_BODY_SIZE, 0);
    OK(send_text(queue.out, "event", NULL));
    RETURNS(MQ_INFORMATION_OPERATION_PENDING, MQReceiveMessage(queue.in, INFINITE, MQ_ACTION_RECEIVE,
                                                               &got->properties, &overlapped, NULL, NULL, NULL));
    CHECK(poll(&waiting, 1, -1) == 1 && read(event, &(uint64_t){0}, 8) == 8);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW, MQGetOverlappedResult(&overlapped));
    CHECK(got->values[1].ulVal == 5);
    OK(receive_text(queue.in, body));
    close(event);
    done(&queue);
}
SCENARIO(an_asynchronous_receive_takes_no_transaction)
{
    Pair queue = pair(true);
    ITransaction *work;
    OVERLAPPED overlapped = {0};
    OK(MQBeginTransaction(&work));
    RETURNS(MQ_ERROR_INVALID_PARAMETER,
            MQReceiveMessage(queue.in, 0, MQ_ACTION_RECEIVE, NULL, &overlapped, NULL, NULL, work));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQGetOverlappedResult(NULL));
    work->lpVtbl->Release(work);
    done(&queue);
}
SCENARIO(many_receives_wait_at_a_time)
{
    enum { MANY = 20 };
    Pair queue = pair(false);
    OVERLAPPED overlapped[MANY] = {{0}};
    List *got[MANY];
    called.calls = 0;
    for (int at = 0; at < MANY; at++) {
        got[at] = list_new();
        add_buffer(got[at], PROPID_M_BODY, ROOM);
        RETURNS(MQ_INFORMATION_OPERATION_PENDING, MQReceiveMessage(queue.in, INFINITE, MQ_ACTION_RECEIVE,
                                                                   &got[at]->properties, &overlapped[at], on_message,
                                                                   NULL, NULL));
    }
    char all[MANY + 1] = "";
    for (int at = 0; at < MANY; at++) {
        char body[2] = {(char)('a' + at), 0};
        OK(send_text(queue.out, body, NULL));
    }
    wait_called(MANY);
    for (int at = 0; at < MANY; at++) {
        all[got[at]->bytes[0][0] - 'a'] = 'x';
        free(got[at]);
    }
    CHECK(strlen(all) == MANY); /* each message once */
    done(&queue);
}

/* ---- Queues ---- */

static MQQUEUEPROPS queue_properties(List *list_)
{
    return (MQQUEUEPROPS){list_->properties.cProp, list_->ids, list_->values, list_->statuses};
}
SCENARIO(create_returns_the_format_name)
{
    WCHAR *name = create(false);
    CHECK(contains(name, u"DIRECT=OS:ALPHA\\private$\\"));
    OK(MQDeleteQueue(name));
}
SCENARIO(create_with_a_small_buffer_still_creates)
{
    List *made = list();
    char text[256];
    WCHAR path[256], name[4];
    path_of(text, ++number);
    widen(text, path);
    add_text(made, PROPID_Q_PATHNAME, path);
    MQQUEUEPROPS properties = queue_properties(made);
    DWORD length = 4;
    RETURNS(MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL, MQCreateQueue(NULL, &properties, name, &length));
    WCHAR whole[256];
    CHECK(length > 20 && length < 256);
    OK(MQPathNameToFormatName(path, whole, &length));
    OK(MQDeleteQueue(whole));
}
SCENARIO(create_twice)
{
    List *made = list();
    create(false);
    char text[256];
    WCHAR path[256], name[256];
    DWORD length = 256;
    path_of(text, number);
    widen(text, path);
    add_text(made, PROPID_Q_PATHNAME, path);
    MQQUEUEPROPS properties = queue_properties(made);
    RETURNS(MQ_ERROR_QUEUE_EXISTS, MQCreateQueue(NULL, &properties, name, &length));
}
SCENARIO(create_without_a_path)
{
    List *made = list();
    WCHAR name[256];
    DWORD length = 256;
    add_ui1(made, PROPID_Q_TRANSACTION, 1);
    MQQUEUEPROPS properties = queue_properties(made), none = {0};
    RETURNS(MQ_ERROR_INSUFFICIENT_PROPERTIES, MQCreateQueue(NULL, &properties, name, &length));
    RETURNS(MQ_ERROR_ILLEGAL_MQQUEUEPROPS, MQCreateQueue(NULL, &none, name, &length));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQCreateQueue(NULL, &properties, name, NULL));
}
SCENARIO(create_with_an_illegal_path)
{
    List *made = list();
    WCHAR name[256];
    DWORD length = 256;
    add_text(made, PROPID_Q_PATHNAME, u".\\private$\\");
    MQQUEUEPROPS properties = queue_properties(made);
    RETURNS(MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, MQCreateQueue(NULL, &properties, name, &length));
}
SCENARIO(create_a_public_queue_without_a_directory)
{
    List *made = list();
    WCHAR name[256];
    DWORD length = 256;
    add_text(made, PROPID_Q_PATHNAME, u".\\public");
    MQQUEUEPROPS properties = queue_properties(made);
    RETURNS(MQ_ERROR_NO_DS, MQCreateQueue(NULL, &properties, name, &length));
}
SCENARIO(create_with_properties_that_cannot_be)
{
    List *made = list();
    WCHAR name[256];
    DWORD length = 256;
    add_text(made, PROPID_Q_PATHNAME, u".\\private$\\faulty");
    add_guid(made, PROPID_Q_INSTANCE);
    add_ui1(made, PROPID_Q_TRANSACTION, 2);
    add_ui4(made, PROPID_Q_JOURNAL, 1);
    add_ui4(made, PROPID_Q_PRIV_LEVEL, 3);
    MQQUEUEPROPS properties = queue_properties(made);
    RETURNS(MQ_ERROR_PROPERTY, MQCreateQueue(NULL, &properties, name, &length));
    CHECK(made->statuses[0] == MQ_OK && made->statuses[1] == MQ_ERROR_PROPERTY_NOTALLOWED);
    CHECK(made->statuses[2] == MQ_ERROR_ILLEGAL_PROPERTY_VALUE && made->statuses[3] == MQ_ERROR_ILLEGAL_PROPERTY_VT);
    CHECK(made->statuses[4] == MQ_ERROR_ILLEGAL_PROPERTY_VALUE);
}
SCENARIO(create_with_all_properties)
{
    List *made = list(), *got = list();
    CLSID kind = {1, 2, 3, {4, 5, 6, 7, 8, 9, 10, 11}};
    add(made, PROPID_Q_TYPE, VT_CLSID)->puuid = &kind;
    add_ui1(made, PROPID_Q_JOURNAL, 1);
    add_ui4(made, PROPID_Q_QUOTA, 4096);
    add_ui4(made, PROPID_Q_JOURNAL_QUOTA, 1024);
    add(made, PROPID_Q_BASEPRIORITY, VT_I2)->iVal = 0;
    add_text(made, PROPID_Q_LABEL, u"Bestellungen \u00fc");
    add_ui4(made, PROPID_Q_PRIV_LEVEL, MQ_PRIV_LEVEL_NONE);
    WCHAR *name = create_with(true, made);
    static const DWORD ids[] = {PROPID_Q_JOURNAL, PROPID_Q_QUOTA, PROPID_Q_JOURNAL_QUOTA, PROPID_Q_BASEPRIORITY,
                                PROPID_Q_PRIV_LEVEL, PROPID_Q_TRANSACTION, PROPID_Q_AUTHENTICATE,
                                PROPID_Q_CREATE_TIME, PROPID_Q_MODIFY_TIME, PROPID_Q_LABEL, PROPID_Q_PATHNAME,
                                PROPID_Q_TYPE};
    for (size_t at = 0; at < sizeof ids / sizeof *ids; at++)
        add(got, ids[at], VT_NULL);
    add_guid(got, PROPID_Q_INSTANCE);
    MQQUEUEPROPS properties = queue_properties(got);
    OK(MQGetQueueProperties(name, &properties));
    CHECK(value(got, PROPID_Q_JOURNAL)->bVal == 1 && value(got, PROPID_Q_QUOTA)->ulVal == 4096);
    CHECK(value(got, PROPID_Q_JOURNAL_QUOTA)->ulVal == 1024 && value(got, PROPID_Q_BASEPRIORITY)->iVal == 0);
    CHECK(value(got, PROPID_Q_PRIV_LEVEL)->ulVal == 0 && value(got, PROPID_Q_TRANSACTION)->bVal == 1);
    CHECK(value(got, PROPID_Q_AUTHENTICATE)->bVal == 0 && value(got, PROPID_Q_CREATE_TIME)->lVal > 1700000000);
    bool label = equal(value(got, PROPID_Q_LABEL)->pwszVal, u"Bestellungen \u00fc");
    bool path = contains(value(got, PROPID_Q_PATHNAME)->pwszVal, u"ALPHA\\private$\\");
    bool type = memcmp(value(got, PROPID_Q_TYPE)->puuid, &kind, sizeof kind) == 0;
    MQFreeMemory(value(got, PROPID_Q_LABEL)->pwszVal);
    MQFreeMemory(value(got, PROPID_Q_PATHNAME)->pwszVal);
    MQFreeMemory(value(got, PROPID_Q_TYPE)->puuid);
    CHECK(label && path && type && got->guids[12].Data1 != 0);
    OK(MQDeleteQueue(name));
}
SCENARIO(create_a_private_queue_with_a_base_priority)
{
    List *made = list();
    WCHAR name[256];
    DWORD length = 256;
    add_text(made, PROPID_Q_PATHNAME, u".\\private$\\prior");
    add(made, PROPID_Q_BASEPRIORITY, VT_I2)->iVal = -12;
    MQQUEUEPROPS properties = queue_properties(made);
    RETURNS(MQ_ERROR_ILLEGAL_PROPERTY_VALUE, MQCreateQueue(NULL, &properties, name, &length));
}
SCENARIO(change_properties)
{
    List *changed = list(), *got = list();
    WCHAR *name = create(false);
    add_text(changed, PROPID_Q_LABEL, u"new");
    add_ui4(changed, PROPID_Q_QUOTA, 77);
    MQQUEUEPROPS properties = queue_properties(changed);
    OK(MQSetQueueProperties(name, &properties));
    add(got, PROPID_Q_QUOTA, VT_UI4);
    add(got, PROPID_Q_LABEL, VT_NULL);
    properties = queue_properties(got);
    OK(MQGetQueueProperties(name, &properties));
    bool same = equal(got->values[1].pwszVal, u"new");
    MQFreeMemory(got->values[1].pwszVal);
    CHECK(got->values[0].ulVal == 77 && same);
    OK(MQDeleteQueue(name));
}
SCENARIO(change_what_cannot_change)
{
    List *changed = list();
    WCHAR *name = create(false);
    add_ui1(changed, PROPID_Q_TRANSACTION, 1);
    MQQUEUEPROPS properties = queue_properties(changed);
    RETURNS(MQ_ERROR_PROPERTY, MQSetQueueProperties(name, &properties));
    CHECK(changed->statuses[0] == MQ_ERROR_PROPERTY_NOTALLOWED);
    OK(MQDeleteQueue(name));
}
SCENARIO(properties_of_a_queue_that_is_not_there)
{
    List *got = list();
    add(got, PROPID_Q_QUOTA, VT_NULL);
    MQQUEUEPROPS properties = queue_properties(got);
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQGetQueueProperties(u"DIRECT=OS:.\\private$\\none", &properties));
    RETURNS(MQ_ERROR_ILLEGAL_FORMATNAME, MQGetQueueProperties(u"nonsense", &properties));
    add_text(got, PROPID_Q_LABEL, u"a buffer is no place for it");
    properties = queue_properties(got);
    RETURNS(MQ_ERROR_PROPERTY, MQGetQueueProperties(u"DIRECT=OS:.\\private$\\none", &properties));
    CHECK(got->statuses[1] == MQ_ERROR_ILLEGAL_PROPERTY_VT);
}
SCENARIO(an_unknown_property_of_a_queue_is_said)
{
    List *got = list();
    WCHAR *name = create(false);
    add(got, PROPID_Q_QUOTA, VT_NULL);
    add(got, 999, VT_NULL);
    add(got, PROPID_Q_QUOTA, VT_NULL);
    MQQUEUEPROPS properties = queue_properties(got);
    RETURNS(MQ_INFORMATION_PROPERTY, MQGetQueueProperties(name, &properties));
    CHECK(got->statuses[1] == MQ_INFORMATION_UNSUPPORTED_PROPERTY);
    CHECK(got->statuses[2] == MQ_INFORMATION_DUPLICATE_PROPERTY);
    CHECK(got->values[0].ulVal == INFINITE);
    OK(MQDeleteQueue(name));
}
SCENARIO(delete_a_queue)
{
    Pair queue = pair(false);
    char body[ROOM];
    OK(MQDeleteQueue(queue.name));
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQDeleteQueue(queue.name));
    RETURNS(MQ_ERROR_QUEUE_NOT_AVAILABLE, receive_text(queue.in, body));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQDeleteQueue(NULL));
    OK(MQCloseQueue(queue.in));
    OK(MQCloseQueue(queue.out));
}
SCENARIO(purge_a_queue)
{
    Pair queue = pair(false);
    char body[ROOM];
    three(&queue);
    OK(MQPurgeQueue(queue.in));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    RETURNS(MQ_ERROR_ACCESS_DENIED, MQPurgeQueue(queue.out));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQPurgeQueue(NULL));
    done(&queue);
}
SCENARIO(a_quota_refuses)
{
    List *made = list();
    add_ui4(made, PROPID_Q_QUOTA, 1);
    WCHAR *name = create_with(false, made);
    QUEUEHANDLE out = open_as(name, MQ_SEND_ACCESS);
    static const char much[3000];
    List *sent = list();
    add_bytes(sent, PROPID_M_BODY, much, sizeof much);
    RETURNS(MQ_ERROR_INSUFFICIENT_RESOURCES, MQSendMessage(out, &sent->properties, NULL));
    OK(MQCloseQueue(out));
}
typedef struct TenSender {
    QUEUEHANDLE out;
    size_t size;
    HRESULT expected;
    int wrong;
    UCHAR identifiers[10][20];
} TenSender;

static void *send_ten(void *given)
{
    static const char much[40000];
    TenSender *sender = given;
    for (int at = 0; at < 10; at++) {
        List *sent = list_new();
        add_bytes(sent, PROPID_M_BODY, much, sender->size);
        add_buffer(sent, PROPID_M_MSGID, 20);
        sender->wrong += MQSendMessage(sender->out, &sent->properties, NULL) != sender->expected;
        sender->wrong += sender->expected != MQ_OK && *mqrt_last_sentence() == 0;
        memcpy(sender->identifiers[at], sent->bytes[1], 20);
        free(sent);
    }
    return NULL;
}
SCENARIO(each_of_many_senders_gets_its_own_answer)
{
    List *made = list();
    add_ui4(made, PROPID_Q_QUOTA, 30);
    WCHAR name[256];
    memcpy(name, create_with(false, made), sizeof name);
    QUEUEHANDLE out = open_as(name, MQ_SEND_ACCESS), in = open_as(name, MQ_RECEIVE_ACCESS);
    pthread_t threads[8];
    TenSender ten_senders[8] = {0};
    for (int at = 0; at < 8; at++) {
        ten_senders[at].out = out;
        ten_senders[at].size = at % 2 ? 40000 : 10;
        ten_senders[at].expected = at % 2 ? MQ_ERROR_INSUFFICIENT_RESOURCES : MQ_OK;
        pthread_create(&threads[at], NULL, send_ten, &ten_senders[at]);
    }
    for (int at = 0; at < 8; at++)
        pthread_join(threads[at], NULL);
    for (int at = 0; at < 8; at++)
        CHECK(ten_senders[at].wrong == 0);
    for (int at = 0; at < 40; at++) { /* each identifier is of one message that was sent */
        List *got = list_new();
        add_buffer(got, PROPID_M_MSGID, 20);
        HRESULT code = MQReceiveMessage(in, 0, MQ_ACTION_RECEIVE, &got->properties, NULL, NULL, NULL, NULL);
        int found = 0;
        for (int of = 0; of < 80; of++)
            found += memcmp(ten_senders[of / 10].identifiers[of % 10], got->bytes[0], 20) == 0;
        free(got);
        OK(code);
        CHECK(found == 1);
    }
    OK(MQCloseQueue(in));
    OK(MQCloseQueue(out));
}
SCENARIO(a_small_buffer_in_a_transaction_keeps_what_it_does_not_hold)
{
    Pair queue = pair(true);
    ITransaction *work;
    char body[ROOM];
    static const char large[ROOM] = "larger than the buffer";
    OK(send_text(queue.out, "fits", MQ_SINGLE_MESSAGE));
    List *sent = list();
    add_bytes(sent, PROPID_M_BODY, large, sizeof large);
    OK(MQSendMessage(queue.out, &sent->properties, MQ_SINGLE_MESSAGE));
    OK(MQBeginTransaction(&work));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW, receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    OK(work->lpVtbl->Abort(work, NULL, 0, 0));
    work->lpVtbl->Release(work);
    OK(MQBeginTransaction(&work));
    OK(receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, work, body));
    CHECK(strcmp(body, "fits") == 0);
    OK(work->lpVtbl->Commit(work, 0, 0, 0));
    work->lpVtbl->Release(work);
    RETURNS(MQ_ERROR_BUFFER_OVERFLOW, receive_with(queue.in, 0, MQ_ACTION_RECEIVE, NULL, NULL, body));
    OK(MQPurgeQueue(queue.in));
    done(&queue);
}
SCENARIO(move_to_a_subqueue)
{
    Pair queue = pair(false);
    WCHAR name[300];
    char body[ROOM];
    three(&queue);
    memcpy(name, queue.name, sizeof queue.name);
    size_t length = 0;
    while (name[length])
        length++;
    memcpy(name + length, u";later", 7 * sizeof *name);
    QUEUEHANDLE target = open_as(name, MQ_MOVE_ACCESS), later = open_as(name, MQ_RECEIVE_ACCESS);
    OK(MQMoveMessage(queue.in, target, lookup_of_first(queue.in), NULL));
    OK(receive_text(later, body));
    CHECK(strcmp(body, "one") == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "two") == 0);
    RETURNS(MQ_ERROR_MESSAGE_NOT_FOUND, MQMoveMessage(queue.in, target, 12345, NULL));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQMoveMessage(queue.in, NULL, 1, NULL));
    OK(MQCloseQueue(later));
    OK(MQCloseQueue(target));
    done(&queue);
}

/* ---- Names ---- */

SCENARIO(path_names_have_format_names)
{
    create(false);
    char text[256];
    WCHAR path[256], name[256];
    path_of(text, number);
    widen(text, path);
    DWORD length = 256;
    OK(MQPathNameToFormatName(path, name, &length));
    size_t count = 0;
    while (name[count])
        count++;
    CHECK(contains(name, u"ALPHA\\private$\\") && length == count + 1);
    length = 5;
    RETURNS(MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, MQPathNameToFormatName(path, name, &length));
    CHECK(length == count + 1);
    length = 0;
    RETURNS(MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, MQPathNameToFormatName(path, NULL, &length));
    CHECK(length == count + 1);
}
SCENARIO(path_names_of_nothing)
{
    WCHAR name[256];
    DWORD length = 256;
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQPathNameToFormatName(u".\\private$\\none", name, &length));
    RETURNS(MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, MQPathNameToFormatName(u"nothing", name, &length));
    RETURNS(MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, MQPathNameToFormatName(u"\\nobody", name, &length));
    RETURNS(MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, MQPathNameToFormatName(u"elsewhere\\", name, &length));
    RETURNS(MQ_ERROR_ILLEGAL_QUEUE_PATHNAME, MQPathNameToFormatName(u"elsewhere\\private$\\", name, &length));
    RETURNS(MQ_ERROR_NO_DS, MQPathNameToFormatName(u"elsewhere\\public", name, &length));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQPathNameToFormatName(NULL, name, &length));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQPathNameToFormatName(u".\\private$\\none", name, NULL));
}
SCENARIO(path_names_elsewhere_become_direct_names)
{
    WCHAR name[256];
    DWORD length = 256;
    OK(MQPathNameToFormatName(u"other\\private$\\orders", name, &length));
    CHECK(equal(name, u"DIRECT=OS:other\\private$\\orders"));
}
SCENARIO(a_search_is_checked_and_needs_a_directory)
{
    HANDLE search;
    PROPID ids[] = {PROPID_Q_INSTANCE, PROPID_Q_PATHNAME}, other = PROPID_QM_PATHNAME;
    MQCOLUMNSET columns = {2, ids}, none = {0, ids}, strange = {1, &other};
    MQPROPERTYRESTRICTION part = {PREQ, PROPID_Q_LABEL, {.vt = VT_LPWSTR, .pwszVal = (LPWSTR)u"orders"}};
    MQRESTRICTION restriction = {1, &part}, lost = {1, NULL};
    MQSORTKEY key = {PROPID_Q_LABEL, QUERY_SORTASCEND}, up = {PROPID_Q_LABEL, 2}, strange_key = {other, 0};
    MQSORTSET sort = {1, &key}, no_order = {1, &up}, no_sort = {1, &strange_key};
    RETURNS(MQ_ERROR_NO_DS, MQLocateBegin(NULL, &restriction, &columns, &sort, &search));
    CHECK(search == NULL && strstr(mqrt_last_sentence(), "has no directory") != NULL);
    RETURNS(MQ_ERROR_NO_DS, MQLocateBegin(NULL, NULL, &columns, NULL, &search));
    RETURNS(MQ_ERROR_ILLEGAL_CONTEXT, MQLocateBegin(u"x", NULL, &columns, NULL, &search));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQLocateBegin(NULL, NULL, &columns, NULL, NULL));
    RETURNS(MQ_ERROR_ILLEGAL_MQCOLUMNS, MQLocateBegin(NULL, NULL, NULL, NULL, &search));
    RETURNS(MQ_ERROR_ILLEGAL_MQCOLUMNS, MQLocateBegin(NULL, NULL, &none, NULL, &search));
    RETURNS(MQ_ERROR_ILLEGAL_PROPID, MQLocateBegin(NULL, NULL, &strange, NULL, &search));
    RETURNS(MQ_ERROR_ILLEGAL_RESTRICTION_PROPID, MQLocateBegin(NULL, &lost, &columns, NULL, &search));
    RETURNS(MQ_ERROR_ILLEGAL_SORT, MQLocateBegin(NULL, NULL, &columns, &no_order, &search));
    RETURNS(MQ_ERROR_ILLEGAL_SORT_PROPID, MQLocateBegin(NULL, NULL, &columns, &no_sort, &search));
    part.rel = 6;
    RETURNS(MQ_ERROR_ILLEGAL_RELATION, MQLocateBegin(NULL, &restriction, &columns, NULL, &search));
    part = (MQPROPERTYRESTRICTION){PREQ, other, {.vt = VT_NULL}};
    RETURNS(MQ_ERROR_ILLEGAL_RESTRICTION_PROPID, MQLocateBegin(NULL, &restriction, &columns, NULL, &search));
    DWORD count = 2;
    MQPROPVARIANT values[2];
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQLocateNext(NULL, &count, values));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQLocateNext(NULL, NULL, values));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQLocateEnd(NULL));
}
SCENARIO(a_certificate_is_checked_and_needs_a_directory)
{
    static UCHAR certificate[] = {0x30, 0x00};
    HANDLE context = &context;
    RETURNS(MQ_ERROR_NO_DS, MQRegisterCertificate(MQCERT_REGISTER_ALWAYS, certificate, 2));
    RETURNS(MQ_ERROR_NO_DS, MQRegisterCertificate(MQCERT_REGISTER_IF_NOT_EXIST, certificate, 2));
    RETURNS(MQ_ERROR_NO_INTERNAL_USER_CERT, MQRegisterCertificate(MQCERT_REGISTER_IF_NOT_EXIST, NULL, 0));
    RETURNS(MQ_ERROR_INVALID_CERTIFICATE, MQRegisterCertificate(MQCERT_REGISTER_ALWAYS, certificate, 65536));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQRegisterCertificate(4, certificate, 2));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQRegisterCertificate(MQCERT_REGISTER_ALWAYS, NULL, 2));
    RETURNS(MQ_ERROR_INVALID_CERTIFICATE, MQRegisterCertificate(MQCERT_REGISTER_ALWAYS, (void *)"no", 2));
    RETURNS(MQ_ERROR_NO_INTERNAL_USER_CERT, MQGetSecurityContext(NULL, 0, &context));
    CHECK(context == NULL);
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQGetSecurityContextEx(NULL, 2, &context));
    MQFreeSecurityContext(NULL);
}
SCENARIO(handles_have_format_names)
{
    Pair queue = pair(false);
    WCHAR name[256];
    DWORD length = 256;
    OK(MQHandleToFormatName(queue.in, name, &length));
    CHECK(equal(name, queue.name));
    length = 3;
    RETURNS(MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, MQHandleToFormatName(queue.in, name, &length));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQHandleToFormatName(NULL, name, &length));
    done(&queue);
}
SCENARIO(instances_have_format_names)
{
    GUID instance = {0x01234567, 0x89AB, 0xCDEF, {0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF}};
    WCHAR name[64];
    DWORD length = 64;
    OK(MQInstanceToFormatName(&instance, name, &length));
    CHECK(equal(name, u"PUBLIC=01234567-89ab-cdef-0123-456789abcdef") && length == 44);
    length = 43;
    RETURNS(MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, MQInstanceToFormatName(&instance, name, &length));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQInstanceToFormatName(NULL, name, &length));
}
SCENARIO(freeing_nothing) { MQFreeMemory(NULL); }

/* ---- The queue manager ---- */

static MQMGMTPROPS management_properties(List *list_)
{
    return (MQMGMTPROPS){list_->properties.cProp, list_->ids, list_->values, list_->statuses};
}
static bool free_texts(CALPWSTR texts, const WCHAR *wanted)
{
    bool found = false;
    for (ULONG at = 0; at < texts.cElems; at++) {
        found |= contains(texts.pElems[at], wanted);
        MQFreeMemory(texts.pElems[at]);
    }
    MQFreeMemory(texts.pElems);
    return found;
}
SCENARIO(the_machine_lists_its_queues)
{
    Pair queue = pair(false);
    WCHAR own[64];
    char path[256];
    path_of(path, number);
    widen(path + 11, own);
    List *got = list();
    add(got, PROPID_MGMT_MSMQ_PRIVATEQ, VT_NULL);
    add(got, PROPID_MGMT_MSMQ_ACTIVEQUEUES, VT_NULL);
    add(got, PROPID_MGMT_MSMQ_CONNECTED, VT_NULL);
    add(got, PROPID_MGMT_MSMQ_TYPE, VT_NULL);
    add(got, PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES, VT_NULL);
    add(got, PROPID_MGMT_MSMQ_DSSERVER, VT_NULL);
    MQMGMTPROPS properties = management_properties(got);
    OK(send_text(queue.out, "counted", NULL));
    OK(MQMgmtGetInfo(NULL, u"MACHINE", &properties));
    bool listed = free_texts(got->values[0].calpwstr, own), active = free_texts(got->values[1].calpwstr, own);
    bool connected = equal(got->values[2].pwszVal, u"CONNECTED");
    MQFreeMemory(got->values[2].pwszVal);
    MQFreeMemory(got->values[3].pwszVal);
    CHECK(listed && active && connected);
    CHECK(got->values[4].vt == VT_I8 && got->values[4].hVal > 0 && got->values[5].vt == VT_NULL);
    done(&queue);
}
SCENARIO(a_queue_tells_its_state)
{
    Pair queue = pair(true);
    WCHAR object[300] = u"QUEUE=";
    memcpy(object + 6, queue.name, sizeof queue.name);
    List *got = list();
    static const DWORD ids[] = {PROPID_MGMT_QUEUE_MESSAGE_COUNT, PROPID_MGMT_QUEUE_BYTES_IN_QUEUE,
                                PROPID_MGMT_QUEUE_JOURNAL_MESSAGE_COUNT, PROPID_MGMT_QUEUE_BYTES_IN_JOURNAL,
                                PROPID_MGMT_QUEUE_SUBQUEUE_COUNT, PROPID_MGMT_QUEUE_NEXTHOPS,
                                PROPID_MGMT_QUEUE_TYPE, PROPID_MGMT_QUEUE_LOCATION, PROPID_MGMT_QUEUE_XACT,
                                PROPID_MGMT_QUEUE_FOREIGN, PROPID_MGMT_QUEUE_STATE, PROPID_MGMT_QUEUE_FORMATNAME,
                                PROPID_MGMT_QUEUE_PATHNAME};
    static const WCHAR *const texts[] = {u"PRIVATE", u"LOCAL", u"YES", u"NO", u"LOCAL CONNECTION"};
    for (size_t at = 0; at < sizeof ids / sizeof *ids; at++)
        add(got, ids[at], VT_NULL);
    MQMGMTPROPS properties = management_properties(got);
    OK(send_text(queue.out, "counted", MQ_SINGLE_MESSAGE));
    OK(MQMgmtGetInfo(u"alpha", object, &properties));
    CHECK(got->values[0].ulVal == 1 && got->values[1].ulVal > 7 && got->values[2].ulVal == 0);
    CHECK(got->values[5].vt == VT_NULL);
    bool same = true;
    for (int at = 6; at < 13; at++) {
        same &= at > 10 ? contains(got->values[at].pwszVal, u"ALPHA\\private$\\")
                        : equal(got->values[at].pwszVal, texts[at - 6]);
        MQFreeMemory(got->values[at].pwszVal);
    }
    CHECK(same);
    done(&queue);
}
SCENARIO(management_of_what_is_not_there)
{
    List *got = list();
    add(got, PROPID_MGMT_QUEUE_MESSAGE_COUNT, VT_NULL);
    MQMGMTPROPS properties = management_properties(got), none = {0};
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQMgmtGetInfo(NULL, u"NOTHING", &properties));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQMgmtGetInfo(NULL, NULL, &properties));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQMgmtGetInfo(NULL, u"MACHINE", &none));
    RETURNS(MQ_ERROR_ILLEGAL_FORMATNAME, MQMgmtGetInfo(NULL, u"QUEUE=nonsense", &properties));
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQMgmtGetInfo(NULL, u"QUEUE=DIRECT=OS:.\\private$\\none", &properties));
    RETURNS(MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, MQMgmtGetInfo(u"elsewhere", u"MACHINE", &properties));
    got->ids[0] = PROPID_MGMT_QUEUE_EOD_NEXT_SEQ;
    RETURNS(MQ_INFORMATION_PROPERTY, MQMgmtGetInfo(NULL, u"QUEUE=DIRECT=OS:.\\SYSTEM$;DEADLETTER", &properties));
    CHECK(got->statuses[0] == MQ_INFORMATION_UNSUPPORTED_PROPERTY);
}
SCENARIO(an_outgoing_queue_is_paused_and_resumed)
{
    static const WCHAR object[] = u"QUEUE=DIRECT=OS:paused\\private$\\orders";
    QUEUEHANDLE out = open_as(object + 6, MQ_SEND_ACCESS);
    List *got = list();
    add(got, PROPID_MGMT_QUEUE_STATE, VT_NULL);
    add(got, PROPID_MGMT_QUEUE_LOCATION, VT_NULL);
    MQMGMTPROPS properties = management_properties(got);
    OK(MQMgmtAction(NULL, object, u"PAUSE"));
    OK(MQMgmtGetInfo(NULL, object, &properties));
    bool paused = equal(got->values[0].pwszVal, u"ONHOLD") && equal(got->values[1].pwszVal, u"REMOTE");
    MQFreeMemory(got->values[0].pwszVal);
    MQFreeMemory(got->values[1].pwszVal);
    OK(MQMgmtAction(NULL, object, u"RESUME"));
    CHECK(paused);
    RETURNS(MQ_ERROR_UNSUPPORTED_OPERATION, MQMgmtAction(NULL, object, u"EOD_RESEND"));
    OK(MQCloseQueue(out));
}
SCENARIO(the_machine_goes_offline_and_online)
{
    List *got = list();
    add(got, PROPID_MGMT_MSMQ_CONNECTED, VT_NULL);
    MQMGMTPROPS properties = management_properties(got);
    OK(MQMgmtAction(NULL, u"MACHINE", u"DISCONNECT"));
    OK(MQMgmtGetInfo(NULL, u"MACHINE", &properties));
    bool offline = equal(got->values[0].pwszVal, u"DISCONNECTED");
    MQFreeMemory(got->values[0].pwszVal);
    OK(MQMgmtAction(NULL, u"MACHINE", u"CONNECT"));
    CHECK(offline);
    RETURNS(MQ_ERROR_UNSUPPORTED_OPERATION, MQMgmtAction(NULL, u"MACHINE", u"TIDY"));
    RETURNS(MQ_ERROR_UNSUPPORTED_OPERATION, MQMgmtAction(NULL, u"MACHINE", u"CONNECTED"));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQMgmtAction(NULL, u"MACHINE", NULL));
    CHECK(*mqrt_last_sentence() == 0); /* nothing of the calls before */
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQMgmtAction(NULL, u"NOTHING", u"PAUSE"));
    RETURNS(MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, MQMgmtAction(u"elsewhere", u"MACHINE", u"CONNECT"));
}
SCENARIO(the_machine_has_properties)
{
    List *got = list();
    add(got, PROPID_QM_PATHNAME, VT_NULL);
    add_guid(got, PROPID_QM_MACHINE_ID);
    MQQMPROPS properties = {got->properties.cProp, got->ids, got->values, got->statuses}, none = {0};
    OK(MQGetMachineProperties(NULL, NULL, &properties));
    bool same = equal(got->values[0].pwszVal, u"ALPHA");
    MQFreeMemory(got->values[0].pwszVal);
    CHECK(same && got->guids[1].Data1 != 0);
    RETURNS(MQ_ERROR_ILLEGAL_MQQMPROPS, MQGetMachineProperties(NULL, NULL, &none));
    RETURNS(MQ_ERROR_NO_DS, MQGetMachineProperties(u"elsewhere", NULL, &properties));
    RETURNS(MQ_ERROR_INVALID_PARAMETER, MQGetMachineProperties(u"ALPHA", &got->guids[1], &properties));
    GUID other = {1, 2, 3, {4}};
    RETURNS(MQ_ERROR_NO_DS, MQGetMachineProperties(NULL, &other, &properties));
    got->values[0].vt = VT_NULL;
    OK(MQGetMachineProperties(NULL, &got->guids[1], &properties));
    MQFreeMemory(got->values[0].pwszVal);
    got->ids[0] = PROPID_QM_ENCRYPTION_PK;
    RETURNS(MQ_INFORMATION_PROPERTY, MQGetMachineProperties(NULL, NULL, &properties));
    CHECK(got->statuses[0] == MQ_INFORMATION_UNSUPPORTED_PROPERTY);
}

/* ---- Security ---- */

SCENARIO(security_comes_in_parts)
{
    WCHAR *name = create(false);
    DWORD needed = 0, owner_only = 0;
    UCHAR whole[2048], owner[2048];
    RETURNS(MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL, MQGetQueueSecurity(name, 7, NULL, 0, &needed));
    CHECK(needed > 20 && needed <= sizeof whole);
    OK(MQGetQueueSecurity(name, 7, whole, sizeof whole, &needed));
    OK(MQGetQueueSecurity(name, OWNER_SECURITY_INFORMATION, owner, sizeof owner, &owner_only));
    CHECK(owner_only < needed && whole[0] == 1 && owner[16] + owner[17] == 0);
    OK(MQSetQueueSecurity(name, DACL_SECURITY_INFORMATION, whole));
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQGetQueueSecurity(u"DIRECT=OS:.\\private$\\none", 7, whole, 10, &needed));
    RETURNS(MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, MQSetQueueSecurity(name, DACL_SECURITY_INFORMATION, NULL));
    OK(MQDeleteQueue(name));
}
SCENARIO(a_changed_list_of_rights_is_kept)
{
    WCHAR *name = create(false);
    DWORD needed = 0;
    UCHAR got[2048];
    /* An absolute descriptor with an access list for everyone: full control. */
    struct { UCHAR revision, unused; WORD control; void *owner, *group, *sacl, *dacl; } absolute = {1, 0, 4, 0, 0, 0, 0};
    UCHAR everyone[] = {2, 0, 28, 0, 1, 0, 0, 0, 0, 0, 20, 0, 0x3F, 0, 0x0F, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    absolute.dacl = everyone;
    OK(MQSetQueueSecurity(name, DACL_SECURITY_INFORMATION, &absolute));
    OK(MQGetQueueSecurity(name, DACL_SECURITY_INFORMATION, got, sizeof got, &needed));
    CHECK(needed == 20 + sizeof everyone && memcmp(got + 20, everyone, sizeof everyone) == 0);
    OK(MQDeleteQueue(name));
}

/* ---- The process ---- */

/* As another program: what the parent had open is no leak of the child. */
static void end_child(bool holds)
{
    const char *program = holds ? "/bin/true" : "/bin/false";
    execl(program, program, (char *)NULL);
    _exit(1);
}
SCENARIO(a_child_process_has_a_connection_of_its_own)
{
    Pair queue = pair(false);
    OK(send_text(queue.out, "parent", NULL));
    pid_t child = fork();
    if (child == 0) {
        QUEUEHANDLE own;
        HRESULT old = send_text(queue.out, "x", NULL), opened = MQOpenQueue(queue.name, MQ_SEND_ACCESS, 0, &own);
        end_child(old == MQ_ERROR_STALE_HANDLE && opened == MQ_OK && send_text(own, "child", NULL) == MQ_OK);
    }
    int ended;
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    char body[ROOM];
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "parent") == 0);
    OK(receive_text(queue.in, body));
    CHECK(strcmp(body, "child") == 0);
    done(&queue);
}
typedef struct Sender {
    QUEUEHANDLE out;
    int failed;
} Sender;
static void *send_many(void *given)
{
    Sender *sender = given;
    for (int at = 0; at < 50; at++)
        sender->failed += send_text(sender->out, "x", NULL) != MQ_OK;
    return NULL;
}
static atomic_bool stop_sending;
static void *send_until_stopped(void *given)
{
    Sender *sender = given;
    ITransaction *work;
    while (!stop_sending) {
        sender->failed += send_text(sender->out, "x", NULL) != MQ_OK;
        if (MQBeginTransaction(&work) == MQ_OK)
            work->lpVtbl->Release(work);
    }
    return NULL;
}
SCENARIO(children_of_a_program_whose_threads_send_do_not_hang)
{
    Pair queue = pair(false);
    pthread_t threads[3];
    Sender senders[3];
    stop_sending = false;
    for (int at = 0; at < 3; at++) {
        senders[at] = (Sender){queue.out, 0};
        pthread_create(&threads[at], NULL, send_until_stopped, &senders[at]);
    }
    int wrong = 0;
    for (int at = 0; at < 20; at++) {
        pid_t child = fork();
        if (child == 0) {
            ITransaction *work;
            alarm(30);
            bool stale = send_text(queue.out, "x", NULL) == MQ_ERROR_STALE_HANDLE;
            stale = stale && MQBeginTransaction(&work) == MQ_OK && work->lpVtbl->Release(work) == 0;
            end_child(stale && MQCloseQueue(queue.out) == MQ_OK);
        }
        int ended = 1;
        wrong += waitpid(child, &ended, 0) != child || ended != 0;
    }
    stop_sending = true;
    for (int at = 0; at < 3; at++) {
        pthread_join(threads[at], NULL);
        wrong += senders[at].failed;
    }
    CHECK(wrong == 0);
    done(&queue);
}
SCENARIO(a_handle_that_was_closed_stays_closed)
{
    Pair queue = pair(false);
    QUEUEHANDLE closed = open_as(queue.name, MQ_SEND_ACCESS);
    OK(MQCloseQueue(closed));
    for (int at = 0; at < 1100; at++) {
        HANDLE cursor;
        OK(MQCreateCursor(queue.in, &cursor));
        CHECK(cursor != closed);
        RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseQueue(closed));
        OK(MQCloseCursor(cursor));
    }
    done(&queue);
}
SCENARIO(threads_share_a_handle)
{
    enum { THREADS = 4 };
    Pair queue = pair(false);
    pthread_t threads[THREADS];
    Sender senders[THREADS];
    for (int at = 0; at < THREADS; at++) {
        senders[at] = (Sender){queue.out, 0};
        pthread_create(&threads[at], NULL, send_many, &senders[at]);
    }
    int failed = 0;
    for (int at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
        failed += senders[at].failed;
    }
    CHECK(failed == 0);
    char body[ROOM];
    for (int at = 0; at < THREADS * 50; at++)
        OK(receive_text(queue.in, body));
    RETURNS(MQ_ERROR_IO_TIMEOUT, receive_text(queue.in, body));
    done(&queue);
}

#define ENTRY(name) {#name, name},
static const Scenario SCENARIOS[] = {
#include "scenarios.list"
};

static bool holds(const Scenario *scenario)
{
    if (setjmp(stop_here) != 0) {
        printf("not ok %s: %s\n", scenario->name, problem);
        return false;
    }
    scenario->run();
    printf("ok %s\n", scenario->name);
    return true;
}

int main(int count, char **words)
{
    int failures = 0;
    if (count > 1)
        prefix = words[1];
    for (size_t at = 0; at < sizeof SCENARIOS / sizeof *SCENARIOS; at++) {
        bool chosen = count < 3;
        for (int word = 2; word < count; word++)
            chosen |= strcmp(words[word], SCENARIOS[at].name) == 0;
        if (!chosen)
            continue;
        failures += !holds(&SCENARIOS[at]);
        fflush(stdout);
        while (list_count > 0)
            free(lists[--list_count]);
    }
    return failures != 0;
}
