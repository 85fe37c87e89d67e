// See schema_check.h.
#include "schema_check.h"

#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

struct check {
    json_t *root;
    char *why;
    size_t why_size;
    int depth;
};

static bool no(struct check *c, const char *what) {
    if (c->why) snprintf(c->why, c->why_size, "%s", what);
    return false;
}

static bool fits(struct check *c, json_t *schema, json_t *v);

static bool type_is(const char *name, json_t *v) {
    if (strcmp(name, "null") == 0) return json_is_null(v);
    if (strcmp(name, "boolean") == 0) return json_is_boolean(v);
    if (strcmp(name, "string") == 0) return json_is_string(v);
    if (strcmp(name, "array") == 0) return json_is_array(v);
    if (strcmp(name, "object") == 0) return json_is_object(v);
    if (strcmp(name, "number") == 0) return json_is_number(v);
    return json_is_number(v) && json_number_value(v) == floor(json_number_value(v));
}

static bool type_fits(json_t *type, json_t *v) {
    size_t i;
    json_t *one;
    if (json_is_string(type)) return type_is(json_string_value(type), v);
    json_array_foreach(type, i, one) if (type_is(json_string_value(one), v)) return true;
    return false;
}

// As JSON schema has it: 1 and 1.0 are equal.
static bool equal(json_t *a, json_t *b) {
    size_t i;
    const char *key;
    json_t *x;
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach(a, i, x) if (!equal(x, json_array_get(b, i))) return false;
        return true;
    }
    if (!json_is_object(a)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach(a, key, x) if (!json_object_get(b, key) || !equal(x, json_object_get(b, key))) return false;
    return true;
}

static bool number_fits(struct check *c, json_t *s, json_t *v) {
    double x = json_number_value(v);
    json_t *b;
    if ((b = json_object_get(s, "minimum")) && x < json_number_value(b)) return no(c, "minimum");
    if ((b = json_object_get(s, "maximum")) && x > json_number_value(b)) return no(c, "maximum");
    if ((b = json_object_get(s, "exclusiveMinimum")) && x <= json_number_value(b)) return no(c, "exclusiveMinimum");
    if ((b = json_object_get(s, "exclusiveMaximum")) && x >= json_number_value(b)) return no(c, "exclusiveMaximum");
    if ((b = json_object_get(s, "multipleOf")) && fmod(x, json_number_value(b)) != 0) return no(c, "multipleOf");
    return true;
}

static bool string_fits(struct check *c, json_t *s, json_t *v) {
    const char *text = json_string_value(v);
    json_int_t n = 0;
    json_t *b;
    for (size_t i = 0; i < json_string_length(v); i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    if ((b = json_object_get(s, "minLength")) && n < (json_int_t)json_number_value(b)) return no(c, "minLength");
    if ((b = json_object_get(s, "maxLength")) && n > (json_int_t)json_number_value(b)) return no(c, "maxLength");
    b = json_object_get(s, "pattern");
    if (!b || json_string_length(v) != strlen(text)) return true;
    if (strchr(json_string_value(b), '\\') || strchr(json_string_value(b), '?')) return true; // other meanings there
    regex_t r;
    if (regcomp(&r, json_string_value(b), REG_EXTENDED | REG_NOSUB) != 0) return true; // not one for this library
    bool match = regexec(&r, text, 0, NULL, 0) == 0;
    regfree(&r);
    return match || no(c, "pattern");
}

static bool array_fits(struct check *c, json_t *s, json_t *v) {
    size_t i, n = json_array_size(v);
    json_t *x, *b, *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    if ((b = json_object_get(s, "minItems")) && n < (size_t)json_number_value(b)) return no(c, "minItems");
    if ((b = json_object_get(s, "maxItems")) && n > (size_t)json_number_value(b)) return no(c, "maxItems");
    json_array_foreach(v, i, x) {
        json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (one && !fits(c, one, x)) return false;
    }
    return true;
}

static bool object_fits(struct check *c, json_t *s, json_t *v) {
    size_t i, n = json_object_size(v);
    const char *key;
    json_t *x, *b, *properties = json_object_get(s, "properties"), *rest = json_object_get(s, "additionalProperties");
    if ((b = json_object_get(s, "minProperties")) && n < (size_t)json_number_value(b)) return no(c, "minProperties");
    if ((b = json_object_get(s, "maxProperties")) && n > (size_t)json_number_value(b)) return no(c, "maxProperties");
    json_array_foreach(json_object_get(s, "required"), i,
                       x) if (!json_object_get(v, json_string_value(x))) return no(c, "required");
    json_object_foreach(v, key, x) {
        json_t *one = json_object_get(properties, key);
        if (!one) one = rest;
        if (one && !fits(c, one, x)) return false;
    }
    return true;
}

static json_t *ref_get(struct check *c, const char *ref) {
    json_t *at = c->root;
    for (const char *p = ref + 1; *p == '/' && at;) {
        char key[128];
        size_t n = 0;
        for (p++; *p && *p != '/' && n + 1 < sizeof key; p++) key[n++] = p[0] == '~' ? (*++p == '1' ? '/' : '~') : *p;
        key[n] = 0;
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(key, NULL, 10)) : json_object_get(at, key);
    }
    return at;
}

static bool joined_fits(struct check *c, json_t *s, json_t *v) {
    size_t i;
    json_t *x, *list;
    static const char *const any[] = {"anyOf", "oneOf"};
    json_array_foreach(json_object_get(s, "allOf"), i, x) if (!fits(c, x, v)) return false;
    for (size_t k = 0; k < 2; k++) {
        if (!(list = json_object_get(s, any[k]))) continue;
        bool found = false;
        json_array_foreach(list, i, x) found = found || fits(c, x, v);
        if (!found) return no(c, any[k]);
    }
    x = json_object_get(s, "$ref");
    return !x || fits(c, ref_get(c, json_string_value(x)), v);
}

static bool fits(struct check *c, json_t *s, json_t *v) {
    size_t i;
    json_t *x, *list;
    if (!s) return no(c, "a reference leads nowhere");
    if (json_is_boolean(s)) return json_is_true(s) || no(c, "false");
    if (c->depth > 200) return no(c, "too deep");
    c->depth++;
    bool ok = true;
    if ((x = json_object_get(s, "type")) && !type_fits(x, v)) ok = no(c, "type");
    if (ok && (x = json_object_get(s, "const")) && !equal(x, v)) ok = no(c, "const");
    if (ok && (list = json_object_get(s, "enum"))) {
        bool found = false;
        json_array_foreach(list, i, x) found = found || equal(x, v);
        if (!found) ok = no(c, "enum");
    }
    if (ok && json_is_number(v)) ok = number_fits(c, s, v);
    if (ok && json_is_string(v)) ok = string_fits(c, s, v);
    if (ok && json_is_array(v)) ok = array_fits(c, s, v);
    if (ok && json_is_object(v)) ok = object_fits(c, s, v);
    ok = ok && joined_fits(c, s, v);
    c->depth--;
    return ok;
}

bool schema_check(const char *schema, const char *text, size_t len, char *why, size_t why_size) {
    json_error_t error;
    struct check c = {.root = json_loads(schema, JSON_DECODE_ANY, &error), .why = why, .why_size = why_size};
    json_t *v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    bool ok = c.root && v ? fits(&c, c.root, v) : no(&c, error.text);
    json_decref(c.root);
    json_decref(v);
    return ok;
}
