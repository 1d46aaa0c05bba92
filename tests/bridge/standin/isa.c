/* A function in Apple's libobjc, an inline one in GCC's header: so this file does not include it. */
struct objc_object {
    void *isa;
};

void *object_getClass(struct objc_object *object) { return object ? object->isa : 0; }
