/* IOSurface: pages of memory.  With STANDIN_STRICT=1 they can be touched between lock and unlock
 * only, and under a lock for reading only be read, so that a forgotten lock ends the process. */
#import <Foundation/Foundation.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KEY(name) NSString *const kIOSurface##name = @"IOSurface" #name
KEY(Width);
KEY(Height);
KEY(BytesPerElement);
KEY(BytesPerRow);
KEY(AllocSize);
KEY(PixelFormat);

enum { PAGE = 16384, BAD_ARGUMENT = (int)0xe00002c2, READ_ONLY = 1 };

@interface IOSurface : NSObject {
@public
    void *base;
    size_t mapped, size;
    int locks, isStrict;
}
@end

static long live;

@implementation IOSurface
- (void)dealloc
{
    munmap(base, mapped);
    __sync_fetch_and_sub(&live, 1);
    [super dealloc];
}
@end

/* How many surfaces there are: a test's way to see a leak. */
long standin_surfaces(void) { return live; }

static size_t number(NSDictionary *of, NSString *key)
{
    return (size_t)[[of objectForKey:key] unsignedLongLongValue];
}

IOSurface *IOSurfaceCreate(NSDictionary *of)
{
    size_t width = number(of, kIOSurfaceWidth), height = number(of, kIOSurfaceHeight);
    size_t element = number(of, kIOSurfaceBytesPerElement), row = number(of, kIOSurfaceBytesPerRow);
    size_t size = number(of, kIOSurfaceAllocSize);
    if (!width || !height || row < width * element || size < row * height) return nil;
    const char *strict = getenv("STANDIN_STRICT");
    IOSurface *made = [IOSurface new];
    made->size = size;
    made->mapped = (size + PAGE - 1) / PAGE * PAGE;
    made->isStrict = strict && *strict == '1';
    int access = made->isStrict ? PROT_NONE : PROT_READ | PROT_WRITE;
    made->base = mmap(NULL, made->mapped, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __sync_fetch_and_add(&live, 1);
    if (made->base == MAP_FAILED) abort();
    return made;
}

int IOSurfaceLock(IOSurface *of, uint32_t options, uint32_t *seed)
{
    if (!of) return BAD_ARGUMENT;
    int isFirst = __sync_fetch_and_add(&of->locks, 1) == 0;
    if (isFirst && of->isStrict)
        mprotect(of->base, of->mapped, options & READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE);
    if (seed) *seed = 0;
    return 0;
}

int IOSurfaceUnlock(IOSurface *of, uint32_t options, uint32_t *seed)
{
    (void)options;
    if (!of || of->locks <= 0) return BAD_ARGUMENT;
    if (__sync_sub_and_fetch(&of->locks, 1) == 0 && of->isStrict)
        mprotect(of->base, of->mapped, PROT_NONE);
    if (seed) *seed = 0;
    return 0;
}

void *IOSurfaceGetBaseAddress(IOSurface *of) { return of->base; }
size_t IOSurfaceGetAllocSize(IOSurface *of) { return of->size; }
