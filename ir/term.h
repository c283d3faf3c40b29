/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes as text, read into trees. One language says what an operator comes to, whose nodes are
 * built (ir/row.h), and what a pattern looks like, whose nodes are found (passes/patterns).
 *
 *      x * Sigmoid(alpha * x)
 *      q, s, z = DynamicQuantizeLinear(x); Cast(MatMulInteger(q, w, z)) {to=f32} * (s * scale)
 *
 *   body      = { statement ";" } [ result ] { "," [ result ] }
 *   statement = name { "," name } "=" either           names what it gives; several outputs
 *             | ( "invalid" | "problem" ) TEXT [ "if" either ]      refuses, for that reason
 *   either    = choice { "|" choice }                  any of these: for what is found alone
 *   choice    = any [ "?" choice ":" choice ]
 *   any       = all { "||" all }     all = compared { "&&" compared }
 *   compared  = sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum ]
 *   sum       = product { ( "+" | "-" ) product }      Add, Sub
 *   product   = unary { ( "*" | "/" | "%" ) unary }    Mul, Div
 *   unary     = ( "-" | "!" ) unary | part { "." which } [ ":" type ]
 *   part      = NUMBER | TEXT | [ "$" ] name | type | "none" | "(" either ")" | list
 *             | name "(" [ either { "," either } ] ")" [ "{" set { "," set } "}" ]
 *   which     = INTEGER | "rank" | "dims" | "type" | "half" | "float"     of a value
 *             | INTEGER | "count"                                           of a list
 *   list      = "[" [ run { "," run } ] "]"      run = either [ ".." either ]
 *   set       = "*" | "**" | name "=" either
 *
 * Invariants: the text is ours, and a defect in it is one of the program.
 * Ownership: terms are those of the reader's arena, and point into the text. */
#ifndef UL_IR_TERM_H
#define UL_IR_TERM_H

#include "base/base.h"

enum ul_term_kind {
    UL_TERM_NOTHING, /* a result that is left out */
    UL_TERM_INT,
    UL_TERM_FLOAT,
    UL_TERM_TEXT,
    UL_TERM_NAME,
    UL_TERM_NUMBER, /* "$" and a name */
    UL_TERM_CALL,
    UL_TERM_LIST,
    UL_TERM_RUN,   /* of two parts, in a list */
    UL_TERM_OF,    /* the text of the part, or where there is none, its element i */
    UL_TERM_TYPED, /* the first part, of the type that the second names */
    UL_TERM_NOT,
    UL_TERM_NEGATIVE,
    UL_TERM_BINARY, /* of the sign that is the text; so are the next three */
    UL_TERM_COMPARED,
    UL_TERM_ALL,
    UL_TERM_ANY,
    UL_TERM_CHOICE,  /* of three parts */
    UL_TERM_EITHER,  /* parts with "|" between them */
    UL_TERM_SET,     /* the text: a name, "*" or "**" */
    UL_TERM_NAMING,  /* an expression, then names */
    UL_TERM_INVALID, /* a text, then maybe a condition; so is the next */
    UL_TERM_PROBLEM
};

struct ul_term {
    enum ul_term_kind kind;
    uint32_t length;
    const char *text; /* a name, a sign, letters; not terminated, NULL where there is none */
    int64_t i;
    double f;
    struct ul_term *parts, *sets, *next;
};

struct ul_term_reader {
    const char *at;
    struct ul_arena *arena;
};

/* Whether `token` is next, which is then read. */
bool ul_term_take(struct ul_term_reader *reader, const char *token);
/* The name that is next, of *length letters; NULL: none is. */
const char *ul_term_take_name(struct ul_term_reader *reader, uint32_t *length);
/* Reads an expression. */
struct ul_term *ul_term_read(struct ul_term_reader *reader);
/* Reads statements and results, as far as they go; NULL: there are none. */
struct ul_term *ul_term_read_body(struct ul_term_reader *reader);
/* Whether the term's text is this. */
bool ul_term_is(const struct ul_term *term, const char *text);

#endif
