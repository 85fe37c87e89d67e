// Private to app/: the table of weight and activation formats that neural engines offer, by back end (`tern fidelity A
// --formats UNIT,UNIT…`): time of a step of 64 rows, agreement with A, verdict. What a back end has no format for is
// said so; values that stand for one give fidelity, and their speed is told to be fp16's.
#pragma once
#include "study_fidelity.h"

#define FORMATS_UNITS_MAX 8
#define FORMATS_MAX 6 // rows of each unit

struct format_result {
    struct side_spec spec;
    const char *format; // "int4 per channel"
    const char *unit;   // of the list
    bool as_values;     // fp16 values of the format: the speed is not the format's
    bool offered;
    char why[256]; // not offered
    double step_ms;
    struct fidelity_line all;
    struct fidelity_verdict verdict;
};
struct formats {
    char units[FORMATS_UNITS_MAX][SIDE_UNIT_MAX];
    struct format_result rows[FORMATS_UNITS_MAX * FORMATS_MAX];
    int n;
};
// Units are separated by commas.
enum tern_status formats_parse(struct formats *t, const char *units, struct tern_err *err);
// Fills row i: side b was opened of its spec and compared by fidelity_compare.
enum tern_status formats_measure(struct formats *t, int i, struct fidelity *f, struct side *b,
                                 const struct prompt_set *set, const struct fidelity_bounds *bounds,
                                 struct tern_err *err);
void formats_text(const struct formats *t);
void formats_json(const struct formats *t, struct json_writer *w); // an array
