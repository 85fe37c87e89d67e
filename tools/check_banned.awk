# The lists of check_banned.sh. A name counts when it is called or its address is taken: name followed by "(" and not
# part of a longer name, a member or a declaration of ours.
BEGIN {
    split("gets strtok tmpnam mktemp alloca sprintf vsprintf strcpy strcat stpcpy asctime ctime gmtime localtime", names, " ")
    for (i in names) everywhere[names[i]] = 1
    wrapped = "malloc calloc realloc reallocarray free aligned_alloc posix_memalign memalign strdup strndup asprintf " \
        "vasprintf printf fprintf vprintf vfprintf puts fputs putchar fputc perror abort exit _exit _Exit quick_exit " \
        "assert atoi atol atoll atof strtol strtoul strtoll strtoull strtod strtof strtold sscanf scanf " \
        "fscanf fopen fdopen freopen fclose fread fwrite fgets getline fseek ftell open openat close read write pread " \
        "pwrite mmap munmap madvise getenv setenv putenv system popen fork execv execvp time clock clock_gettime " \
        "gettimeofday nanosleep usleep sleep rand srand random srandom drand48 setlocale signal sigaction kill remove rename unlink " \
        "pthread_create pthread_join pthread_mutex_lock pthread_cond_wait sched_setaffinity strncpy strncat strerror"
    n_names = split(wrapped, names, " ")
    if (file ~ /^(src|include)\// && file !~ /^src\/(base|app)\//)
        for (i = 1; i <= n_names; i++) outside[names[i]] = 1
    if (file ~ /^src\/net\//) { # its sockets are the system's
        delete outside["close"]
        delete outside["read"]
        delete outside["write"]
        delete outside["sigaction"]
        delete outside["unlink"]
    }
    if (file ~ /^src\/term\//) { # the terminal is the system's, and so is a file that is appended to
        n_names = split("fputs fprintf open close read write sigaction setlocale", names, " ")
        for (i = 1; i <= n_names; i++) delete outside[names[i]]
    }
    strip_begin()
}
{
    code = strip($0)
    while (match(code, /[A-Za-z_][A-Za-z0-9_]*[ ]*\(/)) {
        before = RSTART > 1 ? substr(code, RSTART - 1, 1) : ""
        name = substr(code, RSTART, RLENGTH - 1)
        sub(/ +$/, "", name)
        code = substr(code, RSTART + RLENGTH)
        if (before ~ /[.>A-Za-z0-9_]/) continue
        if (name in everywhere) why = "never used here"
        else if (name in outside) why = "base/ has a wrapper for it"
        else continue
        print file ":" FNR ": " name "(): " why
        bad = 1
    }
}
END { exit bad }
