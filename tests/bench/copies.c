/* Counts the bytes that a process copies: preloaded, it adds up what goes through the C library in pieces of at least
   4 KiB. COPIES_FILE names a file of three numbers of eight bytes, which it maps: copied within memory, taken from the
   kernel, and given to the kernel. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MEMORY, FROM_KERNEL, TO_KERNEL, KINDS };
enum { SMALL = 4096 };

static uint64_t unmapped[KINDS];
static uint64_t *counts = unmapped;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static void count(int kind, ssize_t size) {
    if (size >= SMALL) __atomic_fetch_add(&counts[kind], size, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("COPIES_FILE");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof unmapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) counts = mapped;
    close(file);
}

/* The copies themselves are written out, as dlsym may need them. */
static void *forwards(void *to, const void *from, size_t size) {
    void *place = to;
    __asm__ volatile("rep movsb" : "+D"(place), "+S"(from), "+c"(size) : : "memory");
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    count(MEMORY, size);
    return forwards(to, from, size);
}

void *mempcpy(void *restrict to, const void *restrict from, size_t size) {
    return (char *)memcpy(to, from, size) + size;
}

void *memmove(void *to, const void *from, size_t size) {
    count(MEMORY, size);
    if ((uintptr_t)to - (uintptr_t)from >= size) return forwards(to, from, size);
    char *end = (char *)to + size;
    const char *source = (const char *)from + size;
    while (size--) *--end = *--source;
    return to;
}

void *realloc(void *old, size_t size) {
    REAL(realloc);
    size_t kept = old ? malloc_usable_size(old) : 0;
    void *new = real(old, size);
    /* The C library moves pages instead of copying them if it can: this is the most that it may have copied. */
    if (old && new && new != old) count(MEMORY, kept < size ? kept : size);
    return new;
}

#define COUNTED(kind, type, name, declared, ...) \
    type name declared { \
        REAL(name); \
        type done = real(__VA_ARGS__); \
        count(kind, done); \
        return done; \
    }

COUNTED(FROM_KERNEL, ssize_t, read, (int file, void *to, size_t size), file, to, size)
COUNTED(FROM_KERNEL, ssize_t, recv, (int file, void *to, size_t size, int flags), file, to, size, flags)
COUNTED(FROM_KERNEL, ssize_t, recvmsg, (int file, struct msghdr *message, int flags), file, message, flags)
COUNTED(FROM_KERNEL, ssize_t, pread64, (int file, void *to, size_t size, off64_t at), file, to, size, at)
COUNTED(TO_KERNEL, ssize_t, write, (int file, const void *from, size_t size), file, from, size)
COUNTED(TO_KERNEL, ssize_t, writev, (int file, const struct iovec *parts, int number), file, parts, number)
COUNTED(TO_KERNEL, ssize_t, send, (int file, const void *from, size_t size, int flags), file, from, size, flags)
COUNTED(TO_KERNEL, ssize_t, sendmsg, (int file, const struct msghdr *message, int flags), file, message, flags)
COUNTED(TO_KERNEL, ssize_t, pwrite64, (int file, const void *from, size_t size, off64_t at), file, from, size, at)
