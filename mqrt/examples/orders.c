/*
 * Send, peek, walk, receive in a transaction, be called back, and read an error: Message Queuing in C.
 *
 *     cc orders.c $(pkg-config --cflags --libs mqrt) -pthread -o orders && ./orders
 */
#include <mq.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH u".\\private$\\orders-in-c"

static void check(HRESULT code, const char *what)
{
    if (FAILED(code)) {
        fprintf(stderr, "%s failed with 0x%08X: %s\n", what, (unsigned)code, mqrt_last_sentence());
        exit(1);
    }
}

static void create(WCHAR *name, DWORD length)
{
    QUEUEPROPID ids[] = {PROPID_Q_PATHNAME, PROPID_Q_TRANSACTION, PROPID_Q_LABEL};
    MQPROPVARIANT values[] = {{.vt = VT_LPWSTR, .pwszVal = (LPWSTR)PATH},
                              {.vt = VT_UI1, .bVal = MQ_TRANSACTIONAL},
                              {.vt = VT_LPWSTR, .pwszVal = (LPWSTR)u"orders"}};
    MQQUEUEPROPS properties = {3, ids, values, NULL};
    HRESULT code = MQCreateQueue(NULL, &properties, name, &length);
    if (code == MQ_ERROR_QUEUE_EXISTS)
        code = MQPathNameToFormatName(PATH, name, &length);
    check(code, "MQCreateQueue");
}

static void send_order(QUEUEHANDLE queue, const char *text, ITransaction *transaction)
{
    MSGPROPID ids[] = {PROPID_M_BODY, PROPID_M_LABEL};
    MQPROPVARIANT values[] = {{.vt = VT_VECTOR | VT_UI1, .caub = {(ULONG)strlen(text), (UCHAR *)text}},
                              {.vt = VT_LPWSTR, .pwszVal = (LPWSTR)u"order"}};
    MQMSGPROPS properties = {2, ids, values, NULL};
    check(MQSendMessage(queue, &properties, transaction), "MQSendMessage");
}

/* Receive or peek; when the buffer is too small, the message stays and its size is known. */
static char *next(QUEUEHANDLE queue, DWORD action, HANDLE cursor, ITransaction *transaction)
{
    ULONG room = 8;
    char *text = NULL;
    HRESULT code;
    do {
        text = realloc(text, room + 1);
        MSGPROPID ids[] = {PROPID_M_BODY, PROPID_M_BODY_SIZE};
        MQPROPVARIANT values[] = {{.vt = VT_VECTOR | VT_UI1, .caub = {room, (UCHAR *)text}}, {.vt = VT_NULL}};
        MQMSGPROPS properties = {2, ids, values, NULL};
        code = MQReceiveMessage(queue, 0, action, &properties, NULL, NULL, cursor, transaction);
        room = values[1].ulVal;
    } while (code == MQ_ERROR_BUFFER_OVERFLOW);
    if (code == MQ_ERROR_IO_TIMEOUT) {
        free(text);
        return NULL;
    }
    check(code, "MQReceiveMessage");
    text[room] = 0;
    return text;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called;

static void on_order(HRESULT code, QUEUEHANDLE queue, DWORD timeout, DWORD action, MQMSGPROPS *properties,
                     LPOVERLAPPED overlapped, HANDLE cursor)
{
    (void)queue, (void)timeout, (void)action, (void)overlapped, (void)cursor;
    check(code, "the receive");
    printf("called back: %.*s\n", (int)properties->aPropVar[1].ulVal, properties->aPropVar[0].caub.pElems);
    pthread_mutex_lock(&mutex);
    called = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

int main(void)
{
    WCHAR name[256];
    QUEUEHANDLE out, in;
    HANDLE cursor;
    ITransaction *work;
    char *text;
    create(name, 256);
    check(MQOpenQueue(name, MQ_SEND_ACCESS, MQ_DENY_NONE, &out), "MQOpenQueue");
    check(MQOpenQueue(name, MQ_RECEIVE_ACCESS, MQ_DENY_NONE, &in), "MQOpenQueue");

    check(MQBeginTransaction(&work), "MQBeginTransaction");
    send_order(out, "seven screws", work);
    send_order(out, "a hammer", work);
    check(work->lpVtbl->Commit(work, 0, 0, 0), "Commit");
    work->lpVtbl->Release(work);

    check(MQCreateCursor(in, &cursor), "MQCreateCursor");
    for (DWORD action = MQ_ACTION_PEEK_CURRENT; (text = next(in, action, cursor, NULL)); action = MQ_ACTION_PEEK_NEXT) {
        printf("peeked: %s\n", text);
        free(text);
    }
    check(MQCloseCursor(cursor), "MQCloseCursor");

    check(MQBeginTransaction(&work), "MQBeginTransaction");
    text = next(in, MQ_ACTION_RECEIVE, NULL, work);
    printf("received: %s\n", text);
    free(text);
    check(work->lpVtbl->Commit(work, 0, 0, 0), "Commit");
    work->lpVtbl->Release(work);

    UCHAR body[64];
    MSGPROPID ids[] = {PROPID_M_BODY, PROPID_M_BODY_SIZE};
    MQPROPVARIANT values[] = {{.vt = VT_VECTOR | VT_UI1, .caub = {sizeof body, body}}, {.vt = VT_NULL}};
    MQMSGPROPS properties = {2, ids, values, NULL};
    OVERLAPPED overlapped = {0};
    check(MQReceiveMessage(in, INFINITE, MQ_ACTION_RECEIVE, &properties, &overlapped, on_order, NULL, NULL), "receive");
    pthread_mutex_lock(&mutex);
    while (!called)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);

    QUEUEHANDLE none;
    HRESULT code = MQOpenQueue(u"DIRECT=OS:.\\private$\\no-such-queue", MQ_RECEIVE_ACCESS, MQ_DENY_NONE, &none);
    printf("error: 0x%08X %s\n", (unsigned)code, code == MQ_ERROR_QUEUE_NOT_FOUND ? "MQ_ERROR_QUEUE_NOT_FOUND" : "");

    check(MQCloseQueue(out), "MQCloseQueue");
    check(MQCloseQueue(in), "MQCloseQueue");
    check(MQDeleteQueue(name), "MQDeleteQueue");
    return 0;
}
