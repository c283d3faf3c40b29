/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what text.c writes: a cursor over lines of words, numbers and quoted strings. Every call
 * either advances it or sets the diagnosis with the number of the line. */
#include "base/base.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void ul_scan_skip_blanks(struct ul_scan *scan)
{
    while (*scan->at == ' ')
        scan->at++;
}

/* Skips blank lines and lines that start with '#'. */
static void skip_empty_lines(struct ul_scan *scan)
{
    for (;;) {
        const char *at = scan->at + strspn(scan->at, " ");
        if (*at == '#')
            at += strcspn(at, "\n");
        if (*at != '\n')
            break;
        scan->at = at + 1;
        scan->line++;
    }
}

bool ul_scan_in_name(char character)
{
    return isalnum((unsigned char)character) || character == '_';
}

bool ul_scan_is_letter(char character)
{
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z');
}

void ul_scan_init(struct ul_scan *scan, struct ul_arena *arena, const char *text,
                  struct ul_diag *diag)
{
    *scan = (struct ul_scan){.arena = arena, .diag = diag, .at = text, .line = 1};
    skip_empty_lines(scan);
}

enum ul_status ul_scan_open(struct ul_scan *scan, struct ul_arena *arena, const char *bytes,
                            uint64_t size_bytes, struct ul_diag *diag)
{
    char *text = ul_arena_alloc(arena, ul_size_add_or_die(size_bytes, 1));
    if (size_bytes > 0)
        memcpy(text, bytes, size_bytes);
    if (memchr(text, '\0', size_bytes) != NULL)
        return ul_diag_set(diag, UL_INVALID, "not text: it has a byte that is 0");
    ul_scan_init(scan, arena, text, diag);
    return UL_OK;
}

enum ul_status ul_scan_fail(struct ul_scan *scan, const char *wanted)
{
    char near[24];
    size_t length = strcspn(scan->at, "\n");
    if (length > sizeof near - 1)
        length = sizeof near - 1;
    memcpy(near, scan->at, length);
    near[length] = '\0';
    return ul_diag_set(scan->diag, UL_INVALID, "line %u: expected %s, found %s", scan->line, wanted,
                       length == 0 ? "the end of the line" : ul_quote(scan->arena, near));
}

bool ul_scan_sees(struct ul_scan *scan, const char *token)
{
    ul_scan_skip_blanks(scan);
    return strncmp(scan->at, token, strlen(token)) == 0;
}

bool ul_scan_accept(struct ul_scan *scan, const char *token)
{
    if (!ul_scan_sees(scan, token))
        return false;
    scan->at += strlen(token);
    return true;
}

bool ul_scan_accept_word(struct ul_scan *scan, const char *word)
{
    const char *before = scan->at;
    if (!ul_scan_accept(scan, word))
        return false;
    if (ul_scan_in_name(*scan->at) || *scan->at == '-') {
        scan->at = before;
        return false;
    }
    return true;
}

enum ul_status ul_scan_expect(struct ul_scan *scan, const char *token)
{
    return ul_scan_accept(scan, token) ? UL_OK : ul_scan_fail(scan, token);
}

bool ul_scan_sees_number(struct ul_scan *scan)
{
    ul_scan_skip_blanks(scan);
    return isdigit((unsigned char)*scan->at);
}

enum ul_status ul_scan_u64(struct ul_scan *scan, uint64_t *out)
{
    uint64_t number = 0;
    if (!ul_scan_sees_number(scan))
        return ul_scan_fail(scan, "a number");
    for (; isdigit((unsigned char)*scan->at); scan->at++) {
        if (!ul_size_mul(number, 10, &number) ||
            !ul_size_add(number, (uint64_t)(*scan->at - '0'), &number))
            return ul_scan_fail(scan, "a number of 64 bits");
    }
    *out = number;
    return UL_OK;
}

enum ul_status ul_scan_u32(struct ul_scan *scan, uint64_t limit, uint32_t *out)
{
    uint64_t number = 0;
    UL_TRY(ul_scan_u64(scan, &number));
    if (number >= limit || number > UINT32_MAX)
        return ul_scan_fail(scan, "a smaller number before this");
    *out = (uint32_t)number;
    return UL_OK;
}

enum ul_status ul_scan_int(struct ul_scan *scan, int64_t *out)
{
    uint64_t number = 0;
    ul_scan_skip_blanks(scan);
    bool minus = *scan->at == '-';
    scan->at += minus || *scan->at == '+';
    if (!isdigit((unsigned char)*scan->at))
        return ul_scan_fail(scan, "an integer");
    UL_TRY(ul_scan_u64(scan, &number));
    number = minus ? 0 - number : number;
    memcpy(out, &number, sizeof number);
    return UL_OK;
}

enum ul_status ul_scan_float(struct ul_scan *scan, double *out)
{
    char *end = NULL;
    ul_scan_skip_blanks(scan);
    *out = strtod(scan->at, &end);
    if (end == scan->at)
        return ul_scan_fail(scan, "a number");
    scan->at = end;
    return UL_OK;
}

uint32_t ul_scan_indent(const struct ul_scan *scan)
{
    return (uint32_t)strspn(scan->at, " ");
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c == '\0' ? NULL : strchr(digits, tolower((unsigned char)c));
    return found == NULL ? -1 : (int)(found - digits);
}

bool ul_scan_accept_hex_byte(struct ul_scan *scan, unsigned char *out)
{
    int high = hex_digit(scan->at[0]);
    int low = high < 0 ? -1 : hex_digit(scan->at[1]);
    if (low < 0)
        return false;
    *out = (unsigned char)(high * 16 + low);
    scan->at += 2;
    return true;
}

/* What follows a backslash. */
static enum ul_status escape_read(struct ul_scan *scan, unsigned char *out)
{
    char kind = *scan->at;
    if (kind == '\0' || strchr("xnt\"\\", kind) == NULL)
        return ul_scan_fail(scan, "an escape");
    scan->at++;
    *out = kind == 'n' ? '\n' : kind == 't' ? '\t' : (unsigned char)kind;
    if (kind == 'x' && (!ul_scan_accept_hex_byte(scan, out) || *out == 0))
        return ul_scan_fail(scan, "two hex digits, not 00");
    return UL_OK;
}

enum ul_status ul_scan_string(struct ul_scan *scan, const char **out)
{
    UL_TRY(ul_scan_expect(scan, "\""));
    struct ul_text text;
    ul_text_init(&text, scan->arena);
    while (*scan->at != '"') {
        unsigned char byte = (unsigned char)*scan->at;
        if (byte == '\0' || byte == '\n')
            return ul_scan_fail(scan, "a closing quote");
        scan->at++;
        if (byte == '\\')
            UL_TRY(escape_read(scan, &byte));
        ul_text_put_bytes(&text, &byte, 1);
    }
    scan->at++;
    *out = text.data;
    return UL_OK;
}

enum ul_status ul_scan_end_line(struct ul_scan *scan)
{
    ul_scan_skip_blanks(scan);
    if (*scan->at == '\n') {
        scan->at++;
        scan->line++;
    } else if (*scan->at != '\0') {
        return ul_scan_fail(scan, "the end of the line");
    }
    skip_empty_lines(scan);
    return UL_OK;
}
