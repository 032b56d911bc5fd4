/* A wall clock that a test sets while the program runs: the offset in microseconds stands in a file of eight
 * bytes, named by FAULT_CLOCK. The monotonic clock is left alone. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;

static int64_t offset_us(void)
{
    static volatile int64_t none;
    if (!offset) {
        const char *path = getenv("FAULT_CLOCK");
        int file = path ? open(path, O_RDONLY) : -1;
        void *at = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
        offset = at == MAP_FAILED ? &none : at;
    }
    return *offset;
}

int clock_gettime(clockid_t which, struct timespec *told)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, told);
    if (code == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t us = offset_us(), ns = told->tv_nsec + us % 1000000 * 1000;
        told->tv_sec += us / 1000000 + (ns < 0 ? -1 : ns / 1000000000);
        told->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return code;
}

int gettimeofday(struct timeval *restrict told, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told)
        *told = now.tv_sec;
    return now.tv_sec;
}
