/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of options: each differs from the others and says what it takes, and what is written for
 * it reads back. */
#include "compile/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition, row)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: --%s: failed: %s\n", __FILE__, __LINE__, (row)->name,          \
                    #condition);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const struct ul_option_table *const table = &ul_compile_option_table;

static void check_facts(const struct ul_option *row)
{
    bool is_flag = row->kind == UL_OPTION_FLAG;
    CHECK(ul_option_find(table, row->name) == row, row); /* no other has the name */
    CHECK(row->commands == 0 || is_flag == (row->argument == NULL), row);
    CHECK(row->kind != UL_OPTION_WORD || row->words != NULL, row);
    CHECK(row->help != NULL && strlen(row->help) > 0 && row->help[strlen(row->help) - 1] != '.',
          row);
    /* what is for making plans goes with every command that makes one; verify trains nothing */
    uint32_t planning =
        row->group == UL_GROUP_TRAINING ? UL_IN_PIPELINE & UL_IN_TRAINING : UL_IN_PIPELINE;
    CHECK(row->record != UL_RECORD_PLANNING || (row->commands & planning) == planning, row);
    CHECK(row->group < UL_GROUP_COUNT, row);
    CHECK(row->offset >= sizeof(struct ul_options), row);
    for (uint32_t i = 0; i < table->count; i++)
        CHECK(&table->rows[i] == row || table->rows[i].offset != row->offset, row);
}

/* A value that the row takes, other than its default. */
static const char *sample(const struct ul_option *row)
{
    struct ul_option_word word = {.value = 0};
    switch (row->kind) {
    case UL_OPTION_FLAG:
        return NULL;
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
    case UL_OPTION_RESULT:
    case UL_OPTION_TEXTS:
        return "a text";
    case UL_OPTION_WORD:
        for (uint32_t i = 0; word.value == 0; i++)
            word = row->words(i);
        return word.word;
    case UL_OPTION_SIZE:
    case UL_OPTION_NUMBER:
    case UL_OPTION_INTEGER:
    case UL_OPTION_POWER:
        return "64";
    case UL_OPTION_REAL:
    case UL_OPTION_POSITIVE:
        return "0.25";
    case UL_OPTION_PAIRS:
        return "a=b=c";
    case UL_OPTION_SIZES:
        return row->max == 1 ? "a=b=3..9:2" : row->max == 2 ? "a=b=3,0" : "a=b=3,0..4,5";
    }
    return NULL;
}

/* What was set is written as it was read, in its own struct and in a copy. */
static void check_round_trip(const struct ul_option *row, struct ul_arena *arena)
{
    struct ul_compile_options options = {.base = {.table = table, .arena = arena}};
    struct ul_compile_options copy = {.base = {.arena = arena}};
    struct ul_diag diag = {.status = UL_OK};
    const char *value = sample(row);
    CHECK(!ul_option_is_given(&options.base, row), row);
    CHECK(ul_option_set(&options.base, row, value, &diag) == UL_OK, row);
    CHECK(ul_option_is_set(&options.base, row) && ul_option_said(&options.base, row) != NULL, row);
    CHECK(strcmp(ul_option_value(&options.base, row, 0), value != NULL ? value : "") == 0, row);
    for (uint32_t i = 0; i < table->count; i++)
        CHECK(&table->rows[i] == row || !ul_option_is_given(&options.base, &table->rows[i]), row);
    ul_options_copy(&copy.base, &options.base, sizeof copy);
    CHECK(ul_option_set(&copy.base, row, value, &diag) == UL_OK, row);
    bool repeats = ul_option_value_count(&copy.base, row) == 2;
    bool is_list = row->kind == UL_OPTION_TEXTS || row->kind == UL_OPTION_PAIRS ||
                   row->kind == UL_OPTION_SIZES;
    CHECK(repeats == is_list && ul_option_value_count(&options.base, row) == 1, row);
}

/* A value that a row does not take changes nothing, and the message says what the row does take. */
static void check_refusal(const char *name, const char *value, const char *expected)
{
    struct ul_arena arena;
    struct ul_diag diag = {.status = UL_OK};
    const struct ul_option *row = ul_option_find(table, name);
    ul_arena_init(&arena);
    struct ul_compile_options options = {.base = {.table = table, .arena = &arena}};
    CHECK(ul_option_set(&options.base, row, value, &diag) == UL_USAGE, row);
    CHECK(!ul_option_is_given(&options.base, row), row);
    CHECK(strstr(diag.text, expected) != NULL, row);
    ul_arena_done(&arena);
}

/* A text is one of its words, or begins as one does, or is something else; messages and help have
 * the same words. */
static void check_words(void)
{
    struct ul_arena arena;
    struct ul_text text;
    const struct ul_option *loss = ul_option_find(table, "loss");
    ul_arena_init(&arena);
    ul_text_init(&text, &arena);
    CHECK(ul_option_find_word(loss, "mse").word != NULL, loss);
    CHECK(ul_option_find_word(loss, "ms").word == NULL, loss);
    CHECK(ul_option_find_word(loss, "output").word == NULL, loss);
    CHECK(ul_option_find_word(loss, "output:mse").value == UL_LOSS_OUTPUT, loss);
    CHECK(ul_compile_word("offload", "host") == UL_OFFLOAD_HOST, loss);
    CHECK(ul_compile_word("offload", "./host") == UL_OFFLOAD_FILE, loss);
    ul_option_put_words(&text, ul_option_find(table, "offload"));
    CHECK(strcmp(text.data, "none, host or FILE") == 0, loss);
    ul_text_init(&text, &arena);
    ul_option_explain_words(&text, loss);
    CHECK(strstr(text.data, "; softmax-cross-entropy (the default), mse, bce (of logits) or "
                            "output:NAME (a scalar of the model)") == text.data,
          loss);
    ul_arena_done(&arena);
}

int main(void)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    for (uint32_t i = 0; i < table->count; i++) {
        check_facts(&table->rows[i]);
        check_round_trip(&table->rows[i], &arena);
    }
    ul_arena_done(&arena);
    check_words();
    check_refusal("threads", "0", "expected a number from 1 to 1024");
    check_refusal("threads", "-1", "expected a number from 1 to 1024");
    check_refusal("threads", "1025", "expected a number from 1 to 1024");
    check_refusal("threads", " 1", "expected a number from 1 to 1024");
    check_refusal("align", "24", "expected a power of two from 8 to 4096");
    check_refusal("budget", "0", "expected a size");
    check_refusal("budget", "1GB", "expected a size");
    check_refusal("time-limit", "0", "expected a number above 0");
    check_refusal("time-limit", "nan", "expected a number above 0");
    check_refusal("conv", "fast", "expected best, direct or winograd");
    check_refusal("conv", "\033[2J", "--conv \"\\x");
    check_refusal("dim", "N", "expected NAME=N");
    check_refusal("dim", "N=2,1", "a set of sizes is ascending");
    check_refusal("dim", "N=1,2,", "expected NAME=N");
    check_refusal("dim", "N=1,2..4", "expected NAME=N");
    check_refusal("dim", "N=1..", "expected NAME=N");
    check_refusal("dim", "N=..4", "expected NAME=N");
    check_refusal("dim", "N=4..1", "expected NAME=N");
    check_refusal("dim", "N=1...4", "expected NAME=N");
    check_refusal("dim", "N=1..5:3", "expected NAME=N");
    check_refusal("dim", "N=1..5:0", "expected NAME=N");
    check_refusal("dim", "N=1..5:", "expected NAME=N");
    check_refusal("dim", "N=5:2", "expected NAME=N");
    check_refusal("dim", "N=-1..4", "expected NAME=N");
    check_refusal("dim", "N=1..99999999999999999999", "expected NAME=N");
    check_refusal("shape", "x=1,1,1,1,1,1,1,1,1", "at most 8 sizes");
    check_refusal("const", "x=", "expected NAME=VALUE");
    return 0;
}
