// The files of the chat page (src/app/web/) as read-only data of the program: tern_page_NAME_begin … _end, of which
// serve_page.c makes a table.
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define SYMBOL(name) JOIN(__USER_LABEL_PREFIX__, name)

// A macro of the assembler, not of the preprocessor: what separates statements on one line differs (";" begins a comment
// on arm64 macOS).
.macro page_file name, path
    .globl \name\()_begin
\name\()_begin:
    .incbin "\path"
    .globl \name\()_end
\name\()_end:
    .byte 0
.endm

#ifdef __ELF__
    .section .rodata.tern_page, "a"
#else
    .const
#endif
    page_file SYMBOL(tern_page_html), "page.html"
    page_file SYMBOL(tern_page_css), "page.css"
    page_file SYMBOL(tern_page_main), "page_main.js"
    page_file SYMBOL(tern_page_markdown), "page_markdown.js"
    page_file SYMBOL(tern_page_stream), "page_stream.js"
    page_file SYMBOL(tern_page_tree), "page_tree.js"
    page_file SYMBOL(tern_page_icon), "icon.svg"

#ifdef __ELF__
    .section .note.GNU-stack, "", %progbits
#endif
