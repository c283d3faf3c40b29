/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMalloc's CSV: a header that names the columns, then one buffer on each line.
 *
 * Columns, in any order: id, lower, upper (exclusive) or end (inclusive), size; optional alignment,
 * offset (where the buffer is pinned; empty: it is not), gaps ("3-5 7-9@0:64": spans of time in
 * which the buffer is not used, or only a window of its bytes). Other columns are ignored. Fields
 * may be quoted as in RFC 4180. */
#include "planner/pack/pack.h"

#include <string.h>

enum column {
    COLUMN_ID,
    COLUMN_LOWER,
    COLUMN_UPPER,
    COLUMN_END,
    COLUMN_SIZE,
    COLUMN_ALIGNMENT,
    COLUMN_OFFSET,
    COLUMN_GAPS,
    COLUMN_COUNT
};
static const char *const column_names[COLUMN_COUNT] = {"id",   "lower",     "upper",  "end",
                                                       "size", "alignment", "offset", "gaps"};

struct reader {
    struct ul_arena *arena;
    struct ul_diag *diag;
    const char *at, *end;
    uint32_t line;
    struct ul_text field;
    int column_of[64]; /* by field of a line: its column, or -1 */
    uint32_t field_count;
    uint32_t buffer_capacity, id_capacity;
};

static enum ul_status fail(struct reader *r, const char *what, const char *text)
{
    return ul_diag_set(r->diag, UL_INVALID, "line %u: %s %s", r->line, what,
                       ul_quote(r->arena, text));
}

/* Reads one field; *last says whether it ends the line. */
static enum ul_status field_read(struct reader *r, bool *last)
{
    r->field.length = 0;
    r->field.data[0] = '\0';
    bool quoted = r->at < r->end && *r->at == '"';
    r->at += quoted;
    for (;; r->at++) {
        if (r->at == r->end) {
            if (quoted)
                return fail(r, "the quote is not closed:", r->field.data);
            break;
        }
        if (quoted && *r->at == '"') {
            r->at++;
            if (r->at == r->end || *r->at != '"') {
                quoted = false;
                r->at--;
                continue;
            }
        } else if (!quoted && (*r->at == ',' || *r->at == '\n')) {
            break;
        } else if (!quoted && (*r->at == '\r' || *r->at == '"')) {
            continue;
        } else if (*r->at == '\0') {
            return fail(r, "a zero byte after", r->field.data);
        }
        ul_text_put_bytes(&r->field, r->at, 1);
    }
    *last = r->at == r->end || *r->at == '\n';
    r->at += r->at < r->end;
    return UL_OK;
}

static bool number_parse(const char **at, uint64_t *out)
{
    const char *start = *at;
    *out = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (!ul_size_mul(*out, 10, out) || !ul_size_add(*out, (uint64_t)(**at - '0'), out))
            return false;
    }
    return *at != start;
}

static enum ul_status header_read(struct reader *r, struct ul_pack_table *table)
{
    bool last = false;
    bool seen[COLUMN_COUNT] = {false};
    while (!last) {
        UL_TRY(field_read(r, &last));
        if (r->field_count == sizeof r->column_of / sizeof *r->column_of)
            return fail(r, "too many columns from", r->field.data);
        int column = -1;
        for (int c = 0; c < COLUMN_COUNT; c++) {
            if (strcmp(r->field.data, column_names[c]) == 0)
                column = c;
        }
        if (column >= 0 && seen[column])
            return fail(r, "the column is named twice:", r->field.data);
        if (column >= 0)
            seen[column] = true;
        r->column_of[r->field_count++] = column;
    }
    if (!seen[COLUMN_ID] || !seen[COLUMN_LOWER] || !seen[COLUMN_SIZE] ||
        seen[COLUMN_UPPER] == seen[COLUMN_END])
        return ul_diag_set(r->diag, UL_INVALID,
                           "line 1: the header must name id, lower, size, and either upper "
                           "(exclusive) or end (inclusive)");
    table->has_end = seen[COLUMN_END];
    table->has_alignment = seen[COLUMN_ALIGNMENT];
    table->has_gaps = seen[COLUMN_GAPS];
    return UL_OK;
}

static bool gap_parse(const char **at, struct ul_pack_gap *gap, uint64_t size_bytes)
{
    uint64_t begin, end;
    *gap = (struct ul_pack_gap){.begin = 0};
    if (!number_parse(at, &begin) || *(*at)++ != '-' || !number_parse(at, &end) ||
        end > UINT32_MAX || begin >= end)
        return false;
    gap->begin = (uint32_t)begin;
    gap->end = (uint32_t)end;
    if (**at != '@')
        return true;
    (*at)++;
    return number_parse(at, &gap->window_lower_bytes) && *(*at)++ == ':' &&
           number_parse(at, &gap->window_upper_bytes) &&
           gap->window_lower_bytes <= gap->window_upper_bytes &&
           gap->window_upper_bytes <= size_bytes;
}

static enum ul_status gaps_parse(struct reader *r, const char *text, struct ul_pack_buffer *buffer)
{
    uint32_t capacity = 0;
    struct ul_pack_gap *gaps = NULL;
    for (const char *at = text; *at != '\0';) {
        if (*at == ' ') {
            at++;
            continue;
        }
        UL_GROW(r->arena, gaps, buffer->gap_count, capacity);
        if (!gap_parse(&at, &gaps[buffer->gap_count], buffer->size_bytes) ||
            (*at != ' ' && *at != '\0'))
            return fail(r, "not a list of gaps:", text);
        buffer->gap_count++;
    }
    buffer->gaps = gaps;
    return UL_OK;
}

static enum ul_status number_store(struct reader *r, enum column column, const char *text,
                                   struct ul_pack_buffer *buffer)
{
    uint64_t number;
    const char *at = text;
    if (column == COLUMN_OFFSET && *text == '\0')
        return UL_OK;
    if (!number_parse(&at, &number) || *at != '\0')
        return fail(r, "not a whole number:", text);
    bool is_time = column == COLUMN_LOWER || column == COLUMN_UPPER || column == COLUMN_END;
    if (is_time && number >= UINT32_MAX)
        return fail(r, "a time above 4294967294:", text);
    if (column == COLUMN_LOWER) {
        buffer->begin = (uint32_t)number;
    } else if (is_time) {
        buffer->end = (uint32_t)number + (column == COLUMN_END);
    } else if (column == COLUMN_SIZE) {
        buffer->size_bytes = number;
    } else if (column == COLUMN_ALIGNMENT) {
        buffer->alignment_bytes = number;
    } else {
        buffer->pinned = true;
        buffer->offset_bytes = number;
    }
    return UL_OK;
}

static enum ul_status row_read(struct reader *r, struct ul_pack_table *table)
{
    struct ul_pack_buffer buffer = {.begin = 0};
    const char *id = NULL;
    const char *gaps = "";
    bool last = false;
    uint32_t fields = 0;
    while (!last) {
        UL_TRY(field_read(r, &last));
        if (fields == r->field_count)
            return fail(r, "more fields than the header has:", r->field.data);
        int column = r->column_of[fields++];
        if (column == COLUMN_ID)
            id = ul_arena_copy_string(r->arena, r->field.data);
        else if (column == COLUMN_GAPS)
            gaps = ul_arena_copy_string(r->arena, r->field.data);
        else if (column >= 0)
            UL_TRY(number_store(r, (enum column)column, r->field.data, &buffer));
    }
    if (fields != r->field_count)
        return ul_diag_set(r->diag, UL_INVALID, "line %u: %u fields, but the header has %u",
                           r->line, fields, r->field_count);
    if (buffer.begin >= buffer.end)
        return fail(r, "the lifetime is empty for", id);
    UL_TRY(gaps_parse(r, gaps, &buffer));
    UL_GROW(r->arena, table->buffers, table->count, r->buffer_capacity);
    table->buffers[table->count] = buffer;
    UL_GROW(r->arena, table->ids, table->count, r->id_capacity);
    table->ids[table->count++] = id;
    return UL_OK;
}

enum ul_status ul_pack_read_csv(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                struct ul_pack_table *table, struct ul_diag *diag)
{
    struct reader r = {.arena = arena, .diag = diag, .at = text, .end = text + size_bytes};
    memset(table, 0, sizeof *table);
    ul_text_init(&r.field, arena);
    r.line = 1;
    UL_TRY(header_read(&r, table));
    while (r.at < r.end) {
        r.line++;
        if (*r.at == '\n' || *r.at == '\r') {
            r.at++;
            continue;
        }
        UL_TRY(row_read(&r, table));
    }
    return UL_OK;
}

static void gaps_write(struct ul_text *text, const struct ul_pack_buffer *buffer)
{
    for (uint32_t i = 0; i < buffer->gap_count; i++) {
        const struct ul_pack_gap *gap = &buffer->gaps[i];
        ul_text_printf(text, "%s%u-%u", i > 0 ? " " : "", gap->begin, gap->end);
        if (gap->window_upper_bytes > 0)
            ul_text_printf(text, "@%llu:%llu", (unsigned long long)gap->window_lower_bytes,
                           (unsigned long long)gap->window_upper_bytes);
    }
}

void ul_pack_write_csv(struct ul_text *text, const struct ul_pack_table *table)
{
    ul_text_printf(text, "id,lower,%s,size%s%s,offset\n", table->has_end ? "end" : "upper",
                   table->has_alignment ? ",alignment" : "", table->has_gaps ? ",gaps" : "");
    for (uint32_t i = 0; i < table->count; i++) {
        const struct ul_pack_buffer *buffer = &table->buffers[i];
        ul_text_put_csv(text, table->ids[i]);
        ul_text_printf(text, ",%u,%u,%llu", buffer->begin, buffer->end - table->has_end,
                       (unsigned long long)buffer->size_bytes);
        if (table->has_alignment)
            ul_text_printf(text, ",%llu", (unsigned long long)buffer->alignment_bytes);
        if (table->has_gaps) {
            ul_text_put(text, ",");
            gaps_write(text, buffer);
        }
        ul_text_printf(text, ",%llu\n", (unsigned long long)buffer->offset_bytes);
    }
}
