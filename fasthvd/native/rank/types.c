/* Datatypes and operations: MPI's own by their handles; Horovod's float16 by how it was made. */
#define _GNU_SOURCE
#include "mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN_MAX = 256 };

struct known {
    mpi_handle handle;
    int meaning;
};

static const struct {
    enum mpi_constant constant;
    enum element_type meaning;
} types[] = {
    {K_FLOAT, T_FLOAT32}, {K_DOUBLE, T_FLOAT64}, {K_INT8, T_INT8},         {K_SIGNED_CHAR, T_INT8}, {K_UINT8, T_UINT8},   {K_UNSIGNED_CHAR, T_UINT8},
    {K_INT16, T_INT16},   {K_SHORT, T_INT16},    {K_UINT16, T_UINT16},     {K_INT32, T_INT32},      {K_INT, T_INT32},     {K_UINT32, T_UINT32},
    {K_INT64, T_INT64},   {K_UINT64, T_UINT64},  {K_LONG_LONG, T_INT64},   {K_LONG, sizeof(long) == 8 ? T_INT64 : T_INT32},
    {K_UNSIGNED_SHORT, T_UINT16},
    {K_UNSIGNED, T_UINT32},
    {K_UNSIGNED_LONG_LONG, T_UINT64},
    {K_UNSIGNED_LONG, sizeof(long) == 8 ? T_UINT64 : T_UINT32},
};

static const struct {
    enum mpi_constant constant;
    enum operation meaning;
} operations[] = {{K_SUM, OP_SUM}, {K_MIN, OP_MIN}, {K_MAX, OP_MAX}, {K_PROD, OP_PROD}};

/* Made by the program: types of two bytes, and Horovod's operations on them. */
static struct known two_bytes[KNOWN_MAX], half_operations[KNOWN_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *look_up(struct known *table, mpi_handle handle)
{
    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (table[i].handle == handle)
            return &table[i];
    return NULL;
}

/* Sets, replaces or (meaning < 0) drops what is known of a handle: MPI gives freed handles out again. */
static void note(struct known *table, mpi_handle handle, int meaning)
{
    if (handle == 0)
        return;
    pthread_mutex_lock(&lock);
    struct known *place = look_up(table, handle);
    if (place == NULL && meaning >= 0)
        place = look_up(table, 0);
    if (place != NULL)
        *place = (struct known){meaning >= 0 ? handle : 0, meaning};
    pthread_mutex_unlock(&lock);
}

/* -1: nothing is known of the handle. */
static int known(struct known *table, mpi_handle handle)
{
    pthread_mutex_lock(&lock);
    const struct known *place = handle != 0 ? look_up(table, handle) : NULL;
    int meaning = place != NULL ? place->meaning : -1;
    pthread_mutex_unlock(&lock);
    return meaning;
}

void mpi_note_type(mpi_handle type, bool two) { note(two_bytes, type, two ? T_FLOAT16 : -1); }

/* Horovod's own functions have these names (horovod/common/half.cc), with the arguments' types mangled after them. */
void mpi_note_operation(mpi_handle op, const void *function)
{
    static const struct {
        const char *name;
        enum operation meaning;
    } functions[] = {{"_ZN7horovod6common11float16_sum", OP_SUM},
                     {"_ZN7horovod6common11float16_min", OP_MIN},
                     {"_ZN7horovod6common11float16_max", OP_MAX},
                     {"_ZN7horovod6common12float16_prod", OP_PROD}};
    int meaning = -1;
    Dl_info info;
    if (function != NULL && dladdr(function, &info) != 0 && info.dli_sname != NULL && info.dli_saddr == function)
        for (size_t i = 0; i < 4; i++)
            if (strncmp(info.dli_sname, functions[i].name, strlen(functions[i].name)) == 0)
                meaning = functions[i].meaning;
    note(half_operations, op, meaning);
}

bool mpi_element_type(mpi_handle type, enum element_type *out)
{
    const struct mpi_abi *abi = &mpi_library()->abi;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (mpi_is(abi, type, types[i].constant)) {
            *out = types[i].meaning;
            return true;
        }
    *out = T_FLOAT16;
    return known(two_bytes, type) >= 0;
}

bool mpi_operation(mpi_handle op, enum element_type type, enum operation *out)
{
    const struct mpi_abi *abi = &mpi_library()->abi;
    if (type == T_FLOAT16) { /* two bytes are float16 only together with one of Horovod's float16 operations */
        int meaning = known(half_operations, op);
        if (meaning >= 0)
            *out = (enum operation)meaning;
        return meaning >= 0;
    }
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (mpi_is(abi, op, operations[i].constant)) {
            *out = operations[i].meaning;
            return true;
        }
    return false;
}
