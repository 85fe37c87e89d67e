#!/bin/sh
# tern bench --server: our server and one beside it, which here is ours in llama-server's clothes.
. test/cli/cli_lib.sh

wrong() { # NAME PATTERN ARGUMENT…
    name=$1
    pattern=$2
    shift 2
    run bench "$@"
    want_code "$name" 2
    want_in "$name" err "$pattern"
}
pico=models/pico.gguf
wrong 'streams' "1 to 64, not '65'" --server 65 -m $pico
wrong 'two benches' 'a bench of its own' --server 1 --rows -m $pico
wrong 'no model' 'needs the file of a model' --server 1
wrong 'csv alone' 'go with --server' --csv x
wrong 'turns' '--turns' --server 1 --turns 1000 -m $pico

cat >"$work/theirs" <<END
#!/bin/sh
while [ \$# -gt 0 ]; do
    case \$1 in
    -m) model=\$2 ;; --port) port=\$2 ;; -t) threads=\$2 ;; -c) ctx=\$2 ;; -np) places=\$2 ;; --no-webui) shift; continue ;;
    *) exit 9 ;;
    esac
    shift 2
done
exec $TERN serve -m "\$model" --port "\$port" -t "\$threads" -c \$((ctx / places)) --streams "\$places" --draft off
END
chmod +x "$work/theirs"
run bench --server 1,2 -m $pico --beside "$work/theirs" --csv "$work/rows.csv" -t 1 -n 24 -p 100 -r 1 --turns 3 --json
if grep -Eq 'needs libcurl|libmicrohttpd' "$work/err"; then # the clear message is all that can be tested
    want_code 'without its libraries' 1
    finish
    exit
fi
want_code 'server' 0
want_in 'server' out '{"streams": 1, "total_tps": \[[0-9.e+]*, [0-9.e+]*\], "ttft_ms": \[[0-9.]*, [0-9.]*\]'
want_in 'server' out '"session_reused": \[0\.[5-9][0-9]*, 0\.[5-9][0-9]*\]'
want_in 'server' out '{"streams": 2, .*"arrival_gap_ms": \[[0-9.e+]*, [0-9.e+]*\], "arrival_tps": \['
want_in 'server' out '"token_wait_ms": \[[0-9.]*\]'
[ "$(wc -l <"$work/rows.csv")" = 5 ] || fail 'a line of the CSV for each measurement'
[ "$(awk -F, '{ print NF }' "$work/rows.csv" | sort -u)" = 22 ] || fail 'as many fields in each line'

run bench --server 1 -m $pico -t 1 -n 24 -r 1 --turns 0
want_code 'server alone' 0
want_in 'server alone' out '^ *shared_second_ms *[0-9.]*$'

# A server that does not start is an error with the place of its words.
printf '#!/bin/sh\necho no such place\nexit 3\n' >"$work/theirs"
run bench --server 1 -m $pico --beside "$work/theirs" -t 1 -n 24 -r 1 --turns 0
want_code 'broken server' 1
want_in 'broken server' err 'llama-server ended before it was ready; what it said is in'
log=$(sed -n 's/.*what it said is in //p' "$work/err")
grep -q 'no such place' "$log" || fail 'the words of the broken server'
rm -f "$log"
finish
