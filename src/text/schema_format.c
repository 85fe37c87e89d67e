// Formats as patterns: narrower than their RFCs where these allow what few readers do, never wider.
#include "base/base.h"
#include "text/schema_int.h"

#define DAY_OF_MONTH "((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define DATE "(000[1-9]|00[1-9]\\d|0[1-9]\\d{2}|[1-9]\\d{3})-" DAY_OF_MONTH
#define CLOCK "([01]\\d|2[0-3]):[0-5]\\d"
#define TIME CLOCK ":[0-5]\\d(\\.\\d{1,9})?(Z|[+-]" CLOCK ")"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HEX4 "[0-9A-Fa-f]{1,4}"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define PATH_TAIL "(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date-time", "^" DATE "T" TIME "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"duration", "^P(\\d{1,6}W|(\\d{1,6}Y(\\d{1,6}M(\\d{1,6}D)?)?|\\d{1,6}M(\\d{1,6}D)?|\\d{1,6}D)"
                 "(T(\\d{1,6}H(\\d{1,6}M(\\d{1,6}S)?)?|\\d{1,6}M(\\d{1,6}S)?|\\d{1,6}S))?"
                 "|T(\\d{1,6}H(\\d{1,6}M(\\d{1,6}S)?)?|\\d{1,6}M(\\d{1,6}S)?|\\d{1,6}S))$"},
    {"email", "^[A-Za-z0-9_+-]{1,24}(\\.[A-Za-z0-9_+-]{1,12}){0,3}@(" LABEL "\\.){1,4}[A-Za-z]{2,24}$"},
    {"hostname", "^(" LABEL "\\.){0,6}[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$"},
    {"ipv4", "^(" BYTE "\\.){3}" BYTE "$"},
    {"ipv6", "^((" HEX4 ":){7}" HEX4 "|(" HEX4 ":){1,7}:|(" HEX4 ":){1,6}:" HEX4 "|(" HEX4 ":){1,5}(:" HEX4
             "){1,2}|(" HEX4 ":){1,4}(:" HEX4 "){1,3}|(" HEX4 ":){1,3}(:" HEX4 "){1,4}|(" HEX4 ":){1,2}(:" HEX4
             "){1,5}|" HEX4 ":(:" HEX4 "){1,6}|:((:" HEX4 "){1,7}|:))$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,15}://([A-Za-z0-9-]{1,63}\\.){0,4}[A-Za-z0-9-]{1,63}(:\\d{1,5})?(/" PCHAR
            "*)*" PATH_TAIL "$"},
    {"uri-reference",
     "^((https?://([A-Za-z0-9-]{1,63}\\.){0,4}[A-Za-z0-9-]{1,63}(:\\d{1,5})?)?(/" PCHAR "+)*/?" PATH_TAIL ")$"},
    {"json-pointer", "^(/([^~/]|~[01])*)*$"},
};

struct str format_pattern(struct str name) {
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (str_eqz(name, formats[i].name)) return str_from(formats[i].pattern);
    return (struct str){NULL, 0};
}
