/*
 * The functions of Windows that System.Messaging calls beside mqrt.dll, as far as they mean something here: no more, and
 * each for the reason that is given. What cannot be done fails, with an error of Windows in errno, where Mono looks for it.
 *
 * Those of advapi32 for access lists are missing: off Windows, System.Messaging refuses to set rights before it calls them.
 */
#include <errno.h>
#include <string.h>

#include "error_names.h"
#include "mq.h"

#define ERROR_NOT_SUPPORTED 50
#define ERROR_INVALID_PARAMETER 87
#define ERROR_INSUFFICIENT_BUFFER 122
#define ERROR_MORE_DATA 234
#define E_NOTIMPL ((HRESULT)0x80004001)

static BOOL fail(int error)
{
    errno = error;
    return 0;
}

static size_t length16(const WCHAR *text)
{
    size_t length = 0;
    while (text[length] != 0)
        length++;
    return length;
}

/* ---- kernel32 ---- */

/* Asked whether a queue's handle can be bound to completion ports. It cannot: System.Messaging then uses callbacks. */
MQRT_API BOOL GetHandleInformation(HANDLE handle, DWORD *flags)
{
    (void)handle;
    (void)flags;
    return fail(ERROR_NOT_SUPPORTED);
}

/* The name that path names of this machine begin with: the node's. */
MQRT_API BOOL GetComputerNameW(LPWSTR buffer, DWORD *size)
{
    QMPROPID id = PROPID_QM_PATHNAME;
    MQPROPVARIANT value = {.vt = VT_NULL};
    MQQMPROPS properties = {1, &id, &value, NULL};
    if (buffer == NULL || size == NULL)
        return fail(ERROR_INVALID_PARAMETER);
    HRESULT code = MQGetMachineProperties(NULL, NULL, &properties);
    if (FAILED(code))
        return fail(ERROR_NOT_SUPPORTED);
    size_t length = length16(value.pwszVal);
    BOOL fits = *size > length;
    if (fits)
        memcpy(buffer, value.pwszVal, (length + 1) * sizeof *buffer);
    *size = (DWORD)(fits ? length : length + 1);
    MQFreeMemory(value.pwszVal);
    return fits ? 1 : fail(ERROR_MORE_DATA);
}

/* The text of an error that System.Messaging has none for: its name, and what the node said if this thread just failed. */
MQRT_API DWORD FormatMessageW(DWORD flags, const void *source, DWORD number, DWORD language, LPWSTR buffer, DWORD size,
                              void *arguments)
{
    static const struct {
        HRESULT code;
        const WCHAR *name;
    } names[] = ERROR_NAMES;
    (void)source;
    (void)language;
    (void)arguments;
    if (buffer == NULL || flags & 0x100) /* to be allocated: nobody asks for it */
        return (DWORD)fail(ERROR_INVALID_PARAMETER);
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        if (names[at].code != (HRESULT)number)
            continue;
        const char *sentence = mqrt_last_sentence();
        size_t length = length16(names[at].name);
        if (size <= length)
            return (DWORD)fail(ERROR_INSUFFICIENT_BUFFER);
        memcpy(buffer, names[at].name, length * sizeof *buffer);
        for (const char *letter = *sentence ? ": " : ""; *letter != 0 && length + 1 < size;)
            buffer[length++] = (WCHAR)*letter++;
        for (; *sentence != 0 && length + 1 < size; sentence++)
            buffer[length++] = (unsigned char)*sentence < 0x80 ? (WCHAR)*sentence : u'?';
        buffer[length] = 0;
        return (DWORD)length;
    }
    return (DWORD)fail(ERROR_INVALID_PARAMETER);
}

/* ---- ole32: COM objects in bodies (VT_STREAMED_OBJECT). There is no COM: such a body stays bytes. ---- */

MQRT_API HRESULT OleLoadFromStream(void *stream, const IID *iid, void **object)
{
    (void)stream;
    (void)iid;
    if (object != NULL)
        *object = NULL;
    return E_NOTIMPL;
}

MQRT_API HRESULT OleSaveToStream(void *object, void *stream)
{
    (void)object;
    (void)stream;
    return E_NOTIMPL;
}
