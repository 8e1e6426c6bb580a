/*
 * Fuzzes how the library reads what comes from a node: `fuzz SECONDS SEED`. Messages that it packs itself, with headers of
 * all kinds, are damaged and read again, into buffers of all sizes. It is compiled with the sources of the library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

static uint64_t state;

static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

/* A stored message: the bytes of the node before it, and its packet. */
static uint8_t *stored(size_t *size)
{
    static const uint8_t source[16] = {1, 2, 3}, body[600] = {7};
    static const WCHAR *const names[] = {NULL, u"DIRECT=OS:a\\private$\\b", u"PUBLIC=01234567-89ab-cdef-0123-456789abcdef",
                                         u"PRIVATE=01234567-89ab-cdef-0123-456789abcdef\\0000000f"};
    static const WCHAR *const several[] = {NULL, u"DIRECT=OS:a\\private$\\b,PUBLIC=01234567-89ab-cdef-0123-456789abcdef",
                                           u"DL=01234567-89ab-cdef-0123-456789abcdef,DIRECT=TCP:1.2.3.4\\x"};
    Outgoing message = {
        .label = next(2) ? u"label" : NULL,
        .administration = names[next(4)],
        .response = names[next(4)],
        .responses = several[next(3)],
        .soap_header = next(4) ? NULL : u"header",
        .soap_body = next(4) ? NULL : u"body",
        .connector = next(2) ? source : NULL,
        .body = {body, next(sizeof body)},
        .extension = {body, next(40)},
    };
    Packed packed;
    if (FAILED(message_pack(&message, source, &packed)))
        abort();
    *size = RECORD_SIZE + packed.size;
    uint8_t *value = calloc(1, *size);
    value[0] = RECORD_VERSION;
    memcpy(value + RECORD_SIZE, packed.head, packed.head_size);
    memcpy(value + RECORD_SIZE + packed.head_size, message.body.data, message.body.size);
    if (packed.tail_size > 0)
        memcpy(value + *size - packed.tail_size, packed.tail, packed.tail_size);
    packed_free(&packed);
    return value;
}

static void read_into_buffers(const uint8_t *value, size_t size)
{
    DWORD ids[80], count = 0;
    MQPROPVARIANT values[80];
    HRESULT statuses[80];
    uint8_t bytes[80][64];
    CLSID guids[80];
    memset(values, 0, sizeof values);
    for (DWORD id = 1; id <= PROPID_M_LAST_MOVE_TIME; id++) {
        MQPROPVARIANT *of = &values[count];
        ids[count] = id;
        of->vt = VT_NULL;
        /* The library says which type it has: ask until it accepts one. */
        static const VARTYPE types[] = {VT_NULL, VT_VECTOR | VT_UI1, VT_LPWSTR, VT_CLSID};
        for (int at = 0; at < 4; at++) {
            of->vt = types[at];
            if (types[at] == VT_CLSID)
                of->puuid = &guids[count];
            else if (types[at] == VT_LPWSTR)
                of->pwszVal = (LPWSTR)(void *)bytes[count];
            else
                of->caub = (CAUB){next(2) ? 20 + next(44) : 64, bytes[count]};
            MQMSGPROPS one = {1, &ids[count], of, &statuses[count]};
            HRESULT code = properties_check_received(&one);
            if (code != MQ_ERROR_PROPERTY)
                break;
        }
        count++;
    }
    for (DWORD at = 0; at < count; at++) /* the lengths of texts, in characters */
        if (at > 0 && values[at - 1].vt == VT_LPWSTR) {
            values[at].vt = VT_UI4;
            values[at].ulVal = next(33);
        }
    MQMSGPROPS properties = {count, ids, values, statuses};
    Message message;
    if (message_read(&message, 7, value, size) && !FAILED(properties_check_received(&properties)))
        properties_fill(&properties, &message);
    message_free(&message);
}

int main(int words, char **word)
{
    time_t until = time(NULL) + (words > 1 ? atoi(word[1]) : 1);
    state = words > 2 ? strtoull(word[2], NULL, 10) * 2654435761u + 1 : 88172645463325252u;
    unsigned long rounds = 0;
    while (rounds % 256 || time(NULL) < until) {
        size_t size;
        uint8_t *value = stored(&size);
        for (uint32_t damage = next(6); damage > 0; damage--) {
            size_t at = next((uint32_t)size);
            value[at] = next(3) ? (uint8_t)next(256) : (uint8_t)(next(2) * 255);
            if (next(4) == 0 && at + 4 <= size)
                write32(value + at, next(2) ? next(2000) : 0xFFFFFFF0u + next(16));
        }
        size_t cut = next(3) ? size : next((uint32_t)size + 1);
        uint8_t *exact = malloc(cut + 1); /* so that a sanitizer sees each byte too many */
        memcpy(exact, value, cut);
        exact = realloc(exact, cut > 0 ? cut : 1);
        read_into_buffers(exact, cut);
        free(exact);
        free(value);
        rounds++;
    }
    printf("%lu\n", rounds);
    return 0;
}
