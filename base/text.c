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

void ul_text_vprintf(struct ul_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    UL_ASSERT(length >= 0);
    text_reserve(text, (size_t)length);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    va_end(again);
    text->length += (size_t)length;
}

void ul_text_printf(struct ul_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ul_text_vprintf(text, format, args);
    va_end(args);
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
