/* SPDX-License-Identifier: 0BSD */
/*
 * The file of choices that --tune writes (ul_cuda_library.h):
 *
 *      ullage choices 1
 *      model 3f0c...                       SHA-256
 *      plan 91d2...                        likewise
 *      device NVIDIA H100 80GB HBM3
 *      cublaslt 130100 12 0000004200...    library, version, call, choice
 *      end
 *
 * A choice is the library's own description of an algorithm (cuDNN's: ul_cudnn_graph.h), which only
 * the same version of it reads. Calls are numbered by the plan: another one's have other shapes and
 * workspaces. A line of another version of its library is an error, for a run by other choices has
 * other bits; so are a line that is none of these and an end that is missing: the file was cut, or
 * belongs to something else. Lines of other libraries are for these to read.
 */
#include "ul_cuda_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 512, HEAD_LINES = 4, HEX_BYTES = 320 };
#define END "end\n"

static void put_hex(char *text, const void *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
}

/* Gives no choice where the text is no number of whole bytes. */
static struct ul_cuda_choice get_choice(const char *text)
{
    struct ul_cuda_choice choice;
    size_t length = strlen(text);
    memset(&choice, 0, sizeof choice);
    if (length % 2 != 0 || length > 2 * sizeof choice.bytes ||
        strspn(text, "0123456789abcdef") != length)
        return choice;
    choice.size_bytes = (uint32_t)(length / 2);
    for (size_t i = 0; i < choice.size_bytes; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        choice.bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return choice;
}

/* Makes the lines that say what a file is for, in head[0..HEAD_LINES - 1]. */
static int make_head(const struct ul_model *model, char head[HEAD_LINES][LINE_BYTES])
{
    struct cudaDeviceProp properties;
    int device = 0;
    char model_hash[65], plan_hash[65];
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return 0;
    put_hex(model_hash, model->model_sha256, sizeof model->model_sha256);
    put_hex(plan_hash, model->plan_sha256, sizeof model->plan_sha256);
    (void)snprintf(head[0], LINE_BYTES, "ullage choices 1\n");
    (void)snprintf(head[1], LINE_BYTES, "model %s\n", model_hash);
    (void)snprintf(head[2], LINE_BYTES, "plan %s\n", plan_hash);
    (void)snprintf(head[3], LINE_BYTES, "device %s\n", properties.name);
    return 1;
}

/* Opens the file and goes past its head; NULL where it has another head, which begins to differ in
 * line *line_number. */
static FILE *open_choices(const char *path, const struct ul_model *model, uint32_t *line_number,
                          const char **reason)
{
    char head[HEAD_LINES][LINE_BYTES], line[LINE_BYTES];
    FILE *file = fopen(path, "r");
    *line_number = 0;
    if (file == NULL) {
        *reason = "the file of choices (--choices) cannot be read";
        return NULL;
    }
    *reason = "the device does not say its name";
    int good = make_head(model, head);
    for (int i = 0; good && i < HEAD_LINES; i++) {
        *line_number = (uint32_t)i + 1;
        static const char *const reasons[HEAD_LINES] = {
            "that is no file of choices", "the file of choices is of another model",
            "the file of choices is of another plan", "the file of choices is of another device"};
        good = fgets(line, sizeof line, file) != NULL && strcmp(line, head[i]) == 0;
        *reason = reasons[i];
    }
    if (good)
        return file;
    (void)fclose(file);
    return NULL;
}

/* Reads a line with a choice, and keeps it if it is for this library. Gives NULL, or what is wrong
 * with the line. */
static const char *read_choice(const char *line, const struct ul_model *model, const char *library,
                               uint64_t version, struct ul_cuda_choice *choices)
{
    char name[32], text[HEX_BYTES], more;
    unsigned long long found = 0;
    unsigned call = 0;
    if (strchr(line, '\n') == NULL ||
        sscanf(line, "%31s %llu %u %319s %c", name, &found, &call, text, &more) != 4 ||
        call >= model->device->call_count)
        return "that is no choice";
    struct ul_cuda_choice choice = get_choice(text);
    if (choice.size_bytes == 0)
        return "that is no choice";
    if (strcmp(name, library) != 0)
        return NULL;
    choices[call] = choice;
    return found == version ? NULL : "that is a choice of another version of the library";
}

int ul_cuda_read_choices(const char *path, const struct ul_model *model, const char *library,
                         uint64_t version, struct ul_cuda_choice *choices, uint32_t *line_number,
                         const char **reason)
{
    char line[LINE_BYTES];
    FILE *file = open_choices(path, model, line_number, reason);
    if (file == NULL)
        return 0;
    bool ended = false;
    const char *wrong = NULL;
    while (wrong == NULL && fgets(line, sizeof line, file) != NULL) {
        ++*line_number;
        if (ended)
            wrong = "that is no choice";
        else if (strcmp(line, END) == 0)
            ended = true;
        else
            wrong = read_choice(line, model, library, version, choices);
    }
    (void)fclose(file);
    *reason = wrong != NULL ? wrong : "the file of choices is cut short behind this";
    return wrong == NULL && ended;
}

/* Keeps what the old file, if it is for the same model, plan and device, says about other
 * libraries. */
static void keep_others(const char *path, const struct ul_model *model, const char *library,
                        FILE *out)
{
    char line[LINE_BYTES], name[32];
    const char *reason;
    uint32_t line_number;
    FILE *file = open_choices(path, model, &line_number, &reason);
    while (file != NULL && fgets(line, sizeof line, file) != NULL && strcmp(line, END) != 0) {
        if (sscanf(line, "%31s", name) == 1 && strcmp(name, library) != 0 &&
            strchr(line, '\n') != NULL)
            (void)fputs(line, out);
    }
    if (file != NULL)
        (void)fclose(file);
}

int ul_cuda_write_choices(const char *path, const struct ul_model *model, const char *library,
                          uint64_t version, const struct ul_cuda_choice *choices,
                          const char **reason)
{
    char head[HEAD_LINES][LINE_BYTES], beside[4096];
    *reason = "the device does not say its name, or the name of the file of choices is too long";
    if (!make_head(model, head) ||
        snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside)
        return 0;
    FILE *file = fopen(beside, "w");
    for (int i = 0; file != NULL && i < HEAD_LINES; i++)
        (void)fputs(head[i], file);
    if (file != NULL)
        keep_others(path, model, library, file);
    for (uint32_t i = 0; file != NULL && i < model->device->call_count; i++) {
        char text[2 * UL_CUDA_CHOICE_BYTES + 1];
        put_hex(text, choices[i].bytes, choices[i].size_bytes);
        if (choices[i].size_bytes > 0)
            (void)fprintf(file, "%s %llu %u %s\n", library, (unsigned long long)version, i, text);
    }
    if (file != NULL)
        (void)fputs(END, file);
    int good = file != NULL && ferror(file) == 0;
    if (file != NULL && fclose(file) != 0)
        good = 0;
    if (good && rename(beside, path) == 0)
        return 1;
    *reason = "the file of choices (--tune) cannot be written";
    (void)remove(beside);
    return 0;
}
