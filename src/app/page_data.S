// The files of the chat page (src/app/web/) as read-only data of the program: tern_page_NAME_begin … _end, of which
// serve_page.c makes a table.
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define SYMBOL(name) JOIN(__USER_LABEL_PREFIX__, name)
#define PAGE_FILE(name, path)        \
    .globl SYMBOL(tern_page_##name##_begin); \
    SYMBOL(tern_page_##name##_begin): .incbin path; \
    .globl SYMBOL(tern_page_##name##_end);   \
    SYMBOL(tern_page_##name##_end): .byte 0

#ifdef __ELF__
    .section .rodata.tern_page, "a"
#else
    .const
#endif
PAGE_FILE(html, "page.html")
PAGE_FILE(css, "page.css")
PAGE_FILE(main, "page_main.js")
PAGE_FILE(markdown, "page_markdown.js")
PAGE_FILE(stream, "page_stream.js")
PAGE_FILE(tree, "page_tree.js")
PAGE_FILE(icon, "icon.svg")

#ifdef __ELF__
    .section .note.GNU-stack, "", %progbits
#endif
