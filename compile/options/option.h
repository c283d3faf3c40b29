/* SPDX-License-Identifier: Apache-2.0 */
/* Options as rows: a table gives each its name, the values that it takes, the field that stores
 * them, the targets and commands that it is for, and its form in plan.json. The command line,
 * --help, and the reader and writer of plans all use the row; nothing else names an option to learn
 * a fact about it.
 *
 * Invariants: a zeroed field is the default. `said` holds the caller's text; `is_set` also marks
 * values from a plan, since a zero may be meant. Ownership: lists and texts live in the arena of
 * the options. Units: sizes in bytes, times in seconds. Failure: a value that a row does not take,
 * given or assigned, is UL_USAGE with the option and the expected values. */
#ifndef UL_OPTIONS_H
#define UL_OPTIONS_H

#include "base/base.h"

enum { UL_OPTION_MAX = 128 }; /* rows of a table */

/* The values of an option, and the type of its field. */
enum ul_option_kind {
    UL_OPTION_FLAG,     /* no value: bool */
    UL_OPTION_TEXT,     /* anything: const char * */
    UL_OPTION_INPUT,    /* a file to read, unless it is a name of something: const char * */
    UL_OPTION_RESULT,   /* a file to write, - for standard output: const char * */
    UL_OPTION_WORD,     /* one of `words`: an enum, of which 0 is the default */
    UL_OPTION_SIZE,     /* 64MiB, 64M, 65536; from `min` on: uint64_t */
    UL_OPTION_NUMBER,   /* from `min` to `max`: uint64_t */
    UL_OPTION_INTEGER,  /* of either sign: int64_t */
    UL_OPTION_POWER,    /* a power of two from `min` to `max`: uint64_t */
    UL_OPTION_REAL,     /* at least 0: double */
    UL_OPTION_POSITIVE, /* above 0: double */
    UL_OPTION_TEXTS,    /* repeatable: struct ul_texts */
    UL_OPTION_PAIRS,    /* NAME=VALUE, repeatable: struct ul_pairs */
    UL_OPTION_SIZES     /* NAME=N,... with at most `max` N, repeatable: struct ul_named_sizes */
};

/* --help prints options group by group. */
enum ul_option_group {
    UL_GROUP_RESULT,
    UL_GROUP_MODEL,
    UL_GROUP_TARGET,
    UL_GROUP_MEMORY,
    UL_GROUP_TRAINING,
    UL_GROUP_PLANNER,
    UL_GROUP_PASSES,
    UL_GROUP_COMPILER,
    UL_GROUP_TOLERANCE,
    UL_GROUP_COUNT
};

/* The targets that can use the option; for any other target it is an error. */
enum ul_option_audience {
    UL_FOR_ALL,
    UL_FOR_COMPILER,  /* targets with the compiler that it names */
    UL_FOR_MARCH,     /* targets whose compiler takes a processor's name */
    UL_FOR_THREADS,   /* targets whose plans depend on the number of threads */
    UL_FOR_LAYOUTS,   /* targets that lay values out channels-last */
    UL_FOR_LIBRARIES, /* targets whose programs find their libraries at their start */
    UL_FOR_PLAIN      /* targets with neither libraries nor threads */
};

/* The option's form in plan.json. A word or a flag that is the default is not written. */
enum ul_option_record {
    UL_RECORD_NONE,     /* not written: with --plan it is this command's own */
    UL_RECORD_PLANNING, /* written; it is for making a plan: refused with --plan */
    UL_RECORD_CHOICE,   /* written and read back, unless the command itself gives it */
    UL_RECORD_FIXED,    /* the same, but the command may not give another value: results would have
                           other bits */
    UL_RECORD_NAME      /* only the names of its pairs are written; it must be given again */
};

/* The commands that take the option. */
enum ul_option_command {
    UL_IN_COMPILE = 1u << 0,
    UL_IN_PLAN = 1u << 1,
    UL_IN_CHECK = 1u << 2,
    UL_IN_VERIFY = 1u << 3,
    UL_IN_INSPECT = 1u << 4,
    UL_IN_PACK = 1u << 5,
    UL_IN_SOLVE = 1u << 6,
    UL_IN_PROFILE = 1u << 7,
    UL_IN_EXPORT = 1u << 8,
    UL_IN_DIFF = 1u << 9,
    UL_IN_REPORT = 1u << 10,
    UL_IN_PIPELINE = UL_IN_COMPILE | UL_IN_PLAN | UL_IN_VERIFY,
    UL_IN_TRAINING = UL_IN_COMPILE | UL_IN_PLAN | UL_IN_INSPECT
};

/* A word that an option takes. A word like "output:NAME" stands for all that begin like it, up to
 * the colon. */
struct ul_option_word {
    const char *word; /* NULL: there is no such word */
    unsigned value;   /* its meaning; 0 is the default */
    const char *what; /* what it does, for --help; or NULL */
};

struct ul_option {
    const char *name;     /* without dashes */
    char letter;          /* 0: none */
    const char *argument; /* "SIZE"; NULL for a flag */
    const char *help;     /* what it does, as a phrase; words that it shows are added */
    enum ul_option_group group;
    enum ul_option_kind kind;
    /* Word `index` of those that it takes; the word is NULL after the last. A NULL function: it
     * takes none. A text may have other values too. */
    struct ul_option_word (*words)(uint32_t index);
    bool shows_words; /* whether --help lists them; it always lists those of a UL_OPTION_WORD */
    struct ul_option_word other; /* the other value of a text that shows its words, or none */
    uint64_t min, max;
    const char *open; /* for a number: the word that leaves it open, 0; or NULL */
    enum ul_option_audience audience;
    const char *elsewhere; /* what another target has instead, for messages; or NULL */
    enum ul_option_record record;
    /* For UL_RECORD_FIXED: whether the given value agrees with the plan's; then its default leaves
     * the choice to the plan. NULL: they must be equal. */
    bool (*agrees)(const char *said, const char *planned);
    bool takes_list;   /* with --sweep a text is a list, separated by commas */
    uint32_t commands; /* bits of enum ul_option_command; 0: only plans have it */
    size_t offset;     /* of its field */
};

struct ul_option_table {
    uint32_t count;
    const struct ul_option *rows;
};

struct ul_texts {
    uint32_t count, capacity;
    const char **items;
};

struct ul_pair {
    const char *name, *value;
};

struct ul_pairs {
    uint32_t count, capacity;
    struct ul_pair *items;
};

/* Sizes by a name: the largest that each may have; and in a range, its distance from the smallest,
 * and the distance between two, a divisor of that. A set has one size. */
struct ul_named_size {
    const char *name;
    uint32_t rank;
    int64_t dims[UL_LIMIT_RANK];
    int64_t spans[UL_LIMIT_RANK], steps[UL_LIMIT_RANK]; /* 0: there is one */
    uint32_t value_count;                               /* 0: it is no set */
    const int64_t *values;                              /* ascending */
};

struct ul_named_sizes {
    uint32_t count, capacity;
    struct ul_named_size *items;
};

/* The first member of a struct whose other fields the table describes. */
struct ul_options {
    const struct ul_option_table *table;
    struct ul_arena *arena;
    const char *said[UL_OPTION_MAX]; /* the caller's values, by row; NULL: none. "" for a flag */
    bool is_set[UL_OPTION_MAX];
};

/* A change of an option's value. */
struct ul_option_edit {
    const struct ul_option *row;
    const char *value; /* as on the command line, "" for a flag; NULL: the given value is removed */
    bool replaces;     /* for one of several sizes: it replaces what was given for that one */
};
struct ul_option_edits {
    uint32_t count, capacity;
    struct ul_option_edit *items;
};

/* Several values of one option: an axis of a table of plans. */
struct ul_axis {
    const struct ul_option *row;
    const char *label;      /* "precision"; for a dimension its name */
    struct ul_texts set;    /* in the form of ul_option_set */
    struct ul_texts values; /* in readable form */
};
struct ul_axes {
    uint32_t count, capacity;
    struct ul_axis *items;
};

/* option.c */

void ul_texts_add(struct ul_arena *arena, struct ul_texts *list, const char *text);
bool ul_texts_have(const struct ul_texts *list, const char *text);
void ul_pairs_add(struct ul_arena *arena, struct ul_pairs *list, const char *name,
                  const char *value);
void ul_named_sizes_add(struct ul_arena *arena, struct ul_named_sizes *list,
                        const struct ul_named_size *item);
/* The sizes under that name, or NULL. */
const struct ul_named_size *ul_named_sizes_find(const struct ul_named_sizes *list,
                                                const char *name);

/* The row with that name, or NULL. */
const struct ul_option *ul_option_find(const struct ul_option_table *table, const char *name);
/* Offers the names of the options that one of these commands takes. */
void ul_option_offer_all(struct ul_nearest *nearest, const struct ul_option_table *table,
                         uint32_t commands);
/* Stores the caller's value; a flag takes none (NULL). */
enum ul_status ul_option_set(struct ul_options *options, const struct ul_option *row,
                             const char *value, struct ul_diag *diag) UL_MUST_CHECK;
/* The same for a plan's value, where the caller gave none. */
enum ul_status ul_option_restore(struct ul_options *options, const struct ul_option *row,
                                 const char *value, struct ul_diag *diag) UL_MUST_CHECK;
/* Removes all given values: the option has its default again. */
void ul_option_clear(struct ul_options *options, const struct ul_option *row);
/* Adds the edit of a row of the table. */
void ul_option_edits_add(struct ul_arena *arena, struct ul_option_edits *edits,
                         const struct ul_option *row, const char *value, bool replaces);
/* Applies edits in order; UL_USAGE where a row does not take a value. */
enum ul_status ul_options_change(struct ul_options *options, const struct ul_option_edits *edits,
                                 struct ul_diag *diag) UL_MUST_CHECK;
/* UL_USAGE where the field, which code may assign, has a value that the row does not take. */
enum ul_status ul_option_check(const struct ul_options *options, const struct ul_option *row,
                               struct ul_diag *diag) UL_MUST_CHECK;
/* The caller's text for the option of that field, or NULL. */
const char *ul_option_said(const struct ul_options *options, const struct ul_option *row);
/* Whether it has a value other than the default, or was set. */
bool ul_option_is_set(const struct ul_options *options, const struct ul_option *row);
/* Whether it was given, or assigned a value other than the default. */
bool ul_option_is_given(const struct ul_options *options, const struct ul_option *row);
/* The number of its values: those of a list, else 1. */
uint32_t ul_option_value_count(const struct ul_options *options, const struct ul_option *row);
/* Value `index` in the form of ul_option_set. */
const char *ul_option_value(const struct ul_options *options, const struct ul_option *row,
                            uint32_t index);
/* Copies the fields to `to`, whose arena and lists stay separate. */
void ul_options_copy(struct ul_options *to, const struct ul_options *from, size_t size_bytes);
/* The word that `said` equals or begins with; its `word` is NULL where there is none. */
struct ul_option_word ul_option_find_word(const struct ul_option *row, const char *said);
/* Offers the words that the option takes. */
void ul_option_offer_words(struct ul_nearest *nearest, const struct ul_option *row);
/* "best, direct or winograd" */
void ul_option_put_words(struct ul_text *text, const struct ul_option *row);
/* For --help: "; best (the default), direct or winograd", with what each does; empty where the
 * option does not show its words. */
void ul_option_explain_words(struct ul_text *text, const struct ul_option *row);
/* axes.c */

/* Whether `value` is a list for an option that takes one value at a time: "1,2,4". */
bool ul_option_is_list(const struct ul_option *row, const char *value);
/* Adds an axis of these values, each of which is set in `trial`, options for nothing else. An
 * option or dimension has only one axis. */
enum ul_status ul_axes_add(struct ul_axes *axes, struct ul_options *trial,
                           const struct ul_option *row, const char *value,
                           struct ul_diag *diag) UL_MUST_CHECK;

/* For messages: in quotes where it holds characters that could move a terminal's cursor. */
const char *ul_option_shown(struct ul_arena *arena, const char *text);

#endif
