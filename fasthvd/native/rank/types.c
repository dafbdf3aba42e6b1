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

static struct known types[64], operations[8];
static size_t type_count, operation_count;
/* Made by the program: types of two bytes, and Horovod's operations on them. */
static struct known two_bytes[KNOWN_MAX], half_operations[KNOWN_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct name {
    const char *open_mpi; /* symbol after "ompi_mpi_" */
    uint32_t mpich;       /* handle in the MPICH ABI */
    int meaning;
};

static const struct name type_names[] = {
    {"float", 0x4c00040a, T_FLOAT32},           {"double", 0x4c00080b, T_FLOAT64},          {"int8_t", 0x4c000137, T_INT8},
    {"signed_char", 0x4c000118, T_INT8},        {"uint8_t", 0x4c00013b, T_UINT8},           {"unsigned_char", 0x4c000102, T_UINT8},
    {"int16_t", 0x4c000238, T_INT16},           {"short", 0x4c000203, T_INT16},             {"uint16_t", 0x4c00023c, T_UINT16},
    {"unsigned_short", 0x4c000204, T_UINT16},   {"int32_t", 0x4c000439, T_INT32},           {"int", 0x4c000405, T_INT32},
    {"uint32_t", 0x4c00043d, T_UINT32},         {"unsigned", 0x4c000406, T_UINT32},         {"int64_t", 0x4c00083a, T_INT64},
    {"long_long_int", 0x4c000809, T_INT64},     {"uint64_t", 0x4c00083e, T_UINT64},         {"unsigned_long_long", 0x4c000819, T_UINT64},
    {"long", 0x4c000807, sizeof(long) == 8 ? T_INT64 : T_INT32},
    {"unsigned_long", 0x4c000808, sizeof(long) == 8 ? T_UINT64 : T_UINT32},
};

static const struct name operation_names[] = {
    {"op_sum", 0x58000003, OP_SUM}, {"op_min", 0x58000002, OP_MIN}, {"op_max", 0x58000001, OP_MAX}, {"op_prod", 0x58000004, OP_PROD}};

static size_t load(const struct mpi *mpi, const struct name *names, size_t n, struct known *into)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        char symbol[64] = "ompi_mpi_";
        strncat(symbol, names[i].open_mpi, sizeof symbol - 16);
        mpi_handle handle = mpi->flavour == FLAVOUR_OPEN_MPI ? (mpi_handle)mpi_next(symbol) : names[i].mpich;
        if (handle != 0)
            into[found++] = (struct known){handle, names[i].meaning};
    }
    return found;
}

void mpi_types_load(const struct mpi *mpi)
{
    type_count = load(mpi, type_names, sizeof type_names / sizeof type_names[0], types);
    operation_count = load(mpi, operation_names, sizeof operation_names / sizeof operation_names[0], operations);
}

static const struct known *look_up(const struct known *table, size_t n, mpi_handle handle)
{
    for (size_t i = 0; i < n; i++)
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
    struct known *place = (struct known *)look_up(table, KNOWN_MAX, handle);
    if (place == NULL && meaning >= 0)
        place = (struct known *)look_up(table, KNOWN_MAX, 0);
    if (place != NULL)
        *place = (struct known){meaning >= 0 ? handle : 0, meaning};
    pthread_mutex_unlock(&lock);
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
    if (type == 0)
        return false;
    const struct known *found = look_up(types, type_count, type);
    if (found == NULL)
        found = look_up(two_bytes, KNOWN_MAX, type);
    if (found != NULL)
        *out = (enum element_type)found->meaning;
    return found != NULL;
}

bool mpi_operation(mpi_handle op, enum element_type type, enum operation *out)
{
    if (op == 0)
        return false;
    /* Two bytes are float16 only together with one of Horovod's float16 operations. */
    const struct known *found = type == T_FLOAT16 ? look_up(half_operations, KNOWN_MAX, op) : look_up(operations, operation_count, op);
    if (found != NULL)
        *out = (enum operation)found->meaning;
    return found != NULL;
}
