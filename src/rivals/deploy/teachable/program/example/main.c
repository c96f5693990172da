/* A device that is taught over a line: commands on standard input, answers on standard output.

       learn TASK CLASS      then the bytes of an image
       predict [TASK]        then the bytes of an image
       forget TASK [CLASS]
       save                  to the files slot0.bin and slot1.bin, which stand for flash here
       restore
       info                  a line for each class

   Each command is a line, and so is each answer: "ok" or "error: …". On a board of your own the
   images come from a camera, and the three functions of flash are those of its maker. */
#include <stdio.h>
#include <string.h>

#include "teach.h"

#ifndef TEACH_CLASSES
#define TEACH_CLASSES (TEACH_INITIAL + 20)
#endif

unsigned long ticks(void); /* see ticks.c */

static teach_class room[TEACH_CLASSES];
static teach_state state;
static uint8_t image[TEACH_PIXELS];

/* Flash in two files ------------------------------------------------------------------------------ */

static const char *const files[2] = {"slot0.bin", "slot1.bin"};

static int read_file(void *context, int slot, uint32_t offset, uint8_t *data, uint32_t bytes) {
    FILE *file = fopen(files[slot], "rb");
    (void)context;
    memset(data, 0xFF, bytes); /* as flash that was erased */
    if (file != NULL) {
        if (fseek(file, (long)offset, SEEK_SET) == 0) {
            (void)!fread(data, 1, bytes, file);
        }
        fclose(file);
    }
    return 0;
}

static int erase_file(void *context, int slot) {
    FILE *file = fopen(files[slot], "wb");
    (void)context;
    return file == NULL || fclose(file) != 0;
}

static int write_file(void *context, int slot, uint32_t offset, const uint8_t *data,
                      uint32_t bytes) {
    FILE *file = fopen(files[slot], "r+b");
    int failed;
    (void)context;
    if (file == NULL) {
        return 1;
    }
    failed = fseek(file, (long)offset, SEEK_SET) != 0 || fwrite(data, 1, bytes, file) != bytes;
    return fclose(file) != 0 || failed;
}

static const teach_flash flash = {NULL, 64u * 1024u, read_file, erase_file, write_file};

/* Commands ---------------------------------------------------------------------------------------- */

static void told(teach_status status) {
    if (status == TEACH_OK) {
        printf("ok\n");
    } else {
        printf("error: %s\n", teach_message(status));
    }
}

static unsigned long began;

static size_t read_image(void) {
    const size_t bytes = fread(image, 1, sizeof image, stdin);
    began = ticks(); /* what follows is the device's own work */
    return bytes;
}

static void predict(const char *task) {
    const size_t bytes = read_image();
    teach_answer answer;
    const teach_status status = teach_predict(&state, image, bytes, task, &answer);
    if (status != TEACH_OK) {
        told(status);
        return;
    }
    printf("%s\t%s\t%ld\n", answer.found->task, answer.found->name, (long)answer.margin);
}

static void info(void) {
    for (uint32_t i = 0; i < state.count; ++i) {
        printf("%s\t%s\t%lu\n", state.classes[i].task, state.classes[i].name,
               (unsigned long)state.classes[i].count);
    }
}

/* The words of a line stand between tabs, or spaces where there are no tabs. */
static char *next_word(char **rest, const char *between) {
    char *word = *rest;
    if (word == NULL || *word == '\0') {
        return NULL;
    }
    *rest = strpbrk(word, between);
    if (*rest != NULL) {
        *(*rest)++ = '\0';
    }
    return word;
}

static void obey(char *line) {
    const char *between = strchr(line, '\t') != NULL ? "\t" : " ";
    char *rest = line;
    const char *verb = next_word(&rest, between);
    const char *task = next_word(&rest, between);
    const char *name = next_word(&rest, between);
    if (verb == NULL) {
        return;
    }
    began = ticks();
    if (strcmp(verb, "learn") == 0) {
        const size_t bytes = read_image();
        told(teach_learn(&state, image, bytes, task, name));
    } else if (strcmp(verb, "predict") == 0) {
        predict(task);
    } else if (strcmp(verb, "forget") == 0) {
        told(teach_forget(&state, task, name));
    } else if (strcmp(verb, "save") == 0) {
        told(teach_save(&state, &flash));
    } else if (strcmp(verb, "restore") == 0) {
        told(teach_restore(&state, &flash));
    } else if (strcmp(verb, "info") == 0) {
        info();
    } else {
        printf("error: There is no command '%s'.\n", verb);
    }
#ifdef TEACH_TICKS
    printf("ticks\t%s\t%lu\n", verb, ticks() - began);
#endif
}

int main(void) {
    static char line[256];
    const teach_status status = teach_start(&state, room, TEACH_CLASSES);
    if (status != TEACH_OK) {
        told(status);
        return 2;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strchr(line, '\n') == NULL) { /* names that do not fit; an image may follow */
            int rest = 0;
            while (rest != EOF && rest != '\n') {
                rest = getchar();
            }
        }
        line[strcspn(line, "\r\n")] = '\0';
        obey(line);
    }
    return 0;
}
