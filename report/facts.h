/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan.json says, and the files of a sweep, as structs, and the rows that they are made of
 * (facts.def).
 *
 * Invariants: every member is a row, so that everything written is also described, and what a plan
 * says is read again.
 * Ownership: texts, lists and records live in the arena of their maker. Units: as the types say.
 * Failure: a document that breaks its rows is UL_INVALID, with the key that is wrong. */
#ifndef UL_REPORT_FACTS_H
#define UL_REPORT_FACTS_H

#include "ir/graph.h"
#include "planner/solve/solve.h"

/* One option of the command as `check` needs it to build the graph again. */
struct ul_report_option {
    const char *name;  /* "dim" */
    const char *value; /* "N=4" */
};

/* Names of the rows of the sum table, in order: the classes, then alignment, holes, unaccounted. */
enum { UL_REPORT_ROW_COUNT = UL_PLAN_CLASS_COUNT + 3 };
/* Parts of a process, in the order of plan.json. */
enum ul_saved_part {
    UL_SAVED_BUFFER,
    UL_SAVED_LIBRARY,
    UL_SAVED_CODE,
    UL_SAVED_STACKS,
    UL_SAVED_RUNTIME,
    UL_SAVED_PART_COUNT
};
const char *ul_saved_part_name(uint32_t part); /* "library" */
/* Parts of a device's memory that are not in the sum. */
enum { UL_LACKS_CONTEXT = 1, UL_LACKS_LIBRARIES = 2, UL_LACKS_UNKNOWN = 4 };

/* The number of names in an object that has a number for each name. */
enum {
    UL_COUNT_parts = UL_SAVED_PART_COUNT,
    UL_COUNT_rows = UL_REPORT_ROW_COUNT,
    UL_COUNT_types = UL_DTYPE_COUNT
};

/* ---- The structs ---- */

#define UL_MEMBER_FLAG(key, of) bool key;
#define UL_MEMBER_COUNT(key, of) uint64_t key;
#define UL_MEMBER_BYTES(key, of) uint64_t key;
#define UL_MEMBER_NS(key, of) uint64_t key;
#define UL_MEMBER_INDEX(key, of) uint32_t key;
#define UL_MEMBER_REFERENCE(key, of) uint32_t key; /* null: UL_PLAN_NONE */
#define UL_MEMBER_CHANGE(key, of) int64_t key;
#define UL_MEMBER_RATIO(key, of) double key;
#define UL_MEMBER_TEXT(key, of) const char *key; /* a missing one is read as "" */
#define UL_MEMBER_LINE(key, of) const char *key;
#define UL_MEMBER_NAME(key, of) const char *key;
#define UL_MEMBER_CLASS(key, of) enum ul_plan_class key;
#define UL_MEMBER_KIND(key, of) uint32_t key; /* a word of ul_plan_word */
#define UL_MEMBER_INDEXES(key, of)            /* NULL: missing */                                  \
    const uint32_t *key;                                                                           \
    uint32_t key##_count;
#define UL_MEMBER_TEXTS(key, of)                                                                   \
    const char *const *key;                                                                        \
    uint32_t key##_count;
#define UL_MEMBER_SET(key, of)                                                                     \
    uint32_t key;                                                                                  \
    bool has_##key;
#define UL_MEMBER_SUMS(key, of)                                                                    \
    uint64_t key[UL_COUNT_##of];                                                                   \
    bool has_##key;
#define UL_MEMBER_OBJECT(key, of)                                                                  \
    struct ul_saved_##of key;                                                                      \
    bool has_##key;
#define UL_MEMBER_LIST(key, of)                                                                    \
    struct ul_saved_##of *key;                                                                     \
    uint32_t of##_count;                                                                           \
    bool has_##key;
#define UL_MEMBER_PAIRS(key, of)                                                                   \
    const struct ul_report_option *key;                                                            \
    uint32_t option_count;                                                                         \
    bool has_##key;
#define UL_MEMBER_SUMS_BLOCK UL_MEMBER_SUMS
#define UL_MEMBER_BLOCK UL_MEMBER_OBJECT
#define UL_MEMBER_ROWS UL_MEMBER_LIST
#define UL_MEMBER_TABLE UL_MEMBER_LIST

/* Each class as rows, below: ul_class_plan() for the struct ul_saved. */
#define UL_CLASS(name, tag)                                                                        \
    const struct ul_fact_class *ul_class_##name(void);                                             \
    struct tag {
#define UL_CLASS_END                                                                               \
    }                                                                                              \
    ;
#define UL_FACT_OF(type, key, of, when, held, meaning) UL_MEMBER_##type(key, of)
#define UL_PLANNED(tag, type, key, of, when, held, meaning) UL_MEMBER_##type(key, of)
#define UL_SEARCH(key, size, when, held, meaning) UL_MEMBER_OBJECT(key, search)
#define UL_OTHER(type, name) type name;
#include "report/facts.def"
#undef UL_CLASS
#undef UL_CLASS_END
#undef UL_FACT_OF
#undef UL_PLANNED
#undef UL_SEARCH
#undef UL_OTHER

/* ---- The rows ---- */

/* A fact as facts.def describes it. */
enum ul_fact_type {
    UL_FACT_FLAG,
    UL_FACT_COUNT,
    UL_FACT_BYTES,
    UL_FACT_NS,
    UL_FACT_INDEX,
    UL_FACT_REFERENCE,
    UL_FACT_CHANGE,
    UL_FACT_RATIO,
    UL_FACT_TEXT,
    UL_FACT_LINE,
    UL_FACT_NAME,
    UL_FACT_CLASS,
    UL_FACT_KIND,
    UL_FACT_INDEXES,
    UL_FACT_TEXTS,
    UL_FACT_PAIRS, /* types from here on have a count and a flag as members too */
    UL_FACT_SET,
    UL_FACT_SUMS,
    UL_FACT_SUMS_BLOCK,
    UL_FACT_OBJECT,
    UL_FACT_BLOCK,
    UL_FACT_LIST,
    UL_FACT_ROWS,
    UL_FACT_TABLE
};
enum ul_fact_when { UL_FACT_NEED, UL_FACT_LATER, UL_FACT_SOME, UL_FACT_TOO, UL_FACT_ALSO };
enum ul_fact_held {
    UL_FACT_SAID = 0,
    UL_FACT_WORD = 1,
    UL_FACT_GIVEN = 2,
    UL_FACT_CHOICE = 4,
    UL_FACT_HELD = 8,
    UL_FACT_HELD_CHOICE = UL_FACT_HELD | UL_FACT_CHOICE
};

/* The names that a text may have, or that numbers, bits or an enum stand for. */
struct ul_fact_names {
    const char *(*name)(uint32_t index); /* NULL: any text */
    uint32_t count;
    bool is_sparse; /* numbers that are 0 are left out */
};

struct ul_fact {
    const char *key;
    enum ul_fact_type type;
    enum ul_fact_when when;
    enum ul_fact_held held;
    const struct ul_fact_names *names;
    const struct ul_fact_class *(*class)(void); /* of an object or a list's entries; or NULL */
    size_t place, count_place, flag_place;      /* offsets in the struct */
    size_t size_bytes;                          /* of the member */
    size_t planned_place, planned_bytes;        /* in the planner's struct; 0 bytes: not there */
    const char *size_key;                       /* the name of its class's "size", or NULL */
    const char *meaning;
};
struct ul_fact_class {
    size_t size_bytes; /* of the class's struct */
    uint32_t count;
    const struct ul_fact *facts;
};

/* The fact with that key, or NULL. */
const struct ul_fact *ul_fact_find(const struct ul_fact_class *class, const char *key);
/* The fact's key in an object where "size" is called `size_key`; NULL: it is called "size". */
const char *ul_fact_key(const struct ul_fact *fact, const char *size_key);

/* Copies what the planner's struct has, too: from it to the object of the class, and back. A
 * missing text is NULL in the planner. */
void ul_facts_take(const struct ul_fact_class *class, const void *planned, void *object);
void ul_facts_give(const struct ul_fact_class *class, const void *object, void *planned);

/* facts_put.c: writes a file of the class. */
void ul_facts_put(struct ul_text *text, const struct ul_fact_class *class, const void *object);
/* Writes members of an object as fields of CSV, separated by commas: a list as its length, a flag
 * as 0 or 1. `paths` names them: "cost,method.order"; a field without a name stays empty. */
void ul_facts_put_fields(struct ul_text *text, const struct ul_fact_class *class,
                         const void *object, const char *paths);

#endif
