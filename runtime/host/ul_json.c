/* SPDX-License-Identifier: 0BSD */
/* Writes JSON (RFC 8259). Strings are untrusted bytes: what is not plain ASCII is escaped. */
#include "ul_internal.h"

#include <inttypes.h>
#include <math.h>

/* The character of UTF-8 at `at`, where a zero ends the text, and its bytes; U+FFFD where it is not
 * valid. */
static uint32_t read_character(const unsigned char *at, int *length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int count = *at < 0xc0 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf8 ? 4 : 1;
    uint32_t code = count == 1 ? *at : *at & (0x7fu >> count);
    *length = 1;
    for (int i = 1; i < count; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0xfffd;
        code = code << 6 | (at[i] & 0x3fu);
    }
    if ((count == 1 && code >= 0x80) || code < least[count] || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
        return 0xfffd;
    *length = count;
    return code;
}

static void put_string(FILE *out, const char *text)
{
    int length;
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at += length) {
        uint32_t code = read_character(at, &length);
        if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (char)code);
        else if (code >= 0x20 && code < 0x7f)
            fputc((int)code, out);
        else if (code < 0x10000)
            fprintf(out, "\\u%04" PRIx32, code);
        else
            fprintf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((code - 0x10000) >> 10),
                    0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    fputc('"', out);
}

/* Writes what comes before a value; key is NULL in an array. */
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
