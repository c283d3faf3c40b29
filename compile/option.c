/* Options by their rows: from text into the field, from the field into text. */
#include "compile/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void ul_texts_add(struct ul_arena *arena, struct ul_texts *list, const char *text)
{
    UL_GROW(arena, list->items, list->count, list->capacity);
    list->items[list->count++] = text;
}

void ul_pairs_add(struct ul_arena *arena, struct ul_pairs *list, const char *name,
                  const char *value)
{
    UL_GROW(arena, list->items, list->count, list->capacity);
    list->items[list->count++] = (struct ul_pair){.name = name, .value = value};
}

void ul_named_sizes_add(struct ul_arena *arena, struct ul_named_sizes *list,
                        const struct ul_named_size *item)
{
    UL_GROW(arena, list->items, list->count, list->capacity);
    list->items[list->count++] = *item;
}

const struct ul_option *ul_option_find(const struct ul_option_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(table->rows[i].name, name) == 0)
            return &table->rows[i];
    }
    return NULL;
}

void ul_option_offer_all(struct ul_nearest *nearest, const struct ul_option_table *table,
                         uint32_t commands)
{
    for (uint32_t i = 0; i < table->count; i++) {
        if ((table->rows[i].commands & commands) != 0)
            ul_nearest_offer(nearest, table->rows[i].name);
    }
}

static uint32_t index_of(const struct ul_options *options, const struct ul_option *row)
{
    UL_ASSERT(row >= options->table->rows && row < options->table->rows + options->table->count);
    return (uint32_t)(row - options->table->rows);
}

static void *field_of(struct ul_options *options, const struct ul_option *row)
{
    return (char *)options + row->offset;
}

static const void *const_field_of(const struct ul_options *options, const struct ul_option *row)
{
    return (const char *)options + row->offset;
}

static uint64_t number_of(const struct ul_options *options, const struct ul_option *row)
{
    uint64_t number;
    memcpy(&number, const_field_of(options, row), sizeof number);
    return number;
}

static double real_of(const struct ul_options *options, const struct ul_option *row)
{
    double number;
    memcpy(&number, const_field_of(options, row), sizeof number);
    return number;
}

static unsigned word_of(const struct ul_options *options, const struct ul_option *row)
{
    unsigned value;
    memcpy(&value, const_field_of(options, row), sizeof value);
    return value;
}

static const char *word_text(const struct ul_options *options, const struct ul_option *row)
{
    unsigned value = word_of(options, row);
    unsigned other;
    const char *word;
    for (uint32_t i = 0; (word = row->words(i, &other)) != NULL; i++) {
        if (other == value)
            return word;
    }
    return NULL;
}

const char *ul_option_shown(struct ul_arena *arena, const char *text)
{
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:/=+@%-";
    return strspn(text, plain) == strlen(text) ? text : ul_quote(arena, text);
}

/* ---- what a row takes ---- */

void ul_option_put_words(struct ul_text *text, const struct ul_option *row)
{
    unsigned value;
    const char *word;
    for (uint32_t i = 0; (word = row->words(i, &value)) != NULL; i++)
        ul_text_printf(text, "%s%s",
                       i == 0                              ? ""
                       : row->words(i + 1, &value) == NULL ? " or "
                                                           : ", ",
                       word);
}

static bool fits_number(const struct ul_option *row, uint64_t number)
{
    bool is_power = (number & (number - 1)) == 0;
    bool is_small = row->kind == UL_OPTION_SIZE || number <= row->max;
    return number >= row->min && is_small && (row->kind != UL_OPTION_POWER || is_power);
}

static bool fits_real(const struct ul_option *row, double number)
{
    return isfinite(number) && (row->kind == UL_OPTION_POSITIVE ? number > 0 : number >= 0);
}

/* An empty tensor is said by its shape. */
static bool fits_dim(const struct ul_option *row, int64_t dim)
{
    return dim >= (row->max == 1 ? 1 : 0) && dim <= UL_LIMIT_DIM;
}

/* For messages; NULL of a row that takes anything. */
static const char *expected_of(struct ul_arena *arena, const struct ul_option *row)
{
    struct ul_text words;
    switch (row->kind) {
    case UL_OPTION_FLAG:
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
    case UL_OPTION_RESULT:
        return NULL;
    case UL_OPTION_WORD:
        ul_text_init(&words, arena);
        ul_option_put_words(&words, row);
        return words.data;
    case UL_OPTION_SIZE:
        return "a size: 64MiB, 64M, 65536";
    case UL_OPTION_NUMBER:
    case UL_OPTION_POWER:
        return ul_arena_printf(arena, "a %s from %llu to %llu",
                               row->kind == UL_OPTION_POWER ? "power of two" : "number",
                               (unsigned long long)row->min, (unsigned long long)row->max);
    case UL_OPTION_REAL:
        return "a number of at least 0";
    case UL_OPTION_POSITIVE:
        return "a number above 0";
    case UL_OPTION_TEXTS:
        return "a text";
    case UL_OPTION_PAIRS:
        return "NAME=VALUE";
    case UL_OPTION_SIZES:
        return row->max == 1
                   ? "NAME=N, N at least 1"
                   : ul_arena_printf(arena, "INPUT=N,N,... with at most %d sizes", (int)row->max);
    }
    return NULL;
}

/* ---- from text ---- */

/* An option with the value that it does not take, on the way into a field. */
struct reading {
    struct ul_options *options;
    const struct ul_option *row;
    const char *value;
    struct ul_diag *diag;
};

static enum ul_status refuse_near(const struct reading *reading, const char *nearest)
{
    struct ul_arena *arena = reading->options->arena;
    return ul_diag_set(reading->diag, UL_USAGE, "--%s %s: expected %s%s", reading->row->name,
                       ul_option_shown(arena, reading->value), expected_of(arena, reading->row),
                       nearest);
}

static enum ul_status refuse(const struct reading *reading)
{
    return refuse_near(reading, "");
}

static enum ul_status read_word(const struct reading *reading)
{
    struct ul_nearest nearest = {.word = reading->value};
    unsigned meaning;
    const char *word;
    for (uint32_t i = 0; (word = reading->row->words(i, &meaning)) != NULL; i++) {
        ul_nearest_offer(&nearest, word);
        if (strcmp(word, reading->value) != 0)
            continue;
        memcpy(field_of(reading->options, reading->row), &meaning, sizeof meaning);
        return UL_OK;
    }
    return refuse_near(reading, ul_nearest_text(reading->options->arena, &nearest, ""));
}

static enum ul_status read_size(const struct reading *reading)
{
    uint64_t number;
    if (!ul_size_parse(reading->value, &number) || !fits_number(reading->row, number))
        return refuse(reading);
    memcpy(field_of(reading->options, reading->row), &number, sizeof number);
    return UL_OK;
}

static enum ul_status read_number(const struct reading *reading)
{
    const struct ul_option *row = reading->row;
    const char *digits = reading->value;
    char *end;
    errno = 0;
    uint64_t number = strtoull(digits, &end, 10);
    bool valid = *digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0;
    if (row->kind == UL_OPTION_POWER)
        valid = ul_size_parse(digits, &number);
    if (!valid || !fits_number(row, number))
        return refuse(reading);
    memcpy(field_of(reading->options, row), &number, sizeof number);
    return UL_OK;
}

static enum ul_status read_real(const struct reading *reading)
{
    char *end;
    double number = strtod(reading->value, &end);
    if (end == reading->value || *end != '\0' || !fits_real(reading->row, number))
        return refuse(reading);
    memcpy(field_of(reading->options, reading->row), &number, sizeof number);
    return UL_OK;
}

/* "NAME=VALUE", split at the last '=' (names may hold one). */
static enum ul_status split_pair(const struct reading *reading, struct ul_pair *pair)
{
    const char *equals = strrchr(reading->value, '=');
    if (equals == NULL || equals == reading->value || equals[1] == '\0')
        return refuse(reading);
    char *copy = ul_arena_copy_string(reading->options->arena, reading->value);
    copy[equals - reading->value] = '\0';
    *pair = (struct ul_pair){.name = copy, .value = copy + (equals - reading->value) + 1};
    return UL_OK;
}

static enum ul_status read_pair(const struct reading *reading)
{
    struct ul_pair pair = {.name = NULL};
    UL_TRY(split_pair(reading, &pair));
    ul_pairs_add(reading->options->arena, field_of(reading->options, reading->row), pair.name,
                 pair.value);
    return UL_OK;
}

static enum ul_status read_sizes(const struct reading *reading)
{
    const struct ul_option *row = reading->row;
    struct ul_named_size item = {.rank = 0};
    struct ul_pair pair = {.name = NULL};
    UL_TRY(split_pair(reading, &pair));
    item.name = pair.name;
    for (const char *at = pair.value; *at != '\0';) {
        char *end;
        errno = 0;
        long long size = strtoll(at, &end, 10);
        if (end == at || errno != 0 || !fits_dim(row, size) || (*end != ',' && *end != '\0') ||
            item.rank == row->max)
            return refuse(reading);
        item.dims[item.rank++] = size;
        at = *end == ',' ? end + 1 : end;
    }
    ul_named_sizes_add(reading->options->arena, field_of(reading->options, row), &item);
    return UL_OK;
}

static enum ul_status read_value(const struct reading *reading)
{
    struct ul_options *options = reading->options;
    void *field = field_of(options, reading->row);
    UL_ASSERT(reading->value != NULL || reading->row->kind == UL_OPTION_FLAG);
    switch (reading->row->kind) {
    case UL_OPTION_FLAG:
        *(bool *)field = true;
        return UL_OK;
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
    case UL_OPTION_RESULT:
        *(const char **)field = ul_arena_copy_string(options->arena, reading->value);
        return UL_OK;
    case UL_OPTION_WORD:
        return read_word(reading);
    case UL_OPTION_SIZE:
        return read_size(reading);
    case UL_OPTION_NUMBER:
    case UL_OPTION_POWER:
        return read_number(reading);
    case UL_OPTION_REAL:
    case UL_OPTION_POSITIVE:
        return read_real(reading);
    case UL_OPTION_TEXTS:
        ul_texts_add(options->arena, field, ul_arena_copy_string(options->arena, reading->value));
        return UL_OK;
    case UL_OPTION_PAIRS:
        return read_pair(reading);
    case UL_OPTION_SIZES:
        return read_sizes(reading);
    }
    return UL_INTERNAL;
}

enum ul_status ul_option_restore(struct ul_options *options, const struct ul_option *row,
                                 const char *value, struct ul_diag *diag)
{
    struct reading reading = {.options = options, .row = row, .value = value, .diag = diag};
    UL_TRY(read_value(&reading));
    options->is_set[index_of(options, row)] = true;
    return UL_OK;
}

enum ul_status ul_option_set(struct ul_options *options, const struct ul_option *row,
                             const char *value, struct ul_diag *diag)
{
    UL_TRY(ul_option_restore(options, row, value, diag));
    options->said[index_of(options, row)] =
        value == NULL ? "" : ul_arena_copy_string(options->arena, value);
    return UL_OK;
}

void ul_options_copy(struct ul_options *to, const struct ul_options *from, size_t size_bytes)
{
    struct ul_arena *arena = to->arena;
    memcpy(to, from, size_bytes);
    to->arena = arena;
    for (uint32_t i = 0; i < to->table->count; i++) {
        const struct ul_option *row = &to->table->rows[i];
        if (row->kind == UL_OPTION_TEXTS) { /* one more goes into a copy */
            struct ul_texts *list = field_of(to, row);
            list->capacity = list->count;
        } else if (row->kind == UL_OPTION_PAIRS) {
            struct ul_pairs *list = field_of(to, row);
            list->capacity = list->count;
        } else if (row->kind == UL_OPTION_SIZES) {
            struct ul_named_sizes *list = field_of(to, row);
            list->capacity = list->count;
        }
    }
}

/* ---- into text ---- */

const char *ul_option_said(const struct ul_options *options, const struct ul_option *row)
{
    return options->said[index_of(options, row)];
}

uint32_t ul_option_value_count(const struct ul_options *options, const struct ul_option *row)
{
    const void *field = const_field_of(options, row);
    if (row->kind == UL_OPTION_TEXTS)
        return ((const struct ul_texts *)field)->count;
    if (row->kind == UL_OPTION_PAIRS)
        return ((const struct ul_pairs *)field)->count;
    if (row->kind == UL_OPTION_SIZES)
        return ((const struct ul_named_sizes *)field)->count;
    return 1;
}

bool ul_option_is_set(const struct ul_options *options, const struct ul_option *row)
{
    const void *field = const_field_of(options, row);
    bool is_set = options->is_set[index_of(options, row)];
    switch (row->kind) {
    case UL_OPTION_FLAG:
        return *(const bool *)field;
    case UL_OPTION_WORD:
        return word_of(options, row) != 0;
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
    case UL_OPTION_RESULT:
        return *(const char *const *)field != NULL;
    case UL_OPTION_SIZE:
    case UL_OPTION_NUMBER:
    case UL_OPTION_POWER:
        return is_set || number_of(options, row) != 0;
    case UL_OPTION_REAL:
    case UL_OPTION_POSITIVE:
        return is_set || real_of(options, row) > 0;
    case UL_OPTION_TEXTS:
    case UL_OPTION_PAIRS:
    case UL_OPTION_SIZES:
        break;
    }
    return ul_option_value_count(options, row) > 0;
}

bool ul_option_is_given(const struct ul_options *options, const struct ul_option *row)
{
    return ul_option_said(options, row) != NULL || ul_option_is_set(options, row);
}

static const char *sizes_text(struct ul_arena *arena, const struct ul_named_size *item)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_text_printf(&text, "%s=", item->name);
    for (uint32_t d = 0; d < item->rank; d++)
        ul_text_printf(&text, "%s%lld", d == 0 ? "" : ",", (long long)item->dims[d]);
    return text.data;
}

const char *ul_option_value(const struct ul_options *options, const struct ul_option *row,
                            uint32_t index)
{
    const void *field = const_field_of(options, row);
    UL_ASSERT(index < ul_option_value_count(options, row));
    switch (row->kind) {
    case UL_OPTION_FLAG:
        return "";
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
    case UL_OPTION_RESULT:
        return *(const char *const *)field;
    case UL_OPTION_WORD:
        return word_text(options, row);
    case UL_OPTION_SIZE:
    case UL_OPTION_NUMBER:
    case UL_OPTION_POWER:
        return ul_arena_printf(options->arena, "%llu", (unsigned long long)number_of(options, row));
    case UL_OPTION_REAL:
    case UL_OPTION_POSITIVE:
        return ul_arena_printf(options->arena, "%.9g", real_of(options, row));
    case UL_OPTION_TEXTS:
        return ((const struct ul_texts *)field)->items[index];
    case UL_OPTION_PAIRS: {
        const struct ul_pair *pair = &((const struct ul_pairs *)field)->items[index];
        return ul_arena_printf(options->arena, "%s=%s", pair->name, pair->value);
    }
    case UL_OPTION_SIZES:
        return sizes_text(options->arena, &((const struct ul_named_sizes *)field)->items[index]);
    }
    return NULL;
}

/* ---- fields that a caller assigned ---- */

static bool fits_sizes(const struct ul_option *row, const struct ul_named_size *item)
{
    bool fits = item->name != NULL && item->rank >= 1 && item->rank <= row->max;
    for (uint32_t d = 0; fits && d < item->rank; d++)
        fits = fits_dim(row, item->dims[d]);
    return fits;
}

static bool fits_item(const struct ul_option *row, const void *field, uint32_t index)
{
    if (row->kind == UL_OPTION_TEXTS) {
        const struct ul_texts *list = field;
        return list->items != NULL && list->items[index] != NULL;
    }
    if (row->kind == UL_OPTION_PAIRS) {
        const struct ul_pairs *list = field;
        return list->items != NULL && list->items[index].name != NULL &&
               list->items[index].value != NULL;
    }
    const struct ul_named_sizes *list = field;
    return list->items != NULL && fits_sizes(row, &list->items[index]);
}

static bool fits_list(const struct ul_options *options, const struct ul_option *row)
{
    uint32_t count = ul_option_value_count(options, row);
    for (uint32_t i = 0; i < count; i++) {
        if (!fits_item(row, const_field_of(options, row), i))
            return false;
    }
    return true;
}

/* NULL where the row takes what the field holds, else that for a message. */
static const char *misfit(const struct ul_options *options, const struct ul_option *row)
{
    struct ul_arena *arena = options->arena;
    switch (row->kind) {
    case UL_OPTION_FLAG:
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
    case UL_OPTION_RESULT:
        return NULL;
    case UL_OPTION_WORD:
        return word_text(options, row) != NULL
                   ? NULL
                   : ul_arena_printf(arena, " %u", word_of(options, row));
    case UL_OPTION_SIZE:
    case UL_OPTION_NUMBER:
    case UL_OPTION_POWER:
        return number_of(options, row) == 0 || fits_number(row, number_of(options, row))
                   ? NULL
                   : ul_arena_printf(arena, " %llu", (unsigned long long)number_of(options, row));
    case UL_OPTION_REAL:
    case UL_OPTION_POSITIVE:
        return real_of(options, row) == 0 || fits_real(row, real_of(options, row))
                   ? NULL
                   : ul_arena_printf(arena, " %g", real_of(options, row));
    case UL_OPTION_TEXTS:
    case UL_OPTION_PAIRS:
    case UL_OPTION_SIZES:
        return fits_list(options, row) ? NULL : "";
    }
    return NULL;
}

enum ul_status ul_option_check(const struct ul_options *options, const struct ul_option *row,
                               struct ul_diag *diag)
{
    const char *value = misfit(options, row);
    if (value == NULL)
        return UL_OK;
    return ul_diag_set(diag, UL_USAGE, "--%s%s: expected %s", row->name, value,
                       expected_of(options->arena, row));
}
