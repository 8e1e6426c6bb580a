/* Handles: numbers that stand for open queues, cursors and searches. A closed one never becomes another by chance. */
#include <stdlib.h>

#include "internal.h"

#define INDEX_BITS 20
#define TURN_MASK (UINTPTR_MAX >> (INDEX_BITS + 1) & UINT32_MAX)

typedef struct Slot {
    Object *object;
    uint32_t turn; /* how often it was used */
} Slot;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Slot *slots;
static size_t slot_count, first_free;

/* No other thread of a program that forks is inside, or the child would wait for it for ever. */
static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(before_fork, after_fork, after_fork); }

/* At the end of a program that has closed its handles. */
__attribute__((destructor)) static void finish(void)
{
    for (size_t at = 0; at < slot_count; at++)
        if (slots[at].object != NULL)
            return;
    free(slots);
    slots = NULL;
    slot_count = 0;
}

void object_keep(Object *object) { atomic_fetch_add(&object->references, 1); }

void object_release(Object *object)
{
    if (atomic_fetch_sub(&object->references, 1) == 1)
        object->destroy(object);
}

HANDLE handle_add(Object *object)
{
    HANDLE handle = NULL;
    pthread_mutex_lock(&mutex);
    size_t index = first_free;
    while (index < slot_count && slots[index].object != NULL)
        index++;
    if (index == slot_count && slot_count < 1u << INDEX_BITS) {
        size_t more = slot_count == 0 ? 16 : 2 * slot_count;
        Slot *larger = realloc(slots, more * sizeof *slots);
        if (larger != NULL) {
            memset(larger + slot_count, 0, (more - slot_count) * sizeof *slots);
            slots = larger;
            slot_count = more;
        }
    }
    if (index < slot_count) {
        slots[index].object = object;
        slots[index].turn = (slots[index].turn + 1) & TURN_MASK;
        first_free = index + 1;
        handle = (HANDLE)(uintptr_t)(((uintptr_t)slots[index].turn << INDEX_BITS | index) << 1 | 1);
    }
    pthread_mutex_unlock(&mutex);
    return handle;
}

/* With the mutex held. */
static Slot *slot_of(HANDLE handle, HandleKind kind)
{
    uintptr_t number = (uintptr_t)handle;
    size_t index = number >> 1 & ((1u << INDEX_BITS) - 1);
    if (!(number & 1) || index >= slot_count)
        return NULL;
    Slot *slot = &slots[index];
    if (slot->object == NULL || slot->object->kind != kind || slot->turn != number >> (INDEX_BITS + 1))
        return NULL;
    return slot;
}

Object *handle_get(HANDLE handle, HandleKind kind)
{
    pthread_mutex_lock(&mutex);
    Slot *slot = slot_of(handle, kind);
    Object *object = slot == NULL ? NULL : slot->object;
    if (object != NULL)
        object_keep(object);
    pthread_mutex_unlock(&mutex);
    return object;
}

Object *handle_remove(HANDLE handle, HandleKind kind)
{
    pthread_mutex_lock(&mutex);
    Slot *slot = slot_of(handle, kind);
    Object *object = slot == NULL ? NULL : slot->object;
    if (object != NULL) {
        slot->object = NULL;
        if ((size_t)(slot - slots) < first_free)
            first_free = (size_t)(slot - slots);
    }
    pthread_mutex_unlock(&mutex);
    return object;
}
