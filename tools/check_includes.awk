# The include table (doc/architecture.md). Each row: folder, then the folders whose face header it may include. Every
# folder may include tern.h and its own headers. Kernels (and what they include) see plain.h and op_math.h in place of the
# faces of base/ and op/: less of them is compiled again.
function bad(what) {
    print file ":" FNR ": " what
    n_bad++
}
# Is this base/base.h (for kernels: plain.h), or a header of src/ whose first include is, and so on?
function leads_to_base(what, depth,    line, path, first) {
    if (what == "base/base.h" || (what == "base/plain.h" && sees_plain)) return 1
    path = "src/" what
    if (what !~ /\//) { # beside this file
        path = file
        sub(/[^\/]*$/, what, path)
    } else if (index(what, folder "/") != 1) return 0
    if (depth > 4) return 0
    while (first == "" && (getline line <path) > 0)
        if (line ~ /^[ \t]*#[ \t]*include/) first = line
    close(path)
    if (!match(first, /[<"][^>"]*[>"]/)) return 0
    return leads_to_base(substr(first, RSTART + 1, RLENGTH - 2), depth + 1)
}
BEGIN {
    may["base"] = ""
    may["model"] = may["text"] = may["op"] = may["meter"] = may["net"] = may["term"] = "base"
    may["prog"] = "base model op"
    may["unit"] = "base op prog"
    may["plan"] = "base prog unit"
    may["spec"] = "base prog plan"
    may["policy"] = "base prog unit plan spec meter"
    may["engine"] = "base model text op prog unit plan spec meter policy"
    may["app"] = "base net term"
    # Programs of app/ that measure, show or explain the inside also see what they look at.
    inside = "base net term model text op prog unit plan spec meter policy"
    plain = " assert ctype errno float inttypes iso646 limits math setjmp signal stdalign stdarg stdatomic stdbool stddef " \
        "stdint stdio stdlib stdnoreturn string "

    n = split(file, part, "/")
    folder = part[1] == "src" ? part[2] : "include"
    sub_folder = folder == "unit" && n > 3 ? part[3] : ""
    name = part[n]
    if (folder != "include" && !(folder in may)) bad("folder " folder " is not in the include table")
    allowed = " " may[folder] " "
    if (folder == "app" && name ~ /^(bench|study|sim|explain|show|doctor|cache|quantize|store|list|compare|compile)/) allowed = " " inside " "
    sees_plain = folder ~ /^(op|unit)$/
    os_layer = folder ~ /^(base|meter|unit|net|term)$/
}
/^[ \t]*#[ \t]*include/ {
    n_include++
    if (!match($0, /[<"][^>"]*[>"]/)) {
        bad("#include of a macro")
        next
    }
    what = substr($0, RSTART + 1, RLENGTH - 2)
    if (n_include == 1 && name ~ /\.c$/ && folder != "include" && folder != "base" && !leads_to_base(what, 0))
        bad("base/base.h must be the first include (or a header of this folder that includes it first)")
    if (substr($0, RSTART, 1) == "<") {
        base_name = what
        sub(/\.h$/, "", base_name)
        if (!os_layer && index(plain, " " base_name " ") == 0)
            bad("<" what ">: system headers belong to base/, meter/, unit/, net/ and term/")
        next
    }
    if (what == "tern.h") next
    depth = split(what, step, "/")
    if (what ~ /\.\./) {
        bad("\"" what "\": no way up in an include")
        next
    }
    to = depth > 1 ? step[1] : folder
    if (depth > 1 && (sub_folder != "" && to == sub_folder)) to = "unit"
    if (to == folder) {
        # Inside a folder: free, but the units never see one another.
        if (depth > 2 && to == "unit" && step[2] != sub_folder && sub_folder != "")
            bad("unit/" sub_folder " must not see unit/" step[2])
        if (depth > 2 && to == "unit" && sub_folder == "" && step[3] != step[2] ".h")
            bad("\"" what "\": unit/ sees only the face of unit/" step[2])
        next
    }
    if (!(to in may)) bad("\"" what "\": no such folder in the include table")
    else if (index(allowed, " " to " ") == 0) bad(folder "/ must not include " to "/ (\"" what "\")")
    else if (sees_plain && (what == "base/plain.h" || what == "op/op_math.h")) next
    else if (step[2] != to ".h" || depth != 2) bad("\"" what "\": only the face " to "/" to ".h crosses the border")
}
/^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)/ && !os_layer {
    if (match($0, /__linux|__gnu_linux|__APPLE__|_WIN32|__FreeBSD__|__unix|__x86_64|__i386|__aarch64|__arm|__AVX|__SSE|__FMA|__F16C|__ARM_|__AMX|__CUDA|__NVCC|__GLIBC|__ANDROID__/))
        bad("#if on " substr($0, RSTART, RLENGTH) "…: only base/, meter/, unit/, net/ and term/ know systems and vendors")
}
END { exit n_bad > 0 }
