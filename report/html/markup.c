/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of HTML: escaped text, names, sizes, tables. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

void ul_page_put(struct ul_page *page, const char *markup)
{
    ul_text_put(page->text, markup);
}

void ul_page_printf(struct ul_page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ul_text_vprintf(page->text, format, args);
    va_end(args);
}

static size_t character_bytes(const char *at)
{
    size_t columns;
    return ul_text_character(at, &columns);
}

static void escape_bytes(struct ul_page *page, const char *string, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t length = character_bytes(string + i);
        UL_ASSERT(length > 0);
        if (string[i] == '<')
            ul_page_put(page, "&lt;");
        else if (string[i] == '>')
            ul_page_put(page, "&gt;");
        else if (string[i] == '&')
            ul_page_put(page, "&amp;");
        else if (string[i] == '"')
            ul_page_put(page, "&quot;");
        else if (string[i] == '\'')
            ul_page_put(page, "&#39;");
        else
            ul_text_put_bytes(page->text, string + i, length);
        i += length;
    }
}

void ul_page_escape(struct ul_page *page, const char *string)
{
    const char *shown = ul_shown(page->arena, string);
    escape_bytes(page, shown, strlen(shown));
}

/* Where the character with that number begins. */
static size_t offset_of(const char *name, size_t character)
{
    size_t at = 0;
    for (size_t i = 0; i < character && name[at] != '\0'; i++)
        at += character_bytes(name + at);
    UL_ASSERT(at <= strlen(name));
    return at;
}

static size_t count_characters(const char *name)
{
    size_t count = 0;
    for (size_t at = 0; name[at] != '\0'; at += character_bytes(name + at))
        count++;
    return count;
}

void ul_page_cut(struct ul_page *page, const char *said, size_t columns)
{
    UL_ASSERT(columns > 0);
    const char *name = ul_shown(page->arena, said);
    size_t count = count_characters(name);
    size_t head = (columns - 1) / 2, tail = columns - 1 - head;
    if (count <= columns) {
        ul_page_escape(page, name);
        return;
    }
    escape_bytes(page, name, offset_of(name, head));
    ul_page_put(page, "\xE2\x80\xA6");
    ul_page_escape(page, name + offset_of(name, count - tail));
}

void ul_page_name(struct ul_page *page, const char *said, size_t columns)
{
    const char *name = ul_shown(page->arena, said);
    ul_page_put(page, "<span class=\"n\"");
    if (count_characters(name) > columns) {
        ul_page_put(page, " title=\"");
        ul_page_escape(page, name);
        ul_page_put(page, "\"");
    }
    ul_page_put(page, ">");
    ul_page_cut(page, name, columns);
    ul_page_put(page, "</span>");
}

/* "model.py:42" for a frame of Python, else the line as it is. */
static const char *short_source(struct ul_page *page, const char *source)
{
    static const char frame[] = "File \"", line[] = "\", line ";
    const char *end = strstr(source, line);
    if (strncmp(source, frame, sizeof frame - 1) != 0 || end == NULL)
        return source;
    const char *path = source + sizeof frame - 1;
    for (const char *at = path; at < end; at++)
        path = *at == '/' || *at == '\\' ? at + 1 : path;
    const char *number = end + sizeof line - 1;
    return ul_arena_printf(page->arena, "%.*s:%.*s", (int)(end - path), path,
                           (int)strspn(number, "0123456789"), number);
}

void ul_page_source_text(struct ul_page *page, const char *source, size_t columns)
{
    ul_page_cut(page, short_source(page, source), columns);
}

void ul_page_source(struct ul_page *page, const char *source)
{
    ul_page_put(page, "<span class=\"source\" title=\"");
    ul_page_escape(page, source);
    ul_page_put(page, "\">");
    ul_page_name(page, short_source(page, source), 60);
    ul_page_put(page, "</span>");
}

const char *ul_page_digits(struct ul_page *page, uint64_t number)
{
    char plain[24];
    int length = snprintf(plain, sizeof plain, "%" PRIu64, number);
    char *grouped = ul_arena_alloc(page->arena, 32), *to = grouped;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = plain[i];
    }
    UL_ASSERT(to < grouped + 32);
    return grouped;
}

const char *ul_page_size(struct ul_page *page, uint64_t bytes)
{
    UL_ASSERT(page->unit.bytes > 0);
    bool is_far = (double)bytes < page->unit.bytes / 100 || bytes > 100 * page->needed_bytes;
    if (bytes > 0 && is_far)
        return ul_size_format(page->arena, bytes);
    return ul_arena_printf(page->arena, "%.2f %s", (double)bytes / page->unit.bytes,
                           page->unit.name);
}

const char *ul_page_change(struct ul_page *page, uint64_t old, uint64_t new)
{
    const char *sign = new > old ? "+" : new < old ? "\xE2\x88\x92" : "\xC2\xB1";
    return ul_arena_printf(page->arena, "%s%s", sign,
                           ul_page_size(page, new > old ? new - old : old - new));
}

const char *ul_page_time(struct ul_page *page, uint64_t cost)
{
    double milliseconds = (double)cost * 1e-6;
    if (cost == 0)
        return "0 ms";
    if (cost < 100000)
        return ul_arena_printf(page->arena, "%.2f \xC2\xB5s", (double)cost * 1e-3);
    int digits = milliseconds >= 100 ? 0 : milliseconds >= 10 ? 1 : 2;
    return ul_arena_printf(page->arena, "%.*f ms", digits, milliseconds);
}

void ul_page_size_cells(struct ul_page *page, uint64_t bytes)
{
    UL_ASSERT(page->unit.bytes > 0);
    ul_page_printf(page, "<td class=\"r\">%.2f</td><td class=\"r\"><data value=\"%" PRIu64 "\">",
                   (double)bytes / page->unit.bytes, bytes);
    ul_page_printf(page, "%s</data></td>", ul_page_digits(page, bytes));
}

const char *ul_page_paint(struct ul_page *page, uint32_t row)
{
    UL_ASSERT(row < UL_REPORT_ROW_COUNT);
    return ul_arena_printf(page->arena, "p%" PRIu32, row);
}

const char *ul_page_label(struct ul_page *page, uint32_t row)
{
    return ul_report_row_label(page->arena, row);
}

const char *ul_page_part_label(uint32_t part)
{
    return part == UL_SAVED_LIBRARY ? "libraries\xE2\x80\x99 own" : ul_saved_part_name(part);
}

void ul_page_swatch(struct ul_page *page, const char *paint)
{
    ul_page_printf(page,
                   "<svg class=\"swatch\" width=\"12\" height=\"12\" aria-hidden=\"true\">"
                   "<rect width=\"12\" height=\"12\" rx=\"2\" fill=\"url(#%s)\"/></svg>",
                   paint);
}

void ul_page_begin(struct ul_page *page, uint32_t number, const char *title)
{
    ul_page_printf(page,
                   "\n<section id=\"s%" PRIu32 "\" aria-labelledby=\"h%" PRIu32 "\">\n"
                   "<h2 id=\"h%" PRIu32 "\"><span class=\"number\">%" PRIu32 "</span>%s</h2>\n",
                   number, number, number, number, title);
}

void ul_page_end(struct ul_page *page)
{
    ul_page_put(page, "</section>\n");
}

void ul_page_table(struct ul_page *page, const char *class, const char *heads)
{
    UL_ASSERT(heads[0] != '\0');
    ul_page_printf(page, "<div class=\"scroll\" tabindex=\"0\"><table class=\"%s\">\n<thead><tr>",
                   class);
    for (const char *at = heads; *at != '\0';) {
        size_t length = strcspn(at, "|");
        bool is_number = *at == '#';
        ul_page_printf(page, "<th scope=\"col\"%s>%.*s</th>", is_number ? " class=\"r\"" : "",
                       (int)(length - is_number), at + is_number);
        at += length + (at[length] == '|');
    }
    ul_page_put(page, "</tr></thead>\n<tbody>\n");
}

void ul_page_table_end(struct ul_page *page)
{
    ul_page_put(page, "</tbody></table></div>\n");
}

void ul_page_twin(struct ul_page *page, const char *id)
{
    ul_page_printf(
        page, "<details class=\"twin\" id=\"%s\"><summary>The same as a table</summary>\n", id);
}

void ul_page_twin_end(struct ul_page *page)
{
    ul_page_put(page, "</details>\n");
}

/* Quotes a word for a shell. */
static void put_word(struct ul_page *page, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=,+@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        ul_page_escape(page, word);
        return;
    }
    bool is_hidden = ul_shown(page->arena, word) != word; /* then it is written as $'...' */
    struct ul_text quoted;
    ul_text_init(&quoted, page->arena);
    for (const char *at = word; *at != '\0'; at++) {
        if (*at == '\'')
            ul_text_put(&quoted, is_hidden ? "\\'" : "'\\''");
        else if (*at == '\\' && is_hidden)
            ul_text_put(&quoted, "\\\\");
        else
            ul_text_put_bytes(&quoted, at, 1);
    }
    ul_page_escape(page, is_hidden ? "$'" : "'");
    ul_page_escape(page, quoted.data);
    ul_page_escape(page, "'");
}

void ul_page_command(struct ul_page *page, const char *more)
{
    const struct ul_saved *saved = page->saved;
    ul_page_put(page, "<pre class=\"command\"><code>ullage plan ");
    put_word(page, saved->model);
    if (ul_saved_option(saved, "target") == NULL) {
        ul_page_put(page, " --target ");
        put_word(page, saved->target);
    }
    for (uint32_t i = 0; i < saved->option_count; i++) {
        const struct ul_report_option *option = &saved->options[i];
        if (strncmp(option->name, "profile-", 8) == 0) /* the profile's file has it */
            continue;
        ul_page_put(page, " --");
        ul_page_escape(page, option->name);
        if (option->value[0] == '\0')
            continue;
        ul_page_put(page, " ");
        put_word(page, option->value);
    }
    if (saved->budget_bytes > 0)
        ul_page_printf(page, "%s --budget %" PRIu64,
                       ul_saved_bounds_buffer(saved) ? " --budget-of arena" : "",
                       saved->budget_bytes);
    ul_page_printf(page, "%s%s</code></pre>\n", *more != '\0' ? " " : "", more);
}
