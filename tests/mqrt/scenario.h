/* What scenarios share: checks that report their line, lists of properties, queues of their own. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mq.h"

#define BYTES (VT_VECTOR | VT_UI1)
#define ROOM 512
#define MOST 80

extern jmp_buf stop_here;
extern char problem[1024];

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            snprintf(problem, sizeof problem, "line %d: %s", __LINE__, #condition); \
            longjmp(stop_here, 1); \
        } \
    } while (0)
#define RETURNS(code, call) \
    do { \
        HRESULT got_ = (call); \
        if (got_ != (HRESULT)(code)) { \
            snprintf(problem, sizeof problem, "line %d: %s returned 0x%08X, expected 0x%08X (%s) %s", __LINE__, #call, \
                     (unsigned)got_, (unsigned)(code), #code, mqrt_last_sentence()); \
            longjmp(stop_here, 1); \
        } \
    } while (0)
#define OK(call) RETURNS(MQ_OK, call)

/* A list of properties, with buffers for what is received. */
typedef struct List {
    DWORD ids[MOST];
    MQPROPVARIANT values[MOST];
    HRESULT statuses[MOST];
    WCHAR texts[MOST][ROOM];
    UCHAR bytes[MOST][ROOM];
    CLSID guids[MOST];
    MQMSGPROPS properties;
} List;

static inline List *list_new(void)
{
    List *list = calloc(1, sizeof *list);
    list->properties = (MQMSGPROPS){0, list->ids, list->values, list->statuses};
    return list;
}

static inline MQPROPVARIANT *add(List *list, DWORD id, VARTYPE type)
{
    DWORD at = list->properties.cProp++;
    list->ids[at] = id;
    list->values[at].vt = type;
    return &list->values[at];
}
static inline void add_ui1(List *list, DWORD id, UCHAR value) { add(list, id, VT_UI1)->bVal = value; }
static inline void add_ui2(List *list, DWORD id, USHORT value) { add(list, id, VT_UI2)->uiVal = value; }
static inline void add_ui4(List *list, DWORD id, ULONG value) { add(list, id, VT_UI4)->ulVal = value; }
static inline void add_text(List *list, DWORD id, const WCHAR *text) { add(list, id, VT_LPWSTR)->pwszVal = (LPWSTR)text; }
static inline void add_bytes(List *list, DWORD id, const void *data, size_t size)
{
    add(list, id, BYTES)->caub = (CAUB){(ULONG)size, (UCHAR *)data};
}
static inline void add_buffer(List *list, DWORD id, size_t size)
{
    DWORD at = list->properties.cProp;
    add(list, id, BYTES)->caub = (CAUB){(ULONG)size, list->bytes[at]};
}
/* A buffer for a text, and its length in the property behind. */
static inline void add_text_buffer(List *list, DWORD id, ULONG room)
{
    DWORD at = list->properties.cProp;
    add(list, id, VT_LPWSTR)->pwszVal = list->texts[at];
    add_ui4(list, id + 1, room);
}
static inline void add_guid(List *list, DWORD id)
{
    DWORD at = list->properties.cProp;
    add(list, id, VT_CLSID)->puuid = &list->guids[at];
}
static inline DWORD place(const List *list, DWORD id)
{
    for (DWORD at = 0; at < list->properties.cProp; at++)
        if (list->ids[at] == id)
            return at;
    return 0;
}
static inline MQPROPVARIANT *value(List *list, DWORD id) { return &list->values[place(list, id)]; }
static inline HRESULT status(const List *list, DWORD id) { return list->statuses[place(list, id)]; }

static inline bool equal(const WCHAR *one, const WCHAR *other)
{
    for (; *one == *other; one++, other++)
        if (*one == 0)
            return true;
    return false;
}
static inline bool contains(const WCHAR *text, const WCHAR *part)
{
    for (; *text; text++) {
        size_t at = 0;
        while (part[at] && text[at] == part[at])
            at++;
        if (!part[at])
            return true;
    }
    return false;
}

#endif
