# Lengths of functions, from the line of the name to the closing brace, in the tree's format: a body opens with a brace
# at depth 0 whose line, or the lines of the same declaration before it, hold a parameter list.
BEGIN {
    LINES_MAX = 70
    exempt_file = file ~ /^src\/unit\/[a-z0-9]+\//
    strip_begin()
}
{
    code = strip($0)
    raw = $0
    if (raw ~ /^[ \t]*#/ || continued) { # preprocessor lines hold no bodies of ours
        continued = raw ~ /\\$/
        next
    }
    if (depth == 0) {
        if (raw ~ /^\/\/ *(flat|kernel): *[^ ]/) excused = 1
        if (code ~ /[^ \t]/ && head == "") {
            head = code
            head_line = FNR
        } else if (head != "") head = head " " code
    }
    line = code
    while (match(line, /[{}]/)) {
        if (substr(line, RSTART, 1) == "{") {
            if (depth == 0) {
                before = head
                sub(/\{.*/, "", before)
                is_function = before ~ /\)[ \t]*(__attribute__.*)?$/ && before !~ /=/ && before !~ /extern "/
                start = head_line
                signature = before
            }
            if (before ~ /extern ""[ \t]*$/ && depth == 0) ; else depth++
        } else if (depth > 0) {
            depth--
            if (depth == 0 && is_function) {
                n = FNR - start + 1
                if (n > LINES_MAX && !excused && !exempt_file) {
                    name = signature
                    sub(/\(.*/, "", name)
                    sub(/.*[ *]/, "", name)
                    print file ":" start ": " name "() has " n " lines; " LINES_MAX " at most"
                    bad = 1
                }
                head = ""
                excused = 0
                is_function = 0
            }
        }
        line = substr(line, RSTART + 1)
    }
    if (depth == 0 && (code ~ /[;}][ \t]*$/)) {
        head = ""
        if (code ~ /;[ \t]*$/ || code ~ /^}/) excused = 0
    }
}
END { exit bad }
