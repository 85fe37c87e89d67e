// The prompts of test/data/pico/prompts.jsonl: 20 of each of chat, story, math, code and tool, in this order.
#pragma once
#include "base/base.h"

struct prompt_line {
    struct str messages, tools; // JSON; tools empty where there are none
};
struct prompt_file {
    struct buf text;
    struct prompt_line lines[100];
    int n;
};
// Lines first, first + every, …, at most n of them. Stops the test process with a message when the file is broken.
void prompt_file_read(struct prompt_file *f, const char *path, int first, int every, int n);
void prompt_file_release(struct prompt_file *f);
