/* A disk that can lose power and fail, preloaded under the node (LD_PRELOAD).
 *
 * A killed process keeps what it wrote in the page cache, so killing it proves nothing about syncing. This shim notes in
 * a journal what was really synced; after the kill, tests/crash/disk.py cuts the store's files back to that:
 *
 *   S <inode> <bytes>               the first <bytes> of this file were synced
 *   O <inode>                       bytes of this file were written over, and not synced yet
 *   D <folder> <name>:<inode> ...   the directory was synced with these entries
 *
 * Files that are removed or replaced keep a link in the shadow directory, since a removal that was not synced may not
 * have happened. The size is read before the sync: what others append meanwhile does not count. Only the directory
 * SHIM_ROOT and the folders in it are watched. RocksDB only appends to files; a size says all. Of a file that is written
 * over, with pwritev, nothing is left after a cut before its sync.
 *
 * The control file holds numbers that a test changes while the node runs: the errno with which writes fail, and that
 * with which syncs fail, 0 is none; of a million reads, writes and syncs, how many fail with EIO, and of syncs, how many
 * succeed without being done; milliseconds that a sync takes; and writes until the disk is full. The last number counts
 * the calls that failed for one of these reasons. RocksDB reads tables with pread, and logs and manifests with
 * fread_unlocked, whose system call inside the C library no preloaded library sees: it is replaced as a whole.
 * SHIM_NO_SYNC makes syncs succeed without doing or noting anything: a node that forgot to sync, which the crash test
 * must catch.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#undef fread_unlocked

static const char *root, *shadow;
static size_t root_length;
static int journal = -1, no_sync;
static volatile int *control; /* the numbers below, in the order of tests/crash/disk.py */
enum { WRITES, SYNCS, READ_ERRORS, WRITE_ERRORS, LOST_SYNCS, SLOW_SYNCS, UNTIL_FULL, FAILED, NUMBERS };

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

__attribute__((constructor)) static void start(void) {
  root = getenv("SHIM_ROOT");
  shadow = getenv("SHIM_SHADOW");
  no_sync = getenv("SHIM_NO_SYNC") != NULL;
  if (!root) return;
  root_length = strlen(root);
  journal = REAL(open)(getenv("SHIM_JOURNAL"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  int file = REAL(open)(getenv("SHIM_CONTROL"), O_RDWR | O_CLOEXEC);
  void *page = mmap(NULL, NUMBERS * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (journal < 0 || file < 0 || page == MAP_FAILED) abort();
  control = page;
}

static int inside(const char *path) {
  return root && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int fd, char *path, size_t size) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, size - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return inside(path);
}

static int watched(int fd) {
  char path[4096];
  int before = errno, answer = root && path_of(fd, path, sizeof path);
  errno = before;
  return answer;
}

/* Writes that fail */

static int fails(int error) {
  __sync_add_and_fetch(&control[FAILED], 1);
  errno = error;
  return 1;
}

static int refuse(int fd, int error) { return error && watched(fd) && fails(error); }

static int write_error(void) { return control ? control[WRITES] : 0; }

/* Whether chance picks this call, by how many of a million it picks. */
static int picked(int what) {
  static volatile unsigned state;
  if (!control || !control[what]) return 0;
  unsigned seed = __sync_add_and_fetch(&state, 0x9e3779b9u) ^ (unsigned)getpid() * 2654435761u;
  return rand_r(&seed) % 1000000 < control[what];
}

/* One more write: the disk may be full now, and chance may let it fail. */
static int write_fails(int fd) {
  if (!control || !(control[UNTIL_FULL] || control[WRITE_ERRORS]) || !watched(fd)) return 0;
  if (control[UNTIL_FULL] && __sync_sub_and_fetch(&control[UNTIL_FULL], 1) == 0) control[WRITES] = ENOSPC;
  return picked(WRITE_ERRORS) && fails(EIO);
}

static int read_fails(int fd) {
  return control && control[READ_ERRORS] && watched(fd) && picked(READ_ERRORS) && fails(EIO);
}

ssize_t read(int fd, void *data, size_t count) { return read_fails(fd) ? -1 : REAL(read)(fd, data, count); }

ssize_t pread(int fd, void *data, size_t count, off_t offset) {
  return read_fails(fd) ? -1 : REAL(pread)(fd, data, count, offset);
}

ssize_t pread64(int fd, void *data, size_t count, off_t offset) {
  return read_fails(fd) ? -1 : REAL(pread64)(fd, data, count, offset);
}

/* Short, and not at the end of the file: an error to RocksDB. */
size_t fread_unlocked(void *data, size_t size, size_t count, FILE *file) {
  return read_fails(fileno(file)) ? 0 : REAL(fread_unlocked)(data, size, count, file);
}

/* A disk that becomes full takes the first half of the write that no longer fits. */
static size_t fits(int fd, size_t count) {
  static volatile int halved;
  if (write_error() != ENOSPC) halved = 0;
  else if (count > 1 && !halved && watched(fd)) {
    halved = 1;
    return count / 2;
  }
  return 0;
}

ssize_t write(int fd, const void *data, size_t count) {
  if (write_fails(fd)) return -1;
  size_t part = fits(fd, count);
  if (part) return REAL(write)(fd, data, part);
  return refuse(fd, write_error()) ? -1 : REAL(write)(fd, data, count);
}

static void note_overwrite(int fd, off_t offset);

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset) {
  if (write_fails(fd)) return -1;
  note_overwrite(fd, offset);
  return refuse(fd, write_error()) ? -1 : REAL(pwrite)(fd, data, count, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off_t offset) {
  if (write_fails(fd)) return -1;
  note_overwrite(fd, offset);
  return refuse(fd, write_error()) ? -1 : REAL(pwrite64)(fd, data, count, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  return refuse(fd, write_error()) ? -1 : REAL(writev)(fd, parts, count);
}

static void note(const char *line, size_t length);

static void note_overwrite(int fd, off_t offset) {
  struct stat status;
  if (watched(fd) && !no_sync && fstat(fd, &status) == 0 && offset < status.st_size) {
    char line[64];
    note(line, (size_t)snprintf(line, sizeof line, "O %llu\n", (unsigned long long)status.st_ino));
  }
}

static ssize_t overwrite(int fd, const struct iovec *parts, int count, off_t offset) {
  if (write_fails(fd) || refuse(fd, write_error())) return -1;
  note_overwrite(fd, offset);
  return REAL(pwritev)(fd, parts, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  return overwrite(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
  return overwrite(fd, parts, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
  (void)flags;
  return overwrite(fd, parts, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
  (void)flags;
  return overwrite(fd, parts, count, offset);
}

int ftruncate(int fd, off_t size) { return refuse(fd, write_error()) ? -1 : REAL(ftruncate)(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
  return refuse(fd, write_error()) ? -1 : REAL(fallocate)(fd, mode, offset, size);
}

static int may_open(const char *path, int flags) {
  int error = write_error();
  int writes = error == EROFS ? flags & (O_CREAT | O_WRONLY | O_RDWR) : flags & O_CREAT;
  return !error || !writes || !inside(path) || !fails(error);
}

#define OPEN(name)                                                      \
  int name(const char *path, int flags, ...) {                          \
    mode_t mode = 0;                                                    \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                              \
      va_list more;                                                     \
      va_start(more, flags);                                            \
      mode = va_arg(more, mode_t);                                      \
      va_end(more);                                                     \
    }                                                                   \
    return may_open(path, flags) ? REAL(name)(path, flags, mode) : -1; \
  }

OPEN(open)
OPEN(open64)

/* What is removed or replaced */

static void keep(const char *path) {
  struct stat status;
  char kept[4096];
  int before = errno;
  if (inside(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode)) {
    snprintf(kept, sizeof kept, "%s/%llu", shadow, (unsigned long long)status.st_ino);
    if (link(path, kept) != 0 && errno != EEXIST) abort();
  }
  errno = before;
}

static int may_change(const char *path) {
  if (write_error() != EROFS || !inside(path)) return 1;
  errno = EROFS;
  return 0;
}

int unlink(const char *path) {
  if (!may_change(path)) return -1;
  keep(path);
  return REAL(unlink)(path);
}

int rename(const char *from, const char *to) {
  if (!may_change(to)) return -1;
  keep(to);
  return REAL(rename)(from, to);
}

/* What is synced */

static void note(const char *line, size_t length) {
  if (REAL(write)(journal, line, length) != (ssize_t)length) abort();
}

static char *entries(const char *folder, size_t *length) {
  static const size_t room = 1 << 20;
  char *line = malloc(room);
  DIR *directory = opendir(folder);
  if (!line || !directory) abort();
  *length = (size_t)sprintf(line, "D .%s", folder + root_length);
  for (struct dirent *one; (one = readdir(directory)) && *length < room - 600;)
    if (one->d_type == DT_REG || (one->d_type == DT_DIR && one->d_name[0] != '.'))
      *length += (size_t)sprintf(line + *length, " %s:%llu", one->d_name, (unsigned long long)one->d_ino);
  closedir(directory);
  line[(*length)++] = '\n';
  return line;
}

/* One at a time, so that no older list is noted after a newer one. */
static int sync_directory(int fd, int (*sync)(int)) {
  static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
  char folder[4096];
  size_t length;
  if (!path_of(fd, folder, sizeof folder)) abort();
  pthread_mutex_lock(&turn);
  char *line = entries(folder, &length);
  int answer = sync(fd);
  if (answer == 0) note(line, length);
  free(line);
  pthread_mutex_unlock(&turn);
  return answer;
}

static int sync_and_note(int fd, int (*sync)(int)) {
  struct stat status;
  if (!watched(fd)) return sync(fd);
  if (control[SYNCS]) {
    errno = control[SYNCS];
    return -1;
  }
  if (control[SLOW_SYNCS]) usleep((useconds_t)control[SLOW_SYNCS] * 1000);
  if (no_sync || picked(LOST_SYNCS)) return 0;
  if (fstat(fd, &status) != 0) return -1;
  if (S_ISDIR(status.st_mode)) return sync_directory(fd, sync);
  int answer = sync(fd);
  if (answer == 0) {
    char line[64];
    int length = snprintf(line, sizeof line, "S %llu %lld\n", (unsigned long long)status.st_ino,
                          (long long)status.st_size);
    note(line, (size_t)length);
  }
  return answer;
}

int fsync(int fd) { return sync_and_note(fd, REAL(fsync)); }

int fdatasync(int fd) { return sync_and_note(fd, REAL(fdatasync)); }
