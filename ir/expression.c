/* SPDX-License-Identifier: Apache-2.0 */
/* The expressions of elementwise operators: a recursive-descent parser that builds kernel IR.
 *
 *   row     = [ "[" { name "=" number } "]" ] choice
 *   choice  = either [ "?" choice ":" choice ]
 *   either  = both { "||" both }          both = compare { "&&" compare }
 *   compare = sum [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum ]
 *   sum     = product { ("+" | "-") product }
 *   product = unary { ("*" | "/") unary }
 *   unary   = ( "-" | "!" ) unary | primary
 *   primary = number | "inf" | "nan" | "pi" | operand | attribute | function "(" list ")" |
 *             "(" choice ")"
 *
 * Operands are a, b, c ...; an attribute is a name from the brackets, whose number is the default.
 * A number takes the type of what it meets; two operands of different types meet in the type of
 * the left one. The texts are ours, so an error in one is a defect. */
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"
#include "ir/lower.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 32 };

struct parser {
    struct ul_kernel *kernel;
    const struct ul_node *node;
    const char *attributes; /* the text inside the brackets, or NULL */
    const char *at;
    const ul_kx *operands;
    uint32_t operand_count;
    enum ul_dtype dtype; /* the type of a number that meets no other operand */
};

/* A number whose type is open, or an expression. */
struct term {
    bool open;
    double number;
    ul_kx x;
};

static struct term parse_choice(struct parser *parser);

static struct term term_number(double number)
{
    return (struct term){.open = true, .number = number, .x = UL_NONE};
}

static struct term term_expr(ul_kx x)
{
    return (struct term){.open = false, .x = x};
}

static ul_kx term_close(struct parser *parser, struct term term, enum ul_dtype dtype)
{
    return term.open ? ul_kx_number(parser->kernel, dtype, term.number) : term.x;
}

static bool accept(struct parser *parser, const char *token)
{
    while (*parser->at == ' ')
        parser->at++;
    size_t length = strlen(token);
    if (strncmp(parser->at, token, length) != 0)
        return false;
    /* "<" must not eat the start of "<=", nor "!" that of "!=". */
    if (length == 1 && strchr("<>!", *token) != NULL && parser->at[1] == '=')
        return false;
    parser->at += length;
    return true;
}

static void expect(struct parser *parser, const char *token)
{
    bool found = accept(parser, token);
    UL_ASSERT(found);
}

/* Brings two terms to one type. */
static void unify(struct parser *parser, struct term *left, struct term *right)
{
    enum ul_dtype dtype = parser->dtype;
    if (!left->open)
        dtype = ul_kx_dtype(parser->kernel, left->x);
    else if (!right->open)
        dtype = ul_kx_dtype(parser->kernel, right->x);
    *left = term_expr(term_close(parser, *left, dtype));
    *right = term_expr(ul_kx_cast(parser->kernel, dtype, term_close(parser, *right, dtype)));
}

static struct term binary(struct parser *parser, enum ul_kx_op op, struct term left,
                          struct term right)
{
    if (left.open && right.open) {
        switch ((int)op) {
        case UL_KX_ADD:
            return term_number(left.number + right.number);
        case UL_KX_SUB:
            return term_number(left.number - right.number);
        case UL_KX_MUL:
            return term_number(left.number * right.number);
        case UL_KX_DIV:
            return term_number(left.number / right.number);
        default:
            break;
        }
    }
    unify(parser, &left, &right);
    return term_expr(ul_kx_binary(parser->kernel, op, left.x, right.x));
}

static struct term apply_unary(struct parser *parser, enum ul_kx_op op, struct term a)
{
    return term_expr(ul_kx_unary(parser->kernel, op, term_close(parser, a, parser->dtype)));
}

static double attribute(const struct parser *parser, const char *name, bool *found)
{
    size_t length = strlen(name);
    *found = false;
    for (const char *at = parser->attributes; at != NULL && *at != ']';) {
        while (*at == ' ')
            at++;
        const char *equals = strchr(at, '=');
        UL_ASSERT(equals != NULL);
        char *end;
        double value = strtod(equals + 1, &end);
        if ((size_t)(equals - at) == length && strncmp(at, name, length) == 0) {
            const struct ul_attr *attr = ul_node_find_attr(parser->node, name);
            *found = true;
            if (attr == NULL)
                return value;
            return attr->kind == UL_ATTR_INT ? (double)attr->i : attr->f;
        }
        at = end;
        while (*at == ' ')
            at++;
    }
    return 0;
}

static struct term parse_call(struct parser *parser, const char *name)
{
    enum ul_kx_op op;
    bool is_known = ul_kx_op_find(name, strlen(name), &op);
    UL_ASSERT(is_known);
    expect(parser, "(");
    struct term first = parse_choice(parser);
    if (ul_kx_operand_count(op) == 1) {
        expect(parser, ")");
        return apply_unary(parser, op, first);
    }
    expect(parser, ",");
    struct term second = parse_choice(parser);
    expect(parser, ")");
    return binary(parser, op, first, second);
}

static struct term parse_name(struct parser *parser)
{
    char name[NAME_BYTES];
    size_t length = 0;
    while (ul_scan_in_name(*parser->at) && length + 1 < NAME_BYTES)
        name[length++] = *parser->at++;
    name[length] = '\0';
    bool found;
    double value = attribute(parser, name, &found);
    if (found)
        return term_number(value);
    if (length == 1 && (uint32_t)(name[0] - 'a') < parser->operand_count)
        return term_expr(parser->operands[name[0] - 'a']);
    if (strcmp(name, "inf") == 0)
        return term_number(INFINITY);
    if (strcmp(name, "nan") == 0)
        return term_number(NAN);
    if (strcmp(name, "pi") == 0)
        return term_number(3.14159265358979323846);
    return parse_call(parser, name);
}

static struct term parse_primary(struct parser *parser)
{
    if (accept(parser, "(")) {
        struct term inner = parse_choice(parser);
        expect(parser, ")");
        return inner;
    }
    if (isdigit((unsigned char)*parser->at) || *parser->at == '.') {
        char *end;
        double number = strtod(parser->at, &end);
        parser->at = end;
        return term_number(number);
    }
    return parse_name(parser);
}

static struct term parse_unary(struct parser *parser)
{
    if (accept(parser, "-")) {
        struct term inner = parse_unary(parser);
        return inner.open ? term_number(-inner.number) : apply_unary(parser, UL_KX_NEG, inner);
    }
    if (accept(parser, "!"))
        return apply_unary(parser, UL_KX_NOT, parse_unary(parser));
    return parse_primary(parser);
}

static struct term parse_product(struct parser *parser)
{
    struct term left = parse_unary(parser);
    for (;;) {
        if (accept(parser, "*"))
            left = binary(parser, UL_KX_MUL, left, parse_unary(parser));
        else if (accept(parser, "/"))
            left = binary(parser, UL_KX_DIV, left, parse_unary(parser));
        else
            return left;
    }
}

static struct term parse_sum(struct parser *parser)
{
    struct term left = parse_product(parser);
    for (;;) {
        if (accept(parser, "+"))
            left = binary(parser, UL_KX_ADD, left, parse_product(parser));
        else if (accept(parser, "-"))
            left = binary(parser, UL_KX_SUB, left, parse_product(parser));
        else
            return left;
    }
}

static struct term parse_compare(struct parser *parser)
{
    static const struct {
        const char *token;
        enum ul_kx_op op;
        bool swapped;
    } comparisons[] = {{"<=", UL_KX_LE, false}, {">=", UL_KX_LE, true}, {"==", UL_KX_EQ, false},
                       {"!=", UL_KX_NE, false}, {"<", UL_KX_LT, false}, {">", UL_KX_LT, true}};
    struct term left = parse_sum(parser);
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        if (!accept(parser, comparisons[i].token))
            continue;
        struct term right = parse_sum(parser);
        return comparisons[i].swapped ? binary(parser, comparisons[i].op, right, left)
                                      : binary(parser, comparisons[i].op, left, right);
    }
    return left;
}

static struct term parse_both(struct parser *parser)
{
    struct term left = parse_compare(parser);
    while (accept(parser, "&&"))
        left = binary(parser, UL_KX_AND, left, parse_compare(parser));
    return left;
}

static struct term parse_choice(struct parser *parser)
{
    struct term left = parse_both(parser);
    while (accept(parser, "||"))
        left = binary(parser, UL_KX_OR, left, parse_both(parser));
    if (!accept(parser, "?"))
        return left;
    struct term yes = parse_choice(parser);
    expect(parser, ":");
    struct term no = parse_choice(parser);
    unify(parser, &yes, &no);
    ul_kx condition = ul_kx_cast(parser->kernel, UL_BOOL, left.x);
    return term_expr(ul_kx_select(parser->kernel, condition, yes.x, no.x));
}

ul_kx ul_expression_build(struct ul_lower *lower, ul_node_id node, const char *text,
                          const ul_kx *operands, uint32_t operand_count, enum ul_dtype dtype)
{
    struct parser parser = {.kernel = lower->kernel,
                            .node = &lower->graph->nodes[node],
                            .at = text,
                            .operands = operands,
                            .operand_count = operand_count,
                            .dtype = dtype};
    if (accept(&parser, "[")) {
        parser.attributes = parser.at;
        parser.at = strchr(parser.at, ']');
        UL_ASSERT(parser.at != NULL);
        parser.at++;
    }
    struct term result = parse_choice(&parser);
    while (*parser.at == ' ')
        parser.at++;
    UL_ASSERT(*parser.at == '\0');
    return term_close(&parser, result, dtype);
}
