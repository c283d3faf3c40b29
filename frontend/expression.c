/* SPDX-License-Identifier: Apache-2.0 */
/* Dimensions that a file writes as an expression of others: "past + seq", "2*seq", "floor(n/2)".
 *
 * Problem: to ONNX a dimension's name is any text. Exporters write there what sympy prints: + - * /
 * // % **, parentheses, and calls of floor, ceiling, Max, Min, Mod and a few functions of torch. A
 * hyphen between letters without a space belongs to a name ("batch-size"). Method: a recursive
 * descent parser writes steps for a stack machine. Its values are a * unknown + b with exact
 * fractions, so that the same steps compute a size, or the one name in the expression that has none
 * yet. Left undone: names inside floor, Max, a divisor or an exponent are not solved for. A text
 * that does not parse, or has no name in it, is a name like any other. */
#include "frontend/frontend_internal.h"

#include <limits.h>
#include <string.h>

enum step {
    STEP_NUMBER,
    STEP_NAME,
    STEP_ADD,
    STEP_SUB,
    STEP_MUL,
    STEP_DIV,
    STEP_FLOOR_DIV,
    STEP_CEIL_DIV,
    STEP_MOD,
    STEP_POWER,
    STEP_MAX,
    STEP_MIN,
    STEP_NEGATE, /* steps of one operand from here on */
    STEP_FLOOR,
    STEP_CEIL,
    STEP_TRUNC,
    STEP_ABS,
    STEP_SAME
};

enum { MAX_STEPS = 256 };

struct step_row {
    enum step step;
    int64_t value; /* the number; for a name its index */
};

struct ul_expression {
    uint32_t step_count;
    struct step_row steps[MAX_STEPS];
    uint32_t name_count;
    const char *names[MAX_STEPS];
};

/* ---- From text ---- */

struct parse {
    struct ul_arena *arena;
    struct ul_expression *expression;
    const char *at;
    uint32_t depth;
    bool failed;
};

static void emit(struct parse *parse, enum step step, int64_t value)
{
    struct ul_expression *expression = parse->expression;
    if (expression->step_count == MAX_STEPS) {
        parse->failed = true;
        return;
    }
    expression->steps[expression->step_count++] = (struct step_row){.step = step, .value = value};
}

static void skip_space(struct parse *parse)
{
    parse->at += strspn(parse->at, " \t");
}

static bool take(struct parse *parse, const char *token)
{
    skip_space(parse);
    if (strncmp(parse->at, token, strlen(token)) != 0)
        return false;
    parse->at += strlen(token);
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of a name: letters, digits, points, and hyphens that a letter follows. */
static size_t name_length(const char *name)
{
    size_t length = 1;
    while (is_letter(name[length]) || is_digit(name[length]) || name[length] == '.' ||
           (name[length] == '-' && is_letter(name[length + 1])))
        length++;
    return length;
}

static void parse_number(struct parse *parse)
{
    int64_t value = 0;
    for (; is_digit(*parse->at); parse->at++) {
        value = value * 10 + (*parse->at - '0');
        if (value > UL_LIMIT_DIM) {
            parse->failed = true;
            return;
        }
    }
    emit(parse, STEP_NUMBER, value);
}

static void emit_name(struct parse *parse, const char *name, size_t length)
{
    struct ul_expression *expression = parse->expression;
    uint32_t index = 0;
    while (index < expression->name_count && (strlen(expression->names[index]) != length ||
                                              memcmp(expression->names[index], name, length) != 0))
        index++;
    if (index == MAX_STEPS) {
        parse->failed = true;
        return;
    }
    if (index == expression->name_count)
        expression->names[expression->name_count++] =
            ul_arena_printf(parse->arena, "%.*s", (int)length, name);
    emit(parse, STEP_NAME, index);
}

/* Functions as sympy and torch print them; those of one operand come last. */
static const struct {
    const char *name;
    enum step step;
} functions[] = {
    {"Max", STEP_MAX},          {"max", STEP_MAX},
    {"Min", STEP_MIN},          {"min", STEP_MIN},
    {"Mod", STEP_MOD},          {"mod", STEP_MOD},
    {"PythonMod", STEP_MOD},    {"FloorDiv", STEP_FLOOR_DIV},
    {"CeilDiv", STEP_CEIL_DIV}, {"CleanDiv", STEP_DIV},
    {"IntTrueDiv", STEP_DIV},   {"floor", STEP_FLOOR},
    {"FloorToInt", STEP_FLOOR}, {"ceiling", STEP_CEIL},
    {"ceil", STEP_CEIL},        {"CeilToInt", STEP_CEIL},
    {"trunc", STEP_TRUNC},      {"TruncToInt", STEP_TRUNC},
    {"Abs", STEP_ABS},          {"abs", STEP_ABS},
    {"ToFloat", STEP_SAME},     {"Identity", STEP_SAME},
};

static enum step find_function(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, name, length) == 0)
            return functions[i].step;
    return STEP_NAME;
}

static void parse_sum(struct parse *parse);

/* Parses the operands in the parentheses; Max and Min take any number of them. */
static void parse_call(struct parse *parse, enum step step)
{
    uint32_t count = 0;
    do {
        parse_sum(parse);
        if (++count > 1)
            emit(parse, step, 0);
    } while (!parse->failed && take(parse, ","));
    bool is_unary = step >= STEP_NEGATE, takes_any = step == STEP_MAX || step == STEP_MIN;
    if (is_unary)
        emit(parse, step, 0);
    bool fits = is_unary ? count == 1 : takes_any || count == 2;
    if (!fits || !take(parse, ")"))
        parse->failed = true;
}

static void parse_atom(struct parse *parse)
{
    skip_space(parse);
    const char *name = parse->at;
    if (++parse->depth > UL_LIMIT_NESTING) {
        parse->failed = true;
    } else if (is_digit(*name)) {
        parse_number(parse);
    } else if (take(parse, "(")) {
        parse_sum(parse);
        parse->failed = parse->failed || !take(parse, ")");
    } else if (is_letter(*name)) {
        size_t length = name_length(name);
        parse->at += length;
        if (!take(parse, "("))
            emit_name(parse, name, length);
        else if (find_function(name, length) == STEP_NAME)
            parse->failed = true;
        else
            parse_call(parse, find_function(name, length));
    } else {
        parse->failed = true;
    }
    parse->depth--;
}

/* -a**b is -(a**b), and a**b**c is a**(b**c). */
static void parse_power(struct parse *parse)
{
    if (++parse->depth > UL_LIMIT_NESTING) {
        parse->failed = true;
    } else if (take(parse, "-")) {
        parse_power(parse);
        emit(parse, STEP_NEGATE, 0);
    } else {
        parse_atom(parse);
        if (!parse->failed && take(parse, "**")) {
            parse_power(parse);
            emit(parse, STEP_POWER, 0);
        }
    }
    parse->depth--;
}

static void parse_product(struct parse *parse)
{
    parse_power(parse);
    while (!parse->failed) {
        enum step step = take(parse, "//")  ? STEP_FLOOR_DIV
                         : take(parse, "/") ? STEP_DIV
                         : take(parse, "*") ? STEP_MUL
                         : take(parse, "%") ? STEP_MOD
                                            : STEP_SAME;
        if (step == STEP_SAME)
            return;
        parse_power(parse);
        emit(parse, step, 0);
    }
}

static void parse_sum(struct parse *parse)
{
    parse_product(parse);
    while (!parse->failed) {
        enum step step = take(parse, "+") ? STEP_ADD : take(parse, "-") ? STEP_SUB : STEP_SAME;
        if (step == STEP_SAME)
            return;
        parse_product(parse);
        emit(parse, step, 0);
    }
}

struct ul_expression *ul_expression_parse(struct ul_arena *arena, const char *text)
{
    struct parse parse = {.arena = arena, .at = text};
    if (strpbrk(text, "+-*/%(") == NULL) /* nearly every name */
        return NULL;
    parse.expression = UL_NEW(arena, struct ul_expression);
    parse_sum(&parse);
    skip_space(&parse);
    bool is_expression = !parse.failed && *parse.at == '\0' && parse.expression->name_count > 0 &&
                         parse.expression->step_count > 1;
    return is_expression ? parse.expression : NULL;
}

uint32_t ul_expression_name_count(const struct ul_expression *expression)
{
    return expression->name_count;
}

const char *ul_expression_name(const struct ul_expression *expression, uint32_t index)
{
    UL_ASSERT(index < expression->name_count);
    return expression->names[index];
}

/* ---- Numbers ---- */

/* A fraction in lowest terms; `below` is above 0. */
struct ratio {
    int64_t above, below;
};

/* slope * unknown + base. */
struct line {
    struct ratio slope, base;
};

/* False where a number is out of range. */
static bool ratio_make(int64_t above, int64_t below, struct ratio *out)
{
    if (below == 0 || below == INT64_MIN || above == INT64_MIN)
        return false;
    int64_t divisor = below < 0 ? -ul_gcd(above, below) : ul_gcd(above, below);
    *out = (struct ratio){above / divisor, below / divisor};
    return true;
}

static bool ratio_add(struct ratio a, struct ratio b, struct ratio *out)
{
    int64_t left, right, above, below;
    return !__builtin_mul_overflow(a.above, b.below, &left) &&
           !__builtin_mul_overflow(b.above, a.below, &right) &&
           !__builtin_add_overflow(left, right, &above) &&
           !__builtin_mul_overflow(a.below, b.below, &below) && ratio_make(above, below, out);
}

static bool ratio_mul(struct ratio a, struct ratio b, struct ratio *out)
{
    int64_t above, below;
    return !__builtin_mul_overflow(a.above, b.above, &above) &&
           !__builtin_mul_overflow(a.below, b.below, &below) && ratio_make(above, below, out);
}

static bool ratio_div(struct ratio a, struct ratio b, struct ratio *out)
{
    struct ratio inverse;
    return ratio_make(b.below, b.above, &inverse) && ratio_mul(a, inverse, out);
}

static struct ratio whole(int64_t value)
{
    return (struct ratio){value, 1};
}

static struct ratio ratio_negate(struct ratio a)
{
    return (struct ratio){-a.above, a.below};
}

static struct ratio ratio_floor(struct ratio a)
{
    return whole(a.above / a.below - (a.above % a.below < 0));
}

static struct ratio ratio_ceil(struct ratio a)
{
    return ratio_negate(ratio_floor(ratio_negate(a)));
}

static bool ratio_power(struct ratio base, struct ratio exponent, struct ratio *out)
{
    if (exponent.below != 1 || exponent.above > 64 || exponent.above < -64)
        return false;
    *out = whole(1);
    for (int64_t i = exponent.above < 0 ? -exponent.above : exponent.above; i > 0; i--)
        if (!ratio_mul(*out, base, out))
            return false;
    return exponent.above >= 0 || ratio_div(whole(1), *out, out);
}

/* ---- Steps ---- */

static bool is_known(const struct line *line)
{
    return line->slope.above == 0;
}

/* Applies a step of one operand to a fraction. */
static struct ratio round_by(enum step step, struct ratio a)
{
    switch ((int)step) {
    case STEP_FLOOR:
        return ratio_floor(a);
    case STEP_CEIL:
        return ratio_ceil(a);
    case STEP_TRUNC:
        return a.above < 0 ? ratio_ceil(a) : ratio_floor(a);
    case STEP_ABS:
        return a.above < 0 ? ratio_negate(a) : a;
    default:
        return a;
    }
}

static bool apply_one(enum step step, struct line *a)
{
    if (step == STEP_NEGATE)
        *a = (struct line){ratio_negate(a->slope), ratio_negate(a->base)};
    else if (step == STEP_SAME)
        return true;
    else if (!is_known(a))
        return false;
    else
        a->base = round_by(step, a->base);
    return true;
}

/* Applies a step of two operands that are both known. */
static bool apply_known(enum step step, struct ratio *a, struct ratio b)
{
    struct ratio part, difference;
    switch ((int)step) {
    case STEP_FLOOR_DIV:
    case STEP_CEIL_DIV:
        if (!ratio_div(*a, b, &part))
            return false;
        *a = step == STEP_CEIL_DIV ? ratio_ceil(part) : ratio_floor(part);
        return true;
    case STEP_MOD: /* it has the sign of the divisor */
        return ratio_div(*a, b, &part) &&
               ratio_mul(b, ratio_negate(ratio_floor(part)), &difference) &&
               ratio_add(*a, difference, a);
    case STEP_POWER:
        return ratio_power(*a, b, a);
    default:
        if (!ratio_add(*a, ratio_negate(b), &difference))
            return false;
        if ((step == STEP_MAX) == (difference.above < 0))
            *a = b;
        return true;
    }
}

static bool apply_two(enum step step, struct line *a, struct line b)
{
    if (step == STEP_SUB && apply_one(STEP_NEGATE, &b))
        step = STEP_ADD;
    if (step == STEP_ADD)
        return ratio_add(a->slope, b.slope, &a->slope) && ratio_add(a->base, b.base, &a->base);
    if (step == STEP_MUL && is_known(a)) {
        struct line swapped = *a;
        *a = b;
        b = swapped;
    }
    if (!is_known(&b))
        return false;
    if (step == STEP_MUL)
        return ratio_mul(a->slope, b.base, &a->slope) && ratio_mul(a->base, b.base, &a->base);
    if (step == STEP_DIV)
        return ratio_div(a->slope, b.base, &a->slope) && ratio_div(a->base, b.base, &a->base);
    return is_known(a) && apply_known(step, &a->base, b.base);
}

/* False where the expression is not defined, or not linear in the unknown. */
static bool evaluate(const struct ul_expression *expression, const int64_t *sizes, uint32_t unknown,
                     struct line *result)
{
    struct line stack[MAX_STEPS];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < expression->step_count; i++) {
        const struct step_row *row = &expression->steps[i];
        bool is_unknown = row->step == STEP_NAME && (uint32_t)row->value == unknown;
        if (row->step == STEP_NAME || row->step == STEP_NUMBER) {
            int64_t value = row->step == STEP_NUMBER ? row->value
                            : is_unknown             ? 0
                                                     : sizes[row->value];
            UL_ASSERT(value >= 0);
            stack[depth++] = (struct line){whole(is_unknown ? 1 : 0), whole(value)};
        } else if (row->step >= STEP_NEGATE) {
            if (!apply_one(row->step, &stack[depth - 1]))
                return false;
        } else {
            depth--;
            if (!apply_two(row->step, &stack[depth - 1], stack[depth]))
                return false;
        }
    }
    UL_ASSERT(depth == 1);
    *result = stack[0];
    return true;
}

bool ul_expression_size(const struct ul_expression *expression, const int64_t *sizes, int64_t *size)
{
    struct line line;
    if (!evaluate(expression, sizes, UL_NONE, &line) || line.base.below != 1)
        return false;
    *size = line.base.above;
    return true;
}

bool ul_expression_solve(const struct ul_expression *expression, const int64_t *sizes,
                         uint32_t unknown, int64_t size, int64_t *solution)
{
    struct line line;
    struct ratio rest;
    if (!evaluate(expression, sizes, unknown, &line) || is_known(&line) ||
        !ratio_add(whole(size), ratio_negate(line.base), &rest) ||
        !ratio_div(rest, line.slope, &rest))
        return false;
    *solution = rest.below == 1 ? rest.above : -1;
    return true;
}
