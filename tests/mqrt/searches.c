/* Searches for public queues; the node's directory is that of test_searches.py. */
#include "scenario.h"

jmp_buf stop_here;
char problem[1024];

typedef struct Asked {
    MQPROPERTYRESTRICTION parts[4];
    MQSORTKEY keys[2];
    ULONG part_count, key_count;
} Asked;

static MQPROPERTYRESTRICTION text_is(ULONG relation, PROPID id, const WCHAR *text)
{
    return (MQPROPERTYRESTRICTION){relation, id, {.vt = VT_LPWSTR, .pwszVal = (LPWSTR)text}};
}

/* The path names that are found, each followed by a blank, read in pieces of `room` queues. */
static const char *found(const Asked *asked, DWORD room)
{
    static char names[4096];
    PROPID ids[] = {PROPID_Q_PATHNAME, PROPID_Q_INSTANCE, PROPID_Q_QUOTA};
    MQCOLUMNSET columns = {3, ids};
    MQRESTRICTION restriction = {asked->part_count, (MQPROPERTYRESTRICTION *)asked->parts};
    MQSORTSET sort = {asked->key_count, (MQSORTKEY *)asked->keys};
    MQPROPVARIANT values[30];
    HANDLE search;
    names[0] = 0;
    OK(MQLocateBegin(NULL, &restriction, &columns, asked->key_count > 0 ? &sort : NULL, &search));
    for (;;) {
        DWORD count = 3 * room + 1;
        OK(MQLocateNext(search, &count, values));
        CHECK(count % 3 == 0 && count <= 3 * room);
        if (count == 0)
            break;
        for (DWORD at = 0; at < count; at += 3) {
            CHECK(values[at].vt == VT_LPWSTR && values[at + 1].vt == VT_CLSID && values[at + 2].vt == VT_UI4);
            size_t length = strlen(names);
            for (const WCHAR *unit = values[at].pwszVal; *unit; unit++)
                names[length++] = (char)*unit;
            names[length++] = ' ';
            names[length] = 0;
            MQFreeMemory(values[at].pwszVal);
            MQFreeMemory(values[at + 1].puuid);
        }
    }
    OK(MQLocateEnd(search));
    return names;
}

static void finds(int line, const char *expected, const Asked asked, DWORD room)
{
    const char *names = found(&asked, room);
    if (strcmp(names, expected) != 0) {
        snprintf(problem, sizeof problem, "line %d: found %s, expected %s", line, names, expected);
        longjmp(stop_here, 1);
    }
}
#define FINDS(expected, room, ...) finds(__LINE__, expected, (Asked){__VA_ARGS__}, room)

static void searches(void)
{
    FINDS("alpha\\own beta\\a beta\\b beta\\c ", 9, .part_count = 0);
    FINDS("alpha\\own beta\\a beta\\b beta\\c ", 1, .part_count = 0);
    FINDS("beta\\a beta\\c ", 2, .parts = {text_is(PREQ, PROPID_Q_LABEL, u"Orders")}, .part_count = 1);
    FINDS("beta\\c ", 2, .parts = {text_is(PREQ, PROPID_Q_LABEL, u"Orders"), text_is(PRGT, PROPID_Q_PATHNAME, u"beta\\a")},
          .part_count = 2);
    FINDS("", 2, .parts = {text_is(PREQ, PROPID_Q_LABEL, u"Orders"), text_is(PREQ, PROPID_Q_LABEL, u"Bills")},
          .part_count = 2);
    FINDS("alpha\\own beta\\b ", 2, .parts = {text_is(PRNE, PROPID_Q_LABEL, u"orders")}, .part_count = 1);
    FINDS("beta\\b ", 2, .parts = {{PRLE, PROPID_Q_QUOTA, {.vt = VT_UI4, .ulVal = 2000}}}, .part_count = 1);
    FINDS("beta\\c ", 2, .parts = {{PREQ, PROPID_Q_TRANSACTION, {.vt = VT_UI1, .bVal = 1}}}, .part_count = 1);
    FINDS("beta\\c beta\\b beta\\a alpha\\own ", 9, .keys = {{PROPID_Q_PATHNAME, QUERY_SORTDESCEND}}, .key_count = 1);
    FINDS("beta\\b alpha\\own beta\\c beta\\a ", 9,
          .keys = {{PROPID_Q_LABEL, QUERY_SORTASCEND}, {PROPID_Q_PATHNAME, QUERY_SORTDESCEND}}, .key_count = 2);
    CLSID service = {.Data1 = 0x04030201, 0x0605, 0x0807, {9, 10, 11, 12, 13, 14, 15, 16}};
    FINDS("beta\\b ", 2, .parts = {{PREQ, PROPID_Q_TYPE, {.vt = VT_CLSID, .puuid = &service}}}, .part_count = 1);
    CLSID none = {0};
    FINDS("alpha\\own beta\\a beta\\c ", 2, .parts = {{PREQ, PROPID_Q_TYPE, {.vt = VT_CLSID, .puuid = &none}}},
          .part_count = 1);
    FINDS("alpha\\own beta\\a beta\\c ", 2, .parts = {{PRNE, PROPID_Q_TYPE, {.vt = VT_CLSID, .puuid = &service}}},
          .part_count = 1);

    PROPID identifier = PROPID_Q_INSTANCE;
    MQCOLUMNSET columns = {1, &identifier};
    MQPROPERTYRESTRICTION bills = text_is(PREQ, PROPID_Q_LABEL, u"Bills");
    MQRESTRICTION restriction = {1, &bills};
    MQPROPVARIANT instance;
    HANDLE search;
    DWORD count = 1;
    OK(MQLocateBegin(NULL, &restriction, &columns, NULL, &search));
    OK(MQLocateNext(search, &count, &instance));
    OK(MQLocateEnd(search));
    FINDS("beta\\b ", 2, .parts = {{PREQ, PROPID_Q_INSTANCE, instance}}, .part_count = 1);
    FINDS("alpha\\own beta\\a beta\\c ", 2, .parts = {{PRNE, PROPID_Q_INSTANCE, instance}}, .part_count = 1);
    MQFreeMemory(instance.puuid);
}

/* Public queues and machines elsewhere, by their names. */
static void names(void)
{
    WCHAR name[64];
    DWORD length = 64;
    OK(MQPathNameToFormatName(u"BETA\\C", name, &length));
    CHECK(length == 44 && contains(name, u"PUBLIC="));
    length = 43;
    RETURNS(MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, MQPathNameToFormatName(u"beta\\c", name, &length));
    CHECK(length == 44);
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQPathNameToFormatName(u"beta\\d", name, &length));
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQPathNameToFormatName(u"gamma\\c", name, &length));
    FINDS("beta\\c ", 2, .parts = {text_is(PREQ, PROPID_Q_PATHNAME, u"beta\\c")}, .part_count = 1);

    length = 64;
    OK(MQPathNameToFormatName(u"beta\\b", name, &length));
    QUEUEPROPID asked_of[] = {PROPID_Q_LABEL, PROPID_Q_QUOTA};
    MQPROPVARIANT told[2] = {{.vt = VT_NULL}, {.vt = VT_NULL}};
    MQQUEUEPROPS queue = {2, asked_of, told, NULL};
    OK(MQGetQueueProperties(name, &queue));
    CHECK(equal(told[0].pwszVal, u"Bills") && told[1].ulVal == 2000);
    MQFreeMemory(told[0].pwszVal);
    told[0].vt = told[1].vt = VT_NULL;
    name[8] = name[8] == u'0' ? u'1' : u'0';
    RETURNS(MQ_ERROR_QUEUE_NOT_FOUND, MQGetQueueProperties(name, &queue));

    CLSID identifier;
    PROPID ids[] = {PROPID_QM_MACHINE_ID, PROPID_QM_PATHNAME};
    MQPROPVARIANT values[2] = {{.vt = VT_CLSID, .puuid = &identifier}, {.vt = VT_NULL}};
    MQQMPROPS properties = {2, ids, values, NULL};
    OK(MQGetMachineProperties(u"beta", NULL, &properties));
    CHECK(equal(values[1].pwszVal, u"BETA"));
    MQFreeMemory(values[1].pwszVal);
    values[1].vt = VT_NULL;
    CLSID asked = identifier;
    OK(MQGetMachineProperties(NULL, &asked, &properties));
    CHECK(equal(values[1].pwszVal, u"BETA") && memcmp(&asked, &identifier, sizeof asked) == 0);
    MQFreeMemory(values[1].pwszVal);
    values[1].vt = VT_NULL;
    asked.Data1++;
    RETURNS(MQ_ERROR_MACHINE_NOT_FOUND, MQGetMachineProperties(u"gamma", NULL, &properties));
    RETURNS(MQ_ERROR_MACHINE_NOT_FOUND, MQGetMachineProperties(NULL, &asked, &properties));
}

static void mistakes(void)
{
    PROPID ids[] = {PROPID_Q_LABEL, PROPID_Q_PATHNAME};
    MQCOLUMNSET columns = {2, ids};
    CLSID service = {0};
    MQPROPERTYRESTRICTION part = {PRGT, PROPID_Q_TYPE, {.vt = VT_CLSID, .puuid = &service}};
    MQRESTRICTION restriction = {1, &part};
    HANDLE search, others[20];
    RETURNS(MQ_ERROR_ILLEGAL_RELATION, MQLocateBegin(NULL, &restriction, &columns, NULL, &search));
    part = (MQPROPERTYRESTRICTION){PREQ, PROPID_Q_LABEL, {.vt = VT_UI4, .ulVal = 1}};
    RETURNS(MQ_ERROR_ILLEGAL_PROPERTY_VT, MQLocateBegin(NULL, &restriction, &columns, NULL, &search));
    part = text_is(PREQ, PROPID_Q_LABEL, NULL);
    RETURNS(MQ_ERROR_ILLEGAL_PROPERTY_VALUE, MQLocateBegin(NULL, &restriction, &columns, NULL, &search));
    OK(MQLocateBegin(NULL, NULL, &columns, NULL, &search));
    MQPROPVARIANT values[2];
    DWORD count = 1;
    RETURNS(MQ_ERROR_RESULT_BUFFER_TOO_SMALL, MQLocateNext(search, &count, values));
    count = 2;
    OK(MQLocateNext(search, &count, values));
    CHECK(count == 2 && values[0].vt == VT_LPWSTR);
    MQFreeMemory(values[0].pwszVal);
    MQFreeMemory(values[1].pwszVal);
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQCloseQueue(search));
    OK(MQLocateEnd(search));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQLocateNext(search, &count, values));
    RETURNS(MQ_ERROR_INVALID_HANDLE, MQLocateEnd(search));
    for (int at = 0; at < 20; at++) /* what was found is here, so many may be open */
        OK(MQLocateBegin(NULL, NULL, &columns, NULL, &others[at]));
    for (int at = 0; at < 20; at++)
        OK(MQLocateEnd(others[at]));
}

int main(void)
{
    if (setjmp(stop_here) == 0) {
        searches();
        names();
        mistakes();
    }
    puts(problem);
    return problem[0] != 0;
}
