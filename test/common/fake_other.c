// A library that is nothing of what is looked for.
int fake_other_is_nothing(void);
__attribute__((visibility("default"))) int fake_other_is_nothing(void) { return 0; }
