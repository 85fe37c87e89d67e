#!/usr/bin/env python3
"""Writes src/text/jinja_unicode_table.inc: the code point properties and case mappings that Python's str methods use,
as ranges. Run with the Python whose Unicode version the tables shall have (3.11: Unicode 14)."""
import sys
import unicodedata

LAST = 0x110000


def chars():
    for cp in range(LAST):
        if not 0xD800 <= cp < 0xE000:
            yield cp, chr(cp)


def ranges(test):
    out, start = [], None
    for cp in range(LAST + 1):
        on = cp < LAST and not 0xD800 <= cp < 0xE000 and test(chr(cp))
        if on and start is None:
            start = cp
        if not on and start is not None:
            out.append((start, cp - 1))
            start = None
    return out


def emit_rows(rows):
    line = "   "
    for r in rows:
        if len(line) + len(r) + 2 > 118:
            print(line)
            line = "   "
        line += " " + r + ","
    print(line)


def case_rows(convert):
    """Runs (first, last, stride, delta) of single mappings, and the mappings to several code points."""
    single, multi = {}, []
    for cp, c in chars():
        m = convert(c)
        if m == c:
            continue
        if len(m) == 1:
            single[cp] = ord(m) - cp
        else:
            multi.append((cp, [ord(x) for x in m]))
    runs, cps, i = [], sorted(single), 0
    while i < len(cps):
        best = 1
        stride = 1
        for s in (1, 2):
            n = 1
            while i + n < len(cps) and cps[i + n] == cps[i] + n * s and single[cps[i + n]] == single[cps[i]]:
                n += 1
            if n > best:
                best, stride = n, s
        runs.append((cps[i], cps[i + best - 1], stride, single[cps[i]]))
        i += best
    return runs, multi


def main():
    print(f"// Generated: by tools/jinja/make_unicode.py from Python {sys.version.split()[0]}, "
          f"Unicode {unicodedata.unidata_version}; do not edit.")
    props = {"alpha": str.isalpha, "decimal": str.isdecimal, "digit": str.isdigit, "numeric": str.isnumeric,
             "lower": str.islower, "upper": str.isupper,
             "print": str.isprintable, "title": lambda c: unicodedata.category(c) == "Lt", "space": str.isspace}
    for name, test in props.items():
        print(f"static const struct rune_range prop_{name}[] = {{")
        emit_rows([f"{{0x{a:x}, 0x{b:x}}}" for a, b in ranges(test)])
        print("};")
    maps = {"lower": str.lower, "upper": str.upper, "title": str.title, "fold": str.casefold}
    for name, convert in maps.items():
        runs, multi = case_rows(convert)
        print(f"static const struct case_run case_{name}[] = {{")
        emit_rows([f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}" for a, b, s, d in runs])
        print("};")
        print(f"static const struct case_multi multi_{name}[] = {{")
        rows = [f"{{0x{cp:x}, {len(m)}, {{{', '.join(f'0x{x:x}' for x in m)}}}}}" for cp, m in multi]
        emit_rows(rows or ["{0, 0, {0}}"])
        print("};")


main()
