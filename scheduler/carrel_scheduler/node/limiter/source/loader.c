/* How programs come to call the limiter, and the limiter the driver.
 *
 * Programs reach the driver by its exported names (preloading puts ours first), by dlsym, which is
 * replaced here, and by cuGetProcAddress, from which the CUDA runtime takes nearly everything. Pointers
 * are swapped by identity: when the driver answers with the address that it exports under a name that is
 * intercepted, the program gets ours. No table of versions has to be kept. A driver whose two answers
 * differ (none is known) is recognised once, and then names are compared.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "usage.h"

#define DEVICES 64

typedef void *lookup(void *handle, const char *name);

#define NAME_OURS(name, arguments) {#name, (void *)name, NULL},
#define NAME_ONLY(name, arguments) {#name, NULL, NULL},

static struct {
    const char *name;
    void *ours;
    void *real;
} symbols[SYMBOLS] = {INTERCEPTED(NAME_OURS) INTERCEPTED_NVML(NAME_OURS) KNOWN(NAME_ONLY) KNOWN_NVML(NAME_ONLY)};

static lookup *real_dlsym;
static pthread_once_t identity_once = PTHREAD_ONCE_INIT;
static bool identity = true;

static lookup *find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    lookup *found = __atomic_load_n(&real_dlsym, __ATOMIC_RELAXED);

    for (unsigned at = 0; !found && at < sizeof versions / sizeof *versions; at++)
        found = (lookup *)dlvsym(RTLD_NEXT, "dlsym", versions[at]);
    __atomic_store_n(&real_dlsym, found, __ATOMIC_RELAXED);
    return found;
}

void *real_function(int number)
{
    void *real = __atomic_load_n(&symbols[number].real, __ATOMIC_ACQUIRE), *library;
    const char *name = symbols[number].name, *file = name[0] == 'c' ? "libcuda.so.1" : "libnvidia-ml.so.1";

    if (real)
        return real;
    library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        library = dlopen(file, RTLD_LAZY);
    real = library ? find_dlsym()(library, name) : NULL;
    __atomic_store_n(&symbols[number].real, real, __ATOMIC_RELEASE);
    return real;
}

static int number_of(const char *name)
{
    for (int number = 0; number < INTERCEPTED_COUNT; number++)
        if (strcmp(symbols[number].name, name) == 0)
            return number;
    return -1;
}

/* Ours in place of what a lookup of an intercepted name found; NULL stays NULL. */
static void *replaced(int number, void *found)
{
    if (!found || (found == symbols[number].ours && !real_function(number)))
        return NULL;
    if (found != symbols[number].ours && !symbols[number].real)
        __atomic_store_n(&symbols[number].real, found, __ATOMIC_RELEASE);
    return symbols[number].ours;
}

EXPORTED void *dlsym(void *restrict handle, const char *restrict name)
{
    if ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')) {
        int number = number_of(name);
        if (number >= 0)
            return replaced(number, find_dlsym()(handle, name));
    }
    return find_dlsym()(handle, name); /* a jump, not a call: RTLD_NEXT means the caller's library */
}

static void check_identity(void)
{
    void *found = NULL;
    int status;

    if (REAL(cuGetProcAddress_v2) && REAL(cuGetProcAddress_v2)("cuMemAlloc", &found, 12000, 0, &status) == CUDA_SUCCESS)
        identity = found == real_function(NUMBER_cuMemAlloc_v2);
}

/* Whether `name`, as programs ask cuGetProcAddress, means the exported name of a symbol. */
static bool means(const char *exported, const char *name, bool per_thread)
{
    size_t length = strlen(name);
    const char *rest = exported + length;

    if (strncmp(exported, name, length) != 0)
        return false;
    if (strncmp(rest, "_v2", 3) == 0)
        rest += 3;
    return strcmp(rest, per_thread ? "_ptsz" : "") == 0;
}

static void swap(const char *name, void **found, uint64_t flags)
{
    pthread_once(&identity_once, check_identity);
    if (!found || !*found)
        return;
    for (int number = 0; number < INTERCEPTED_COUNT; number++)
        if (symbols[number].name[0] == 'c' &&
            (real_function(number) == *found ||
             (!identity && real_function(number) && means(symbols[number].name, name, (flags & 2) != 0)))) {
            *found = symbols[number].ours;
            return;
        }
}

EXPORTED CUresult cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    CUresult result = REAL(cuGetProcAddress) ? REAL(cuGetProcAddress)(name, found, version, flags) : CUDA_NOT_FOUND;

    if (result == CUDA_SUCCESS)
        swap(name, found, flags);
    return result;
}

static CUresult proc_address(cuGetProcAddress_v2_function *real, const char *name, void **found, int version, uint64_t flags, int *status)
{
    CUresult result = real ? real(name, found, version, flags, status) : CUDA_NOT_FOUND;

    if (result == CUDA_SUCCESS)
        swap(name, found, flags);
    return result;
}

EXPORTED CUresult cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    return proc_address(REAL(cuGetProcAddress_v2), name, found, version, flags, status);
}

EXPORTED CUresult cuGetProcAddress_v2_ptsz(const char *name, void **found, int version, uint64_t flags, int *status)
{
    return proc_address(REAL(cuGetProcAddress_v2_ptsz), name, found, version, flags, status);
}

static int find_gpu(CUdevice device)
{
    const unsigned char *b;
    CUuuid uuid;
    char text[41];

    if (!REAL(cuDeviceGetUuid) || REAL(cuDeviceGetUuid)(&uuid, device) != CUDA_SUCCESS)
        return UNLIMITED;
    b = (const unsigned char *)uuid.bytes;
    snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return usage_find(text);
}

int gpu_of_device(CUdevice device)
{
    static int known[DEVICES]; /* 0: not asked yet; the line of limits + 2 */
    int found;

    if (device < 0 && (!REAL(cuCtxGetDevice) || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS))
        return UNLIMITED;
    if (device >= DEVICES)
        return find_gpu(device);
    found = __atomic_load_n(&known[device], __ATOMIC_RELAXED) - 2;
    if (found == -2) {
        found = find_gpu(device);
        __atomic_store_n(&known[device], found + 2, __ATOMIC_RELAXED);
    }
    return found;
}
