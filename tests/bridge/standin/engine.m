/* The private classes of AppleNeuralEngine.framework, as far as the bridge calls them.
 *
 * Selectors and type encodings are those read on macOS 27.0; the ways with directories, weights and
 * failures are those that public projects report, each with a switch for the other report.  What a
 * program computes is not known here: `standin_set_device` names who compiles a directory and who
 * evaluates it, which the tests give to the emulator. */
#import <Foundation/Foundation.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct __IOSurface *IOSurfaceRef;
extern void *IOSurfaceGetBaseAddress(IOSurfaceRef);
extern size_t IOSurfaceGetAllocSize(IOSurfaceRef);
extern int IOSurfaceLock(IOSurfaceRef, uint32_t, uint32_t *);
extern int IOSurfaceUnlock(IOSurfaceRef, uint32_t, uint32_t *);
extern const void *CFRetain(const void *);
extern void CFRelease(const void *);

#define DOMAIN @"com.apple.appleneuralengine"
#define COMPILER @"com.apple.appleneuralengine.compiler"
#define FAILED @"_ANECompiler : ANECCompile() FAILED"

/* ---- switches ---------------------------------------------------------------------------- */

/* What weights run after files were written anew and the program loaded, or after a load by a
 * donor's plan: those of before, those in the directory, or the load is refused. */
enum { OLD, NEW, REFUSED };

typedef struct {
    long reload, reload_after_purge, donor, programs, are_compiles, /* else loaded ones are counted */
        fail_compiles, fail_loads, without_error, crash, raise, hang, silent, is_virtual;
} Switches;

#define USUAL {.reload = OLD, .reload_after_purge = OLD, .donor = NEW, .programs = 119}
static const Switches usual = USUAL;
static Switches now = USUAL;

static long compiles, loaded, evaluations;

static long *found(const char *name)
{
#define SWITCH(field) \
    if (!strcmp(name, #field)) return &now.field;
    SWITCH(reload) SWITCH(reload_after_purge) SWITCH(donor) SWITCH(programs) SWITCH(are_compiles)
    SWITCH(fail_compiles) SWITCH(fail_loads) SWITCH(without_error) SWITCH(crash) SWITCH(raise)
    SWITCH(hang) SWITCH(silent) SWITCH(is_virtual)
#undef SWITCH
    if (!strcmp(name, "compiles")) return &compiles;
    if (!strcmp(name, "loaded")) return &loaded;
    if (!strcmp(name, "evaluations")) return &evaluations;
    return NULL;
}

int standin_set(const char *name, long value)
{
    long *at = found(name);
    if (at) *at = value;
    return at ? 0 : -1;
}

long standin_get(const char *name)
{
    long *at = found(name);
    return at ? *at : -1;
}

/* ---- who computes ------------------------------------------------------------------------ */

typedef struct {
    long (*compile)(const char *directory, char *error, size_t room);      /* a handle, or -1 */
    int (*evaluate)(long handle, int inputs, int outputs, void **bases, const size_t *sizes,
                    char *error, size_t room);
    void (*drop)(long handle);
} Device;

static Device device;
void standin_set_device(Device of) { device = of; }

/* The interpreter that loaded this library imports the module that the environment names, which
 * calls `standin_set_device`: so the bridge under test knows nothing of it. */
static void start(void)
{
    static bool isStarted;
    const char *module = getenv("STANDIN_DEVICE");
    if (isStarted || !module || device.compile) return;
    isStarted = true;
    int (*take)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*give)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    if (!take || !give || !run) return;
    char line[512];
    snprintf(line, sizeof line, "import importlib; importlib.import_module('%s').start()", module);
    int held = take();
    if (run(line)) abort();
    give(held);
}

static bool fail(NSError **error, NSString *domain, long code, NSString *words)
{
    if (error && !now.without_error)
        *error = [NSError errorWithDomain:domain
                                     code:code
                                 userInfo:[NSDictionary dictionaryWithObject:words
                                                                      forKey:NSLocalizedDescriptionKey]];
    return false;
}

/* ---- surfaces and requests --------------------------------------------------------------- */

@interface _ANEIOSurfaceObject : NSObject {
    IOSurfaceRef surface;
}
+ (id)objectWithIOSurface:(IOSurfaceRef)of;
- (IOSurfaceRef)ioSurface;
@end

@implementation _ANEIOSurfaceObject
+ (id)objectWithIOSurface:(IOSurfaceRef)of
{
    if (!of) return nil;
    _ANEIOSurfaceObject *made = [[self new] autorelease];
    made->surface = (IOSurfaceRef)CFRetain(of);
    return made;
}
- (IOSurfaceRef)ioSurface { return surface; }
- (void)dealloc
{
    if (surface) CFRelease(surface);
    [super dealloc];
}
@end

@interface _ANERequest : NSObject {
@public
    NSArray *inputs, *inputIndices, *outputs, *outputIndices;
    NSNumber *procedure;
}
- (bool)validate;
@end

@implementation _ANERequest
+ (id)requestWithInputs:(id)read
           inputIndices:(id)readAt
                outputs:(id)written
          outputIndices:(id)writtenAt
          weightsBuffer:(id)weights
              perfStats:(id)statistics
         procedureIndex:(id)index
{
    _ANERequest *made = [[self new] autorelease];
    made->inputs = [read copy];
    made->inputIndices = [readAt copy];
    made->outputs = [written copy];
    made->outputIndices = [writtenAt copy];
    made->procedure = [index copy];
    return made;
}
- (bool)validate
{
    return [outputs count] && [inputs count] == [inputIndices count] &&
           [outputs count] == [outputIndices count] && procedure;
}
- (void)dealloc
{
    [inputs release];
    [inputIndices release];
    [outputs release];
    [outputIndices release];
    [procedure release];
    [super dealloc];
}
@end

/* ---- descriptors ------------------------------------------------------------------------- */

/* 256 bits that differ where the bytes do: nobody is to compute an id, so any such will do. */
static NSString *digest(NSData *data)
{
    uint64_t lanes[4] = {14695981039346656037u, 1099511628211u, 0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u};
    const uint8_t *bytes = [data bytes]; /* a string has none: it does not know the selector */
    NSUInteger size = [data length], at = 0;
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        for (int i = 0; i < 4; i++) lanes[i] = (lanes[i] ^ word) * (0x100000001b3u + 2 * i);
    }
    for (; at < size; at++)
        for (int i = 0; i < 4; i++) lanes[i] = (lanes[i] ^ bytes[at]) * (0x100000001b3u + 2 * i);
    for (int i = 0; i < 4; i++) lanes[i] ^= lanes[i] >> 29 ^ size;
    return [NSString stringWithFormat:@"%016llX%016llX%016llX%016llX", (unsigned long long)lanes[0],
                                      (unsigned long long)lanes[1], (unsigned long long)lanes[2],
                                      (unsigned long long)lanes[3]];
}

@interface _ANEInMemoryModelDescriptor : NSObject {
@public
    NSData *text;
    NSDictionary *weights;
    NSString *identifier;
}
@end

@implementation _ANEInMemoryModelDescriptor
+ (id)modelWithMILText:(id)text weights:(id)weights optionsPlist:(id)options
{
    if (!text || !weights) return nil;
    NSMutableData *all = [NSMutableData data];
    NSArray *paths = [[weights allKeys] sortedArrayUsingSelector:@selector(compare:)];
    for (NSUInteger i = 0; i < [paths count]; i++) {
        NSDictionary *entry = [weights objectForKey:[paths objectAtIndex:i]];
        if (![entry count]) return nil;
        [all appendData:[[entry allValues] objectAtIndex:0]]; /* the first, whatever it is */
    }
    _ANEInMemoryModelDescriptor *made = [[self new] autorelease];
    made->text = [text retain];
    made->weights = [weights retain];
    made->identifier = [[NSString stringWithFormat:@"%@_%@_%@", digest(text), digest(all), digest(options)] retain];
    return made;
}
- (id)hexStringIdentifier { return identifier; }
- (void)dealloc
{
    [text release];
    [weights release];
    [identifier release];
    [super dealloc];
}
@end

/* ---- models ------------------------------------------------------------------------------ */

/* What a compile or a load made, shared by all who run it. */
@interface Made : NSObject {
@public
    long handle;
    NSString *plan;
}
@end

@implementation Made
- (void)dealloc
{
    if (device.drop) device.drop(handle);
    [plan release];
    [super dealloc];
}
@end

static NSMutableDictionary *kept; /* by identifier: what the daemon keeps of compiled models */

@interface _ANEInMemoryModel : NSObject {
    _ANEInMemoryModelDescriptor *descriptor;
    NSString *identifier;
    Made *running;
    bool isPurged, wasLoaded;
}
- (id)hexStringIdentifier;
- (id)localModelPath;
@end

@implementation _ANEInMemoryModel
+ (void)initialize
{
    if (!kept) kept = [NSMutableDictionary new];
}
+ (id)inMemoryModelWithDescriptor:(id)of
{
    if (!of) return nil;
    start();
    _ANEInMemoryModel *made = [[self new] autorelease];
    made->descriptor = [of retain];
    made->identifier = [[of hexStringIdentifier] copy];
    return made;
}
- (void)dealloc
{
    if (running) loaded--;
    [running release];
    [descriptor release];
    [identifier release];
    [super dealloc];
}
- (id)hexStringIdentifier { return identifier; }
/* In TMPDIR where it is set, so that tests side by side have folders of their own. */
- (id)localModelPath
{
    const char *own = getenv("TMPDIR");
    NSString *root = own ? [NSString stringWithUTF8String:own] : NSTemporaryDirectory();
    return [root stringByAppendingPathComponent:identifier];
}
- (bool)compiledModelExists { return [kept objectForKey:identifier] != nil; }
- (void)purgeCompiledModel
{
    [kept removeObjectForKey:identifier];
    isPurged = true;
}
- (unsigned long long)state { return running ? 3 : 1; }
- (unsigned long long)programHandle { return running ? 1 : 0; }
- (signed char)queueDepth { return 127; }

- (NSString *)file:(NSString *)name { return [[self localModelPath] stringByAppendingPathComponent:name]; }

- (Made *)madeOf:(NSString *)directory error:(NSError **)error
{
    char words[2048] = "no device is set";
    long handle = device.compile ? device.compile([directory fileSystemRepresentation], words, sizeof words) : -1;
    if (handle < 0) {
        fail(error, COMPILER, 1, [NSString stringWithFormat:@"%@: %s", FAILED, words]);
        return nil;
    }
    Made *made = [[Made new] autorelease];
    made->handle = handle;
    made->plan = [[NSString stringWithContentsOfFile:[self file:@"model.mil"]] retain];
    return made;
}

- (bool)compileWithQoS:(unsigned int)qos options:(id)options error:(NSError **)error
{
    if (!options) return fail(error, DOMAIN, 26, @"compileModel: Bad argument error");
    long used = now.are_compiles ? compiles : loaded;
    if (used >= now.programs) return fail(error, COMPILER, 1, FAILED);
    if (now.fail_compiles) {
        now.fail_compiles--;
        return fail(error, COMPILER, 1, FAILED);
    }
    compiles++;
    Made *made = [self madeOf:[self localModelPath] error:error];
    if (!made) return false;
    [descriptor->text writeToFile:[self file:@"net.plist"] atomically:YES];
    NSEnumerator *entries = [descriptor->weights objectEnumerator];
    for (NSDictionary *entry; (entry = [entries nextObject]);) {
        NSString *name = [[entry allKeys] objectAtIndex:0];
        [[entry objectForKey:name] writeToFile:[self file:name] atomically:YES];
    }
    [kept setObject:made forKey:identifier];
    return true;
}

/* A directory with a plan that nobody compiled here: whose text is the same, his is the plan. */
- (Made *)madeByDonor:(NSError **)error
{
    NSString *plan = [NSString stringWithContentsOfFile:[self file:@"net.plist"]];
    NSString *text = [NSString stringWithContentsOfFile:[self file:@"model.mil"]];
    if (!plan || ![plan isEqualToString:text] || now.donor == REFUSED) {
        fail(error, DOMAIN, 10, @"verifyBundleAtPath: invalid model");
        return nil;
    }
    if (now.donor == NEW) return [self madeOf:[self localModelPath] error:error];
    NSEnumerator *all = [kept objectEnumerator];
    for (Made *other; (other = [all nextObject]);)
        if ([other->plan isEqualToString:plan]) return other;
    fail(error, DOMAIN, 10, @"verifyBundleAtPath: invalid model");
    return nil;
}

- (bool)loadWithQoS:(unsigned int)qos options:(id)options error:(NSError **)error
{
    if (!options) return fail(error, DOMAIN, 26, @"loadModel: Bad argument error");
    if (now.fail_loads) {
        now.fail_loads--;
        return fail(error, DOMAIN, 6, @"createProgramInstanceForModel: Program load failure (0x20004)");
    }
    if (!now.are_compiles && !running && loaded >= now.programs)
        return fail(error, DOMAIN, 6, @"GetANEFModel: must re-compile");
    long weights = isPurged ? now.reload_after_purge : now.reload;
    if (wasLoaded && weights == REFUSED) return fail(error, DOMAIN, 10, @"verifyBundleAtPath: invalid model");
    Made *before = [kept objectForKey:identifier], *made = before;
    if (isPurged && !before && weights == OLD) return fail(error, DOMAIN, 10, @"verifyBundleAtPath: invalid model");
    if (!before)
        made = isPurged ? [self madeOf:[self localModelPath] error:error] : [self madeByDonor:error];
    else if (weights == NEW && [[NSFileManager defaultManager] fileExistsAtPath:[self file:@"model.mil"]])
        made = [self madeOf:[self localModelPath] error:error];
    if (!made) return false;
    if (!running) loaded++;
    wasLoaded = true;
    [made retain];
    [running release];
    running = made;
    return true;
}

- (bool)unloadWithQoS:(unsigned int)qos error:(NSError **)error
{
    if (!running) return fail(error, DOMAIN, 9, @"unloadModel: not loaded");
    loaded--;
    [running release];
    running = nil;
    [[NSFileManager defaultManager] removeFileAtPath:[self localModelPath] handler:nil];
    return true;
}

- (bool)evaluateWithQoS:(unsigned int)qos options:(id)options request:(id)of error:(NSError **)error
{
    evaluations++;
    while (now.hang) sleep(1);
    if (now.crash) raise(SIGSEGV);
    if (now.raise) [NSException raise:NSInternalInconsistencyException format:@"the stand-in raised"];
    if (now.silent) return true;
    _ANERequest *request = of;
    if (!options || !running || !request || ![request validate])
        return fail(error, DOMAIN, 26, @"evaluateWithModel: Bad argument error");
    enum { MOST = 256 };
    int inputs = (int)[request->inputs count], outputs = (int)[request->outputs count], count = inputs + outputs;
    if (count > MOST) return fail(error, DOMAIN, 26, @"evaluateWithModel: Bad argument error");
    IOSurfaceRef surfaces[MOST];
    void *bases[MOST];
    size_t sizes[MOST];
    for (int i = 0; i < count; i++) {
        NSArray *side = i < inputs ? request->inputs : request->outputs;
        surfaces[i] = [[side objectAtIndex:(NSUInteger)(i < inputs ? i : i - inputs)] ioSurface];
        IOSurfaceLock(surfaces[i], i < inputs, NULL);
        bases[i] = IOSurfaceGetBaseAddress(surfaces[i]);
        sizes[i] = IOSurfaceGetAllocSize(surfaces[i]);
    }
    char words[2048] = "no device is set";
    int failed = device.evaluate ? device.evaluate(running->handle, inputs, outputs, bases, sizes, words, sizeof words) : 1;
    for (int i = 0; i < count; i++) IOSurfaceUnlock(surfaces[i], i < inputs, NULL);
    if (failed)
        return fail(error, DOMAIN, 8, [NSString stringWithFormat:
            @"ANEProgramProcessRequestDirect() Failed with status=0x1d : statusType=0x9: Program Inference error: %s", words]);
    return true;
}
@end

/* ---- the machine ------------------------------------------------------------------------- */

@interface _ANEDeviceInfo : NSObject
@end

@implementation _ANEDeviceInfo
+ (bool)hasANE { return true; }
+ (unsigned int)numANEs { return 1; }
+ (unsigned int)numANECores { return 16; }
+ (id)aneArchitectureType { return @"stand-in"; }
+ (id)buildVersion { return @"stand-in"; }
+ (bool)isVirtualMachine { return now.is_virtual; }
@end

#ifdef STANDIN_DRIFTED
/* A later system: one argument is wider. */
@interface _ANEInMemoryModel (Drifted)
@end

@implementation _ANEInMemoryModel (Drifted)
- (bool)loadWithQoS:(unsigned long long)qos options:(id)options error:(NSError **)error { abort(); }
@end
#endif

void standin_reset(void)
{
    now = usual;
    compiles = evaluations = 0;
    [kept removeAllObjects];
}
