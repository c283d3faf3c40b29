/* SPDX-License-Identifier: Apache-2.0 */
/* Options by their rows: text into the field, and the field into text. */
#include "compile/options/option.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void ul_texts_add(struct ul_arena *arena, struct ul_texts *list, const char *text)
{
    UL_GROW(arena, list->items, list->count, list->capacity);
    list->items[list->count++] = text;
}

bool ul_texts_have(const struct ul_texts *list, const char *text)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
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

const struct ul_named_size *ul_named_sizes_find(const struct ul_named_sizes *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
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

const char *ul_option_shown(struct ul_arena *arena, const char *text)
{
    return ul_word_quote(arena, text);
}

/* ---- values of a row ---- */

/* Word `index`, followed by the other value that the row takes. */
static struct ul_option_word word_at(const struct ul_option *row, uint32_t index)
{
    struct ul_option_word word = row->words(index);
    bool is_behind = word.word == NULL && (index == 0 || row->words(index - 1).word != NULL);
    return is_behind ? row->other : word;
}

static const char *between(const struct ul_option *row, uint32_t index)
{
    return index == 0 ? "" : word_at(row, index + 1).word == NULL ? " or " : ", ";
}

void ul_option_put_words(struct ul_text *text, const struct ul_option *row)
{
    const char *word;
    for (uint32_t i = 0; (word = word_at(row, i).word) != NULL; i++)
        ul_text_printf(text, "%s%s", between(row, i), word);
}

void ul_option_explain_words(struct ul_text *text, const struct ul_option *row)
{
    struct ul_option_word word;
    if (row->kind != UL_OPTION_WORD && !row->shows_words)
        return;
    for (uint32_t i = 0; (word = word_at(row, i)).word != NULL; i++) {
        bool is_default = word.value == 0 && row->words(i).word != NULL;
        const char *what = word.what != NULL ? word.what : "";
        ul_text_printf(text, "%s%s", i == 0 ? "; " : between(row, i), word.word);
        if (is_default || *what != '\0')
            ul_text_printf(text, " (%s%s%s)", what, is_default && *what != '\0' ? "; " : "",
                           is_default ? "the default" : "");
    }
}

struct ul_option_word ul_option_find_word(const struct ul_option *row, const char *said)
{
    struct ul_option_word word;
    for (uint32_t i = 0; (word = row->words(i)).word != NULL; i++) {
        const char *colon = strchr(word.word, ':');
        if (colon != NULL ? strncmp(word.word, said, (size_t)(colon + 1 - word.word)) == 0
                          : strcmp(word.word, said) == 0)
            break;
    }
    return word;
}

void ul_option_offer_words(struct ul_nearest *nearest, const struct ul_option *row)
{
    const char *word;
    for (uint32_t i = 0; (word = row->words(i).word) != NULL; i++)
        ul_nearest_offer(nearest, word);
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

static bool fits_dim(int64_t dim)
{
    return dim >= 0 && dim <= UL_LIMIT_DIM;
}

/* The expected words, for messages. */

static const char *expected_word(struct ul_arena *arena, const struct ul_option *row)
{
    struct ul_text words;
    ul_text_init(&words, arena);
    ul_option_put_words(&words, row);
    return words.data;
}

static const char *expected_size(struct ul_arena *arena, const struct ul_option *row)
{
    (void)arena, (void)row;
    return "a size: 64MiB, 64M, 65536";
}

static const char *expected_integer(struct ul_arena *arena, const struct ul_option *row)
{
    (void)arena, (void)row;
    return "a whole number";
}

static const char *expected_number(struct ul_arena *arena, const struct ul_option *row)
{
    return ul_arena_printf(arena, "a %s from %llu to %llu%s%s",
                           row->kind == UL_OPTION_POWER ? "power of two" : "number",
                           (unsigned long long)row->min, (unsigned long long)row->max,
                           row->open != NULL ? ", or " : "", row->open != NULL ? row->open : "");
}

static const char *expected_real(struct ul_arena *arena, const struct ul_option *row)
{
    (void)arena;
    return row->kind == UL_OPTION_POSITIVE ? "a number above 0" : "a number of at least 0";
}

static const char *expected_text(struct ul_arena *arena, const struct ul_option *row)
{
    (void)arena, (void)row;
    return "a text";
}

static const char *expected_pair(struct ul_arena *arena, const struct ul_option *row)
{
    (void)arena, (void)row;
    return "NAME=VALUE";
}

static const char *expected_sizes(struct ul_arena *arena, const struct ul_option *row)
{
    return row->max == 1
               ? "NAME=N, N at least 0"
               : ul_arena_printf(arena, "INPUT=N,N,... with at most %d sizes", (int)row->max);
}

/* ---- from text ---- */

/* An option with its value while it is read into a field. */
struct reading {
    struct ul_options *options;
    const struct ul_option *row;
    const struct kind *kind;
    const char *value;
    struct ul_diag *diag;
};

/* How options of a kind are handled. */
struct kind {
    enum ul_status (*read)(const struct reading *reading);
    bool (*is_set)(const struct ul_options *options, const struct ul_option *row);
    const char *(*text)(const struct ul_options *options, const struct ul_option *row,
                        uint32_t index);
    /* NULL where the row takes the field's value, else the value for a message. */
    const char *(*misfit)(const struct ul_options *options, const struct ul_option *row);
    const char *(*expected)(struct ul_arena *arena, const struct ul_option *row);
};

static enum ul_status refuse_near(const struct reading *reading, const char *nearest)
{
    struct ul_arena *arena = reading->options->arena;
    return ul_diag_set(reading->diag, UL_USAGE, "--%s %s: expected %s%s", reading->row->name,
                       ul_option_shown(arena, reading->value),
                       reading->kind->expected(arena, reading->row), nearest);
}

static enum ul_status refuse(const struct reading *reading)
{
    return refuse_near(reading, "");
}

static enum ul_status read_word(const struct reading *reading)
{
    struct ul_nearest nearest = {.word = reading->value};
    struct ul_option_word word = ul_option_find_word(reading->row, reading->value);
    if (word.word != NULL) {
        memcpy(field_of(reading->options, reading->row), &word.value, sizeof word.value);
        return UL_OK;
    }
    ul_option_offer_words(&nearest, reading->row);
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
    if (row->open != NULL && strcmp(digits, row->open) == 0) {
        number = 0;
        memcpy(field_of(reading->options, row), &number, sizeof number);
        return UL_OK;
    }
    bool valid = *digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0;
    if (row->kind == UL_OPTION_POWER)
        valid = ul_size_parse(digits, &number);
    if (!valid || !fits_number(row, number))
        return refuse(reading);
    memcpy(field_of(reading->options, row), &number, sizeof number);
    return UL_OK;
}

static enum ul_status read_integer(const struct reading *reading)
{
    char *end;
    errno = 0;
    int64_t number = strtoll(reading->value, &end, 10);
    if (end == reading->value || *end != '\0' || errno != 0)
        return refuse(reading);
    memcpy(field_of(reading->options, reading->row), &number, sizeof number);
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

/* Splits "NAME=VALUE" at the last '=' (names may hold one). */
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

/* Reads a number at *at, which becomes what follows it. */
static bool read_dim(const char **at, int64_t *dim)
{
    char *end;
    errno = 0;
    long long size = strtoll(*at, &end, 10);
    bool is_dim = end != *at && errno == 0 && fits_dim(size);
    *dim = size;
    *at = end;
    return is_dim;
}

/* Reads a size, or a range such as "1..512" or "224..640:32", up to a comma or the end. */
static bool read_range(const char **at, struct ul_named_size *item)
{
    static const char dots[] = "..";
    uint32_t d = item->rank++;
    int64_t low, step = 1;
    if (!read_dim(at, &low))
        return false;
    item->dims[d] = low;
    if (strncmp(*at, dots, strlen(dots)) == 0) {
        *at += strlen(dots);
        if (!read_dim(at, &item->dims[d]) || item->dims[d] < low)
            return false;
        if (**at == ':' && (*at += 1, !read_dim(at, &step) || step == 0))
            return false;
        item->spans[d] = item->dims[d] - low;
        item->steps[d] = item->spans[d] > 0 ? step : 0;
    }
    return item->spans[d] % step == 0 && (**at == ',' || **at == '\0');
}

/* Reads ascending sizes with commas between, such as "1,2,4". */
static bool read_set(struct ul_arena *arena, const char *at, struct ul_named_size *item)
{
    int64_t *values = UL_NEW_ARRAY(arena, int64_t, strlen(at));
    uint32_t count = 0;
    do {
        at += count > 0;
        if (!read_dim(&at, &values[count]) || (count > 0 && values[count] <= values[count - 1]))
            return false;
        count++;
    } while (*at == ',');
    item->rank = 1;
    item->dims[0] = values[count - 1];
    item->values = values;
    item->value_count = count;
    return *at == '\0';
}

static enum ul_status read_sizes(const struct reading *reading)
{
    const struct ul_option *row = reading->row;
    struct ul_named_size item = {.rank = 0};
    struct ul_pair pair = {.name = NULL};
    UL_TRY(split_pair(reading, &pair));
    item.name = pair.name;
    bool is_set = row->max == 1 && strchr(pair.value, ',') != NULL;
    if (is_set && !read_set(reading->options->arena, pair.value, &item))
        return refuse_near(reading, "; a set of sizes is ascending, as in 1,2,4");
    for (const char *at = pair.value; !is_set && *at != '\0';) {
        if (item.rank == row->max || !read_range(&at, &item))
            return refuse_near(reading,
                               strstr(pair.value, "..") == NULL
                                   ? ""
                                   : "; a range is LOW..HIGH, or LOW..HIGH:STEP where STEP "
                                     "divides HIGH - LOW");
        if (*at == ',')
            at++;
    }
    ul_named_sizes_add(reading->options->arena, field_of(reading->options, row), &item);
    return UL_OK;
}

static enum ul_status read_flag(const struct reading *reading)
{
    *(bool *)field_of(reading->options, reading->row) = true;
    return UL_OK;
}

static enum ul_status read_text(const struct reading *reading)
{
    const char **field = field_of(reading->options, reading->row);
    *field = ul_arena_copy_string(reading->options->arena, reading->value);
    return UL_OK;
}

static enum ul_status read_texts(const struct reading *reading)
{
    struct ul_arena *arena = reading->options->arena;
    ul_texts_add(arena, field_of(reading->options, reading->row),
                 ul_arena_copy_string(arena, reading->value));
    return UL_OK;
}

/* ---- whether a field is set, and its text ---- */

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

static bool is_flag_set(const struct ul_options *options, const struct ul_option *row)
{
    return *(const bool *)const_field_of(options, row);
}

static bool is_word_set(const struct ul_options *options, const struct ul_option *row)
{
    return word_of(options, row) != 0;
}

static bool is_text_set(const struct ul_options *options, const struct ul_option *row)
{
    return *(const char *const *)const_field_of(options, row) != NULL;
}

static bool is_number_set(const struct ul_options *options, const struct ul_option *row)
{
    return options->is_set[index_of(options, row)] || number_of(options, row) != 0;
}

static bool is_real_set(const struct ul_options *options, const struct ul_option *row)
{
    return options->is_set[index_of(options, row)] || real_of(options, row) > 0;
}

static bool is_list_set(const struct ul_options *options, const struct ul_option *row)
{
    return ul_option_value_count(options, row) > 0;
}

static const char *flag_text(const struct ul_options *options, const struct ul_option *row,
                             uint32_t index)
{
    (void)options, (void)row, (void)index;
    return "";
}

static const char *word_text(const struct ul_options *options, const struct ul_option *row,
                             uint32_t index)
{
    unsigned value = word_of(options, row);
    struct ul_option_word word;
    (void)index;
    for (uint32_t i = 0; (word = row->words(i)).word != NULL; i++) {
        if (word.value == value)
            break;
    }
    return word.word;
}

static const char *text_text(const struct ul_options *options, const struct ul_option *row,
                             uint32_t index)
{
    (void)index;
    return *(const char *const *)const_field_of(options, row);
}

static const char *number_text(const struct ul_options *options, const struct ul_option *row,
                               uint32_t index)
{
    (void)index;
    if (row->open != NULL && number_of(options, row) == 0)
        return row->open;
    return ul_arena_printf(options->arena, "%llu", (unsigned long long)number_of(options, row));
}

static const char *integer_text(const struct ul_options *options, const struct ul_option *row,
                                uint32_t index)
{
    (void)index;
    return ul_arena_printf(options->arena, "%lld", (long long)(int64_t)number_of(options, row));
}

static const char *real_text(const struct ul_options *options, const struct ul_option *row,
                             uint32_t index)
{
    (void)index;
    return ul_arena_printf(options->arena, "%.17g", real_of(options, row));
}

static const char *texts_text(const struct ul_options *options, const struct ul_option *row,
                              uint32_t index)
{
    const struct ul_texts *list = const_field_of(options, row);
    return list->items[index];
}

static const char *pairs_text(const struct ul_options *options, const struct ul_option *row,
                              uint32_t index)
{
    const struct ul_pairs *list = const_field_of(options, row);
    return ul_arena_printf(options->arena, "%s=%s", list->items[index].name,
                           list->items[index].value);
}

static const char *sizes_text(const struct ul_options *options, const struct ul_option *row,
                              uint32_t index)
{
    const struct ul_named_sizes *list = const_field_of(options, row);
    const struct ul_named_size *item = &list->items[index];
    struct ul_text text;
    ul_text_init(&text, options->arena);
    ul_text_printf(&text, "%s=", item->name);
    for (uint32_t i = 0; i + 1 < item->value_count; i++)
        ul_text_printf(&text, "%lld,", (long long)item->values[i]);
    for (uint32_t d = 0; d < item->rank; d++) {
        ul_text_put(&text, d == 0 ? "" : ",");
        if (item->spans[d] > 0)
            ul_text_printf(&text, "%lld..", (long long)(item->dims[d] - item->spans[d]));
        ul_text_printf(&text, "%lld", (long long)item->dims[d]);
        if (item->steps[d] > 1)
            ul_text_printf(&text, ":%lld", (long long)item->steps[d]);
    }
    return text.data;
}

/* ---- fields that a caller assigned ---- */

static const char *word_misfit(const struct ul_options *options, const struct ul_option *row)
{
    return word_text(options, row, 0) != NULL
               ? NULL
               : ul_arena_printf(options->arena, " %u", word_of(options, row));
}

static const char *number_misfit(const struct ul_options *options, const struct ul_option *row)
{
    return number_of(options, row) == 0 || fits_number(row, number_of(options, row))
               ? NULL
               : ul_arena_printf(options->arena, " %s", number_text(options, row, 0));
}

static const char *real_misfit(const struct ul_options *options, const struct ul_option *row)
{
    return real_of(options, row) == 0 || fits_real(row, real_of(options, row))
               ? NULL
               : ul_arena_printf(options->arena, " %s", real_text(options, row, 0));
}

static bool fits_sizes(const struct ul_option *row, const struct ul_named_size *item)
{
    bool fits = item->name != NULL && item->rank >= 1 && item->rank <= row->max;
    for (uint32_t d = 0; fits && d < item->rank; d++)
        fits = fits_dim(item->dims[d]);
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

static const char *list_misfit(const struct ul_options *options, const struct ul_option *row)
{
    uint32_t count = ul_option_value_count(options, row);
    for (uint32_t i = 0; i < count; i++) {
        if (!fits_item(row, const_field_of(options, row), i))
            return "";
    }
    return NULL;
}

/* ---- the kinds ---- */

static const struct kind kinds[] = {
    [UL_OPTION_FLAG] = {read_flag, is_flag_set, flag_text, NULL, NULL},
    [UL_OPTION_TEXT] = {read_text, is_text_set, text_text, NULL, NULL},
    [UL_OPTION_INPUT] = {read_text, is_text_set, text_text, NULL, NULL},
    [UL_OPTION_RESULT] = {read_text, is_text_set, text_text, NULL, NULL},
    [UL_OPTION_WORD] = {read_word, is_word_set, word_text, word_misfit, expected_word},
    [UL_OPTION_SIZE] = {read_size, is_number_set, number_text, number_misfit, expected_size},
    [UL_OPTION_NUMBER] = {read_number, is_number_set, number_text, number_misfit, expected_number},
    [UL_OPTION_INTEGER] = {read_integer, is_number_set, integer_text, NULL, expected_integer},
    [UL_OPTION_POWER] = {read_number, is_number_set, number_text, number_misfit, expected_number},
    [UL_OPTION_REAL] = {read_real, is_real_set, real_text, real_misfit, expected_real},
    [UL_OPTION_POSITIVE] = {read_real, is_real_set, real_text, real_misfit, expected_real},
    [UL_OPTION_TEXTS] = {read_texts, is_list_set, texts_text, list_misfit, expected_text},
    [UL_OPTION_PAIRS] = {read_pair, is_list_set, pairs_text, list_misfit, expected_pair},
    [UL_OPTION_SIZES] = {read_sizes, is_list_set, sizes_text, list_misfit, expected_sizes},
};

static const struct kind *kind_of(const struct ul_option *row)
{
    UL_ASSERT((size_t)row->kind < sizeof kinds / sizeof *kinds);
    return &kinds[row->kind];
}

enum ul_status ul_option_restore(struct ul_options *options, const struct ul_option *row,
                                 const char *value, struct ul_diag *diag)
{
    struct reading reading = {
        .options = options, .row = row, .kind = kind_of(row), .value = value, .diag = diag};
    UL_ASSERT(value != NULL || row->kind == UL_OPTION_FLAG);
    UL_TRY(reading.kind->read(&reading));
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

void ul_option_clear(struct ul_options *options, const struct ul_option *row)
{
    static const size_t sizes[] = {
        [UL_OPTION_FLAG] = sizeof(bool),
        [UL_OPTION_TEXT] = sizeof(const char *),
        [UL_OPTION_INPUT] = sizeof(const char *),
        [UL_OPTION_RESULT] = sizeof(const char *),
        [UL_OPTION_WORD] = sizeof(unsigned),
        [UL_OPTION_SIZE] = sizeof(uint64_t),
        [UL_OPTION_NUMBER] = sizeof(uint64_t),
        [UL_OPTION_INTEGER] = sizeof(int64_t),
        [UL_OPTION_POWER] = sizeof(uint64_t),
        [UL_OPTION_REAL] = sizeof(double),
        [UL_OPTION_POSITIVE] = sizeof(double),
        [UL_OPTION_TEXTS] = sizeof(struct ul_texts),
        [UL_OPTION_PAIRS] = sizeof(struct ul_pairs),
        [UL_OPTION_SIZES] = sizeof(struct ul_named_sizes),
    };
    memset(field_of(options, row), 0, sizes[row->kind]);
    options->said[index_of(options, row)] = NULL;
    options->is_set[index_of(options, row)] = false;
}

/* Replaces what was given for that size before with the last of several. */
static void replace_size(struct ul_options *options, const struct ul_option *row)
{
    struct ul_named_sizes *list = field_of(options, row);
    UL_ASSERT(row->kind == UL_OPTION_SIZES && list->count > 0);
    const struct ul_named_size last = list->items[list->count - 1];
    for (uint32_t i = 0; i + 1 < list->count; i++) {
        if (strcmp(list->items[i].name, last.name) == 0) {
            list->items[i] = last;
            list->count--;
            return;
        }
    }
}

void ul_option_edits_add(struct ul_arena *arena, struct ul_option_edits *edits,
                         const struct ul_option *row, const char *value, bool replaces)
{
    UL_GROW(arena, edits->items, edits->count, edits->capacity);
    edits->items[edits->count++] =
        (struct ul_option_edit){.row = row, .value = value, .replaces = replaces};
}

enum ul_status ul_options_change(struct ul_options *options, const struct ul_option_edits *edits,
                                 struct ul_diag *diag)
{
    for (uint32_t i = 0; i < edits->count; i++) {
        const struct ul_option_edit *edit = &edits->items[i];
        bool is_flag = edit->row->kind == UL_OPTION_FLAG;
        if (edit->value == NULL) {
            ul_option_clear(options, edit->row);
            continue;
        }
        UL_TRY(ul_option_set(options, edit->row, is_flag ? NULL : edit->value, diag));
        if (edit->replaces)
            replace_size(options, edit->row);
    }
    return UL_OK;
}

void ul_options_copy(struct ul_options *to, const struct ul_options *from, size_t size_bytes)
{
    struct ul_arena *arena = to->arena;
    memcpy(to, from, size_bytes);
    to->arena = arena;
    for (uint32_t i = 0; i < to->table->count; i++) {
        const struct ul_option *row = &to->table->rows[i];
        if (row->kind == UL_OPTION_TEXTS) { /* the list is copied before one is added */
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

const char *ul_option_said(const struct ul_options *options, const struct ul_option *row)
{
    return options->said[index_of(options, row)];
}

bool ul_option_is_set(const struct ul_options *options, const struct ul_option *row)
{
    return kind_of(row)->is_set(options, row);
}

bool ul_option_is_given(const struct ul_options *options, const struct ul_option *row)
{
    return ul_option_said(options, row) != NULL || ul_option_is_set(options, row);
}

const char *ul_option_value(const struct ul_options *options, const struct ul_option *row,
                            uint32_t index)
{
    UL_ASSERT(index < ul_option_value_count(options, row));
    return kind_of(row)->text(options, row, index);
}

enum ul_status ul_option_check(const struct ul_options *options, const struct ul_option *row,
                               struct ul_diag *diag)
{
    const struct kind *kind = kind_of(row);
    const char *value = kind->misfit == NULL ? NULL : kind->misfit(options, row);
    if (value == NULL)
        return UL_OK;
    return ul_diag_set(diag, UL_USAGE, "--%s%s: expected %s", row->name, value,
                       kind->expected(options->arena, row));
}
