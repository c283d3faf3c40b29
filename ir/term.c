/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/term.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- Letters ---- */

static void skip_space(struct ul_term_reader *reader)
{
    while (*reader->at == ' ')
        reader->at++;
}

bool ul_term_take(struct ul_term_reader *reader, const char *token)
{
    size_t length = strlen(token);
    skip_space(reader);
    if (strncmp(reader->at, token, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static void expect(struct ul_term_reader *reader, const char *token)
{
    bool is_there = ul_term_take(reader, token);
    if (!is_there)
        fprintf(stderr, "expected %s at: %s\n", token, reader->at);
    UL_ASSERT(is_there);
}

static bool is_of_name(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_';
}

const char *ul_term_take_name(struct ul_term_reader *reader, uint32_t *length)
{
    skip_space(reader);
    const char *begin = reader->at;
    if (isdigit((unsigned char)*begin))
        return NULL;
    while (is_of_name(*reader->at))
        reader->at++;
    *length = (uint32_t)(reader->at - begin);
    return *length == 0 ? NULL : begin;
}

bool ul_term_is(const struct ul_term *term, const char *text)
{
    return term->text != NULL && strlen(text) == term->length &&
           memcmp(term->text, text, term->length) == 0;
}

/* ---- Parts ---- */

static struct ul_term *add(struct ul_term_reader *reader, enum ul_term_kind kind)
{
    struct ul_term *term = UL_NEW(reader->arena, struct ul_term);
    term->kind = kind;
    return term;
}

/* A term of up to three parts. */
static struct ul_term *join(struct ul_term_reader *reader, enum ul_term_kind kind,
                            struct ul_term *a, struct ul_term *b, struct ul_term *c)
{
    struct ul_term *term = add(reader, kind);
    term->parts = a;
    a->next = b;
    if (b != NULL)
        b->next = c;
    return term;
}

static struct ul_term *read_name(struct ul_term_reader *reader, enum ul_term_kind kind)
{
    struct ul_term *term = add(reader, kind);
    term->text = ul_term_take_name(reader, &term->length);
    if (term->text == NULL)
        fprintf(stderr, "expected a name at: %s\n", reader->at);
    UL_ASSERT(term->text != NULL);
    return term;
}

static struct ul_term *read_number(struct ul_term_reader *reader)
{
    char *end;
    struct ul_term *term = add(reader, UL_TERM_INT);
    const char *begin = reader->at;
    term->i = strtoll(begin, &end, 10);
    term->f = (double)term->i;
    if ((*end == '.' && isdigit((unsigned char)end[1])) || *end == 'e') {
        term->kind = UL_TERM_FLOAT;
        term->f = strtod(begin, &end);
        if (*end == 'f') { /* as the nearest float */
            term->f = (double)(float)term->f;
            end++;
        }
    }
    reader->at = end;
    return term;
}

static struct ul_term *read_text(struct ul_term_reader *reader)
{
    struct ul_term *term = add(reader, UL_TERM_TEXT);
    skip_space(reader);
    const char *end = strchr(reader->at + 1, *reader->at);
    UL_ASSERT(end != NULL);
    term->text = reader->at + 1;
    term->length = (uint32_t)(end - term->text);
    reader->at = end + 1;
    return term;
}

/* Terms up to `end`, which is read, too. */
static struct ul_term *read_list(struct ul_term_reader *reader, const char *end)
{
    struct ul_term *first = NULL, **last = &first;
    while (!ul_term_take(reader, end)) {
        *last = ul_term_read(reader);
        if (ul_term_take(reader, ".."))
            *last = join(reader, UL_TERM_RUN, *last, ul_term_read(reader), NULL);
        last = &(*last)->next;
        (void)ul_term_take(reader, ",");
    }
    return first;
}

static struct ul_term *read_sets(struct ul_term_reader *reader)
{
    struct ul_term *first = NULL, **last = &first;
    while (!ul_term_take(reader, "}")) {
        struct ul_term *set = add(reader, UL_TERM_SET);
        const char *all = ul_term_take(reader, "**")  ? "**"
                          : ul_term_take(reader, "*") ? "*"
                                                      : NULL;
        set->text = all != NULL ? all : ul_term_take_name(reader, &set->length);
        if (all != NULL)
            set->length = (uint32_t)strlen(all);
        else {
            expect(reader, "=");
            set->parts = ul_term_read(reader);
        }
        *last = set;
        last = &set->next;
        (void)ul_term_take(reader, ",");
    }
    return first;
}

static struct ul_term *read_part(struct ul_term_reader *reader)
{
    struct ul_term *term;
    skip_space(reader);
    if (isdigit((unsigned char)*reader->at))
        return read_number(reader);
    if (*reader->at == '\'' || *reader->at == '`')
        return read_text(reader);
    if (ul_term_take(reader, "$"))
        return read_name(reader, UL_TERM_NUMBER);
    if (ul_term_take(reader, "(")) {
        term = ul_term_read(reader);
        expect(reader, ")");
    } else if (ul_term_take(reader, "[")) {
        term = add(reader, UL_TERM_LIST);
        term->parts = read_list(reader, "]");
    } else {
        term = read_name(reader, UL_TERM_NAME);
        if (ul_term_take(reader, "(")) {
            term->kind = UL_TERM_CALL;
            term->parts = read_list(reader, ")");
            term->sets = ul_term_take(reader, "{") ? read_sets(reader) : NULL;
        }
    }
    return term;
}

/* ---- Expressions ---- */

static struct ul_term *unary(struct ul_term_reader *reader)
{
    if (ul_term_take(reader, "!"))
        return join(reader, UL_TERM_NOT, unary(reader), NULL, NULL);
    if (ul_term_take(reader, "-")) {
        struct ul_term *term = unary(reader);
        if (term->kind != UL_TERM_INT && term->kind != UL_TERM_FLOAT)
            return join(reader, UL_TERM_NEGATIVE, term, NULL, NULL);
        term->i = -term->i;
        term->f = -term->f;
        return term;
    }
    struct ul_term *term = read_part(reader);
    while (reader->at[0] == '.' && reader->at[1] != '.') {
        reader->at++;
        term = join(reader, UL_TERM_OF, term, NULL, NULL);
        if (*reader->at != '-')
            term->text = ul_term_take_name(reader, &term->length);
        if (term->text == NULL) {
            char *end;
            term->i = strtoll(reader->at, &end, 10);
            reader->at = end;
        }
    }
    if (reader->at[0] != ':' || !is_of_name(reader->at[1]))
        return term;
    reader->at++;
    return join(reader, UL_TERM_TYPED, term, read_name(reader, UL_TERM_NAME), NULL);
}

static const struct sign {
    const char *text;
    uint32_t level; /* a higher one binds closer */
    enum ul_term_kind kind;
} signs[] = {{"||", 1, UL_TERM_ANY},      {"&&", 2, UL_TERM_ALL},      {"==", 3, UL_TERM_COMPARED},
             {"!=", 3, UL_TERM_COMPARED}, {"<=", 3, UL_TERM_COMPARED}, {">=", 3, UL_TERM_COMPARED},
             {"<", 3, UL_TERM_COMPARED},  {">", 3, UL_TERM_COMPARED},  {"+", 4, UL_TERM_BINARY},
             {"-", 4, UL_TERM_BINARY},    {"*", 5, UL_TERM_BINARY},    {"/", 5, UL_TERM_BINARY},
             {"%", 5, UL_TERM_BINARY}};

/* The sign that is next, and binds at least so closely; it is read. */
static const struct sign *take_sign(struct ul_term_reader *reader, uint32_t level)
{
    skip_space(reader);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        bool is_arrow = strncmp(reader->at, "->", 2) == 0;
        if (signs[i].level >= level && !is_arrow && ul_term_take(reader, signs[i].text))
            return &signs[i];
    }
    return NULL;
}

/* Terms between signs that bind at least so closely, from left to right. */
static struct ul_term *signed_terms(struct ul_term_reader *reader, uint32_t level)
{
    struct ul_term *term = unary(reader);
    for (const struct sign *sign; (sign = take_sign(reader, level)) != NULL;) {
        term = join(reader, sign->kind, term, signed_terms(reader, sign->level + 1), NULL);
        term->text = sign->text;
        term->length = (uint32_t)strlen(sign->text);
    }
    return term;
}

static struct ul_term *choice(struct ul_term_reader *reader)
{
    struct ul_term *condition = signed_terms(reader, 1);
    if (!ul_term_take(reader, "?"))
        return condition;
    struct ul_term *yes = choice(reader);
    expect(reader, ":");
    return join(reader, UL_TERM_CHOICE, condition, yes, choice(reader));
}

struct ul_term *ul_term_read(struct ul_term_reader *reader)
{
    struct ul_term *first = choice(reader), *last = first;
    if (!ul_term_take(reader, "|"))
        return first;
    do {
        last->next = choice(reader);
        last = last->next;
    } while (ul_term_take(reader, "|"));
    struct ul_term *either = add(reader, UL_TERM_EITHER);
    either->parts = first;
    return either;
}

/* ---- Bodies ---- */

/* invalid TEXT if CONDITION, problem TEXT if CONDITION; NULL: something else stands there. */
static struct ul_term *read_refusal(struct ul_term_reader *reader)
{
    bool is_invalid = ul_term_take(reader, "invalid ");
    if (!is_invalid && !ul_term_take(reader, "problem "))
        return NULL;
    struct ul_term *reason = read_text(reader);
    struct ul_term *condition = ul_term_take(reader, "if") ? ul_term_read(reader) : NULL;
    return join(reader, is_invalid ? UL_TERM_INVALID : UL_TERM_PROBLEM, reason, condition, NULL);
}

/* name, name = expression; NULL, and nothing is read, where something else stands there. */
static struct ul_term *read_naming(struct ul_term_reader *reader)
{
    const char *begin = reader->at;
    struct ul_term *names = NULL, **last = &names;
    do {
        struct ul_term name = {.kind = UL_TERM_NAME};
        name.text = ul_term_take_name(reader, &name.length);
        *last = name.text == NULL ? NULL : ul_arena_copy(reader->arena, &name, sizeof name);
        last = name.text == NULL ? last : &(*last)->next;
    } while (ul_term_take(reader, ","));
    skip_space(reader);
    if (names == NULL || *reader->at != '=' || reader->at[1] == '=') {
        reader->at = begin;
        return NULL;
    }
    reader->at++;
    struct ul_term *term = join(reader, UL_TERM_NAMING, ul_term_read(reader), NULL, NULL);
    term->parts->next = names;
    return term;
}

struct ul_term *ul_term_read_body(struct ul_term_reader *reader)
{
    struct ul_term *first = NULL, **last = &first;
    while ((*last = read_refusal(reader)) != NULL || (*last = read_naming(reader)) != NULL) {
        last = &(*last)->next;
        expect(reader, ";");
    }
    skip_space(reader);
    bool has_results = *reader->at != '\0';
    while (has_results) {
        skip_space(reader);
        bool is_left_out = *reader->at == ',' || *reader->at == '\0';
        *last = is_left_out ? add(reader, UL_TERM_NOTHING) : ul_term_read(reader);
        last = &(*last)->next;
        has_results = ul_term_take(reader, ",");
    }
    UL_ASSERT(*reader->at == '\0' || strncmp(reader->at, "->", 2) == 0);
    return first;
}
