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

const char *ul_option_shown(struct ul_arena *arena, const char *text)
{
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:/=+@%-";
    return strspn(text, plain) == strlen(text) ? text : ul_quote(arena, text);
}

/* ---- from text ---- */

/* An option with the value that it does not take, on the way into a field. */
struct reading {
    struct ul_options *options;
    const struct ul_option *row;
    const char *value;
    struct ul_diag *diag;
};

static enum ul_status refuse(const struct reading *reading, const char *expected)
{
    return ul_diag_set(reading->diag, UL_USAGE, "--%s %s: expected %s", reading->row->name,
                       ul_option_shown(reading->options->arena, reading->value), expected);
}

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
    struct ul_text expected;
    ul_text_init(&expected, reading->options->arena);
    ul_option_put_words(&expected, reading->row);
    ul_text_put(&expected, ul_nearest_text(expected.arena, &nearest, ""));
    return refuse(reading, expected.data);
}

static enum ul_status read_size(const struct reading *reading)
{
    uint64_t number;
    if (!ul_size_parse(reading->value, &number) || number < reading->row->min)
        return refuse(reading, "a size: 64MiB, 64M, 65536");
    memcpy(field_of(reading->options, reading->row), &number, sizeof number);
    return UL_OK;
}

static enum ul_status read_number(const struct reading *reading)
{
    const struct ul_option *row = reading->row;
    bool wants_power = row->kind == UL_OPTION_POWER;
    const char *digits = reading->value;
    char *end;
    errno = 0;
    uint64_t number = strtoull(digits, &end, 10);
    bool valid = *digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0;
    if (wants_power)
        valid = ul_size_parse(digits, &number);
    bool is_power = (number & (number - 1)) == 0;
    if (!valid || number < row->min || number > row->max || (wants_power && !is_power))
        return refuse(reading,
                      ul_arena_printf(reading->options->arena, "a %s from %llu to %llu",
                                      wants_power ? "power of two" : "number",
                                      (unsigned long long)row->min, (unsigned long long)row->max));
    memcpy(field_of(reading->options, row), &number, sizeof number);
    return UL_OK;
}

static enum ul_status read_real(const struct reading *reading)
{
    bool above = reading->row->kind == UL_OPTION_POSITIVE;
    char *end;
    double number = strtod(reading->value, &end);
    bool valid = end != reading->value && *end == '\0' && isfinite(number);
    if (!valid || number < 0 || (above && !(number > 0)))
        return refuse(reading, above ? "a number above 0" : "a number of at least 0");
    memcpy(field_of(reading->options, reading->row), &number, sizeof number);
    return UL_OK;
}

/* "NAME=VALUE", split at the last '=' (names may hold one). */
static enum ul_status split_pair(const struct reading *reading, struct ul_pair *pair)
{
    const char *equals = strrchr(reading->value, '=');
    if (equals == NULL || equals == reading->value || equals[1] == '\0')
        return refuse(reading, "NAME=VALUE");
    char *copy = ul_arena_copy_string(reading->options->arena, reading->value);
    copy[equals - reading->value] = '\0';
    *pair = (struct ul_pair){.name = copy, .value = copy + (equals - reading->value) + 1};
    return UL_OK;
}

static enum ul_status read_pair(const struct reading *reading)
{
    struct ul_pair pair;
    UL_TRY(split_pair(reading, &pair));
    ul_pairs_add(reading->options->arena, field_of(reading->options, reading->row), pair.name,
                 pair.value);
    return UL_OK;
}

static enum ul_status read_sizes(const struct reading *reading)
{
    const struct ul_option *row = reading->row;
    struct ul_named_size item = {.rank = 0};
    struct ul_pair pair;
    UL_TRY(split_pair(reading, &pair));
    item.name = pair.name;
    for (const char *at = pair.value; *at != '\0';) {
        char *end;
        errno = 0;
        const long long min = row->max == 1 ? 1 : 0; /* an empty tensor is said by its shape */
        long long size = strtoll(at, &end, 10);
        if (end == at || errno != 0 || size < min || size > UL_LIMIT_DIM ||
            (*end != ',' && *end != '\0') || item.rank == row->max)
            return refuse(reading, row->max == 1
                                       ? "NAME=N, N at least 1"
                                       : ul_arena_printf(reading->options->arena,
                                                         "INPUT=N,N,... with at most %d sizes",
                                                         (int)row->max));
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

static uint64_t number_of(const struct ul_options *options, const struct ul_option *row)
{
    uint64_t number;
    memcpy(&number, const_field_of(options, row), sizeof number);
    return number;
}

static unsigned word_of(const struct ul_options *options, const struct ul_option *row)
{
    unsigned value;
    memcpy(&value, const_field_of(options, row), sizeof value);
    return value;
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
        return is_set || *(const double *)field > 0;
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
        return ul_arena_printf(options->arena, "%.9g", *(const double *)field);
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
