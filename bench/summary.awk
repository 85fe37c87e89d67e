# Reads the CSV of bench/speed.sh; prints median, min and max per cell, and ours over the other engine's median.
#   awk -f bench/summary.awk FILE.csv
BEGIN { FS = "," }
NR > 1 {
    cell = $2 "," $3 "," $5 $6 "@" $7
    if (!(cell in seen)) { seen[cell] = 1; order[++n_cells] = cell }
    key = cell SUBSEP $4
    v[key, ++n[key]] = $8 + 0
}
function median(key,    i, j, t, m) {
    m = n[key]
    for (i = 1; i <= m; i++) s[i] = v[key, i]
    for (i = 2; i <= m; i++) for (j = i; j > 1 && s[j - 1] > s[j]; j--) { t = s[j]; s[j] = s[j - 1]; s[j - 1] = t }
    return m % 2 ? s[(m + 1) / 2] : (s[m / 2] + s[m / 2 + 1]) / 2
}
function cell_text(key,    m) {
    if (!n[key]) return "-"
    m = median(key)
    return sprintf("%.1f (%.1f-%.1f)", m, s[1], s[n[key]])
}
END {
    printf "| model | threads | test | tern | llama.cpp | ratio |\n| --- | --: | --- | --: | --: | --: |\n"
    for (c = 1; c <= n_cells; c++) {
        split(order[c], f, ",")
        a = order[c] SUBSEP "tern"; b = order[c] SUBSEP "llama.cpp"
        ratio = n[b] && median(b) > 0 ? sprintf("%.2f", median(a) / median(b)) : "-"
        printf "| %s | %s | %s | %s | %s | %s |\n", f[1], f[2], f[3], cell_text(a), cell_text(b), ratio
    }
}
