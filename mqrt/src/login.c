/*
 * The user of the directory that the environment names: public queues and certificates are written there as this user. The
 * password is in a file that nobody else may read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define USER_VARIABLE "QMNODE_DIRECTORY_USER"
#define FILE_VARIABLE "QMNODE_DIRECTORY_PASSWORD_FILE"
#define LONGEST_PASSWORD 4096

/* The first line of the file; why there is none is in `fault`. */
static bool read_password(const char *path, char password[LONGEST_PASSWORD + 1], const char **fault)
{
    struct stat state;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &state) != 0) {
        *fault = strerror(errno);
    } else if (!S_ISREG(state.st_mode)) {
        *fault = "it is no file";
    } else if (state.st_mode & (S_IRWXG | S_IRWXO)) {
        *fault = "others may read it: set its mode to 0600";
    } else {
        ssize_t size;
        do
            size = read(file, password, LONGEST_PASSWORD);
        while (size < 0 && errno == EINTR);
        password[size < 0 ? 0 : size] = 0;
        password[strcspn(password, "\r\n")] = 0;
        *fault = *password == 0 ? "there is no password in it" : NULL;
    }
    if (file >= 0)
        close(file);
    return *fault == NULL;
}

HRESULT login_of_environment(json_t **login)
{
    const char *account = getenv(USER_VARIABLE), *path = getenv(FILE_VARIABLE), *fault;
    *login = NULL;
    if (account == NULL || *account == 0)
        return MQ_OK;
    char password[LONGEST_PASSWORD + 1], text[512];
    if (path == NULL || *path == 0) {
        set_sentence("QMNODE_DIRECTORY_USER names a user: set QMNODE_DIRECTORY_PASSWORD_FILE to the file with the password");
        return MQ_ERROR_ACCESS_DENIED;
    }
    if (!read_password(path, password, &fault)) {
        snprintf(text, sizeof text, FILE_VARIABLE " is %.200s: %.200s", path, fault);
        set_sentence(text);
        return MQ_ERROR_ACCESS_DENIED;
    }
    *login = json_pack("[s, s]", account, password);
    explicit_bzero(password, sizeof password);
    if (*login == NULL)
        set_sentence(USER_VARIABLE " and the password must be UTF-8");
    return *login == NULL ? MQ_ERROR_ACCESS_DENIED : MQ_OK;
}
