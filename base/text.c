/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ul_text_init(struct ul_text *text, struct ul_arena *arena)
{
    text->arena = arena;
    text->length = 0;
    text->capacity = 256;
    text->data = ul_arena_alloc(arena, text->capacity);
}

static void text_reserve(struct ul_text *text, size_t extra)
{
    size_t wanted = text->length + extra + 1;
    if (wanted <= text->capacity)
        return;
    size_t capacity = text->capacity;
    while (capacity < wanted)
        capacity *= 2;
    char *fresh = ul_arena_alloc(text->arena, capacity);
    memcpy(fresh, text->data, text->length + 1);
    text->data = fresh;
    text->capacity = capacity;
}

void ul_text_put_bytes(struct ul_text *text, const void *bytes, size_t count)
{
    text_reserve(text, count);
    if (count > 0)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void ul_text_put(struct ul_text *text, const char *string)
{
    ul_text_put_bytes(text, string, strlen(string));
}

void ul_text_printf(struct ul_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    UL_ASSERT(length >= 0);
    text_reserve(text, (size_t)length);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    va_end(again);
    text->length += (size_t)length;
}

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

void ul_text_quote(struct ul_text *text, const char *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    ul_text_put(text, "\"");
    for (size_t i = 0; i < count;) {
        size_t length = utf8_length(at + i, count - i);
        if (at[i] == '"' || at[i] == '\\')
            ul_text_printf(text, "\\%c", at[i]);
        else if (at[i] == '\n')
            ul_text_put(text, "\\n");
        else if (at[i] == '\t')
            ul_text_put(text, "\\t");
        else if (length == 0 || at[i] < 0x20 || at[i] == 0x7F)
            ul_text_printf(text, "\\x%02X", at[i]);
        else
            ul_text_put_bytes(text, at + i, length);
        i += length == 0 ? 1 : length;
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
        else if (at[i] < 0x20 || at[i] == 0x7F)
            ul_text_printf(text, "\\u%04x", at[i]);
        else
            ul_text_put_bytes(text, at + i, length);
        i += length == 0 ? 1 : length;
    }
    ul_text_put(text, "\"");
}

void ul_text_put_float(struct ul_text *text, double value, bool narrow)
{
    char number[40];
    if (isnan(value)) {
        ul_text_put(text, "nan");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        double back = strtod(number, NULL);
        if (narrow ? (float)back == (float)value : back == value)
            break;
    }
    ul_text_put(text, number);
    if (strpbrk(number, ".en") == NULL)
        ul_text_put(text, ".0");
}

const char *ul_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

const char *ul_size_format(struct ul_arena *arena, uint64_t bytes)
{
    if (bytes < 1024)
        return ul_arena_printf(arena, "%llu B", (unsigned long long)bytes);
    if (bytes < 1024 * 1024)
        return ul_arena_printf(arena, "%.2f KiB", (double)bytes / 1024.0);
    if (bytes < (uint64_t)10 * 1024 * 1024 * 1024)
        return ul_arena_printf(arena, "%.2f MiB", (double)bytes / (1024.0 * 1024.0));
    return ul_arena_printf(arena, "%.2f GiB", (double)bytes / (1024.0 * 1024.0 * 1024.0));
}

const char *ul_size_exact(struct ul_arena *arena, uint64_t bytes)
{
    unsigned long long count = bytes;
    if (bytes < 1024)
        return ul_arena_printf(arena, "%llu byte%s", count, ul_plural(bytes));
    return ul_arena_printf(arena, "%s = %llu bytes", ul_size_format(arena, bytes), count);
}
