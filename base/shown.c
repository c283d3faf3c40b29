/* SPDX-License-Identifier: Apache-2.0 */
/* Text out of files - names of models, what plans and tables say - as each kind of output takes it.
 *
 * Problem: such text may move a terminal's cursor, turn the direction of what follows, be
 * invisible, or be computed by a spreadsheet. Method: one function for each kind of output, beside
 * those of HTML and of C, which are where their markup is. Letters of any language stay as they
 * are. */
#include "base/base.h"

#include <string.h>

enum { UTF8_MOST = 4 }; /* bytes of a character */

/* Length of the valid UTF-8 sequence at `bytes`, or 0 (RFC 3629: no overlong forms, no
 * surrogates, nothing above U+10FFFF). */
static size_t utf8_length(const unsigned char *bytes, size_t count)
{
    unsigned char first = bytes[0];
    if (first < 0x80)
        return 1;
    size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || count < length)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((first == 0xE0 && bytes[1] < 0xA0) || (first == 0xED && bytes[1] > 0x9F) ||
        (first == 0xF0 && bytes[1] < 0x90) || (first == 0xF4 && bytes[1] > 0x8F))
        return 0;
    return length;
}

/* The code of the character that valid UTF-8 begins with. */
static uint32_t utf8_code(const unsigned char *at, size_t length)
{
    uint32_t code = length == 1 ? at[0] : at[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (at[i] & 0x3Fu);
    return code;
}

struct code_span {
    uint32_t first, last;
};

static bool is_within(const struct code_span *spans, size_t count, uint32_t code)
{
    for (size_t i = 0; i < count; i++) {
        if (spans[i].first <= code && code <= spans[i].last)
            return true;
    }
    return false;
}

#define IS_WITHIN(spans, code) is_within(spans, sizeof(spans) / sizeof *(spans), code)

/* The character moves a cursor, turns the direction of text, ends a line or is not seen. These are
 * characters of Unicode's categories Cc, Cf, Zl and Zp that have no ink, and the letters that are
 * drawn as nothing. */
static bool is_hidden(uint32_t code)
{
    static const struct code_span spans[] = {
        {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},       {0x61C, 0x61C},
        {0x115F, 0x1160},   {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
        {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
        {0xFFF0, 0xFFFB},   {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
        {0xE0000, 0xE00FF}, {0xE01F0, 0xE0FFF}};
    return IS_WITHIN(spans, code);
}

/* The bytes of the character at `at`, and whether it may stand where people read. */
static size_t next_character(const unsigned char *at, size_t count, bool *is_plain)
{
    size_t length = utf8_length(at, count);
    *is_plain = length > 0 && !is_hidden(utf8_code(at, length));
    return length == 0 ? 1 : length;
}

static void put_escaped(struct ul_text *text, const unsigned char *at, size_t length)
{
    if (*at == '\n' || *at == '\t')
        ul_text_put(text, *at == '\n' ? "\\n" : "\\t");
    else
        for (size_t i = 0; i < length; i++)
            ul_text_printf(text, "\\x%02X", at[i]);
}

void ul_text_put_shown(struct ul_text *text, const char *bytes, size_t count, bool keeps_lines)
{
    const unsigned char *at = (const unsigned char *)bytes;
    size_t begin = 0;
    for (size_t i = 0; i < count;) {
        bool is_plain;
        size_t length = next_character(at + i, count - i, &is_plain);
        if (!is_plain && !(keeps_lines && (at[i] == '\n' || at[i] == '\t'))) {
            ul_text_put_bytes(text, at + begin, i - begin);
            put_escaped(text, at + i, length);
            begin = i + length;
        }
        i += length;
    }
    ul_text_put_bytes(text, at + begin, count - begin);
}

const char *ul_shown(struct ul_arena *arena, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;
    size_t count = strlen(string);
    bool is_plain = true;
    for (size_t i = 0; i < count && is_plain;)
        i += next_character(at + i, count - i, &is_plain);
    if (is_plain)
        return string;
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_text_put_shown(&text, string, count, false);
    return text.data;
}

size_t ul_text_character(const char *string, size_t *columns)
{
    static const struct code_span none[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},
                                            {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF},
                                            {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
    static const struct code_span wide[] = {
        {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xAC00, 0xD7A3},
        {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
        {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};
    const unsigned char *at = (const unsigned char *)string;
    size_t length = utf8_length(at, UTF8_MOST); /* the terminator continues no character */
    uint32_t code = length == 0 ? 0 : utf8_code(at, length);
    *columns = IS_WITHIN(none, code) ? 0 : IS_WITHIN(wide, code) ? 2 : 1;
    return length == 0 ? 1 : length;
}

size_t ul_text_columns(const char *string)
{
    size_t sum = 0, columns;
    for (const char *at = string; *at != '\0'; sum += columns)
        at += ul_text_character(at, &columns);
    return sum;
}

int ul_text_field(const char *string, size_t columns)
{
    return (int)(columns + strlen(string) - ul_text_columns(string));
}

void ul_text_quote(struct ul_text *text, const char *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    ul_text_put(text, "\"");
    for (size_t i = 0; i < count;) {
        bool is_plain;
        size_t length = next_character(at + i, count - i, &is_plain);
        if (at[i] == '"' || at[i] == '\\')
            ul_text_printf(text, "\\%c", at[i]);
        else if (is_plain)
            ul_text_put_bytes(text, at + i, length);
        else
            put_escaped(text, at + i, length);
        i += length;
    }
    ul_text_put(text, "\"");
}

const char *ul_quote(struct ul_arena *arena, const char *string)
{
    enum { LONGEST = 160, KEPT_EACH_SIDE = 70 };
    struct ul_text text;
    ul_text_init(&text, arena);
    size_t length = strlen(string);
    if (length <= LONGEST) {
        ul_text_quote(&text, string, length);
        return text.data;
    }
    ul_text_quote(&text, string, KEPT_EACH_SIDE);
    ul_text_put(&text, "...");
    ul_text_quote(&text, string + length - KEPT_EACH_SIDE, KEPT_EACH_SIDE);
    return text.data;
}

const char *ul_word_quote(struct ul_arena *arena, const char *string)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_.,:/=+@%-";
    return strspn(string, plain) == strlen(string) ? string : ul_quote(arena, string);
}

/* JSON names a character by its number in UTF-16, where one above U+FFFF has two. */
static void put_json_code(struct ul_text *text, uint32_t code)
{
    uint32_t above = code - 0x10000;
    if (code < 0x10000)
        ul_text_printf(text, "\\u%04x", (unsigned)code);
    else
        ul_text_printf(text, "\\u%04x\\u%04x", (unsigned)(0xD800 + (above >> 10)),
                       (unsigned)(0xDC00 + (above & 0x3FF)));
}

void ul_text_put_json(struct ul_text *text, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;
    size_t count = strlen(string);
    ul_text_put(text, "\"");
    for (size_t i = 0; i < count;) {
        size_t length = utf8_length(at + i, count - i);
        if (at[i] == '"' || at[i] == '\\')
            ul_text_printf(text, "\\%c", at[i]);
        else if (length == 0)
            ul_text_put(text, "\\ufffd");
        else if (is_hidden(utf8_code(at + i, length)))
            put_json_code(text, utf8_code(at + i, length));
        else
            ul_text_put_bytes(text, at + i, length);
        i += length == 0 ? 1 : length;
    }
    ul_text_put(text, "\"");
}

/* "-1.5e3": what a spreadsheet takes for a number. */
static bool is_number(const char *field)
{
    static const char digits[] = "0123456789";
    const char *at = field + (*field == '-' || *field == '+');
    size_t whole = strspn(at, digits);
    at += whole;
    size_t fraction = *at == '.' ? strspn(at + 1, digits) : 0;
    at += *at == '.' ? 1 + fraction : 0;
    if (whole + fraction == 0)
        return false;
    if (*at == 'e' || *at == 'E') {
        const char *exponent = at + 1 + (at[1] == '-' || at[1] == '+');
        at = exponent + strspn(exponent, digits);
        if (at == exponent)
            return false;
    }
    return *at == '\0';
}

/* A spreadsheet would compute the field: some also take the wide forms of these characters for the
 * beginning of a formula. */
static bool is_formula(const char *field)
{
    static const char *const wide[] = {"\xEF\xBC\x9D", "\xEF\xBC\x8B", "\xEF\xBC\x8D",
                                       "\xEF\xBC\xA0"};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (strncmp(field, wide[i], 3) == 0)
            return true;
    }
    return *field != '\0' && strchr("=+-@", *field) != NULL && !is_number(field);
}

void ul_text_put_csv(struct ul_text *text, const char *said)
{
    const char *field = ul_shown(text->arena, said);
    if (is_formula(field))
        field = ul_arena_printf(text->arena, "'%s", field);
    if (strpbrk(field, "\",\r\n") == NULL) {
        ul_text_put(text, field);
        return;
    }
    ul_text_put(text, "\"");
    for (const char *at = field; *at != '\0'; at++) {
        if (*at == '"')
            ul_text_put(text, "\"");
        ul_text_put_bytes(text, at, 1);
    }
    ul_text_put(text, "\"");
}
