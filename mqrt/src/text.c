/* Texts: WCHAR has 16 bits, the node speaks UTF-8; GUIDs and the buffers of names. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

size_t length16(const WCHAR *text)
{
    size_t length = 0;
    while (text[length] != 0)
        length++;
    return length;
}

char *to_utf8(const WCHAR *text)
{
    char *made = malloc(3 * length16(text) + 1), *to = made;
    for (; made != NULL && *text != 0; text++) {
        uint32_t code = *text;
        if (code >= 0xD800 && code < 0xE000) {
            if (code >= 0xDC00 || text[1] < 0xDC00 || text[1] >= 0xE000) {
                free(made);
                return NULL;
            }
            code = 0x10000 + ((code - 0xD800) << 10) + (*++text - 0xDC00u);
            *to++ = (char)(0xF0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3F));
            *to++ = (char)(0x80 | (code >> 6 & 0x3F));
            *to++ = (char)(0x80 | (code & 0x3F));
        } else if (code >= 0x800) {
            *to++ = (char)(0xE0 | code >> 12);
            *to++ = (char)(0x80 | (code >> 6 & 0x3F));
            *to++ = (char)(0x80 | (code & 0x3F));
        } else if (code >= 0x80) {
            *to++ = (char)(0xC0 | code >> 6);
            *to++ = (char)(0x80 | (code & 0x3F));
        } else {
            *to++ = (char)code;
        }
    }
    if (made != NULL)
        *to = 0;
    return made;
}

/* `text` is valid UTF-8: the reader of JSON has checked it. */
WCHAR *to_utf16(const char *text, size_t *length)
{
    WCHAR *made = malloc((strlen(text) + 1) * sizeof *made), *to = made;
    for (const uint8_t *at = (const uint8_t *)text; made != NULL && *at != 0;) {
        uint32_t code = *at++;
        int more = code >= 0xF0 ? 3 : code >= 0xE0 ? 2 : code >= 0xC0 ? 1 : 0;
        if (more)
            code &= 0x3Fu >> more;
        for (; more > 0 && (*at & 0xC0) == 0x80; more--)
            code = code << 6 | (*at++ & 0x3F);
        if (code >= 0x10000) {
            *to++ = (WCHAR)(0xD800 + ((code - 0x10000) >> 10));
            code = 0xDC00 + ((code - 0x10000) & 0x3FF);
        }
        *to++ = (WCHAR)code;
    }
    if (made != NULL) {
        *to = 0;
        if (length != NULL)
            *length = (size_t)(to - made);
    }
    return made;
}

json_t *json_text(const WCHAR *text)
{
    char *utf8 = to_utf8(text);
    json_t *value = utf8 == NULL ? NULL : json_string(utf8);
    free(utf8);
    return value;
}

json_t *json_format_name(const WCHAR *text)
{
    static const char *const prefixes[] = {"DIRECT=", "PUBLIC=", "PRIVATE=", "MACHINE=", "CONNECTOR=", "MULTICAST=", "DL="};
    for (size_t at = 0; at < sizeof prefixes / sizeof *prefixes; at++)
        if (begins_with(text, prefixes[at]))
            return json_text(text);
    return NULL;
}

bool begins_with(const WCHAR *text, const char *word)
{
    for (; *word != 0; text++, word++) {
        WCHAR letter = *text >= u'a' && *text <= u'z' ? (WCHAR)(*text - 32) : *text;
        if (letter != (WCHAR)*word)
            return false;
    }
    return true;
}

bool is_word(const WCHAR *text, const char *word) { return begins_with(text, word) && text[strlen(word)] == 0; }

void write_guid(const uint8_t guid[16], WCHAR text[37])
{
    static const uint8_t order[] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int at = 0; at < 16; at++) {
        if (at == 4 || at == 6 || at == 8 || at == 10)
            *text++ = u'-';
        *text++ = u"0123456789abcdef"[guid[order[at]] >> 4];
        *text++ = u"0123456789abcdef"[guid[order[at]] & 15];
    }
    *text = 0;
}

static int digit(WCHAR letter)
{
    if (letter >= u'0' && letter <= u'9')
        return letter - u'0';
    if (letter >= u'a' && letter <= u'f')
        return letter - u'a' + 10;
    return letter >= u'A' && letter <= u'F' ? letter - u'A' + 10 : -1;
}

bool read_guid(const WCHAR *text, uint8_t guid[16])
{
    static const uint8_t order[] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int at = 0; at < 16; at++) {
        if ((at == 4 || at == 6 || at == 8 || at == 10) && *text++ != u'-')
            return false;
        int high = digit(text[0]);
        int low = high < 0 ? -1 : digit(text[1]);
        if (low < 0)
            return false;
        guid[order[at]] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    return true;
}

HRESULT give_name(const char *name, LPWSTR buffer, DWORD *length, HRESULT too_small)
{
    size_t count;
    WCHAR *text = to_utf16(name, &count);
    if (text == NULL)
        return E_OUTOFMEMORY;
    DWORD room = *length;
    *length = (DWORD)(count + 1);
    HRESULT code = MQ_OK;
    if (buffer == NULL || room < count + 1)
        code = too_small;
    else
        memcpy(buffer, text, (count + 1) * sizeof *text);
    free(text);
    return code;
}
