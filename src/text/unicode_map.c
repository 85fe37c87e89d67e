// Spreads the committed runs of code point classes into a two-stage table. Run when a tokenizer is made (tens of
// microseconds), so that the source holds the short form, which can be read and compared, and lookups use the fast one.
#include "base/base.h"
#include "text/unicode_tables.h"

void unicode_map_init(struct unicode_map *m) {
    m->n_own = 0;
    int run = 0; // the run that covers the code point at hand
    for (uint32_t page = 0; page < UNICODE_PAGES; page++) {
        uint32_t first = page * UNICODE_PAGE, last = first + UNICODE_PAGE - 1;
        while (run + 1 < UNICODE_RUNS && (unicode_runs[run + 1] >> 8) <= first) run++;
        bool is_uniform = run + 1 == UNICODE_RUNS || (unicode_runs[run + 1] >> 8) > last;
        if (is_uniform && page > 0) {
            m->page[page] = unicode_runs[run] & 0xff;
            continue;
        }
        TERN_ASSERT(m->n_own < UNICODE_PAGES_OWN);
        m->page[page] = (uint16_t)(256 + m->n_own);
        uint8_t *own = m->own[m->n_own++];
        for (uint32_t i = 0; i < UNICODE_PAGE; i++) {
            while (run + 1 < UNICODE_RUNS && (unicode_runs[run + 1] >> 8) <= first + i) run++;
            own[i] = (uint8_t)unicode_runs[run];
        }
    }
}
