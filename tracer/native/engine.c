/* MXEnginePushAsync as Horovod calls it: push, ready, enqueue and done of every operation.
 *
 * Horovod hands MXNet a function, its parameter and a deleter. We put a slot in between: the engine runs
 * `entered` when the gradient is written (ready), Horovod's function puts the tensor into its queue and
 * returns (enqueue), and the completion callback that it keeps is ours (done), which calls the engine's.
 * The engine calls the deleter when it drops the operation, and that frees the slot. After handing over to
 * the real function or callback the slot may be gone: nothing of it is read then.
 *
 * CallbackOnComplete is three words {function, engine, parameter}, copied by value (mxnet/engine.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "vsketch.h"

typedef void (*async_function)(void *run_context, void *on_complete, void *parameter);
typedef void (*deleter_function)(void *parameter);
typedef void (*complete_function)(void *engine, void *parameter, const void *error);
typedef int (*push_async)(async_function, void *, deleter_function, const void *context, const void *const_vars,
                          int const_count, const void *mutable_vars, int mutable_count, const void *property,
                          int priority, const char *name, _Bool wait);

struct on_complete {
    complete_function function;
    void *engine;
    void *parameter;
};

#define SLOT_COUNT 16384
struct slot {
    _Atomic int busy;
    uint32_t number;
    async_function function;
    void *parameter;
    deleter_function deleter;
    struct on_complete theirs, ours;
};

static struct slot slots[SLOT_COUNT];
static _Atomic uint32_t cursor, operation_number;
static VSK_TLS uint32_t current_name;

static struct slot *take_slot(void) {
    for (int tried = 0; tried < SLOT_COUNT; tried++) {
        struct slot *slot = &slots[atomic_fetch_add_explicit(&cursor, 1, memory_order_relaxed) % SLOT_COUNT];
        int free_mark = 0;
        if (atomic_compare_exchange_strong_explicit(&slot->busy, &free_mark, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return slot;
    }
    return NULL; /* 16,384 operations under way: pass this one on unseen */
}

static void completed(void *engine, void *data, const void *error) {
    (void)engine;
    struct slot *slot = data;
    struct on_complete theirs = slot->theirs;
    uint32_t number = slot->number;
    uint64_t start = vsk_now();
    theirs.function(theirs.engine, theirs.parameter, error);
    vsk_record(VSK_DONE, start, vsk_now(), 0, 0, number, 0);
    atomic_fetch_sub_explicit(&vsk_under_way, 1, memory_order_relaxed);
}

static void entered(void *run_context, void *on_complete, void *data) {
    struct slot *slot = data;
    uint32_t number = slot->number;
    uint64_t start = vsk_now();
    memcpy(&slot->theirs, on_complete, sizeof slot->theirs);
    slot->ours = (struct on_complete){completed, slot->theirs.engine, slot};
    slot->function(run_context, &slot->ours, slot->parameter);
    vsk_record(VSK_READY, start, vsk_now(), 0, 0, number, 0);
}

static void dropped(void *data) {
    struct slot *slot = data;
    if (slot->deleter) slot->deleter(slot->parameter);
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
}

static enum vsk_op operation(const char *name) {
    static const struct {
        const char *name;
        enum vsk_op op;
    } known[] = {{"allreduce", VSK_OP_ALLREDUCE}, {"broadcast", VSK_OP_BROADCAST}, {"allgather", VSK_OP_ALLGATHER},
                 {"alltoall", VSK_OP_ALLTOALL},   {"reducescatter", VSK_OP_REDUCESCATTER}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) return known[i].op;
    return VSK_OP_OTHER;
}

VSK_PUBLIC int MXEnginePushAsync(async_function function, void *parameter, deleter_function deleter,
                                 const void *context, const void *const_vars, int const_count,
                                 const void *mutable_vars, int mutable_count, const void *property, int priority,
                                 const char *name, _Bool wait) {
    static _Atomic(push_async) real;
    push_async next = atomic_load_explicit(&real, memory_order_relaxed);
    if (!next) {
        next = (push_async)dlsym(RTLD_NEXT, "MXEnginePushAsync");
        if (!next) {
            void *mxnet = dlopen("libmxnet.so", RTLD_LAZY | RTLD_NOLOAD);
            if (mxnet) next = (push_async)dlsym(mxnet, "MXEnginePushAsync");
        }
        if (!next) return -1;
        atomic_store(&real, next);
    }
    struct slot *slot = NULL;
    if (name && strncmp(name, "horovod_", 8) == 0 && vsk_wanted()) slot = take_slot();
    if (!slot)
        return next(function, parameter, deleter, context, const_vars, const_count, mutable_vars, mutable_count,
                    property, priority, name, wait);
    uint32_t number = atomic_fetch_add_explicit(&operation_number, 1, memory_order_relaxed) + 1;
    uint32_t step = (uint32_t)atomic_load_explicit(&vsk_step, memory_order_relaxed);
    atomic_fetch_add_explicit(&vsk_under_way, 1, memory_order_relaxed);
    slot->number = number;
    slot->function = function;
    slot->parameter = parameter;
    slot->deleter = deleter;
    uint64_t start = vsk_now();
    int status = next(entered, slot, dropped, context, const_vars, const_count, mutable_vars, mutable_count, property,
                      priority, name, wait);
    vsk_record(VSK_PUSH, start, vsk_now(), 0, operation(name + 8), number | (uint64_t)current_name << 32,
               (uint32_t)priority | (uint64_t)step << 32);
    return status;
}

/* The next push of this thread carries the tensor (or group) that the hook knows as `name`; 0 forgets. */
VSK_PUBLIC void vsketch_name(unsigned name) { current_name = name; }
