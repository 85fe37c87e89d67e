// Templates: cases of users' reports, which output is tainted, every limit, places in errors, the clock, running out of
// memory. Agreement with Jinja2 is in test_jinja_vectors.c.
#include "base/base.h"
#include "text/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#define TEXT_MAX (16u << 20)
#define NOW 1700000000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define REFUSE_MS 2500 // slow builds and emulators
#else
#define REFUSE_MS 250
#endif

static enum tern_status render(struct str source, const char *vars, struct jinja_output *out, struct tern_err *err) {
    struct jinja *j;
    *out = (struct jinja_output){0};
    *err = (struct tern_err){0};
    TRY(jinja_create(&j, source, err));
    enum tern_status s = jinja_render_vars(j, out, str_from(vars), NOW, err);
    jinja_free(j);
    return s;
}

#define SYSTEM_USER                                                                                      \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\","                 \
    "\"content\":\"one\"},{\"role\":\"assistant\",\"content\":\"<think>\\nwhy\\n</think>\\n\\nfirst\"}," \
    "{\"role\":\"user\",\"content\":\"two\"}]}"

static void test_reports(void **state) {
    (void)state;
    static const struct {
        const char *file, *vars, *text, *error;
    } cases[] = {
        {"J01", SYSTEM_USER, "u0 a1 u2 s3 |2|to|bd|system", NULL},
        {"J03", "{}", "0134[x]", NULL},
        {"J06", "{}", "10|True|10", NULL},
        {"J08", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", NULL, ""},
        {"J09", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}]}", NULL,
         "First message must be from the user"},
        {"J10", "{}", "A\n\tB  CD\n\nE  ", NULL},
        {"J11", SYSTEM_USER,
         "user,assistant,user|4|d|e|A B|b|abc|q|1|[('a', 2), ('b', 1)]|3 1 32 3.5|a1None|True False True|True|b|a+b|"
         "[1, [2]]|T|xxx|[1, 2, 3]|3.0 1e+100 -0.0",
         NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[512];
        struct buf source;
        struct jinja_output out;
        struct tern_err err;
        snprintf(path, sizeof(path), "%s/template/cases/%s.jinja", TEST_DATA, cases[i].file);
        buf_init(&source, TEXT_MAX);
        assert_int_equal(file_read_all(&source, path, &err), TERN_OK);
        enum tern_status s = render(buf_str(&source), cases[i].vars, &out, &err);
        if (cases[i].text) {
            if (s != TERN_OK) fail_msg("%s: %s", cases[i].file, err.message);
            assert_string_equal(out.text.data, cases[i].text);
        } else {
            assert_int_not_equal(s, TERN_OK);
            if (cases[i].error[0]) assert_int_equal(s, TERN_TEMPLATE);
            if (cases[i].error[0]) assert_string_equal(err.message, cases[i].error);
        }
        jinja_output_release(&out);
        buf_release(&source);
    }
}

// The output with tainted runs in [ ].
static void marked(struct buf *b, const struct jinja_output *o) {
    size_t pos = 0;
    buf_init(b, TEXT_MAX);
    buf_puts(b, "");
    for (int i = 0; i < o->n_tainted; i++) {
        assert_true(o->tainted[i].begin < o->tainted[i].end && o->tainted[i].end <= o->text.len);
        assert_true(i == 0 || o->tainted[i].begin > o->tainted[i - 1].end);
        buf_put(b, o->text.data + pos, o->tainted[i].begin - pos);
        buf_putc(b, '[');
        buf_put(b, o->text.data + o->tainted[i].begin, o->tainted[i].end - o->tainted[i].begin);
        buf_putc(b, ']');
        pos = o->tainted[i].end;
    }
    buf_put(b, o->text.data + pos, o->text.len - pos);
}

static void test_taint(void **state) {
    (void)state;
    static const char vars[] = "{\"x\":\"<|im_end|>\",\"w\":\"a b\",\"q\":\"\\\"\\n\",\"e\":\"\\u00e9\\u00df\","
                               "\"l\":[\"p\",1,\"q\"],\"d\":{\"k\":\"v\"},\"n\":5,\"f\":\"%s\"}";
    static const struct {
        const char *source, *out;
    } cases[] = {
        {"a{{ x }}b", "a[<|im_end|>]b"},
        {"{{ '<|im_end|>' }}{{ x }}", "<|im_end|>[<|im_end|>]"},
        {"{{ '<|im_end|>' == x }}", "True"},
        {"{{ x if x == '<|im_end|>' }}", "[<|im_end|>]"},
        {"{{ '<' + x + '>' }}", "<[<|im_end|>]>"},
        {"{{ '<' ~ x ~ n ~ '>' }}", "<[<|im_end|>]5>"},
        {"{{ x[2:4] }}{{ x[::-1] }}{{ x[0] }}", "[im>|dne_mi|<<]"},
        {"{{ w | upper }}{{ w.title() }}{{ w | capitalize }}", "[A BA BA b]"},
        {"{{ e.upper() }}|{{ e.casefold() }}", "[ÉSS]|[éss]"},
        {"{{ '  ' ~ w ~ ' ' | trim }}{{ w.strip('a') }}", "  [a b b]"},
        {"{{ w.replace(' ', '-') }}", "[a]-[b]"},
        {"{{ 'a-b'.replace('-', x) }}", "a[<|im_end|>]b"},
        {"{{ w.split() }}", "['[a]', '[b]']"},
        {"{{ w.split() | join(', ') }}", "[a], [b]"},
        {"{{ [x, 'y'] }}{{ d }}", "['[<|im_end|>]', 'y']{'[k]': '[v]'}"},
        {"{{ l | join('+') }}{{ l[0] }}{{ l[1] }}", "[p]+1+[qp]1"},
        {"{{ q | tojson }}{{ d | tojson }}", "\"[\\\"\\n]\"{\"[k]\": \"[v]\"}"},
        {"{{ [q] }}", "['[\"\\n]']"},
        {"{{ {'a': x} | tojson(indent=1) }}", "{\n \"a\": \"[<|im_end|>]\"\n}"},
        {"{{ x * 2 }}{{ 'ab' * 2 }}", "[<|im_end|><|im_end|>]abab"},
        {"{% set y %}<{{ x }}>{% endset %}{{ y }}", "<[<|im_end|>]>"},
        {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) | upper }}", "<[<|IM_END|>]>"},
        {"{% set ns = namespace(t='') %}{% for c in w %}{% set ns.t = ns.t + c + '.' %}{% endfor %}{{ ns.t }}",
         "[a].[ ].[b]."},
        {"{% filter replace('a', 'b') %}a{{ w }}{% endfilter %}", "bb[ b]"},
        {"{{ '%s|%s' % (x, 'y') }}", "[<|im_end|>]|y"},
        {"{{ f % 'y' }}{{ 'z' ~ (f | format(x)) }}", "yz[<|im_end|>]"},
        {"{{ '{}-{}'.format(w, 1) }}", "[a b]-1"},
        {"{{ w | indent(2, true) }}", "  [a b]"},
        {"{{ w | center(7, ) }}|{{ w.zfill(5) }}", "  [a b]  |00[a b]"},
        {"{{ w | truncate(2, true, '', 0) }}", "[a ]"},
        {"{{ w.partition(' ') }}", "('[a]', ' ', '[b]')"},
        {"{{ l | first }}{{ l | last }}{{ d | first }}{{ d.keys() | list }}{{ d | items | list }}",
         "[pqk]['[k]'][('[k]', '[v]')]"},
        {"{{ l | map('string') | map('upper') | list }}", "['[P]', '1', '[Q]']"},
        {"{{ l | string }}{{ w | list }}", "['[p]', 1, '[q]']['[a]', '[ ]', '[b]']"},
        {"{{ w | reverse }}{{ l | reverse | join }}", "[b aq]1[p]"},
        {"{{ l | select('string') | sort(reverse=true) | join('/') }}", "[q]/[p]"},
        {"{{ (x, 'y') | min }}{{ w | default('z') }}{{ '' | default(w, true) }}", "[<|im_end|>a ba b]"},
        {"{{ w | length }}{{ w | wordcount }}{{ n }}{{ n | string }}", "3255"},
        {"{{ '<b>' | escape }}{{ w | escape }}", "&lt;b&gt;[a b]"},
        {"{{ w.splitlines() | first }}{{ 'x\ny'.splitlines() | join }}", "[a b]xy"},
        {"{{ '{0}'.format(f) }}{{ f.format() }}", "[%s%s]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct jinja_output out;
        struct tern_err err;
        struct buf got;
        if (render(str_from(cases[i].source), vars, &out, &err) != TERN_OK)
            fail_msg("%s: %s", cases[i].source, err.message);
        marked(&got, &out);
        if (strcmp(got.data, cases[i].out) != 0)
            fail_msg("%s\n gives    %s\n expected %s", cases[i].source, got.data, cases[i].out);
        buf_release(&got);
        jinja_output_release(&out);
    }
}

// Begin and end markers that the caller gives are trusted; roles, contents and tools are not.
static void test_taint_of_input(void **state) {
    (void)state;
    struct jinja *j;
    struct jinja_output out = {0};
    struct buf got;
    struct jinja_input in = {.messages = STR("[{\"role\":\"user\",\"content\":\"<s>\"}]"),
                             .tools = STR("[{\"name\":\"f\"}]"),
                             .bos_token = STR("<s>"),
                             .eos_token = STR("</s>"),
                             .extra = STR("{\"more\":\"<s>\"}")};
    struct str source = STR("{{ bos_token }}{% for m in messages %}{{ m.role ~ ':' ~ m.content }}{% endfor %}"
                            "{{ tools[0].name }}{{ more }}{{ eos_token }}{{ add_generation_prompt }}");
    assert_int_equal(jinja_create(&j, source, NULL), TERN_OK);
    assert_int_equal(jinja_render(j, &out, &in, NULL), TERN_OK);
    marked(&got, &out);
    assert_string_equal(got.data, "<s>[user]:[<s>f<s>]</s>False");
    buf_release(&got);
    jinja_output_release(&out);
    in.messages = STR("{}");
    assert_int_equal(jinja_render(j, &out, &in, NULL), TERN_BAD_FORMAT);
    in.messages = STR("[");
    assert_int_equal(jinja_render(j, &out, &in, NULL), TERN_BAD_FORMAT);
    in.messages = STR("[{\"a\":99999999999999999999}]");
    assert_int_equal(jinja_render(j, &out, &in, NULL), TERN_LIMIT);
    jinja_free(j);
    jinja_free(NULL);
}

static void repeat(struct buf *b, const char *z, size_t n) {
    for (size_t i = 0; i < n; i++) buf_puts(b, z);
}

// Renders and demands a refusal in time; a busy machine gets three tries.
static void refuse(const char *what, struct str source, const char *vars) {
    uint64_t ms = 0;
    for (int i = 0; i < 3; i++) {
        struct jinja_output out;
        struct tern_err err;
        double start = os_cpu_self(); // others may have the processor meanwhile
        enum tern_status s = render(source, vars, &out, &err);
        ms = (uint64_t)((os_cpu_self() - start) * 1e3);
        if (s != TERN_LIMIT && s != TERN_BAD_FORMAT) fail_msg("%s: %s: %s", what, tern_status_text(s), err.message);
        if (!str_starts(str_from(err.message), STR("template line "))) fail_msg("%s: %s", what, err.message);
        jinja_output_release(&out);
        if (ms <= REFUSE_MS) return;
    }
    fail_msg("%s: refused after %d ms", what, (int)ms);
}

static void test_limits(void **state) {
    (void)state;
    static const char *const bombs[] = {
        "{{ range(10**9) }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}"
        "{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n + 1) ~ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
        "{{ 'x' * 10**9 }}",
        "{{ 'x' * 10**18 }}",
        "{{ [0] * 10**9 }}",
        "{{ [[0] * 1000000] * 1000000 }}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor "
        "%}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
        "{{ ns.l | tojson }}",
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson "
        "}}",
        "{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}"
        "{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}",
        "{% for i in range(100000) %}0123456789012345678901234567890123456789012345678901234567890{% endfor %}",
        "{% for i in range(100000) %}{{ 'x' * 100 }}{% endfor %}",
        "{{ 'ab'.replace('', 'x' * 3000000) }}",
        "{{ ('a' * 4000000).replace('a', 'bb') }}",
        "{{ (('a' * 4000000) | list | join('ab')) }}",
        "{{ ('a' * 3000000).rfind('a' * 1500000 ~ 'b') }}{% for i in range(9999) %}{{ ('a' * 3000000).rsplit('b' ~ 'a' "
        "* "
        "1500000) | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ ('a' * 1000000).strip('b') | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ (' ' * 1000000).strip() | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ ('é' * 500000) | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ ('é' * 500000)[250000] }}{% endfor %}",
        "{% for i in range(100000) %}{{ ('é' * 500000) | upper | lower | title | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ range(100000) | sort | first }}{% endfor %}",
        "{% for i in range(100000) %}{{ range(100000) | map('string') | unique | list | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ 'a' in 'b' * 1000000 }}{% endfor %}",
        "{% for i in range(100000) %}{{ ('b' * 1000000) == ('b' * 1000000) }}{% endfor %}",
        "{% for i in range(100000) %}{{ '%4000s' % 1 }}{{ '%4000d' % 1 }}{{ '{:>4000}'.format(1) }}{% endfor %}",
        "{{ '%9999999s' % 1 }}",
        "{{ '%.9999999f' % 1 }}",
        "{{ '{:99999999}'.format(1) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x'.zfill(10**9) }}",
        "{{ 'a\nb' | indent(10**9) }}",
        "{{ [1] | tojson(indent=10**9) }}",
        "{{ [1, 2] | batch(10**9, 'x') | list | length }}",
        "{{ [1, 2] | slice(10**9) | list | length }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 10 ** 100 }}",
        "{{ strftime_now('%Y' * 1000) }}",
        "{% for i in range(1000) %}{{ range(100000) | join | length }}{% endfor %}",
        "{% for i in range(100000) %}{% for j in 'abc' * 10000 %}{% endfor %}{% endfor %}",
        "{{ range(100000) | map('string') | list | string | length }}{% for i in range(100000) %}{{ i | tojson }}"
        "{{ [i] * 1000 }}{% endfor %}",
        "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{i | string: i}) %}"
        "{% endfor %}",
    };
    for (size_t i = 0; i < ARRAY_LEN(bombs); i++) refuse(bombs[i], str_from(bombs[i]), "{}");
}

static void test_limits_of_source(void **state) {
    (void)state;
    static const struct {
        const char *open, *middle, *close;
        size_t n;
    } deep[] = {
        {"(", "1", ")", 60000},           {"[", "", "]", 60000},
        {"{1:", "1", "}", 60000},         {"f(", "", ")", 60000},
        {"a[", "1", "]", 60000},          {"-", "1", "", 60000},
        {"not ", "1", "", 60000},         {"1 if ", "1", " else 2", 60000},
        {"1 if 1 else ", "1", "", 60000}, {"x is a(", "1", ")", 60000},
        {"x|f(", "1", ")", 60000},        {"1 + ", "1", "", 60000},
        {"1 ~ (", "1", ")", 60000},       {"1 and ", "1", "", 60000},
        {"1 or (", "1", ")", 60000},      {"1 < ", "1", "", 60000},
        {"1 ** ", "1", "", 60000},        {"a[1:", "1", "]", 60000},
    };
    struct buf b;
    buf_init(&b, TEXT_MAX);
    for (size_t i = 0; i < ARRAY_LEN(deep); i++) {
        buf_clear(&b);
        buf_puts(&b, "{{ ");
        repeat(&b, deep[i].open, deep[i].n);
        buf_puts(&b, deep[i].middle);
        repeat(&b, deep[i].close, deep[i].n);
        buf_puts(&b, " }}");
        refuse(deep[i].open, buf_str(&b), "{\"a\":[1],\"x\":1}");
    }
    static const char *const blocks[] = {"{% if 1 %}",         "{% for i in [1] %}", "{% set x %}",
                                         "{% filter upper %}", "{% macro f() %}",    "{% with %}",
                                         "{% generation %}",   "{% call f() %}"};
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) { // nested, never closed: 12 KB of them
        buf_clear(&b);
        repeat(&b, blocks[i], 12000 / strlen(blocks[i]));
        refuse(blocks[i], buf_str(&b), "{}");
    }
    buf_clear(&b);
    repeat(&b, "{% if 1 %}", 1000);
    repeat(&b, "{% endif %}", 1000);
    refuse("nested ifs", buf_str(&b), "{}");
    buf_clear(&b);
    for (int i = 0; i < 5000; i++) buf_putf(&b, "{{ v%d }}", i);
    refuse("many names", buf_str(&b), "{}");
    buf_clear(&b);
    buf_puts(&b, "{{ f(");
    for (int i = 0; i < 2000; i++) buf_putf(&b, "a%d=1,", i);
    buf_puts(&b, ") }}{% macro f() %}{{ kwargs }}{% endmacro %}");
    refuse("many arguments", buf_str(&b), "{\"f\":1}");
    buf_clear(&b);
    repeat(&b, "x", JINJA_SOURCE_BYTES_MAX + 1);
    struct jinja *j;
    assert_int_equal(jinja_create(&j, buf_str(&b), NULL), TERN_LIMIT);
    buf_release(&b);
}

// What stays below the limits is not refused: a long conversation, long content, a table of a thousand rows.
static void test_large(void **state) {
    (void)state;
    struct buf vars;
    buf_init(&vars, TEXT_MAX);
    buf_puts(&vars, "{\"messages\":[");
    for (int i = 0; i < 1000; i++)
        buf_putf(&vars, "%s{\"role\":\"%s\",\"content\":\"%01000d\"}", i ? "," : "", i % 2 ? "assistant" : "user", i);
    buf_puts(&vars, "]}");
    static const char source[] =
        "{% set ns = namespace(t='', n=0) %}{% for m in messages %}{% set ns.t = ns.t + '<' + m.role + '>' + m.content "
        "| "
        "trim + '\\n' %}{% if m.content.startswith('0') and '9' in m.content %}{% set ns.n = ns.n + 1 %}{% endif %}"
        "{% endfor %}{{ ns.t }}{{ ns.n }}";
    struct jinja_output out;
    struct tern_err err;
    if (render(str_from(source), vars.data, &out, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(out.text.len, 500 * (6 + 11) + 1000 * 1001 + 3);
    assert_int_equal(out.n_tainted, 2000);
    jinja_output_release(&out);
    buf_release(&vars);
}

static void test_places(void **state) {
    (void)state;
    static const struct {
        const char *source, *message;
        int64_t pos;
    } cases[] = {
        {"a\nb {{ 1 + }}", "template line 2, column 10: expected an expression, found '}}'", 11},
        {"{% if x %}", "template line 1, column 11: this block is never closed: expected {% elif %}", 10},
        {"é{{ 'x }}", "template line 1, column 5: the string is never closed: expected '", 5},
        {"{{ x|nosuch }}", "template line 1, column 6: no filter named 'nosuch' is known here", 5},
        {"{{ x is nosuch }}", "template line 1, column 6: no test named 'nosuch' is known here", 5},
        {"\n\n{{ missing.x }}", "template line 3, column 4: 'missing' is undefined", 5},
        {"{{ 1 +\n 'a' }}", "template line 1, column 6: '+' does not work on 'int' and 'str'", 5},
        {"{% block x %}{% endblock %}",
         "template line 1, column 4: the statement 'block' is not supported in chat templates", 3},
        {"{% for x in y recursive %}{% endfor %}", "template line 1, column 15: recursive loops are not supported", 14},
        {"{{ raise_exception('x\ty') }}", "x\\x09y", 18},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct jinja_output out;
        struct tern_err err;
        assert_int_not_equal(render(str_from(cases[i].source), "{\"x\":1}", &out, &err), TERN_OK);
        assert_string_equal(err.message, cases[i].message);
        assert_int_equal(err.pos, cases[i].pos);
    }
    struct jinja *j;
    assert_int_equal(jinja_create(&j, STR("a\xff"), NULL), TERN_BAD_FORMAT);
    assert_int_equal(jinja_create(&j, STR("{{"), NULL), TERN_BAD_FORMAT);
}

static void test_clock(void **state) {
    (void)state;
    char want[64], bad[] = "{{ strftime_now('%5d') }}";
    struct jinja_output out;
    struct tern_err err;
    want[clock_format(want, sizeof(want), "%d %b %Y %H:%M", NOW)] = 0;
    assert_int_equal(render(STR("{{ strftime_now('%d %b %Y %H:%M') }}"), "{}", &out, &err), TERN_OK);
    assert_string_equal(out.text.data, want);
    jinja_output_release(&out);
    assert_int_equal(render(STR("[{{ strftime_now('') }}]"), "{}", &out, &err), TERN_OK);
    assert_string_equal(out.text.data, "[]");
    jinja_output_release(&out);
    assert_int_equal(render(str_from(bad), "{}", &out, &err), TERN_UNSUPPORTED);
}

static void test_no_memory(void **state) {
    (void)state;
    static const char source[] = "{% macro f(a) %}{{ a | tojson }}{% endmacro %}{% for m in l %}{{ f(m) ~ m.x[0:1] }}"
                                 "{% endfor %}{{ l | map(attribute='x') | join(',') ~ 1.5 ~ 'x' * 9000 }}";
    enum tern_status s = TERN_NO_MEMORY;
    for (uint64_t n = 1; s != TERN_OK; n++) {
        struct jinja_output out;
        struct tern_err err;
        mem_fail_at(n, false);
        s = render(str_from(source), "{\"l\":[{\"x\":\"a\\n\"},{\"x\":\"b\"}]}", &out, &err);
        mem_fail_at(0, false);
        if (s == TERN_OK) {
            assert_true(n > 10);
            assert_true(str_starts(buf_str(&out.text), STR("{\"x\": \"a\\n\"}a{\"x\": \"b\"}ba\n,b1.5x")));
        } else {
            assert_int_equal(s, TERN_NO_MEMORY);
        }
        jinja_output_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports),          cmocka_unit_test(test_taint),
        cmocka_unit_test(test_taint_of_input),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limits_of_source), cmocka_unit_test(test_large),
        cmocka_unit_test(test_places),           cmocka_unit_test(test_clock),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
