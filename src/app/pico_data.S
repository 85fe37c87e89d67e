// models/pico.gguf as read-only data of the program: tern_pico_begin … tern_pico_end. Page-aligned, so that its tensors
// have the alignment they have in a mapped file and its pages are shared and dropped like a file's.
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define SYMBOL(name) JOIN(__USER_LABEL_PREFIX__, name)

#ifdef __ELF__
    .section .rodata.tern_pico, "a"
#else
    .const
#endif
    .balign 4096
    .globl SYMBOL(tern_pico_begin)
SYMBOL(tern_pico_begin):
    .incbin PICO_PATH
    .globl SYMBOL(tern_pico_end)
SYMBOL(tern_pico_end):
    .byte 0

#ifdef __ELF__
    .section .note.GNU-stack, "", %progbits
#endif
