#!/bin/sh
# tern run with a form of the answer: what comes out has it; wrong forms are refused with the place.
. test/cli/cli_lib.sh

cat >"$work/person.json" <<'END'
{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "born": {"type": "integer",
 "minimum": 1800, "maximum": 1999}}, "required": ["name", "born"], "additionalProperties": false}
END
printf '{"type": "object", "properties": {"a": {"not": {}}}}' >"$work/bad.json"
printf 'root ::= "- " [a-z]{1,6} "\\n- " [a-z]{1,6}\n' >"$work/list.gbnf"
printf '[{"type": "function", "function": {"name": "stop"}}]' >"$work/tools.json"

run run --schema "$work/person.json" -n 200 'Who?'
want_code 'schema' 0
want_in 'schema' out '"name": *"'
want_in 'schema' out '"born": *1[89][0-9][0-9]'
run run --choice yes,no,perhaps --temp 1 'Really?'
want_code 'choice' 0
want_in 'choice' out '^\(yes\|no\|perhaps\)$'
run run --regex '[A-Z][a-z]{2,8} [0-9]{4}' 'When?'
want_in 'regex' out '^[A-Z][a-z]\{2,8\} [0-9]\{4\}$'
run run --grammar "$work/list.gbnf" 'Which?'
want_in 'grammar' out '^- [a-z]\{1,6\}$'
run run --tools "$work/tools.json" --tool-choice required 'Stop.'
want_out 'tool choice' '[{"name": "stop", "arguments": {}}]\n'
run run --schema "$work/bad.json" 'x'
want_code 'refused schema' 1
want_in 'refused schema' err '#/properties/a.*"not"'
run run --schema "$work/person.json" --json-object 'x'
want_code 'two forms' 2
run run --tool-choice stop 'x'
want_code 'tool choice without tools' 2
run run --schema "$work/nothing.json" 'x'
want_code 'no such file' 1
run run --regex '(a' 'x'
want_code 'bad pattern' 1
want_in 'bad pattern' err 'not closed'
run bench --mask --json
want_code 'bench' 0
want_in 'bench' out '"mask_us"'
finish
