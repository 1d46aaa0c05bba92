/* What Apple's libobjc and CoreFoundation export, and GCC's libobjc and GNUstep do not. */
#import <Foundation/Foundation.h>
#include <stdlib.h>

void *objc_autoreleasePoolPush(void) { return [NSAutoreleasePool new]; }
void objc_autoreleasePoolPop(void *pool) { [(NSAutoreleasePool *)pool release]; }
id objc_retain(id object) { return [object retain]; }
void objc_release(id object) { [object release]; }

/* Every object of CoreFoundation is one of Objective-C here; NULL ends the process, as Apple's does. */
const void *CFRetain(const void *object)
{
    if (!object) abort();
    return [(id)object retain];
}

void CFRelease(const void *object)
{
    if (!object) abort();
    [(id)object release];
}

long CFGetRetainCount(const void *object) { return (long)[(id)object retainCount]; }
