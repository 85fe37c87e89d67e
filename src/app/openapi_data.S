// doc/openapi.json as read-only data of the program: tern_openapi_begin … tern_openapi_end.
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define SYMBOL(name) JOIN(__USER_LABEL_PREFIX__, name)

#ifdef __ELF__
    .section .rodata.tern_openapi, "a"
#else
    .const
#endif
    .balign 16
    .globl SYMBOL(tern_openapi_begin)
SYMBOL(tern_openapi_begin):
    .incbin OPENAPI_PATH
    .globl SYMBOL(tern_openapi_end)
SYMBOL(tern_openapi_end):
    .byte 0

#ifdef __ELF__
    .section .note.GNU-stack, "", %progbits
#endif
