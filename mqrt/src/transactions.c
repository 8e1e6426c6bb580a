/* Internal transactions: objects with COM's table of functions, known by their address while they live. */
#include <stdlib.h>

#include "internal.h"

#define XACT_E_INDOUBT ((HRESULT)0x8004D016)
#define XACT_E_ABORTED ((HRESULT)0x8004D019)

typedef struct Transaction {
    ITransaction face; /* first: programs have its address */
    struct Transaction *next;
    unsigned references; /* guarded by the mutex, as the list and `ended` are */
    bool ended;
    Connection *connection;
    uint32_t number;
    BOID identifier;
} Transaction;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Transaction *transactions;

/* As for handles. */
static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(before_fork, after_fork, after_fork); }

static const uint8_t IID_UNKNOWN[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46};
static const uint8_t IID_TRANSACTION[16] = {0x84, 0x50, 0xB1, 0x0F, 0x41, 0xAF, 0xCE, 0x11,
                                            0xBD, 0x2B, 0x20, 0x4C, 0x4F, 0x4F, 0x50, 0x20};

static ULONG keep(ITransaction *self)
{
    pthread_mutex_lock(&mutex);
    ULONG count = ++((Transaction *)self)->references;
    pthread_mutex_unlock(&mutex);
    return count;
}

/* Whether the caller is the one that ends it. */
static bool take_end(Transaction *transaction)
{
    pthread_mutex_lock(&mutex);
    bool first = !transaction->ended;
    transaction->ended = true;
    pthread_mutex_unlock(&mutex);
    return first;
}

static HRESULT end(Transaction *transaction, bool commit)
{
    if (connection_is_lost(transaction->connection)) /* the node aborted it */
        return commit ? XACT_E_ABORTED : MQ_OK;
    HRESULT code = connection_method(transaction->connection, "transaction", transaction->number, "end",
                                     json_pack("[b]", commit), NULL, NULL);
    if (FAILED(code) && connection_is_lost(transaction->connection))
        return commit ? XACT_E_INDOUBT : MQ_OK;
    return code;
}

static ULONG release(ITransaction *self)
{
    Transaction *transaction = (Transaction *)self;
    pthread_mutex_lock(&mutex);
    ULONG count = --transaction->references;
    bool abort = count == 0 && !transaction->ended;
    if (count == 0) {
        Transaction **place = &transactions;
        while (*place != transaction)
            place = &(*place)->next;
        *place = transaction->next;
    }
    pthread_mutex_unlock(&mutex);
    if (count > 0)
        return count;
    if (abort)
        end(transaction, false);
    connection_release(transaction->connection);
    free(transaction);
    return 0;
}

static HRESULT query(ITransaction *self, const IID *iid, void **found)
{
    if (found == NULL)
        return E_POINTER;
    *found = NULL;
    if (iid == NULL || (memcmp(iid, IID_UNKNOWN, 16) != 0 && memcmp(iid, IID_TRANSACTION, 16) != 0))
        return E_NOINTERFACE;
    keep(self);
    *found = self;
    return MQ_OK;
}

static HRESULT commit(ITransaction *self, BOOL retaining, DWORD control, DWORD manager)
{
    set_sentence("");
    (void)control;
    (void)manager;
    if (retaining)
        return XACT_E_NOTSUPPORTED;
    return take_end((Transaction *)self) ? end((Transaction *)self, true) : XACT_E_NOTRANSACTION;
}

static HRESULT abort_it(ITransaction *self, BOID *reason, BOOL retaining, BOOL asynchronous)
{
    set_sentence("");
    (void)reason;
    (void)asynchronous;
    if (retaining)
        return XACT_E_NOTSUPPORTED;
    return take_end((Transaction *)self) ? end((Transaction *)self, false) : XACT_E_NOTRANSACTION;
}

static HRESULT information(ITransaction *self, XACTTRANSINFO *info)
{
    if (info == NULL)
        return E_POINTER;
    memset(info, 0, sizeof *info);
    info->uow = ((Transaction *)self)->identifier;
    return MQ_OK;
}

static const ITransactionVtbl table = {query, keep, release, commit, abort_it, information};

HRESULT MQBeginTransaction(ITransaction **made)
{
    set_sentence("");
    if (made == NULL)
        return MQ_ERROR_INVALID_PARAMETER;
    Transaction *transaction = calloc(1, sizeof *transaction);
    if (transaction == NULL)
        return E_OUTOFMEMORY;
    HRESULT code = connection_get(&transaction->connection);
    if (FAILED(code)) {
        free(transaction);
        return code;
    }
    transaction->face.lpVtbl = &table;
    transaction->references = 1;
    transaction->number = connection_new_transaction(transaction->connection);
    json_t *identifier = NULL;
    code = connection_method(transaction->connection, "manager", 0, "begin",
                             json_pack("[I]", (json_int_t)transaction->number), NULL, &identifier);
    size_t size = 0;
    uint8_t *bytes = bytes_of_json(identifier, &size);
    if (bytes != NULL && size == sizeof transaction->identifier)
        memcpy(&transaction->identifier, bytes, size);
    free(bytes);
    json_decref(identifier);
    if (FAILED(code)) {
        connection_release(transaction->connection);
        free(transaction);
        return code;
    }
    pthread_mutex_lock(&mutex);
    transaction->next = transactions;
    transactions = transaction;
    pthread_mutex_unlock(&mutex);
    *made = &transaction->face;
    return MQ_OK;
}

HRESULT transaction_number(ITransaction *given, Connection *connection, uint32_t *number, ITransaction **kept)
{
    *kept = NULL;
    *number = NO_TRANSACTION;
    if (given == MQ_NO_TRANSACTION || given == MQ_MTS_TRANSACTION) /* there is no MTS, so never one of its transactions */
        return MQ_OK;
    if (given == MQ_SINGLE_MESSAGE) {
        *number = SINGLE_TRANSACTION;
        return MQ_OK;
    }
    pthread_mutex_lock(&mutex);
    Transaction *transaction = transactions;
    while (transaction != NULL && &transaction->face != given)
        transaction = transaction->next;
    HRESULT code = MQ_ERROR_TRANSACTION_ENLIST; /* of XA, or of a coordinator */
    if (transaction != NULL) {
        code = transaction->ended                         ? MQ_ERROR_TRANSACTION_SEQUENCE
               : transaction->connection != connection ? MQ_ERROR_TRANSACTION_ENLIST
                                                       : MQ_OK;
        if (code == MQ_OK) {
            transaction->references++;
            *number = transaction->number;
            *kept = given;
        }
    }
    pthread_mutex_unlock(&mutex);
    return code;
}

void transaction_done(ITransaction *kept)
{
    if (kept != NULL)
        release(kept);
}
