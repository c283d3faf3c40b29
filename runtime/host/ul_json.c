/* SPDX-License-Identifier: 0BSD */
/* Writes JSON (RFC 8259). Strings are untrusted bytes: what is not plain ASCII is escaped. */
#include "ul_internal.h"

#include <inttypes.h>
#include <math.h>

static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20 || *at >= 0x7f)
            fprintf(out, "\\u%04x", *at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}

/* What stands in front of a value; key is NULL in an array. */
static void begin_value(struct ul_json *json, const char *key)
{
    if (json->depth > 0)
        fprintf(json->out, "%s\n%*s", json->first ? "" : ",", json->depth * 2, "");
    if (key != NULL) {
        put_string(json->out, key);
        fputs(": ", json->out);
    }
    json->first = false;
}

void ul_json_open(struct ul_json *json, const char *key, char bracket)
{
    begin_value(json, key);
    fputc(bracket, json->out);
    json->depth++;
    json->first = true;
}

void ul_json_close(struct ul_json *json, char bracket)
{
    json->depth--;
    if (!json->first)
        fprintf(json->out, "\n%*s", json->depth * 2, "");
    fputc(bracket, json->out);
    json->first = false;
}

void ul_json_text(struct ul_json *json, const char *key, const char *value)
{
    begin_value(json, key);
    put_string(json->out, value);
}

void ul_json_count(struct ul_json *json, const char *key, uint64_t value)
{
    begin_value(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void ul_json_number(struct ul_json *json, const char *key, double value)
{
    begin_value(json, key);
    if (isfinite(value))
        fprintf(json->out, "%.9g", value);
    else
        fputs("null", json->out);
}

void ul_json_bool(struct ul_json *json, const char *key, bool value)
{
    begin_value(json, key);
    fputs(value ? "true" : "false", json->out);
}

int ul_json_write(const struct ul_session *s, const char *path, ul_json_body *body,
                  const void *context)
{
    struct ul_writer writer;
    int status = ul_writer_open(s, &writer, path);
    if (status != UL_EXIT_OK)
        return status;
    struct ul_json json = {writer.file, 0, true};
    ul_json_open(&json, NULL, '{');
    body(&json, context);
    ul_json_close(&json, '}');
    fputc('\n', writer.file);
    return ul_writer_close(s, &writer, true);
}
