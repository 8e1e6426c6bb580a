/*
 * Traffic through the C interface: `traffic send|receive|move|large FORMAT_NAME COUNT SIZE THREADS`. Each thread sends, or
 * receives, COUNT messages, all with one handle. It prints the seconds that it took, and those of the processor.
 *
 * A body begins with "THREAD NUMBER". `move TARGET` takes messages from FORMAT_NAME to TARGET in transactions until none
 * comes for a while, and goes on when the node was started again.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "scenario.h"

jmp_buf stop_here;
char problem[1024];
static WCHAR name[256], target[256];
static QUEUEHANDLE shared;
static int count, size;
static const char *mode;

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static void widen(const char *text, WCHAR *to)
{
    do
        *to++ = (WCHAR)(unsigned char)*text;
    while (*text++);
}

static void check(HRESULT code, const char *what)
{
    if (FAILED(code)) {
        fprintf(stderr, "%s: 0x%08X %s\n", what, (unsigned)code, mqrt_last_sentence());
        exit(2);
    }
}

static void *send_all(void *thread)
{
    UCHAR *body = calloc(1, (size_t)size);
    for (int at = 0; at < count; at++) {
        MSGPROPID ids[] = {PROPID_M_BODY, PROPID_M_DELIVERY};
        MQPROPVARIANT values[2] = {{.vt = BYTES, .caub = {(ULONG)size, body}},
                                   {.vt = VT_UI1, .bVal = MQMSG_DELIVERY_EXPRESS}};
        MQMSGPROPS properties = {2, ids, values, NULL};
        snprintf((char *)body, (size_t)size, "%d %d", (int)(intptr_t)thread, at);
        check(MQSendMessage(shared, &properties, MQ_NO_TRANSACTION), "send");
    }
    free(body);
    return NULL;
}

static void *receive_all(void *thread)
{
    (void)thread;
    size_t room = strcmp(mode, "large") == 0 ? 4 * 1024 * 1024 : (size_t)size;
    UCHAR *body = malloc(room);
    for (int at = 0; at < count; at++) {
        MSGPROPID ids[] = {PROPID_M_BODY, PROPID_M_BODY_SIZE};
        MQPROPVARIANT values[2] = {{.vt = BYTES, .caub = {(ULONG)room, body}}, {.vt = VT_NULL}};
        MQMSGPROPS properties = {2, ids, values, NULL};
        check(MQReceiveMessage(shared, 60000, MQ_ACTION_RECEIVE, &properties, NULL, NULL, NULL, MQ_NO_TRANSACTION),
              "receive");
    }
    free(body);
    return NULL;
}

static bool open_both(QUEUEHANDLE *from, QUEUEHANDLE *to)
{
    if (FAILED(MQOpenQueue(name, MQ_RECEIVE_ACCESS, 0, from)))
        return false;
    if (!FAILED(MQOpenQueue(target, MQ_SEND_ACCESS, 0, to)))
        return true;
    MQCloseQueue(*from);
    return false;
}

/* The outcome of one transaction: MQ_OK, or why it did nothing as far as this side knows. */
static HRESULT move_one(QUEUEHANDLE from, QUEUEHANDLE to, UCHAR *body)
{
    ITransaction *work;
    HRESULT code = MQBeginTransaction(&work);
    if (FAILED(code))
        return code;
    MSGPROPID ids[] = {PROPID_M_BODY, PROPID_M_BODY_SIZE};
    MQPROPVARIANT values[2] = {{.vt = BYTES, .caub = {(ULONG)size, body}}, {.vt = VT_NULL}};
    MQMSGPROPS properties = {2, ids, values, NULL};
    code = MQReceiveMessage(from, 3000, MQ_ACTION_RECEIVE, &properties, NULL, NULL, NULL, work);
    if (!FAILED(code)) {
        properties.cProp = 1;
        values[0].caub.cElems = values[1].ulVal;
        code = MQSendMessage(to, &properties, work);
    }
    if (FAILED(code))
        work->lpVtbl->Abort(work, NULL, 0, 0);
    else
        code = work->lpVtbl->Commit(work, 0, 0, 0);
    work->lpVtbl->Release(work);
    return code;
}

static void *move_all(void *thread)
{
    (void)thread;
    QUEUEHANDLE from, to;
    UCHAR *body = malloc((size_t)size);
    for (int quiet = 0; quiet < 2;) {
        if (!open_both(&from, &to)) {
            usleep(50000);
            continue;
        }
        HRESULT code;
        do
            code = move_one(from, to, body);
        while (!FAILED(code));
        quiet = code == MQ_ERROR_IO_TIMEOUT ? quiet + 1 : 0;
        MQCloseQueue(from);
        MQCloseQueue(to);
    }
    free(body);
    return NULL;
}

int main(int words, char **word)
{
    if (words < 6) {
        fprintf(stderr, "traffic send|receive|large|move FORMAT_NAME COUNT SIZE THREADS [TARGET]\n");
        return 2;
    }
    mode = word[1];
    widen(word[2], name);
    count = atoi(word[3]);
    size = atoi(word[4]);
    int threads = atoi(word[5]);
    if (words > 6)
        widen(word[6], target);
    void *(*work)(void *) = strcmp(mode, "send") == 0 ? send_all : strcmp(mode, "move") == 0 ? move_all : receive_all;
    if (work != move_all)
        check(MQOpenQueue(name, work == send_all ? MQ_SEND_ACCESS : MQ_RECEIVE_ACCESS, 0, &shared), "open");
    pthread_t running[64];
    struct timespec began, ended;
    struct rusage usage;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int at = 0; at < threads && at < 64; at++)
        pthread_create(&running[at], NULL, work, (void *)(intptr_t)at);
    for (int at = 0; at < threads && at < 64; at++)
        pthread_join(running[at], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    getrusage(RUSAGE_SELF, &usage);
    if (shared != NULL)
        MQCloseQueue(shared);
    printf("%.6f %.6f\n", (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9,
           seconds(usage.ru_utime) + seconds(usage.ru_stime));
    return 0;
}
