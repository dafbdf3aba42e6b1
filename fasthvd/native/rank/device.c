#define _GNU_SOURCE
#include "device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

enum { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, CU_MEMORYTYPE_DEVICE = 2 }; /* cuda.h */
typedef int pointer_attribute(void *value, int attribute, uintptr_t pointer);

/* The driver's own answer, if this process has loaded the driver; looked for again until it is there, as frameworks
 * load it late. No CUDA is needed to build or to run. */
static pointer_attribute *find(void)
{
    static void *found;
    void *at = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (at == NULL) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
        at = driver != NULL ? dlsym(driver, "cuPointerGetAttribute") : NULL;
        __atomic_store_n(&found, at, __ATOMIC_RELAXED);
    }
    pointer_attribute *ask;
    memcpy(&ask, &at, sizeof ask);
    return ask;
}

bool on_device(const void *buffer)
{
    pointer_attribute *ask = find();
    unsigned int type = 0;
    return ask != NULL && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)buffer) == 0 && type == CU_MEMORYTYPE_DEVICE;
}
