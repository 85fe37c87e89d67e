#!/bin/sh
# tools/check_text.sh ROOT: what holds for every text file of ours: no tab in C, no blank at a line's end, a final
# newline, LF line ends, no invisible characters, C lines of at most 120 columns, no words of unfinished work, no paths
# of one machine; C files open with a comment.
set -u
root=$1
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cd "$root" || exit 1
"$tools/list_files.sh" . | grep -E '\.(c|h|inc|S|cu|cuh|sh|awk|md|ini|py|mk)$|(^|/)(Makefile|meson\.build|meson_options\.txt|run)$' |
    grep -vE '^(test/data|fuzz/corpus|models/.*\.json)/' >"${TMPDIR:-/tmp}/tern_text.$$"
trap 'rm -f "${TMPDIR:-/tmp}/tern_text.$$"' EXIT
status=0

# The words are split so that this file does not hold them.
words='TO''DO|FIX''ME|XX''X|HA''CK|WI''P'
phrases='for n''ow[^a-z]|not implem''ented|to be d''one|place''holder|simpli''fied (version|implementation)|dummy implem''entation'
while IFS= read -r f; do
    awk -v file="$f" -v words="$words" -v phrases="$phrases" '
    function bad(what) { print file ":" FNR ": " what; n++ }
    BEGIN { is_c = file ~ /\.(c|h|inc|cu|cuh)$/; is_src = file !~ /\.md$/ }
    FNR == 1 && file ~ /\.(c|h)$/ && !/^\/[\/*]/ { bad("the file does not open with a comment that says what it owns") }
    /\r$/ { bad("CR at the end of the line; use LF") }
    /[ \t]$/ { bad("blank at the end of the line") }
    is_c && /\t/ { bad("tab; indent with four blanks") }
    /\357\273\277|\342\200\213|\342\200\214|\342\200\215|\342\200\256|\342\201\240|\302\240/ { bad("invisible character (write it as an escape)") }
    is_c {
        line = $0
        gsub(/[\200-\277]/, "", line)
        if (length(line) > 120) bad("line of " length(line) " columns; 120 at most")
    }
    {
        word = " " $0 " "
        while (match(word, words)) {
            if (substr(word, RSTART - 1, 1) !~ /[A-Za-z0-9_]/ && substr(word, RSTART + RLENGTH, 1) !~ /[A-Za-z0-9_]/) {
                bad("\"" substr(word, RSTART, RLENGTH) "\": finish it or leave it out")
                break
            }
            word = substr(word, RSTART + RLENGTH)
        }
        if (match(tolower($0) " ", phrases)) bad("\"" substr($0, RSTART, RLENGTH) "\": finish it or leave it out")
        if ($0 ~ /(^|[^A-Za-z0-9_.])\/(wo[r]k|tmp\/t)\//) bad("a path of one machine")
    }
    END { exit n > 0 }' "$f" || status=1
    if [ -s "$f" ] && [ "$(tail -c 1 "$f" | od -An -c | tr -d ' ')" != '\n' ]; then
        echo "$f: no newline at the end of the file"
        status=1
    fi
done <"${TMPDIR:-/tmp}/tern_text.$$"
exit $status
