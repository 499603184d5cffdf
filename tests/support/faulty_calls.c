/* Preloaded into a server: its calls that concern files below "appendonlydir", and its clock, do
   what a test asks for in a shared page. See faulty_calls.py, which lays out the page. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, UNLINK = 8, CREATE = 16, TRUNCATE = 32 };
enum { NOTHING, FAIL, SHORTEN, SIGNAL };

struct page {
    volatile int64_t calls, action, argument, skip, times, clock_ns, seen;
};

static struct page none, *page = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ANABRANCH_TEST_CALLS");
    int handle = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (handle < 0) return;
    void *at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (at != MAP_FAILED) page = at;
}

static int is_ours(const char *path) { return path && strstr(path, "appendonlydir") != NULL; }

static int concerns(int handle) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_ours(path);
}

/* What is to be done now: NOTHING, FAIL (errno is set) or SHORTEN. */
static int asked(int call) {
    if (!(page->calls & call)) return NOTHING;
    __atomic_add_fetch(&page->seen, 1, __ATOMIC_SEQ_CST);
    if (page->action == NOTHING || page->times == 0) return NOTHING;
    if (__atomic_fetch_sub(&page->skip, 1, __ATOMIC_SEQ_CST) > 0) return NOTHING;
    if (page->times > 0) __atomic_sub_fetch(&page->times, 1, __ATOMIC_SEQ_CST);
    if (page->action == SIGNAL) {
        kill(getpid(), (int)page->argument);
        return NOTHING;
    }
    errno = (int)page->argument;
    return (int)page->action;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int handle, const void *data, size_t size) {
    int what = page->calls & WRITE && concerns(handle) ? asked(WRITE) : NOTHING;
    if (what == FAIL) return -1;
    return REAL(write)(handle, data, what == SHORTEN && size > 1 ? size / 2 : size);
}

int fsync(int handle) {
    if (page->calls & SYNC && concerns(handle) && asked(SYNC) == FAIL) return -1;
    return REAL(fsync)(handle);
}

int fdatasync(int handle) {
    if (page->calls & SYNC && concerns(handle) && asked(SYNC) == FAIL) return -1;
    return REAL(fdatasync)(handle);
}

int rename(const char *from, const char *to) {
    if (is_ours(to) && asked(RENAME) == FAIL) return -1;
    return REAL(rename)(from, to);
}

int unlink(const char *path) {
    if (is_ours(path) && asked(UNLINK) == FAIL) return -1;
    return REAL(unlink)(path);
}

int ftruncate64(int handle, off64_t size) {
    if (page->calls & TRUNCATE && concerns(handle) && asked(TRUNCATE) == FAIL) return -1;
    return REAL(ftruncate64)(handle, size);
}

static int mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, int) : 0; }

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = mode_of(flags, more);
    va_end(more);
    if (flags & O_CREAT && is_ours(path) && asked(CREATE) == FAIL) return -1;
    return REAL(open64)(path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = mode_of(flags, more);
    va_end(more);
    if (flags & O_CREAT && is_ours(path) && asked(CREATE) == FAIL) return -1;
    return REAL(openat64)(directory, path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME && result == 0 && page->clock_ns) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + page->clock_ns;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return result;
}
