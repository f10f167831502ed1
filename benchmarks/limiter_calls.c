/* Calls of the driver in a loop; prints nanoseconds of one round each: a linear allocation and its end,
 * one from a pool and its end, a launch. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int cuInit(unsigned), cuCtxCreate_v2(void *, unsigned, int), cuCtxSynchronize(void);
int cuMemAlloc_v2(uint64_t *, uint64_t), cuMemFree_v2(uint64_t);
int cuMemAllocAsync(uint64_t *, uint64_t, void *), cuMemFreeAsync(uint64_t, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **words)
{
    long rounds = count > 1 ? atol(words[1]) : 10000;
    uint64_t address, keep;
    void *context;
    int failed = cuInit(0) | cuCtxCreate_v2(&context, 0, 0) | cuMemAllocAsync(&keep, 1 << 20, NULL);
    double begin = now(), linear, pooled, launched;

    for (long at = 0; at < rounds; at++)
        failed |= cuMemAlloc_v2(&address, 1 << 20) | cuMemFree_v2(address);
    linear = now();
    for (long at = 0; at < rounds; at++)
        failed |= cuMemAllocAsync(&address, 1 << 20, NULL) | cuMemFreeAsync(address, NULL);
    pooled = now();
    for (long at = 0; at < rounds; at++)
        failed |= cuLaunchKernel(context, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    launched = now();
    printf("%f %f %f\n", (linear - begin) / (double)rounds, (pooled - linear) / (double)rounds, (launched - pooled) / (double)rounds);
    return failed;
}
