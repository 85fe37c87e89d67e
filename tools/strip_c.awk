# strip(line): a line of C without comments, the inside of strings and character constants emptied. Lines must be given
# in order from the file's first; strip_begin() starts a file. For use with other awk programs: awk -f strip_c.awk -f …
function strip_begin() { strip_comment = 0 }
function strip(line,    out, at, c) {
    out = ""
    while (line != "") {
        if (strip_comment) {
            at = index(line, "*/")
            if (!at) return out
            line = substr(line, at + 2)
            strip_comment = 0
            continue
        }
        at = match(line, /\/\*|\/\/|"|'/)
        if (!at) return out line
        c = substr(line, at, RLENGTH)
        out = out substr(line, 1, at - 1)
        line = substr(line, at + RLENGTH)
        if (c == "//") return out
        if (c == "/*") {
            strip_comment = 1
            out = out " "
            continue
        }
        # A constant: skip to the closing quote, stepping over escapes.
        out = out c
        while (line != "") {
            if (substr(line, 1, 1) == "\\") line = substr(line, 3)
            else if (substr(line, 1, 1) == c) break
            else line = substr(line, 2)
        }
        out = out c
        line = substr(line, 2)
    }
    return out
}
