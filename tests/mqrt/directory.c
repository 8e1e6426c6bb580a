/*
 * What a program does with a login to the directory: `directory register FILE FLAGS` and `directory create PATH_NAME`. It
 * prints the code, and what the node said.
 */
#include "scenario.h"

jmp_buf stop_here;
char problem[1024];

static HRESULT register_file(const char *path, DWORD flags)
{
    static UCHAR certificate[100000];
    FILE *file = fopen(path, "rb");
    size_t size = file == NULL ? 0 : fread(certificate, 1, sizeof certificate, file);
    if (file != NULL)
        fclose(file);
    return MQRegisterCertificate(flags, certificate, (DWORD)size);
}

static HRESULT create(const char *path)
{
    static WCHAR name[256], text[256];
    PROPID ids[] = {PROPID_Q_PATHNAME, PROPID_Q_LABEL};
    MQPROPVARIANT values[] = {{.vt = VT_LPWSTR, .pwszVal = text}, {.vt = VT_LPWSTR, .pwszVal = (LPWSTR)u"from C"}};
    MQQUEUEPROPS properties = {2, ids, values, NULL};
    DWORD length = 256;
    for (size_t at = 0; path[at] != 0; at++)
        text[at] = (WCHAR)path[at];
    HRESULT code = MQCreateQueue(NULL, &properties, name, &length);
    values[1].pwszVal = (LPWSTR)u"changed in C";
    properties = (MQQUEUEPROPS){1, ids + 1, values + 1, NULL};
    return FAILED(code) ? code : MQSetQueueProperties(name, &properties);
}

int main(int words, char **word)
{
    if (words < 3)
        return 2;
    HRESULT code = words > 3 ? register_file(word[2], (DWORD)atoi(word[3])) : create(word[2]);
    printf("0x%08X %s\n", (unsigned)code, mqrt_last_sentence());
    return 0;
}
