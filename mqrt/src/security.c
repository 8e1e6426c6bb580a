/* Security descriptors of queues (MS-DTYP 2.4.6): self-relative for the node, either form from programs. */
#include <stdlib.h>

#include "internal.h"

#define DESCRIPTOR_SIZE 20
#define SELF_RELATIVE 0x8000
#define DACL_PRESENT 0x0004
#define SACL_PRESENT 0x0010
#define MOST_SUBAUTHORITIES 15

/* The parts of a descriptor; a part that is absent has no bytes. */
typedef struct Parts {
    uint16_t control;
    Span owner, group, sacl, dacl;
} Parts;

static bool read_sid(const uint8_t *at, size_t room, Span *sid)
{
    if (room < 8 || at[0] != 1 || at[1] > MOST_SUBAUTHORITIES || room < 8u + 4u * at[1])
        return false;
    *sid = (Span){at, 8u + 4u * at[1]};
    return true;
}

static bool read_acl(const uint8_t *at, size_t room, Span *acl)
{
    if (room < 8 || read16(at + 2) < 8 || read16(at + 2) > room)
        return false;
    *acl = (Span){at, read16(at + 2)};
    return true;
}

/* `size` is that of a self-relative descriptor; unknown for one of a program, which its own sizes bound. */
static bool read_descriptor(const void *descriptor, size_t size, Parts *parts)
{
    const uint8_t *at = descriptor;
    memset(parts, 0, sizeof *parts);
    if (at == NULL || size < DESCRIPTOR_SIZE || at[0] != 1)
        return false;
    parts->control = read16(at + 2);
    if (parts->control & SELF_RELATIVE) {
        uint32_t place[4];
        for (int part = 0; part < 4; part++) {
            place[part] = read32(at + 4 + 4 * part);
            if (place[part] > size)
                return false;
        }
        return (place[0] == 0 || read_sid(at + place[0], size - place[0], &parts->owner)) &&
               (place[1] == 0 || read_sid(at + place[1], size - place[1], &parts->group)) &&
               (place[2] == 0 || read_acl(at + place[2], size - place[2], &parts->sacl)) &&
               (place[3] == 0 || read_acl(at + place[3], size - place[3], &parts->dacl));
    }
    const uint8_t *pointers[4]; /* absolute: pointers behind the control word, aligned */
    memcpy(pointers, at + sizeof(void *), sizeof pointers);
    return (pointers[0] == NULL || read_sid(pointers[0], SIZE_MAX, &parts->owner)) &&
           (pointers[1] == NULL || read_sid(pointers[1], SIZE_MAX, &parts->group)) &&
           (pointers[2] == NULL || read_acl(pointers[2], SIZE_MAX, &parts->sacl)) &&
           (pointers[3] == NULL || read_acl(pointers[3], SIZE_MAX, &parts->dacl));
}

static uint8_t *write_descriptor(const Parts *parts, size_t *size)
{
    const Span *spans[] = {&parts->owner, &parts->group, &parts->sacl, &parts->dacl};
    *size = DESCRIPTOR_SIZE;
    for (int part = 0; part < 4; part++)
        *size += (spans[part]->size + 3) & ~(size_t)3;
    uint8_t *made = calloc(1, *size);
    if (made == NULL)
        return NULL;
    made[0] = 1;
    write16(made + 2, parts->control | SELF_RELATIVE);
    size_t place = DESCRIPTOR_SIZE;
    for (int part = 0; part < 4; part++) {
        if (spans[part]->size == 0)
            continue;
        write32(made + 4 + 4 * part, (uint32_t)place);
        memcpy(made + place, spans[part]->data, spans[part]->size);
        place += (spans[part]->size + 3) & ~(size_t)3;
    }
    return made;
}

uint8_t *security_of(const void *descriptor, size_t *size)
{
    Parts parts;
    return read_descriptor(descriptor, SIZE_MAX, &parts) ? write_descriptor(&parts, size) : NULL;
}

/* The descriptor that the node has, allocated. */
static HRESULT ask_node(Connection *connection, LPCWSTR name, uint8_t **bytes, size_t *size)
{
    json_t *text = json_format_name(name), *answer = NULL;
    if (text == NULL)
        return MQ_ERROR_ILLEGAL_FORMATNAME;
    HRESULT code = connection_method(connection, "manager", 0, "queue_security", json_pack("[o]", text), NULL, &answer);
    if (!FAILED(code)) {
        *bytes = bytes_of_json(answer, size);
        if (*bytes == NULL)
            code = MQ_ERROR;
        json_decref(answer);
    }
    return code;
}

/* Take the parts that a call refers to from one descriptor into another. */
static void choose(Parts *to, const Parts *from, DWORD information)
{
    if (information & OWNER_SECURITY_INFORMATION)
        to->owner = from->owner;
    if (information & GROUP_SECURITY_INFORMATION)
        to->group = from->group;
    if (information & DACL_SECURITY_INFORMATION) {
        to->dacl = from->dacl;
        to->control = (uint16_t)((to->control & ~DACL_PRESENT) | (from->control & DACL_PRESENT));
    }
    if (information & SACL_SECURITY_INFORMATION) {
        to->sacl = from->sacl;
        to->control = (uint16_t)((to->control & ~SACL_PRESENT) | (from->control & SACL_PRESENT));
    }
}

HRESULT MQGetQueueSecurity(LPCWSTR name, DWORD information, void *descriptor, DWORD room, DWORD *needed)
{
    set_sentence("");
    if (name == NULL || needed == NULL || (descriptor == NULL && room > 0))
        return MQ_ERROR_INVALID_PARAMETER;
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code))
        return code;
    uint8_t *bytes = NULL, *chosen = NULL;
    size_t size = 0;
    Parts all, parts = {0};
    code = ask_node(connection, name, &bytes, &size);
    if (!FAILED(code) && size > 0 && !read_descriptor(bytes, size, &all))
        code = MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR;
    if (!FAILED(code)) {
        if (size > 0)
            choose(&parts, &all, information);
        chosen = write_descriptor(&parts, &size);
        code = chosen == NULL ? E_OUTOFMEMORY : MQ_OK;
    }
    if (!FAILED(code)) {
        *needed = (DWORD)size;
        if (room < size)
            code = MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL;
        else
            memcpy(descriptor, chosen, size);
    }
    free(chosen);
    free(bytes);
    connection_release(connection);
    return code;
}

HRESULT MQSetQueueSecurity(LPCWSTR name, DWORD information, void *descriptor)
{
    set_sentence("");
    Parts given, parts = {0};
    if (name == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    if (!read_descriptor(descriptor, SIZE_MAX, &given))
        return MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR;
    Connection *connection;
    HRESULT code = connection_get(&connection);
    if (FAILED(code))
        return code;
    uint8_t *bytes = NULL, *merged = NULL;
    size_t size = 0;
    code = ask_node(connection, name, &bytes, &size);
    if (!FAILED(code) && size > 0 && !read_descriptor(bytes, size, &parts))
        code = MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR;
    if (!FAILED(code)) {
        choose(&parts, &given, information);
        merged = write_descriptor(&parts, &size);
        code = merged == NULL ? E_OUTOFMEMORY : MQ_OK;
    }
    if (!FAILED(code))
        code = connection_publishing(connection, "set_queue", json_pack("[o]", json_text(name)),
                                     json_pack("{s: o}", "security", json_bytes(merged, size)), NULL);
    free(merged);
    free(bytes);
    connection_release(connection);
    return code;
}
