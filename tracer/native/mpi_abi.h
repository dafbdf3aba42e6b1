/* MPI as a preloaded library meets it: no mpi.h, nothing of libmpi linked.
 *
 * A preloaded library that needs an MPI symbol breaks every shell tool it is loaded into, so handles are
 * opaque words, constants come from one of two tables, and functions are looked up on first use.
 *
 *   Open MPI (libmpi.so.40)   a handle is the address of an exported object (ompi_mpi_comm_world, ...)
 *   MPICH    (libmpi.so.12)   a handle is a 32-bit number (0x44000000, ...); Intel MPI and MVAPICH share it
 *
 * A handle argument is declared mpi_handle (one register) and passed on untouched: for MPICH the upper half
 * of the register is garbage, so compare only through mpi_same(). Everything here is static, so that two
 * preloaded libraries may include it.
 */
#ifndef VSKETCHDLC_MPI_ABI_H
#define VSKETCHDLC_MPI_ABI_H

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uintptr_t mpi_handle;

enum mpi_family { MPI_FAMILY_NONE, MPI_FAMILY_OPEN_MPI, MPI_FAMILY_MPICH };

/* Index into the constants; the order is that of MPI_CONSTANTS below. */
enum mpi_constant {
    K_COMM_WORLD,
    K_BYTE, K_CHAR, K_SIGNED_CHAR, K_UNSIGNED_CHAR,
    K_INT8, K_UINT8, K_INT16, K_UINT16, K_INT32, K_UINT32, K_INT64, K_UINT64,
    K_SHORT, K_INT, K_LONG, K_LONG_LONG, K_FLOAT, K_DOUBLE, K_C_BOOL,
    K_SUM, K_MIN, K_MAX, K_PROD, K_LAND, K_BAND, K_LOR, K_BOR, K_LXOR, K_BXOR,
    K_UNSIGNED_SHORT, K_UNSIGNED, K_UNSIGNED_LONG, K_UNSIGNED_LONG_LONG, /* other names of the sized types above */
    K_COUNT
};

struct mpi_constant_row {
    const char *open_mpi_symbol;
    uint32_t mpich_value;
};

static const struct mpi_constant_row MPI_CONSTANTS[K_COUNT] = {
    [K_COMM_WORLD] = {"ompi_mpi_comm_world", 0x44000000},
    [K_BYTE] = {"ompi_mpi_byte", 0x4c00010d},
    [K_CHAR] = {"ompi_mpi_char", 0x4c000101},
    [K_SIGNED_CHAR] = {"ompi_mpi_signed_char", 0x4c000118},
    [K_UNSIGNED_CHAR] = {"ompi_mpi_unsigned_char", 0x4c000102},
    [K_INT8] = {"ompi_mpi_int8_t", 0x4c000137},
    [K_UINT8] = {"ompi_mpi_uint8_t", 0x4c00013b},
    [K_INT16] = {"ompi_mpi_int16_t", 0x4c000238},
    [K_UINT16] = {"ompi_mpi_uint16_t", 0x4c00023c},
    [K_INT32] = {"ompi_mpi_int32_t", 0x4c000439},
    [K_UINT32] = {"ompi_mpi_uint32_t", 0x4c00043d},
    [K_INT64] = {"ompi_mpi_int64_t", 0x4c00083a},
    [K_UINT64] = {"ompi_mpi_uint64_t", 0x4c00083e},
    [K_SHORT] = {"ompi_mpi_short", 0x4c000203},
    [K_INT] = {"ompi_mpi_int", 0x4c000405},
    [K_LONG] = {"ompi_mpi_long", 0x4c000807},
    [K_LONG_LONG] = {"ompi_mpi_long_long_int", 0x4c000809},
    [K_FLOAT] = {"ompi_mpi_float", 0x4c00040a},
    [K_DOUBLE] = {"ompi_mpi_double", 0x4c00080b},
    [K_C_BOOL] = {"ompi_mpi_c_bool", 0x4c00013f},
    [K_SUM] = {"ompi_mpi_op_sum", 0x58000003},
    [K_MIN] = {"ompi_mpi_op_min", 0x58000002},
    [K_MAX] = {"ompi_mpi_op_max", 0x58000001},
    [K_PROD] = {"ompi_mpi_op_prod", 0x58000004},
    [K_LAND] = {"ompi_mpi_op_land", 0x58000005},
    [K_BAND] = {"ompi_mpi_op_band", 0x58000006},
    [K_LOR] = {"ompi_mpi_op_lor", 0x58000007},
    [K_BOR] = {"ompi_mpi_op_bor", 0x58000008},
    [K_LXOR] = {"ompi_mpi_op_lxor", 0x58000009},
    [K_BXOR] = {"ompi_mpi_op_bxor", 0x5800000a},
    [K_UNSIGNED_SHORT] = {"ompi_mpi_unsigned_short", 0x4c000204},
    [K_UNSIGNED] = {"ompi_mpi_unsigned", 0x4c000406},
    [K_UNSIGNED_LONG] = {"ompi_mpi_unsigned_long", 0x4c000808},
    [K_UNSIGNED_LONG_LONG] = {"ompi_mpi_unsigned_long_long", 0x4c000819},
};

/* What was found in this process: filled once by mpi_abi_load(). */
struct mpi_abi {
    enum mpi_family family;
    mpi_handle constant[K_COUNT]; /* 0 where this libmpi has no such object */
    const void *in_place;
    void *status_ignore;
    int any_source;
    size_t status_source_at; /* offsets in an MPI_Status, which is at most 24 bytes */
    size_t status_tag_at;
};

#define MPI_STATUS_ROOM 64

static inline int mpi_same(const struct mpi_abi *abi, mpi_handle left, mpi_handle right) {
    return abi->family == MPI_FAMILY_MPICH ? (uint32_t)left == (uint32_t)right : left == right;
}

static inline int mpi_is(const struct mpi_abi *abi, mpi_handle handle, enum mpi_constant which) {
    return abi->constant[which] != 0 && mpi_same(abi, handle, abi->constant[which]);
}

#define MPI_PATH_ROOM 4096

/* dl_iterate_phdr callback: path of the first loaded library called libmpi.so* or libmpich.so* (RTLD_LOCAL too).
 * It only copies the name: opening a library inside the walk could deadlock with a dlopen of another thread. */
static int mpi_library_path(struct dl_phdr_info *info, size_t size, void *path) {
    (void)size;
    const char *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!base || (strncmp(base, "/libmpi.so", 10) != 0 && strncmp(base, "/libmpich.so", 12) != 0 &&
                  strncmp(base, "/libmpi_abi.so", 14) != 0)) /* MPI 5's own ABI: passed through, family NONE */
        return 0;
    if (strlen(info->dlpi_name) >= MPI_PATH_ROOM) return 0;
    strcpy(path, info->dlpi_name);
    return 1;
}

/* The implementation that the caller would have got without us, or NULL when no libmpi is loaded.
 * RTLD_NEXT first, so that several preloaded libraries stack; libmpi itself may be RTLD_LOCAL. */
static inline void *mpi_next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) return found;
    char path[MPI_PATH_ROOM];
    if (!dl_iterate_phdr(mpi_library_path, path)) return NULL;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return NULL;
    found = dlsym(library, name);
    dlclose(library); /* whoever loaded it keeps it */
    return found;
}

/* Fill `abi` from the libmpi of this process; returns 0, or -1 when there is none that is known. */
static inline int mpi_abi_load(struct mpi_abi *abi) {
    memset(abi, 0, sizeof *abi);
    if (mpi_next(MPI_CONSTANTS[K_COMM_WORLD].open_mpi_symbol)) {
        for (int i = 0; i < K_COUNT; i++) abi->constant[i] = (mpi_handle)mpi_next(MPI_CONSTANTS[i].open_mpi_symbol);
        abi->in_place = (const void *)1;
        abi->status_ignore = NULL;
        abi->any_source = -1;
        abi->status_source_at = 0;
        abi->status_tag_at = 4;
        abi->family = MPI_FAMILY_OPEN_MPI;
        return 0;
    }
    if (mpi_next("MPIR_Err_create_code") || mpi_next("MPIX_Comm_agree")) {
        for (int i = 0; i < K_COUNT; i++) abi->constant[i] = MPI_CONSTANTS[i].mpich_value;
        abi->in_place = (const void *)-1;
        abi->status_ignore = (void *)1;
        abi->any_source = -2;
        abi->status_source_at = 8;
        abi->status_tag_at = 12;
        abi->family = MPI_FAMILY_MPICH;
        return 0;
    }
    return -1;
}

#endif
